"""Our branches in the user's repository: brought with their objects, never over somebody else's."""

from __future__ import annotations

import os
import subprocess
from functools import partial
from pathlib import Path

import anyio
import pytest

from snapshots.errors import GitFailed, RefTaken
from snapshots.user_repository import GitUserRepository
from tests.support import git_repos
from tests.support.answers import answer, decided, wait
from tests.support.git_repos import Repository
from tests.support.repo_fingerprint import differing, fingerprint
from tests.support.users import UID, give_away

ADA = {".git/refs/heads/massgend/r1/ada", ".git/logs/refs/heads/massgend/r1/ada"}
WINNER = {".git/refs/heads/massgend/r1/winner", ".git/logs/refs/heads/massgend/r1/winner"}


@pytest.fixture
def users(tmp_path: Path) -> GitUserRepository:
    return GitUserRepository(tmp_path / "state")


def test_a_branch_comes_with_its_history_and_nothing_else_changes(tmp_path: Path, users: GitUserRepository) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    before, head = fingerprint(repository.path), repository.head
    base = wait(users.import_base, repository.path, run="r1", include_dirty=False)
    first = answer(base, {"a.txt": b"a\n"})
    assert wait(users.publish, base, agent="ada", commit=first) == "massgend/r1/ada"
    second = answer(base, {"b.png": git_repos.PNG}, number=2, parent=first)
    wait(users.publish, base, agent="ada", commit=second)
    assert repository.git("rev-list", "massgend/r1/ada").split()[:3] == [second, first, head]
    assert repository.git_bytes("cat-file", "blob", "massgend/r1/ada:b.png") == git_repos.PNG
    repository.git("fsck", "--strict", "--full")
    assert differing(before, fingerprint(repository.path)) == ADA


def test_publishing_again_is_nothing_new(tmp_path: Path, users: GitUserRepository) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    base, commit = decided(users, repository.path, {"a.txt": b"a\n"})
    before = fingerprint(repository.path)
    assert wait(users.publish, base, agent="ada", commit=commit) == "massgend/r1/ada"
    assert fingerprint(repository.path) == before


def test_many_files_arrive_as_a_pack(tmp_path: Path, users: GitUserRepository) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    base = wait(users.import_base, repository.path, run="r1", include_dirty=False)
    commit = answer(base, {f"files/{number}.txt": f"{number}\n".encode() for number in range(120)})
    wait(users.publish, base, agent="ada", commit=commit)
    assert len(list((repository.path / ".git" / "objects" / "pack").glob("*.pack"))) == 1
    assert list((repository.path / ".git" / "objects").rglob("tmp_*")) == []
    repository.git("fsck", "--strict", "--full")


def test_nothing_depends_on_our_state(tmp_path: Path, users: GitUserRepository) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    decided(users, repository.path, {"a.txt": b"a\n"})
    subprocess.run(["rm", "-rf", tmp_path / "state"], check=True)
    repository.git("fsck", "--strict", "--full")
    assert repository.git("show", "massgend/r1/ada:a.txt") == "a"


@pytest.mark.parametrize("make", [git_repos.empty, git_repos.detached, git_repos.shallow, git_repos.with_submodule])
def test_odd_repositories_get_their_branches_too(tmp_path: Path, users: GitUserRepository, make: object) -> None:
    assert callable(make)
    repository: Repository = make(tmp_path / "repo")
    before = fingerprint(repository.path)
    decided(users, repository.path, {"a.txt": b"a\n"})
    assert repository.git("show", "massgend/r1/winner:a.txt") == "a"
    assert differing(before, fingerprint(repository.path)) == ADA | WINNER
    repository.git("fsck", "--strict", "--full")


def test_uncommitted_changes_are_below_the_branch(tmp_path: Path, users: GitUserRepository) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    repository.write("README.md", "edited\n")
    decided(users, repository.path, {"a.txt": b"a\n"}, include_dirty=True)
    assert repository.git("show", "massgend/r1/ada:README.md") == "edited"
    assert repository.git("rev-parse", "massgend/r1/ada~2") == repository.head
    assert repository.git("status", "--porcelain") == "M README.md"


def test_no_hook_no_signature_no_prompt(tmp_path: Path, users: GitUserRepository) -> None:
    repository = git_repos.with_hooks_and_signing(tmp_path / "repo", tmp_path / "canary")
    (tmp_path / "canary").unlink(missing_ok=True)
    decided(users, repository.path, {"a.txt": b"a\n"})
    assert not (tmp_path / "canary").exists()


def test_a_branch_of_the_users_with_that_name_is_never_moved(tmp_path: Path, users: GitUserRepository) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    base = wait(users.import_base, repository.path, run="r1", include_dirty=False)
    repository.git("branch", "massgend/r1/ada")
    before = fingerprint(repository.path)
    with pytest.raises(RefTaken, match="massgend/r1/ada"):
        wait(users.publish, base, agent="ada", commit=answer(base, {"a.txt": b"a\n"}))
    assert fingerprint(repository.path) == before


@pytest.mark.parametrize("amend", [True, False])
def test_a_branch_that_the_user_committed_to_is_never_moved(
    tmp_path: Path, users: GitUserRepository, amend: bool
) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    base, first = decided(users, repository.path, {"a.txt": b"a\n"})
    repository.git("switch", "-q", "massgend/r1/ada")
    repository.write("mine.txt", "mine\n")
    repository.git("add", "-A")
    repository.git("commit", "-q", *(("--amend", "--no-edit") if amend else ("-m", "mine")))
    mine = repository.head
    repository.git("switch", "-q", "main")
    with pytest.raises(RefTaken, match="not from this run"):
        wait(users.publish, base, agent="ada", commit=answer(base, {"b.txt": b"b\n"}, number=2, parent=first))
    assert repository.git("rev-parse", "massgend/r1/ada") == mine


def test_a_branch_that_is_checked_out_somewhere_is_not_moved_under_the_users_feet(
    tmp_path: Path, users: GitUserRepository
) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    base, first = decided(users, repository.path, {"a.txt": b"a\n"})
    repository.git("worktree", "add", "-q", tmp_path / "review", "massgend/r1/ada")
    second = answer(base, {"b.txt": b"b\n"}, number=2, parent=first)
    with pytest.raises(RefTaken, match=f"checked out in {tmp_path / 'review'}"):
        wait(users.publish, base, agent="ada", commit=second)
    assert repository.git("-C", tmp_path / "review", "status", "--porcelain") == ""


@pytest.mark.parametrize("name", ["massgend", "massgend/r1", "massgend/r1/ada/deeper"])
def test_a_branch_that_leaves_no_room_is_named(tmp_path: Path, users: GitUserRepository, name: str) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    base = wait(users.import_base, repository.path, run="r1", include_dirty=False)
    repository.git("branch", name)
    before = fingerprint(repository.path)
    with pytest.raises(RefTaken, match=f"{name} "):
        wait(users.publish, base, agent="ada", commit=answer(base, {"a.txt": b"a\n"}))
    assert fingerprint(repository.path) == before


def test_objects_that_git_would_not_fetch_are_not_brought(tmp_path: Path, users: GitUserRepository) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    base = wait(users.import_base, repository.path, run="r1", include_dirty=False)
    evil = b'[submodule "x"]\n\tpath = x\n\turl = -u./payload\n'
    before = fingerprint(repository.path)
    with pytest.raises(GitFailed, match="gitmodulesUrl"):
        wait(users.publish, base, agent="ada", commit=answer(base, {".gitmodules": evil}))
    assert fingerprint(repository.path) == before


def test_what_arrives_in_another_users_repository_is_theirs(tmp_path: Path, users: GitUserRepository) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    give_away(repository.path)
    base = wait(users.import_base, repository.path, run="r1", include_dirty=False)
    many = {f"files/{number}.txt": f"{number}\n".encode() for number in range(120)}
    wait(users.publish, base, agent="ada", commit=answer(base, {"a.txt": b"a\n"}))
    wait(users.publish, base, agent="bob", commit=answer(base, many, agent="bob"))
    assert {path.lstat().st_uid for path in repository.path.rglob("*")} == {UID}


def test_four_agents_at_once_all_get_their_branch(tmp_path: Path, users: GitUserRepository) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    base = wait(users.import_base, repository.path, run="r1", include_dirty=False)
    names = ("ada", "bob", "cleo", "dan")
    commits = {name: answer(base, {f"{name}.txt": b"x\n"}, agent=name) for name in names}

    async def all_at_once() -> None:
        async with anyio.create_task_group() as group:
            for name in names:
                group.start_soon(partial(users.publish, base, agent=name, commit=commits[name]))

    anyio.run(all_at_once)
    assert {name: repository.git("rev-parse", f"massgend/r1/{name}") for name in names} == commits
    repository.git("fsck", "--strict", "--full")


def test_without_a_repository_there_is_no_branch(users: GitUserRepository) -> None:
    base = wait(users.import_base, None, run="r1", include_dirty=False)
    assert wait(users.publish, base, agent="ada", commit=answer(base, {"a.txt": b"a\n"})) == ""


def test_many_calls_leave_no_file_open(tmp_path: Path, users: GitUserRepository) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    base, commit = decided(users, repository.path, {"a.txt": b"a\n"})
    wait(users.publish, base, agent="ada", commit=commit)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        wait(users.publish, base, agent="ada", commit=commit)
    assert len(os.listdir("/proc/self/fd")) == before
