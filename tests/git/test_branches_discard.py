"""Review branches are listed and discarded from the refs alone, and nothing outside of `massgend/` ever goes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from snapshots.repository import MergeStatus
from snapshots.user_repository import GitUserRepository
from tests.support import git_repos
from tests.support.answers import answer, decided, merged, wait
from tests.support.repo_fingerprint import differing, fingerprint


@pytest.fixture
def users(tmp_path: Path) -> GitUserRepository:
    return GitUserRepository(tmp_path / "state")


def test_branches_are_listed_from_the_refs_alone(tmp_path: Path, users: GitUserRepository) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    base, commit = decided(users, repository.path, {"a.txt": b"a\n"})
    other = answer(base, {"b.txt": b"b\n"}, agent="bob")
    wait(users.publish, base, agent="bob", commit=other)
    repository.git("branch", "massgend-not-ours")
    repository.git("branch", "massgend/odd")
    repository.git("merge", "-q", "massgend/r1/winner")
    shutil.rmtree(tmp_path / "state")
    found = wait(users.review_branches, repository.path)
    assert [(branch.name, branch.run, branch.agent, branch.commit, branch.merged) for branch in found] == [
        ("massgend/r1/ada", "r1", "ada", commit, True),
        ("massgend/r1/bob", "r1", "bob", other, False),
        ("massgend/r1/winner", "r1", "winner", commit, True),
    ]


def test_an_empty_repository_has_branches_that_are_not_merged(tmp_path: Path, users: GitUserRepository) -> None:
    repository = git_repos.empty(tmp_path / "repo")
    decided(users, repository.path, {"a.txt": b"a\n"})
    assert [branch.merged for branch in wait(users.review_branches, repository.path)] == [False, False]


def test_only_merged_branches_go_without_force(tmp_path: Path, users: GitUserRepository) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    base, commit = decided(users, repository.path, {"a.txt": b"a\n"})
    wait(users.publish, base, agent="bob", commit=answer(base, {"b.txt": b"b\n"}, agent="bob"))
    assert wait(users.discard, repository.path, run="r1", force=False) == ()
    assert merged(users, repository.path, base, commit).status is MergeStatus.MERGED
    gone = wait(users.discard, repository.path, run="r1", force=False)
    assert gone == (
        "refs/heads/massgend/r1/ada",
        "refs/heads/massgend/r1/winner",
        "refs/massgend/r1/before-merge",
    )
    assert [branch.agent for branch in wait(users.review_branches, repository.path)] == ["bob"]


def test_force_takes_all_of_the_run_and_nothing_else(tmp_path: Path, users: GitUserRepository) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    repository.git("branch", "r1/ada")
    repository.git("branch", "massgend/r10/ada")
    repository.git("tag", "massgend/r1/ada")
    before = fingerprint(repository.path)
    base, commit = decided(users, repository.path, {"a.txt": b"a\n"})
    wait(users.publish, base, agent="bob", commit=answer(base, {"b.txt": b"b\n"}, agent="bob"))
    assert len(wait(users.discard, repository.path, run="r1", force=True)) == 3
    assert differing(before, fingerprint(repository.path)) == set()
    assert wait(users.discard, repository.path, run="r1", force=True) == ()
    assert commit


def test_a_branch_that_is_checked_out_stays_also_with_force(tmp_path: Path, users: GitUserRepository) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    decided(users, repository.path, {"a.txt": b"a\n"})
    repository.git("worktree", "add", "-q", tmp_path / "review", "massgend/r1/ada")
    assert wait(users.discard, repository.path, run="r1", force=True) == ("refs/heads/massgend/r1/winner",)


def test_no_hook_of_the_users_sees_it(tmp_path: Path, users: GitUserRepository) -> None:
    repository = git_repos.with_hooks_and_signing(tmp_path / "repo", tmp_path / "canary")
    decided(users, repository.path, {"a.txt": b"a\n"})
    (tmp_path / "canary").unlink(missing_ok=True)
    wait(users.discard, repository.path, run="r1", force=True)
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize("run", ["../heads", "*", "", "r1/..", "R1"])
def test_what_is_no_id_deletes_nothing(tmp_path: Path, users: GitUserRepository, run: str) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    before = fingerprint(repository.path)
    with pytest.raises(ValueError, match="is not an id"):
        wait(users.discard, repository.path, run=run, force=True)
    assert fingerprint(repository.path) == before
