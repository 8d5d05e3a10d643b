"""Odd repositories: a workspace is made of each, whole, independent and clean."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from snapshots.directories import DirectoryStore
from snapshots.errors import WorkspaceFailed
from snapshots.snapshot import Unchanged, WorkspaceId
from tests.support import git_repos
from tests.support.stores import GID, UID, content_of, stand


@pytest.mark.parametrize(
    "make",
    [
        git_repos.plain,
        git_repos.detached,
        git_repos.shallow,
        git_repos.with_submodule,
        git_repos.with_lfs_pointer,
        git_repos.with_line_ends,
        git_repos.with_odd_names,
        git_repos.with_links,
    ],
)
def test_a_fresh_workspace_holds_the_bytes_of_the_commit_and_is_unchanged(
    tmp_path: Path, make: Callable[[Path], git_repos.Repository]
) -> None:
    here = stand(tmp_path, make(tmp_path / "repo").path)
    files = {path: entry for path, entry in here.commit_files(here.base.commit).items() if entry[0] != "160000"}
    found = {path: content for path, (kind, _, content) in content_of(here.path).items() if kind in ("file", "link")}
    assert {path: content for path, content in found.items() if not path.startswith(b"libs/dep/")} == {
        path: content for path, (_, content) in files.items()
    }
    assert here.agent_git("status", "--porcelain") == ""
    assert here.agent_git("fsck", "--no-dangling") == ""
    assert not here.changed()
    assert here.freeze() == Unchanged(against="base")


def test_a_workspace_shares_no_file_and_no_path_with_anything_of_ours(tmp_path: Path) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    here = stand(tmp_path, repository.path)
    shutil.rmtree(here.base.bare)
    shutil.rmtree(repository.path)
    assert here.agent_git("rev-list", "--count", "HEAD") == "2"
    for folder, _, names in os.walk(here.path):
        for name in names:
            path = Path(folder, name)
            assert path.lstat().st_nlink == 1, path
            if path.is_relative_to(here.path / ".git") and path.stat().st_size < 10_000:
                assert os.fsencode(tmp_path) not in path.read_bytes(), path
    assert not (here.path / ".git/objects/info/alternates").exists()


def test_the_agent_can_commit_and_go_back(tmp_path: Path) -> None:
    here = stand(tmp_path, git_repos.with_line_ends(tmp_path / "repo").path)
    (here.path / "crlf.txt").write_bytes(b"three\r\n")
    here.agent_git("commit", "-q", "-a", "-m", "x")
    here.agent_git("checkout", "-q", "HEAD^", "--", "crlf.txt")
    assert (here.path / "crlf.txt").read_bytes() == b"one\r\ntwo\r\n"
    assert here.agent_git("log", "-1", "--format=%an") == "ada"


def test_an_empty_base_gives_an_empty_workspace_whose_first_file_is_recorded(tmp_path: Path) -> None:
    here = stand(tmp_path)
    assert content_of(here.path) == {}
    assert here.freeze() == Unchanged(against="base")
    (here.path / "index.html").write_text("<p>")
    assert here.frozen().paths == ("index.html",)


def test_deleting_everything_is_recorded_too(tmp_path: Path) -> None:
    here = stand(tmp_path, git_repos.plain(tmp_path / "repo").path)
    for path in here.path.iterdir():
        if path.name != ".git":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    snapshot = here.frozen()
    assert here.commit_files(snapshot.commit) == {}
    assert snapshot.changed_files == 3


def test_the_agent_may_delete_its_own_git_folder_and_its_work_is_recorded(tmp_path: Path) -> None:
    here = stand(tmp_path, git_repos.plain(tmp_path / "repo").path)
    shutil.rmtree(here.path / ".git")
    (here.path / "work").write_text("x")
    assert here.frozen().paths == ("work",)


def test_a_submodule_is_there_at_its_commit_and_stays_a_gitlink(tmp_path: Path) -> None:
    here = stand(tmp_path, git_repos.with_submodule(tmp_path / "repo").path)
    assert (here.path / "libs/dep/lib.py").read_text() == "VALUE = 1\n"
    (here.path / "README.md").write_text("x")
    snapshot = here.frozen()
    assert snapshot.paths == ("README.md",)
    before, after = here.commit_files(here.base.commit), here.commit_files(snapshot.commit)
    assert before[b"libs/dep"] == after[b"libs/dep"] == ("160000", b"")
    assert (snapshot.tree / "libs/dep/lib.py").exists()
    assert snapshot.about == ()


def test_changes_inside_a_submodule_are_saved_under_a_ref_and_told_about(tmp_path: Path) -> None:
    here = stand(tmp_path, git_repos.with_submodule(tmp_path / "repo").path)
    (here.path / "libs/dep/lib.py").write_text("VALUE = 2\n")
    (here.path / "libs/dep/.gitignore").write_text("junk\n")
    (here.path / "libs/dep/junk").write_text("x")
    (here.path / "libs/dep/new.py").write_text("x")
    assert here.changed()
    first = here.frozen("1")
    assert first.changed_files == 0
    saved = "refs/massgend/r1/ada/1-submodule-1"
    assert any(saved in sentence and "libs/dep" in sentence for sentence in first.about)
    assert {path: content for path, (_, content) in here.commit_files(saved).items()} == {
        b"lib.py": b"VALUE = 2\n",
        b".gitignore": b"junk\n",
        b"new.py": b"x",
    }
    link = here.git("rev-parse", f"{here.base.commit}:libs/dep").decode().strip()
    assert here.git("rev-parse", f"{saved}^").decode().strip() == link
    assert here.snapshots() == (first,)
    assert not here.changed()
    assert here.freeze("2") == Unchanged(against=first.ref)
    (here.path / "README.md").write_text("x")
    second = here.frozen("2")
    assert b"new.py" in here.commit_files("refs/massgend/r1/ada/2-submodule-1")
    assert second.paths == ("README.md",)
    for path in ("libs/dep/.gitignore", "libs/dep/junk", "libs/dep/new.py"):
        (here.path / path).unlink()
    (here.path / "libs/dep/lib.py").write_text("VALUE = 1\n")
    third = here.frozen("3")
    assert third.about == ()
    assert b"3-submodule" not in here.git("for-each-ref")
    assert here.freeze("4") == Unchanged(against=third.ref)


def test_a_submodule_that_is_not_there_locally_stays_an_empty_folder(tmp_path: Path) -> None:
    here = stand(tmp_path, git_repos.with_submodule(tmp_path / "repo", initialised=False).path)
    assert list((here.path / "libs/dep").iterdir()) == []
    assert here.freeze() == Unchanged(against="base")
    (here.path / "libs/dep/new.py").write_text("x")
    snapshot = here.frozen()
    assert here.commit_files("refs/massgend/r1/ada/1-submodule-1") == {b"new.py": ("100644", b"x")}
    assert here.freeze("2") == Unchanged(against=snapshot.ref)


@pytest.mark.parametrize("way", ["absolute", "dots", "a link in modules"])
def test_a_declared_submodule_cannot_name_another_repository_of_the_host(tmp_path: Path, way: str) -> None:
    """Who knows a commit of a private repository must not get its files by writing `.gitmodules`."""
    repository = git_repos.with_submodule(tmp_path / "repo")
    private = git_repos.plain(tmp_path / "private")
    private.write("canary", "canary")
    commit = private.commit("private")
    modules = repository.path / ".git/modules"
    (modules / "elsewhere").symlink_to(private.path / ".git")
    name = {"absolute": f"{private.path}/.git", "dots": "../../../private/.git", "a link in modules": "elsewhere"}[way]
    repository.write(".gitmodules", f'[submodule "{name}"]\n\tpath = libs/dep\n\turl = ./x\n')
    repository.git("add", ".gitmodules")
    repository.git("update-index", "--cacheinfo", f"160000,{commit},libs/dep")
    repository.git("commit", "-qm", "declares")
    here = stand(tmp_path, repository.path)
    assert not list((here.path / "libs/dep").iterdir())


def test_a_submodule_that_the_agent_removed_is_removed(tmp_path: Path) -> None:
    here = stand(tmp_path, git_repos.with_submodule(tmp_path / "repo").path)
    shutil.rmtree(here.path / "libs/dep")
    assert here.changed()
    assert here.frozen("1").paths == ("libs/dep",)
    (here.path / "libs/dep").mkdir(parents=True)
    (here.path / "libs/dep/plain").write_text("x")
    assert here.frozen("2").paths == ("libs/dep/plain",)


def test_a_run_with_submodules_is_deleted_whole(tmp_path: Path) -> None:
    here = stand(tmp_path, git_repos.with_submodule(tmp_path / "repo").path)
    (here.path / "libs/dep/lib.py").write_text("VALUE = 2\n")
    here.frozen()
    assert here.delete_run() > 0
    assert here.git("for-each-ref") == b""
    assert list((here.state / "runs").iterdir()) == []


def test_the_users_hooks_and_programs_do_not_run(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    here = stand(tmp_path, git_repos.with_hooks_and_signing(tmp_path / "repo", canary).path)
    (here.path / "work").write_text("x")
    snapshot = here.frozen()
    assert not canary.exists()
    assert b"gpgsig" not in here.git("cat-file", "commit", snapshot.commit)


def test_a_workspace_that_cannot_be_made_leaves_nothing_that_counts_as_one(tmp_path: Path) -> None:
    here = stand(tmp_path, git_repos.plain(tmp_path / "repo").path)
    bob = WorkspaceId(run="r1", agent="bob")
    with pytest.raises(WorkspaceFailed, match="workspace of bob"):
        anyio.run(here.store.create_workspace, replace(here.base, commit="1" * 40), bob, "massgend/bob")
    assert not (here.state / "runs/r1/bob/workspace").exists()
    assert anyio.run(here.store.create_workspace, here.base, bob, "massgend/bob").path.is_dir()


def test_a_half_made_workspace_of_a_crash_is_made_anew(tmp_path: Path) -> None:
    here = stand(tmp_path, git_repos.plain(tmp_path / "repo").path)
    half = here.state / "runs/r1/bob/workspace.partial"
    half.mkdir(parents=True)
    (half / "garbage").write_text("x")
    made = anyio.run(here.store.create_workspace, here.base, WorkspaceId(run="r1", agent="bob"), "massgend/bob")
    assert not (made.path / "garbage").exists()
    assert (made.path / "README.md").exists()


@pytest.mark.skipif(UID != 0, reason="only root can give files to another user")
def test_files_in_the_sandbox_belong_to_its_user_and_so_do_those_for_peers(tmp_path: Path) -> None:
    here = stand(tmp_path, git_repos.with_links(tmp_path / "repo").path)
    store = DirectoryStore(here.state, uid=12345, gid=23456)
    other = replace(here, store=store, base=replace(here.base, run="r2"))
    made = anyio.run(store.create_workspace, other.base, WorkspaceId(run="r2", agent="ada"), "massgend/ada")
    (made.path / "work").write_text("x")
    os.chown(made.path / "work", 12345, 23456)
    snapshot = replace(other, workspace=made).frozen("1", agent=made.id)
    view = other.view(snapshot)
    for root in (made.path, made.home, snapshot.tree, view.upper, view.work):
        for path in (root, *root.rglob("*")):
            status = path.lstat()
            assert (status.st_uid, status.st_gid) == (12345, 23456), path


@pytest.mark.skipif(UID == 0, reason="root may give files to anybody")
def test_an_ordinary_daemon_cannot_promise_files_to_somebody_else(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="only be given"):
        DirectoryStore(tmp_path, uid=UID + 1, gid=GID)
