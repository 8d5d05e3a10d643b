"""Whoever is cancelled, also by a plain `task.cancel()`, waits for the thread, and holds its locks until then."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from snapshots.errors import SnapshotError
from snapshots.snapshot import Author, Budget, Snapshot
from snapshots.threads import to_its_end
from snapshots.user_repository import GitUserRepository
from tests.support import git_repos
from tests.support.answers import answer, wait
from tests.support.stores import ADA, stand

# A `git` that takes its time over the commands that write, and notes when it is done with one.
SLOW = """#!/bin/sh
case " $* " in *" $SLOW_COMMAND "*) sleep 1; "$REAL_GIT" "$@"; code=$?; echo done >> "$NOTES"; exit $code;; esac
exec "$REAL_GIT" "$@"
"""


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    real = shutil.which("git")
    (folder / "git").write_text(SLOW.replace("$REAL_GIT", str(real)).replace("$NOTES", str(tmp_path / "notes")))
    (folder / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return tmp_path / "notes"


def slow(notes: Path, command: str) -> None:
    program = notes.parent / "bin" / "git"
    program.write_text(program.read_text().replace("$SLOW_COMMAND", command))


def told(notes: Path) -> str:
    return notes.read_text()


async def cancelled(call: Callable[[], Awaitable[object]], *, times: int = 1) -> bool:
    """Starts a call, cancels its task as asyncio does it, and waits; did it end as cancelled?"""

    async def go() -> None:
        await call()

    task = asyncio.create_task(go())
    for _ in range(times):
        await asyncio.sleep(0.4 / times)
        task.cancel()
    (ended,) = await asyncio.gather(task, return_exceptions=True)
    return isinstance(ended, asyncio.CancelledError)


def test_a_cancelled_freeze_ends_after_its_git_and_the_next_one_waits_for_it(tmp_path: Path, notes: Path) -> None:
    here = stand(tmp_path, git_repos.plain(tmp_path / "repo").path)
    (here.path / "work").write_text("x")
    slow(notes, "fast-import")

    async def freeze(name: str = "1") -> object:
        options = {"author": Author(name="A", email="a@b"), "taken_at": 1, "budget": Budget()}
        return await here.store.freeze(here.base, ADA, name=name, message="m", **options)  # type: ignore[arg-type]

    async def go() -> None:
        assert await cancelled(freeze)
        assert told(notes) == "done\n"
        known = await freeze()
        assert isinstance(known, Snapshot)
        assert told(notes) == "done\n"  # it was there already: taken once

    asyncio.run(go())
    assert len(here.snapshots()) == 1


def test_a_cancelled_publish_ends_after_its_git_and_the_lock_is_held_until_then(tmp_path: Path, notes: Path) -> None:
    users = GitUserRepository(tmp_path / "state")
    repository = git_repos.plain(tmp_path / "repo")
    base = wait(users.import_base, repository.path, run="r1", include_dirty=False)
    commit = answer(base, {"a.txt": b"a\n"})
    slow(notes, "unpack-objects")

    async def go() -> None:
        async def other() -> None:
            await asyncio.sleep(0.6)
            await users.discard(repository.path, run="r1", force=True)
            assert told(notes) == "done\n"

        waiting = asyncio.create_task(other())
        assert await cancelled(lambda: users.publish(base, agent="ada", commit=commit))
        await waiting

    asyncio.run(go())
    assert repository.git("branch", "--list", "massgend/*") == ""


def test_being_cancelled_again_and_again_does_not_let_go(tmp_path: Path) -> None:
    ended = threading.Event()

    async def go() -> None:
        limiter = anyio.CapacityLimiter(1)

        def work() -> None:
            threading.Event().wait(1.0)
            ended.set()

        assert await cancelled(lambda: to_its_end(work, limiter), times=20)
        assert ended.is_set()
        assert limiter.borrowed_tokens == 0

    asyncio.run(go())


def test_the_end_of_the_loop_waits_for_the_thread() -> None:
    """`asyncio.run` cancels every task that is left: none of them may be one that the thread's caller relies on."""
    ended = threading.Event()

    def work() -> None:
        threading.Event().wait(0.7)
        ended.set()

    tasks = []

    async def go() -> None:
        tasks.append(asyncio.create_task(to_its_end(work, anyio.CapacityLimiter(1))))
        await asyncio.sleep(0.2)

    asyncio.run(go())
    assert ended.is_set()
    assert tasks[0].cancelled()


def test_a_scope_that_is_cancelled_gets_the_result_and_then_the_cancellation() -> None:
    async def go() -> list[str]:
        seen = []
        with anyio.CancelScope() as scope:
            asyncio.get_running_loop().call_later(0.1, scope.cancel)
            seen.append(await to_its_end(lambda: threading.Event().wait(0.4) or "result", anyio.CapacityLimiter(1)))
            await anyio.lowlevel.checkpoint()
            seen.append("not reached")
        return seen

    assert anyio.run(go) == ["result"]


def test_errors_and_results_come_through_and_a_cancelled_calls_error_is_not_left_over() -> None:
    def fail() -> None:
        threading.Event().wait(0.6)
        raise SnapshotError("no")

    async def go() -> None:
        limiter = anyio.CapacityLimiter(1)
        with pytest.raises(SnapshotError, match="no"):
            await to_its_end(fail, limiter)
        assert await cancelled(lambda: to_its_end(fail, limiter))

    asyncio.run(go())
    assert sys.exc_info() == (None, None, None)


def test_only_so_many_calls_run_at_once() -> None:
    running: list[int] = []
    most: list[int] = []
    guard = threading.Lock()

    def work() -> None:
        with guard:
            running.append(1)
            most.append(len(running))
        threading.Event().wait(0.05)
        with guard:
            running.pop()

    async def go() -> None:
        limiter = anyio.CapacityLimiter(2)
        async with anyio.create_task_group() as group:
            for _ in range(8):
                group.start_soon(to_its_end, work, limiter)

    anyio.run(go)
    assert max(most) == 2
