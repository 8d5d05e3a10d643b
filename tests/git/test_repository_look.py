"""What stands at a path is told in one sentence before anything starts, and looking changes nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from snapshots.repository import RepositoryReport
from snapshots.user_repository import GitUserRepository
from tests.support import git_repos
from tests.support.answers import wait
from tests.support.repo_fingerprint import fingerprint
from tests.support.users import UID, give_away


def look(path: Path) -> RepositoryReport:
    """Looks, and sees that looking left every file as it was."""
    root = path if path.is_dir() else path.parent
    before = fingerprint(root)
    report = wait(GitUserRepository(path.parent / "state").look, path)
    assert fingerprint(root) == before
    assert not (path.parent / "state").exists()
    return report


def problem(path: Path) -> str:
    report = look(path)
    assert report.problem is not None
    assert "\n" not in report.problem
    return report.problem


def test_a_plain_repository_is_usable_and_named(tmp_path: Path) -> None:
    repository = git_repos.plain(tmp_path / "repo", branch="trunk")
    report = look(repository.path)
    assert (report.problem, report.warnings) == (None, ())
    assert (report.root, report.branch, report.head) == (repository.path, "trunk", repository.head)
    assert report.dirty_files == 0


def test_dirty_files_are_counted_staged_edited_and_unknown(tmp_path: Path) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    repository.write("README.md", "edited\n")
    repository.write("staged.txt", "new\n")
    repository.git("add", "staged.txt")
    repository.write("new/a.txt")
    repository.write("new/b.txt")
    repository.write(".gitignore", "*.log\n")
    repository.write("ignored.log")
    assert look(repository.path).dirty_files == 5


def test_a_subfolder_finds_its_root(tmp_path: Path) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    report = wait(GitUserRepository(tmp_path / "state").look, repository.path / "src")
    assert report.problem is None
    assert report.root == repository.path


def test_a_path_with_odd_signs_is_found(tmp_path: Path) -> None:
    repository = git_repos.plain(tmp_path / "it's a \u00fc\n repo ")
    assert look(repository.path).root == repository.path


def test_a_missing_path_a_file_and_a_plain_folder_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    assert "does not exist" in problem(tmp_path / "none")
    assert "is not a folder" in problem(tmp_path / "file")
    sentence = problem(tmp_path / "folder")
    assert f"{tmp_path / 'folder'} is not a git repository: run `git init` there" in sentence
    assert "leave --repo away" in sentence


def test_a_bare_repository_and_the_inside_of_one_are_refused(tmp_path: Path) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    subprocess.run(["git", "clone", "-q", "--bare", repository.path, tmp_path / "bare.git"], check=True)
    assert "is a bare repository" in problem(tmp_path / "bare.git")
    assert "is the inside of a repository" in problem(repository.path / ".git")


def test_an_unborn_branch_is_usable(tmp_path: Path) -> None:
    report = look(git_repos.empty(tmp_path / "repo", branch="trunk").path)
    assert (report.problem, report.head, report.branch) == (None, None, "trunk")
    assert "no commit yet" in report.warnings[0]


def test_a_detached_head_is_usable_with_a_warning(tmp_path: Path) -> None:
    repository = git_repos.detached(tmp_path / "repo")
    report = look(repository.path)
    assert (report.problem, report.branch, report.head) == (None, None, repository.head)
    assert "detached" in report.warnings[0]


def test_a_linked_worktree_is_usable(tmp_path: Path) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    repository.git("worktree", "add", "-q", "-b", "side", tmp_path / "linked")
    report = look(tmp_path / "linked")
    assert (report.problem, report.root, report.branch) == (None, tmp_path / "linked", "side")


def test_a_shallow_clone_is_usable_with_a_warning(tmp_path: Path) -> None:
    report = look(git_repos.shallow(tmp_path / "repo").path)
    assert report.problem is None
    assert "shallow" in report.warnings[0]


def test_lfs_pointers_and_submodules_are_warned_about(tmp_path: Path) -> None:
    assert "model.bin" in look(git_repos.with_lfs_pointer(tmp_path / "lfs").path).warnings[0]
    warnings = look(git_repos.with_submodule(tmp_path / "sub", initialised=False).path).warnings
    assert "not initialised: libs/dep" in warnings[0]
    warnings = look(git_repos.with_submodule(tmp_path / "sub2").path).warnings
    assert len(warnings) == 1
    assert "empty folders" in warnings[0]


def test_a_repository_that_needs_git_lfs_can_be_read_without_it(tmp_path: Path) -> None:
    if shutil.which("git-lfs"):
        pytest.skip("git-lfs is installed here: it cannot be missing")
    repository = git_repos.with_lfs_pointer(tmp_path / "repo")
    repository.git("config", "filter.lfs.process", "git-lfs filter-process")
    repository.git("config", "filter.lfs.required", "true")
    os.utime(repository.path / "model.bin", (1, 1))
    report = look(repository.path)
    assert (report.problem, report.dirty_files) == (None, 0)


@pytest.mark.parametrize("operation", ["rebase", "merge", "cherry-pick", "revert", "bisect"])
def test_an_operation_under_way_is_usable_with_a_warning(tmp_path: Path, operation: str) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    repository.git("branch", "side")
    repository.write("README.md", "main\n")
    repository.commit("main's")
    repository.git("switch", "-q", "side")
    repository.write("README.md", "side\n")
    repository.commit("side's")
    match operation:
        case "bisect":
            repository.git("bisect", "start", "HEAD", "HEAD~2")
        case "revert":
            repository.write("README.md", "side again\n")
            repository.commit("again")
            repository.git("revert", "HEAD~1", check=False)
        case _:
            repository.git(operation, "main", check=False)
    report = look(repository.path)
    assert report.problem is None
    assert f"A {operation} is under way" in report.warnings[0]


@pytest.mark.parametrize("content", [b"", b"ref: ../../etc\n", b"nonsense"])
def test_a_broken_head_is_a_problem(tmp_path: Path, content: bytes) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    (repository.path / ".git" / "HEAD").write_bytes(content)
    assert str(repository.path) in problem(repository.path)


@pytest.mark.parametrize("content", [b"", b"0123456789" * 4 + b"\n", b"nonsense\n"])
def test_a_broken_branch_is_damage_and_not_taken_for_an_empty_repository(tmp_path: Path, content: bytes) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    (repository.path / ".git" / "refs" / "heads" / "main").write_bytes(content)
    assert "is damaged" in problem(repository.path)


def test_missing_files_of_head_are_damage(tmp_path: Path) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    tree = repository.git("rev-parse", "HEAD^{tree}")
    (repository.path / ".git" / "objects" / tree[:2] / tree[2:]).unlink()
    assert "is damaged" in problem(repository.path)


def test_a_branch_named_massgend_blocks_and_the_printed_command_helps(tmp_path: Path) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    repository.git("branch", "massgend")
    sentence = problem(repository.path)
    assert "git branch -m massgend NEW-NAME" in sentence
    repository.git("branch", "-m", "massgend", "NEW-NAME")
    assert look(repository.path).problem is None


def test_a_ref_named_massgend_blocks_and_the_printed_command_helps(tmp_path: Path) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    repository.git("update-ref", "refs/massgend", "HEAD")
    assert "git update-ref -d refs/massgend" in problem(repository.path)
    repository.git("update-ref", "-d", "refs/massgend")
    assert look(repository.path).problem is None


def test_a_partial_clone_is_refused_without_asking_its_server(tmp_path: Path) -> None:
    origin = git_repos.plain(tmp_path / "origin")
    origin.git("config", "uploadpack.allowFilter", "true")
    subprocess.run(
        ["git", "clone", "-q", "--filter=blob:none", origin.path.as_uri(), tmp_path / "repo"],
        check=True,
        capture_output=True,
    )
    assert "partial clone" in problem(tmp_path / "repo")


def test_a_missing_git_is_told_and_not_taken_for_a_missing_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert "git could not be started" in problem(repository.path)


def test_a_repository_of_another_user_is_read_as_that_user_by_root(tmp_path: Path) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    give_away(repository.path)
    assert look(repository.path).problem is None


def test_a_repository_of_another_user_is_refused_in_plain_words(tmp_path: Path) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    give_away(repository.path)
    assert f"belongs to another user (uid {UID})" in _problem_seen_by(4321, repository.path)


def test_a_repository_that_cannot_be_read_is_refused_in_plain_words(tmp_path: Path) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    give_away(repository.path)
    repository.path.chmod(0o700)
    assert "cannot be read" in _problem_seen_by(4321, repository.path)


@pytest.mark.parametrize("below", ["", "nope", "nope/deeper", "repo"])
def test_a_path_below_a_folder_that_cannot_be_entered_is_refused_in_plain_words(tmp_path: Path, below: str) -> None:
    give_away(tmp_path)
    closed = tmp_path / "closed"
    git_repos.plain(closed / "repo")
    closed.chmod(0o700)
    problem = _problem_seen_by(4321, closed / below)
    assert f"{closed / below} cannot be read by this user" in problem
    assert "permissions" in problem


def test_a_repository_whose_git_folder_cannot_be_entered_is_refused_in_plain_words(tmp_path: Path) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    give_away(tmp_path)
    (repository.path / ".git").chmod(0o700)
    assert str(repository.path) in _problem_seen_by(4321, repository.path)


@pytest.mark.parametrize("name", ["x" * 300, "a\0b", "loop"])
def test_paths_that_cannot_be_are_refused_in_plain_words(tmp_path: Path, name: str) -> None:
    (tmp_path / "loop").symlink_to("loop")
    assert wait(GitUserRepository(tmp_path / "state").look, tmp_path / name).problem is not None


def _problem_seen_by(uid: int, path: Path) -> str:
    """The real product in a process of another user."""
    script = (
        "import os, sys; from pathlib import Path; from snapshots.checkouts import look;"
        f"os.setgid({uid}); os.setuid({uid}); print(look(Path(sys.argv[1])).problem)"
    )
    root = Path(__file__).parents[2]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(root), "HOME": "/nonexistent"}
    done = subprocess.run(
        [sys.executable, "-c", script, path], env=environment, cwd="/", capture_output=True, text=True, check=True
    )
    return done.stdout
