"""Hostile workspaces: nothing an agent plants makes the host's git, or the store, run or read what it chose."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import anyio
import pytest

from snapshots import folders
from tests.support import git_repos
from tests.support.stores import Stand, content_of, stand


@pytest.fixture
def here(tmp_path: Path) -> Stand:
    return stand(tmp_path, git_repos.plain(tmp_path / "repo").path)


def trap(here: Stand, tmp_path: Path) -> tuple[Path, Path]:
    """A program that leaves a mark when anything runs it, and the mark."""
    mark = tmp_path / "mark"
    program = here.path / "trap"
    program.write_text(f'#!/bin/sh\ntouch "{mark}"\ncat\n')
    program.chmod(0o755)
    return program, mark


def test_programs_named_in_the_workspaces_git_config_hooks_and_attributes_never_run(
    here: Stand, tmp_path: Path
) -> None:
    program, mark = trap(here, tmp_path)
    config = here.path / ".git/config"
    settings = (
        f'[core]\n fsmonitor = "{program}"\n hooksPath = "{here.path}"\n sshCommand = "{program}"\n'
        f' editor = "{program}"\n pager = "{program}"\n attributesFile = "{here.path}/.gitattributes"\n'
        f'[filter "evil"]\n clean = "{program}"\n smudge = "{program}"\n process = "{program}"\n required = true\n'
        f'[diff]\n external = "{program}"\n[diff "evil"]\n textconv = "{program}"\n command = "{program}"\n'
        f'[gpg]\n program = "{program}"\n[commit]\n gpgSign = true\n[alias]\n check-ignore = "!{program}"\n'
    )
    config.write_text(settings)
    (here.path / ".gitconfig").write_text(settings)
    (here.path / ".gitattributes").write_text("* filter=evil diff=evil merge=evil\n")
    for hook in ("post-index-change", "reference-transaction", "pre-commit", "post-checkout"):
        shutil.copy(program, here.path / hook)
        (here.path / ".git/hooks").mkdir(exist_ok=True)
        shutil.copy(program, here.path / ".git/hooks" / hook)
    (here.path / "work").write_text("x")
    snapshot = here.frozen()
    assert "work" in snapshot.paths
    assert here.commit_files(snapshot.commit)[b"work"][1] == b"x"
    anyio.run(here.store.release_trees, "r1")
    view = here.view(snapshot)
    assert (view.lower / "work").read_text() == "x"
    here.changed()
    assert not mark.exists()


def test_the_marks_of_these_tests_do_appear_when_git_is_run_carelessly(here: Stand, tmp_path: Path) -> None:
    program, mark = trap(here, tmp_path)
    (here.path / ".git/config").write_text(f'[core]\n fsmonitor = "{program}"\n')
    here.agent_git("status")
    assert mark.exists()


def test_a_git_pointer_file_to_somewhere_else_is_not_followed(here: Stand, tmp_path: Path) -> None:
    elsewhere = git_repos.plain(tmp_path / "elsewhere")
    before = content_of(elsewhere.path, ignoring=frozenset())
    shutil.rmtree(here.path / ".git")
    (here.path / ".git").write_text(f"gitdir: {elsewhere.path}/.git\n")
    (here.path / "sub").mkdir()
    (here.path / "sub/.git").write_text(f"gitdir: {here.base.bare}\n")
    (here.path / "sub/work").write_text("x")
    assert here.frozen().paths == ("sub/work",)
    assert content_of(elsewhere.path, ignoring=frozenset()) == before


def test_a_git_folder_that_is_a_link_to_our_bare_repository_is_left_alone(here: Stand) -> None:
    shutil.rmtree(here.path / ".git")
    (here.path / ".git").symlink_to(here.base.bare)
    (here.path / "HEAD").write_text("x")
    assert here.frozen().paths == ("HEAD",)
    here.delete_run()
    assert (here.base.bare / "HEAD").exists()


def test_files_that_look_like_a_bare_repository_are_files(here: Stand) -> None:
    for name in ("HEAD", "config", "objects/x", "refs/heads/main"):
        (here.path / "bare" / name).parent.mkdir(parents=True, exist_ok=True)
        (here.path / "bare" / name).write_text("ref: refs/heads/main\n")
    assert here.frozen().changed_files == 4


def test_the_environment_of_the_daemon_does_not_reach_git(here: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", "/nonexistent")
    monkeypatch.setenv("GIT_INDEX_FILE", "/nonexistent/index")
    monkeypatch.setenv("GIT_OBJECT_DIRECTORY", "/nonexistent")
    monkeypatch.setenv("GIT_AUTHOR_NAME", "Mallory")
    (here.path / "work").write_text("x")
    assert here.git("show", "-s", "--format=%an", here.frozen().commit) == b"Ada\n"


def test_a_users_global_git_configuration_does_not_reach_snapshots(
    here: Stand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "userhome"
    (home / ".config/git").mkdir(parents=True)
    (home / ".gitconfig").write_text("[core]\n autocrlf = input\n excludesFile = ~/ignore\n[commit]\n gpgSign = true\n")
    (home / "ignore").write_text("*\n")
    (home / ".config/git/ignore").write_text("*\n")
    (home / ".config/git/attributes").write_text("* text eol=lf\n")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / ".config"))
    (here.path / "work").write_bytes(b"x\r\n")
    assert here.commit_files(here.frozen().commit)[b"work"][1] == b"x\r\n"


def test_rules_that_are_a_link_or_absurdly_large_are_no_rules(here: Stand) -> None:
    (here.path / "rules").write_text("*\n")
    (here.path / ".gitignore").symlink_to("rules")
    (here.path / "sub").mkdir()
    (here.path / "sub/.gitignore").write_text("*\n" + "#" * (1 << 20))
    (here.path / "sub/work").write_text("x")
    assert "sub/work" in here.frozen().paths


def test_deleting_does_not_leave_the_folder_by_a_link(here: Stand, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "keep").mkdir(parents=True)
    (here.path / "a").mkdir()
    (here.path / "a/link").symlink_to(outside)
    (here.path / "linked").symlink_to(outside / "keep")
    os.link(here.base.bare / "HEAD", here.path / "hard")
    here.frozen()
    scratch = here.view(here.snapshots()[0])
    (scratch.upper / "link").symlink_to(outside)
    here.delete_run()
    assert (outside / "keep").is_dir()
    assert (here.base.bare / "HEAD").exists()


def test_deleting_copes_with_read_only_closed_deep_and_long_named_folders(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    fd = os.open(root, os.O_RDONLY)
    for _ in range(2000):
        name = "n" * 255
        os.mkdir(name, dir_fd=fd)
        os.mkdir("closed", mode=0, dir_fd=fd)
        below = os.open(name, os.O_RDONLY, dir_fd=fd)
        os.fchmod(fd, 0o500)
        os.close(fd)
        fd = below
    os.close(fd)
    folders.remove(root)
    assert not root.exists()
    folders.remove(root)


def test_deleting_a_link_deletes_the_link(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "link").symlink_to("target")
    folders.remove(tmp_path / "link")
    assert not (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").is_dir()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can leave a folder of root's behind for another user")
def test_an_ordinary_user_can_delete_the_work_folder_that_an_overlay_leaves_to_root() -> None:
    with tempfile.TemporaryDirectory() as folder:  # not below tmp_path, where only root may pass
        scratch = Path(folder) / "scratch"
        (scratch / "work").mkdir(parents=True)
        for path in (Path(folder), scratch, scratch / "work"):
            os.chown(path, 12345, 12345)
        (scratch / "work/work").mkdir(mode=0)
        child = os.fork()
        if child == 0:
            try:
                os.setgid(12345)
                os.setuid(12345)
                folders.remove(scratch)
                os._exit(0)
            except BaseException:  # noqa: BLE001 - a forked child must never come back into pytest
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert not scratch.exists()
