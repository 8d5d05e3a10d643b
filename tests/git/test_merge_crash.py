"""A merge may die between any two of its git commands: the next call finishes it, and nothing is lost."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from snapshots.repository import MergeMode, MergeStatus
from snapshots.user_repository import GitUserRepository
from tests.support import git_repos
from tests.support.answers import decided, merged

# A `git` that notes its calls, and kills the process that called it after the n-th one.
SHIM = """#!/bin/sh
echo "$*" >> "$CALLS"
n=$(wc -l < "$CALLS")
"$REAL_GIT" "$@"; code=$?
[ $n = "$KILL_AT" ] && kill -9 $PPID
exit $code
"""
WRITES = {"merge-tree", "commit-tree", "update-ref", "update-index", "merge", "read-tree", "checkout-index"}
CALL = """
import sys
from pathlib import Path
from snapshots.merge import merge
from snapshots.repository import MergeMode
report = merge(Path(sys.argv[1]), run="r1", commit=sys.argv[2], into="main", mode=MergeMode(sys.argv[3]), message="M")
print(report.status)
"""


@pytest.mark.parametrize("mode", [MergeMode.AUTO, MergeMode.SQUASH])
def test_a_merge_that_was_killed_at_any_step_is_finished_by_the_next_call(tmp_path: Path, mode: MergeMode) -> None:
    users = GitUserRepository(tmp_path / "state")
    repository = git_repos.plain(tmp_path / "repo")
    base, commit = decided(users, repository.path, {"README.md": b"theirs\n", "a.txt": b"a\n", "run.sh": None})
    repository.write("src/app.py", "print('committed')\n")
    mine = repository.commit("mine")
    repository.write("unknown.txt", "unknown\n")
    shutil.copytree(repository.path, tmp_path / "pristine", symlinks=True)
    steps = _call(tmp_path, repository.path, commit, mode)
    assert len(steps) == 4
    for step in steps:
        shutil.rmtree(repository.path)
        shutil.copytree(tmp_path / "pristine", repository.path, symlinks=True)
        _call(tmp_path, repository.path, commit, mode, kill_at=step)
        report = merged(users, repository.path, base, commit, mode=mode)
        assert report.status in (MergeStatus.MERGED, MergeStatus.UP_TO_DATE), f"step {step}: {report.reason}"
        assert repository.git("status", "--porcelain") == "?? unknown.txt", f"step {step}"
        assert repository.git("show", "HEAD:README.md") == "theirs"
        assert repository.git("show", "HEAD:src/app.py") == "print('committed')"
        assert repository.git("rev-list", "--first-parent", "--count", f"{mine}..HEAD") == "1"
        assert repository.git("rev-parse", "refs/massgend/r1/before-merge") == mine
        (undo,) = report.commands
        subprocess.run(["sh", "-c", undo], check=True)
        assert repository.head == mine


def test_a_merge_after_a_dirty_start_that_was_killed_at_any_step_is_finished_too(tmp_path: Path) -> None:
    users = GitUserRepository(tmp_path / "state")
    repository = git_repos.plain(tmp_path / "repo")
    head = repository.head
    repository.write("README.md", "edited\n")
    repository.write("new.txt", "new\n")
    base, commit = decided(users, repository.path, {"README.md": b"theirs\n", "a.txt": b"a\n"}, include_dirty=True)
    shutil.copytree(repository.path, tmp_path / "pristine", symlinks=True)
    steps = _call(tmp_path, repository.path, commit, MergeMode.AUTO)
    assert len(steps) == 4
    for step in steps:
        shutil.rmtree(repository.path)
        shutil.copytree(tmp_path / "pristine", repository.path, symlinks=True)
        _call(tmp_path, repository.path, commit, MergeMode.AUTO, kill_at=step)
        report = merged(users, repository.path, base, commit)
        assert report.status in (MergeStatus.MERGED, MergeStatus.UP_TO_DATE), f"step {step}: {report.reason}"
        assert (repository.head, repository.git("status", "--porcelain")) == (commit, ""), f"step {step}"
        (undo,) = report.commands
        subprocess.run(["sh", "-c", undo], check=True)
        assert repository.head == head, f"step {step}"
        assert repository.git("status", "--porcelain").split() == ["M", "README.md", "??", "new.txt"], f"step {step}"


def test_an_index_that_was_written_before_the_branch_moved_is_gone_on_from(tmp_path: Path) -> None:
    """git writes files and index first, then moves the branch: this is what a power cut in between leaves."""
    users = GitUserRepository(tmp_path / "state")
    repository = git_repos.plain(tmp_path / "repo")
    base, commit = decided(users, repository.path, {"README.md": b"theirs\n", "a.txt": b"a\n", "run.sh": None})
    repository.git("read-tree", "-m", "-u", "HEAD", commit)
    assert repository.git("status", "--porcelain") != ""
    assert merged(users, repository.path, base, commit).status is MergeStatus.MERGED
    assert repository.head == commit
    assert repository.git("status", "--porcelain") == ""


def _call(tmp_path: Path, repository: Path, commit: str, mode: MergeMode, *, kill_at: int = 0) -> list[int]:
    """Runs the product in a process of its own that dies after a step; the steps that wrote something."""
    folder = tmp_path / "bin"
    folder.mkdir(exist_ok=True)
    (folder / "git").write_text(SHIM)
    (folder / "git").chmod(0o755)
    calls = tmp_path / "calls"
    calls.unlink(missing_ok=True)
    environment = os.environ | {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "REAL_GIT": str(shutil.which("git")),
        "CALLS": str(calls),
        "KILL_AT": str(kill_at),
    }
    done = subprocess.run([sys.executable, "-c", CALL, repository, commit, mode], env=environment, capture_output=True)
    assert (done.returncode == -9) == bool(kill_at), done.stderr
    lines = calls.read_text().splitlines()
    return [number for number, line in enumerate(lines, start=1) if not WRITES.isdisjoint(line.split())]
