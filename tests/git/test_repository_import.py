"""A run's base is an independent copy of HEAD (and of uncommitted changes on request); the user's side is only read."""

from __future__ import annotations

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from snapshots.errors import RepositoryRefused
from snapshots.snapshot import Base
from snapshots.user_repository import GitUserRepository
from tests.support import git_repos
from tests.support.answers import wait
from tests.support.git_repos import Repository
from tests.support.repo_fingerprint import differing, fingerprint
from tests.support.users import give_away


@pytest.fixture
def users(tmp_path: Path) -> GitUserRepository:
    return GitUserRepository(tmp_path / "state")


def imported(users: GitUserRepository, path: Path, *, run: str = "r1", include_dirty: bool = False) -> Base:
    """Imports, and sees that the user's repository is byte for byte as it was, its objects too."""
    before, objects = fingerprint(path), _objects(path)
    base = wait(users.import_base, path, run=run, include_dirty=include_dirty)
    assert differing(before, fingerprint(path)) == set()
    assert _objects(path) == objects
    return base


def _objects(path: Path) -> set[str]:
    return {str(file) for file in (path / ".git" / "objects").rglob("*") if file.is_file()}


def in_bare(base: Base, *arguments: str) -> str:
    return Repository(path=base.bare).git(*arguments)


def files_of(base: Base, commit: str | None = None) -> dict[str, bytes]:
    repository = Repository(path=base.bare)
    names = repository.git_bytes("ls-tree", "-r", "-z", "--name-only", commit or base.commit).split(b"\0")
    commit = commit or base.commit
    return {
        os.fsdecode(name): repository.git_bytes("cat-file", "blob", os.fsencode(commit) + b":" + name)
        for name in names
        if name
    }


def test_the_base_is_head_with_its_history_and_lives_without_the_users_repository(
    tmp_path: Path, users: GitUserRepository
) -> None:
    repository = git_repos.plain(tmp_path / "repo", branch="trunk")
    base = imported(users, repository.path)
    assert (base.commit, base.source_commit, base.branch) == (repository.head, repository.head, "trunk")
    assert base.repository == repository.path
    assert not (base.bare / "objects" / "info" / "alternates").exists()
    shutil.rmtree(repository.path)
    assert in_bare(base, "rev-list", "--count", "refs/massgend/r1/base") == "2"
    in_bare(base, "fsck", "--strict", "--full")


def test_objects_are_copies_and_share_no_file_with_the_user(tmp_path: Path, users: GitUserRepository) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    base = imported(users, repository.path)
    assert all(file.stat().st_nlink == 1 for file in (base.bare / "objects").rglob("*") if file.is_file())


def test_an_import_is_idempotent_by_run_also_after_the_user_went_on(tmp_path: Path, users: GitUserRepository) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    first = imported(users, repository.path)
    repository.write("more.txt", "more\n")
    repository.commit("more")
    assert imported(users, repository.path) == first
    second = imported(users, repository.path, run="r2")
    assert second.bare == first.bare
    assert second.commit == repository.head != first.commit


def test_two_runs_at_once_on_one_repository_both_get_their_base(tmp_path: Path) -> None:
    repository = git_repos.plain(tmp_path / "repo")

    def start(number: int) -> Base:
        return wait(
            GitUserRepository(tmp_path / "state").import_base, repository.path, run=f"r{number}", include_dirty=False
        )

    with ThreadPoolExecutor(6) as threads:
        bases = list(threads.map(start, range(6)))
    assert {base.commit for base in bases} == {repository.head}
    assert len({base.bare for base in bases}) == 1
    refs = in_bare(bases[0], "for-each-ref", "--format=%(refname)", "refs/massgend/*/base").split()
    assert len(refs) == 6


def test_an_unborn_branch_starts_from_an_empty_commit(tmp_path: Path, users: GitUserRepository) -> None:
    base = imported(users, git_repos.empty(tmp_path / "repo", branch="trunk").path)
    assert (base.source_commit, base.branch) == (None, "trunk")
    assert files_of(base) == {}


def test_no_repository_starts_from_an_empty_commit_again_and_again(users: GitUserRepository) -> None:
    base = wait(users.import_base, None, run="r1", include_dirty=False)
    assert (base.repository, base.source_commit, base.branch) == (None, None, None)
    assert files_of(base) == {}
    assert wait(users.import_base, None, run="r1", include_dirty=False) == base
    assert wait(users.import_base, None, run="r2", include_dirty=False).bare != base.bare


def test_a_detached_head_a_subfolder_and_a_linked_worktree(tmp_path: Path, users: GitUserRepository) -> None:
    repository = git_repos.detached(tmp_path / "repo")
    base = imported(users, repository.path)
    assert (base.branch, base.commit) == (None, repository.head)
    repository.git("worktree", "add", "-q", "-b", "side", tmp_path / "linked")
    linked = wait(users.import_base, tmp_path / "linked" / "src", run="r2", include_dirty=False)
    assert (linked.branch, linked.repository) == ("side", tmp_path / "linked")
    assert linked.bare == base.bare


def test_a_shallow_clone_keeps_its_boundary_and_heals_when_it_is_deepened(
    tmp_path: Path, users: GitUserRepository
) -> None:
    repository = git_repos.shallow(tmp_path / "repo")
    base = imported(users, repository.path)
    assert "shallow" in base.warnings[0]
    assert in_bare(base, "rev-list", "--count", base.commit) == "1"
    in_bare(base, "fsck", "--strict")
    subprocess.run(["git", "clone", "-q", "--no-local", base.bare, tmp_path / "clone"], check=True)
    repository.git("fetch", "-q", "--unshallow")
    repository.write("more.txt", "more\n")
    repository.commit("more")
    deeper = imported(users, repository.path, run="r2")
    assert in_bare(deeper, "rev-list", "--count", deeper.commit) == "3"
    in_bare(base, "fsck", "--strict")


def test_a_repository_with_sha256_gets_a_bare_one_with_sha256(tmp_path: Path, users: GitUserRepository) -> None:
    (tmp_path / "repo").mkdir()
    repository = Repository(path=tmp_path / "repo")
    repository.git("init", "-q", "-b", "main", "--object-format=sha256")
    repository.git("config", "user.name", "Uma User")
    repository.git("config", "user.email", "uma@example.com")
    repository.write("a.txt", "a\n")
    repository.commit("first")
    repository.write("a.txt", "b\n")
    base = imported(users, repository.path, include_dirty=True)
    assert len(base.commit) == 64
    assert files_of(base) == {"a.txt": b"b\n"}


def test_odd_names_links_and_line_ends_come_as_they_are(tmp_path: Path, users: GitUserRepository) -> None:
    for number, make in enumerate((git_repos.with_odd_names, git_repos.with_links, git_repos.with_line_ends)):
        repository = make(tmp_path / f"repo{number}")
        base = imported(users, repository.path, run=f"r{number}")
        assert in_bare(base, "rev-parse", f"{base.commit}^{{tree}}") == repository.git("rev-parse", "HEAD^{tree}")


def test_uncommitted_changes_come_along_only_on_request(tmp_path: Path, users: GitUserRepository) -> None:
    repository = _dirty(tmp_path / "repo")
    assert imported(users, repository.path).commit == repository.head
    base = imported(users, repository.path, run="r2", include_dirty=True)
    assert base.source_commit == repository.head
    assert in_bare(base, "rev-parse", f"{base.commit}^") == repository.head
    assert files_of(base) == {
        "README.md": b"edited after it was staged\n",
        "src/new name.py": b"print('new')\n",
        "src/app.py": b"print('hello')\n",
        "staged.txt": b"staged\n",
        ".gitignore": b"*.log\n",
    }
    assert "100755" in in_bare(base, "ls-tree", base.commit, "staged.txt")


def test_uncommitted_changes_are_recorded_as_the_users_git_add_would(tmp_path: Path, users: GitUserRepository) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    repository.git("config", "core.autocrlf", "input")
    repository.git("config", "filter.loud.clean", "tr a-z A-Z")
    repository.write(".gitattributes", "*.loud filter=loud\n")
    repository.write("crlf.txt", b"one\r\ntwo\r\n")
    repository.write("word.loud", "word\n")
    files = files_of(imported(users, repository.path, include_dirty=True))
    assert files["crlf.txt"] == b"one\ntwo\n"
    assert files["word.loud"] == b"WORD\n"


def test_uncommitted_files_of_an_unborn_branch_and_none_at_all(tmp_path: Path, users: GitUserRepository) -> None:
    repository = git_repos.empty(tmp_path / "repo")
    repository.write("a.txt", "a\n")
    assert files_of(imported(users, repository.path, include_dirty=True)) == {"a.txt": b"a\n"}
    clean = git_repos.plain(tmp_path / "clean")
    assert imported(users, clean.path, run="r2", include_dirty=True).commit == clean.head


def test_an_edit_of_the_same_size_in_the_moment_of_the_commit_is_not_missed(
    tmp_path: Path, users: GitUserRepository
) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    for attempt in range(5):
        repository.write("README.md", f"{attempt}a\n")
        repository.commit("a")
        repository.write("README.md", f"{attempt}b\n")
        base = wait(users.import_base, repository.path, run=f"r{attempt}", include_dirty=True)
        assert files_of(base)["README.md"] == f"{attempt}b\n".encode()


def test_uncommitted_changes_over_a_split_index_leave_no_shared_index_behind(
    tmp_path: Path, users: GitUserRepository
) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    repository.git("config", "core.splitIndex", "true")
    repository.git("update-index", "--split-index")
    repository.write("README.md", "edited\n")
    assert files_of(imported(users, repository.path, include_dirty=True))["README.md"] == b"edited\n"


def test_a_nested_repository_stays_out_of_uncommitted_changes_and_is_named(
    tmp_path: Path, users: GitUserRepository
) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    git_repos.plain(repository.path / "nested one")
    git_repos.empty(repository.path / "nested two")
    repository.write("new.txt", "new\n")
    base = imported(users, repository.path, include_dirty=True)
    assert sorted(set(files_of(base)) - {"README.md", "run.sh", "src/app.py"}) == ["new.txt"]
    assert "nested one/" in base.warnings[0]
    assert "nested two/" in base.warnings[1]


def test_unresolved_conflicts_are_refused_as_uncommitted_changes_but_not_as_a_start(
    tmp_path: Path, users: GitUserRepository
) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    repository.git("switch", "-q", "-c", "side")
    repository.write("README.md", "side\n")
    repository.commit("side")
    repository.git("switch", "-q", "main")
    repository.write("README.md", "main\n")
    repository.commit("main")
    repository.git("merge", "side", check=False)
    with pytest.raises(RepositoryRefused, match=r"unresolved conflicts \(README.md\).*a merge is under way"):
        imported(users, repository.path, include_dirty=True)
    assert imported(users, repository.path, run="r2").commit == repository.head


def test_a_submodule_stays_a_gitlink(tmp_path: Path, users: GitUserRepository) -> None:
    repository = git_repos.with_submodule(tmp_path / "repo")
    base = imported(users, repository.path, include_dirty=True)
    assert in_bare(base, "ls-tree", base.commit, "libs/dep").startswith("160000 commit")
    assert base.commit == repository.head


def test_hooks_and_configured_programs_do_not_run(tmp_path: Path, users: GitUserRepository) -> None:
    repository = git_repos.with_hooks_and_signing(tmp_path / "repo", tmp_path / "canary")
    (tmp_path / "canary").unlink(missing_ok=True)
    repository.write("README.md", "edited\n")
    imported(users, repository.path, include_dirty=True)
    assert not (tmp_path / "canary").exists()


def test_a_damaged_history_is_refused_and_the_run_has_no_base(tmp_path: Path, users: GitUserRepository) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    blob = repository.git("rev-parse", "HEAD:src/app.py")
    (repository.path / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    with pytest.raises(RepositoryRefused, match=blob):
        imported(users, repository.path)
    bare = next((tmp_path / "state" / "repos").glob("*.git"))
    assert Repository(path=bare).git("for-each-ref") == ""


def test_a_repository_of_another_user_is_imported_with_its_uncommitted_changes(
    tmp_path: Path, users: GitUserRepository
) -> None:
    repository = _dirty(tmp_path / "repo")
    head = repository.head
    give_away(repository.path)
    repository.path.chmod(0o700)
    base = imported(users, repository.path, include_dirty=True)
    assert base.source_commit == head
    assert files_of(base)["README.md"] == b"edited after it was staged\n"
    assert base.bare.stat().st_uid == os.geteuid()
    assert (tmp_path / "state" / "repos").stat().st_mode & 0o077 == 0


def test_nothing_temporary_is_left_behind(
    tmp_path: Path, users: GitUserRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    imported(users, _dirty(tmp_path / "repo").path, include_dirty=True)
    assert list((tmp_path / "temporary").iterdir()) == []


def _dirty(path: Path) -> Repository:
    """Staged, edited, deleted, unknown and ignored, with an exec bit."""
    repository = git_repos.plain(path)
    repository.write(".gitignore", "*.log\n")
    repository.write("README.md", "staged\n")
    repository.write("staged.txt", "staged\n", executable=True)
    repository.git("add", "README.md", "staged.txt")
    repository.write("README.md", "edited after it was staged\n")
    repository.write("src/new name.py", "print('new')\n")
    repository.write("ignored.log", "ignored\n")
    (repository.path / "run.sh").unlink()
    return repository
