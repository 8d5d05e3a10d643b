"""After `kill -9` of the daemon: its own gits end with it, and a merge that goes on without it is waited for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from snapshots.repository import MergeMode, MergeStatus
from snapshots.snapshot import Base
from snapshots.user_repository import GitUserRepository
from tests.support import git_repos
from tests.support.answers import decided, merged, wait
from tests.support.git_repos import Repository

MERGE = """
import sys
from pathlib import Path
from snapshots.merge import merge
from snapshots.repository import MergeMode
merge(Path(sys.argv[1]), run="r1", commit=sys.argv[2], into="main", mode=MergeMode(sys.argv[3]), message="M")
"""
RECORD = """
import sys
from pathlib import Path
from snapshots.git import Git
Git.ours(Path(sys.argv[1])).run("fast-import")
"""


def start(program: str, *arguments: str | Path) -> subprocess.Popen[bytes]:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(root)}, stderr=subprocess.DEVNULL)


def until(condition: Callable[[], bool], *, within_s: float = 20.0) -> bool:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return condition()


def base_of(users: GitUserRepository, repository: Repository) -> Base:
    return wait(users.import_base, repository.path, run="r1", include_dirty=False)


def killed_while_merging(
    folder: Path,
    *,
    filter_s: float,
    mode: MergeMode = MergeMode.AUTO,
    diverged: bool = False,
    wait_for: str = ".git/index.lock",
) -> tuple[Repository, str, GitUserRepository]:
    """A repository in which a merge goes on (its smudge filter is slow) whose caller was killed."""
    users = GitUserRepository(folder / "state", patience_s=30.0)
    repository = git_repos.plain(folder / "repo")
    repository.write(".gitattributes", "*.slow filter=slow\n")
    repository.commit("attributes")
    repository.git("config", "filter.slow.smudge", f"sleep {filter_s}; cat")
    repository.git("config", "filter.slow.clean", "cat")
    _, commit = decided(
        users, repository.path, {"README.md": b"theirs\n", "a.txt": b"a\n", "b.slow": b"b\n", "z.txt": b"z\n"}
    )
    if diverged:
        repository.write("mine.txt", "mine\n")
        repository.commit("mine")
    with start(MERGE, repository.path, commit, mode) as daemon:
        assert until((repository.path / wait_for).exists)
        daemon.send_signal(signal.SIGKILL)
    return repository, commit, users


@pytest.mark.parametrize("mode", [MergeMode.AUTO, MergeMode.SQUASH])
@pytest.mark.parametrize("diverged", [False, True])
def test_a_merge_that_outlives_its_daemon_is_waited_for_and_told_as_done(
    tmp_path: Path, mode: MergeMode, diverged: bool
) -> None:
    repository, commit, users = killed_while_merging(tmp_path, filter_s=3.0, mode=mode, diverged=diverged)
    base = base_of(users, repository)
    report = merged(users, repository.path, base, commit, mode=mode)
    assert report.status is MergeStatus.UP_TO_DATE, report.reason
    assert repository.git("status", "--porcelain") == ""
    assert (repository.path / "z.txt").read_text() == "z\n"
    assert report.after == repository.head
    assert len(report.commands) == 1


@pytest.mark.parametrize("diverged", [False, True])
def test_a_merge_that_was_killed_together_with_its_git_goes_on_when_the_lock_is_away(
    tmp_path: Path, diverged: bool
) -> None:
    repository, commit, users = killed_while_merging(tmp_path, filter_s=60.0, diverged=diverged, wait_for="a.txt")
    kill_git_in(repository.path)
    base = base_of(users, repository)
    lock = repository.path / ".git" / "index.lock"
    impatient = GitUserRepository(tmp_path / "state", patience_s=0.1)
    assert str(lock) in merged(impatient, repository.path, base, commit).reason
    lock.unlink()
    repository.git("config", "filter.slow.smudge", "cat")
    report = merged(users, repository.path, base, commit)
    assert report.status is MergeStatus.MERGED, report.reason
    assert repository.git("status", "--porcelain") == ""
    assert (repository.path / "README.md").read_text() == "theirs\n"


def test_what_the_user_wrote_after_a_killed_merge_is_never_put_back(tmp_path: Path) -> None:
    repository, commit, users = killed_while_merging(tmp_path, filter_s=60.0, wait_for="a.txt")
    kill_git_in(repository.path)
    (repository.path / ".git" / "index.lock").unlink()
    repository.write("README.md", "mine\n")
    report = merged(users, repository.path, base_of(users, repository), commit)
    assert report.status is MergeStatus.NOT_MERGED
    assert (repository.path / "README.md").read_text() == "mine\n"
    assert (repository.path / "a.txt").read_text() == "a\n"


def kill_git_in(repository: Path) -> None:
    """Ends what goes on in the working tree, as a machine that runs out of memory does."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            mine = os.readlink(process / "cwd") == str(repository)
        except OSError:
            continue  # it ended meanwhile
        if mine:
            os.kill(int(process.name), signal.SIGKILL)
            assert until(lambda process=process: not process.exists() or b"Z" in state(process))  # type: ignore[misc]


def state(process: Path) -> bytes:
    try:
        return process.joinpath("stat").read_bytes().rpartition(b")")[2].split()[0]
    except OSError:
        return b"Z"


def test_a_merge_that_dies_too_leaves_a_lock_that_is_told_after_a_wait(tmp_path: Path) -> None:
    repository, commit, _ = killed_while_merging(tmp_path, filter_s=0.5)
    lock = repository.path / ".git" / "index.lock"
    assert until(lambda: not lock.exists())
    repository.git("reset", "-q", "--hard", "HEAD~1")
    lock.write_bytes(b"")
    patient = GitUserRepository(tmp_path / "state", patience_s=0.7)
    started = time.monotonic()
    report = merged(patient, repository.path, base_of(patient, repository), commit)
    assert time.monotonic() - started > 0.7
    assert report.status is MergeStatus.NOT_MERGED
    assert str(lock) in report.reason


def test_a_lock_that_is_older_than_any_git_of_ours_is_not_waited_for(tmp_path: Path) -> None:
    users = GitUserRepository(tmp_path / "state", patience_s=30.0)
    repository = git_repos.plain(tmp_path / "repo")
    base, commit = decided(users, repository.path, {"a.txt": b"a\n"})
    lock = repository.path / ".git" / "index.lock"
    lock.write_bytes(b"")
    os.utime(lock, (time.time() - 3600, time.time() - 3600))
    started = time.monotonic()
    assert str(lock) in merged(users, repository.path, base, commit).reason
    assert time.monotonic() - started < 10


def test_a_git_of_ours_ends_with_the_daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    note = tmp_path / "pid"
    (tmp_path / "git").write_text(f"#!/bin/sh\necho $$ > {note}.new; mv {note}.new {note}; exec sleep 60\n")
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with start(RECORD, tmp_path) as daemon:
        assert until(note.exists)
        daemon.send_signal(signal.SIGKILL)
    git = Path("/proc") / note.read_text().strip()
    try:
        assert until(lambda: not git.exists(), within_s=10.0)
    finally:
        if git.exists():
            os.kill(int(git.name), signal.SIGKILL)
