"""`--include-dirty` to the end: a merge commits the changes that the run started with, and undo brings them back."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from snapshots.repository import MergeMode, MergeReport, MergeStatus
from snapshots.user_repository import GitUserRepository
from tests.support import git_repos
from tests.support.answers import decided, merged
from tests.support.git_repos import Repository
from tests.support.repo_fingerprint import differing, fingerprint


@pytest.fixture
def users(tmp_path: Path) -> GitUserRepository:
    return GitUserRepository(tmp_path / "state")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """Edited, staged, new, deleted, made executable, and a link."""
    repository = git_repos.plain(tmp_path / "repo")
    repository.write("README.md", "edited\n")
    repository.write("new dir/new.txt", "new\n")
    repository.write("staged.txt", "staged\n")
    repository.git("add", "staged.txt")
    (repository.path / "link").symlink_to("README.md")
    (repository.path / "run.sh").unlink()
    (repository.path / "src/app.py").chmod(0o755)
    return repository


def files(repository: Repository) -> dict[str, str]:
    return {path: state for path, state in fingerprint(repository.path).items() if not path.startswith(".git/")}


def undo(report: MergeReport) -> None:
    (command,) = report.commands
    subprocess.run(["sh", "-c", command], check=True, capture_output=True)


def test_changes_that_are_as_they_were_are_committed_and_merged_with(
    users: GitUserRepository, repository: Repository
) -> None:
    head, before = repository.head, files(repository)
    work: dict[str | bytes, bytes | None] = {
        "a.txt": b"a\n",
        "README.md": b"edited, and better\n",
        "new dir/new.txt": None,
    }
    base, commit = decided(users, repository.path, work, include_dirty=True)
    report = merged(users, repository.path, base, commit)
    assert (report.status, report.before, report.after) == (MergeStatus.MERGED, head, commit)
    assert repository.git("status", "--porcelain") == ""
    assert repository.git("rev-parse", "HEAD~2") == head
    assert (repository.path / "README.md").read_text() == "edited, and better\n"
    assert repository.git("rev-parse", "refs/massgend/r1/before-merge") == head
    undo(report)
    assert repository.head == head
    assert files(repository) == before
    assert "edited, and better" not in repository.git("diff", "HEAD")
    assert merged(users, repository.path, base, commit).status is MergeStatus.MERGED


def test_squash_makes_two_commits_the_users_and_the_work(users: GitUserRepository, repository: Repository) -> None:
    head, before = repository.head, files(repository)
    base, commit = decided(users, repository.path, {"README.md": b"better\n"}, include_dirty=True)
    report = merged(users, repository.path, base, commit, mode=MergeMode.SQUASH)
    assert report.status is MergeStatus.MERGED
    assert repository.git("log", "--format=%s", f"{head}..HEAD").splitlines() == [
        "Make it better",
        "Uncommitted changes of the checkout",
    ]
    again = merged(users, repository.path, base, commit, mode=MergeMode.SQUASH)
    assert (again.status, again.commands) == (MergeStatus.UP_TO_DATE, report.commands)
    undo(report)
    assert (repository.head, files(repository)) == (head, before)


def test_other_edits_made_since_stay_uncommitted(users: GitUserRepository, repository: Repository) -> None:
    base, commit = decided(users, repository.path, {"a.txt": b"a\n"}, include_dirty=True)
    repository.write("later.txt", "later\n")
    assert merged(users, repository.path, base, commit).status is MergeStatus.MERGED
    assert repository.git("status", "--porcelain") == "?? later.txt"


def test_edits_made_since_that_overlap_with_the_work_stop_it_before_anything_is_committed(
    users: GitUserRepository, repository: Repository
) -> None:
    base, commit = decided(users, repository.path, {"a.txt": b"a\n"}, include_dirty=True)
    repository.write("a.txt", "mine\n")
    before = fingerprint(repository.path)
    assert merged(users, repository.path, base, commit).status is MergeStatus.NOT_MERGED
    assert differing(before, fingerprint(repository.path)) == set()


def test_changes_that_the_user_committed_meanwhile_merge_as_usual(
    users: GitUserRepository, repository: Repository
) -> None:
    base, commit = decided(
        users, repository.path, {"a.txt": b"a\n", "README.md": b"edited\nbetter\n"}, include_dirty=True
    )
    repository.commit("mine")
    report = merged(users, repository.path, base, commit)
    assert report.status is MergeStatus.MERGED
    assert "a merge commit" in report.reason
    assert (repository.path / "README.md").read_text() == "edited\nbetter\n"
    assert repository.git("status", "--porcelain") == ""


def test_an_index_that_was_written_before_the_branch_moved_is_gone_on_from(
    users: GitUserRepository, repository: Repository
) -> None:
    base, commit = decided(users, repository.path, {"README.md": b"better\n"}, include_dirty=True)
    repository.git("add", "-A")
    assert merged(users, repository.path, base, commit).status is MergeStatus.MERGED
    assert repository.git("status", "--porcelain") == ""
