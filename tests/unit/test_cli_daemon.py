"""Starting and stopping the real daemon, with an engine that is not there: it must start all the same."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cli.client import Client
from cli.daemon import alive, lock_is_held, stop
from cli.errors import CliError
from massgend.discovery import Places, find_places
from massgend.domain.events import CloseRequested
from massgend.domain.run import Cause
from massgend.journal import Journal, RunSummary
from tests.support.run_views import health
from tests.support.scripted_api import Asked, Reply, scripted_api

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def state() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="mg-") as folder:
        yield Path(folder) / "state"
        command(Path(folder) / "state", "down").communicate(timeout=60)


def command(state: Path, *arguments: str) -> subprocess.Popen[str]:
    environment = {
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": str(ROOT),
        "HOME": str(state.parent),
        "MASSGEND_STATE": str(state),
        "DOCKER_HOST": f"unix://{state.parent}/no-engine.sock",
    }
    return subprocess.Popen(
        [sys.executable, "-m", "cli.main", *arguments],
        cwd=state.parent,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def status(state: Path) -> dict[str, object]:
    out, _ = command(state, "status", "--json").communicate(timeout=60)
    found = json.loads(out)
    assert isinstance(found, dict)
    return found


def test_two_starters_at_once_get_one_daemon_and_down_ends_it(state: Path) -> None:
    starters = [command(state, "up"), command(state, "up")]
    outputs = [starter.communicate(timeout=90) for starter in starters]
    assert [starter.returncode for starter in starters] == [0, 0], outputs
    pid = status(state)["pid"]
    assert isinstance(pid, int)
    assert all(f"(process {pid}," in out for out, _ in outputs), outputs
    assert os.getsid(pid) == pid, "it outlives the terminal"
    assert (state / "daemon.log").stat().st_mode & 0o777 == 0o600
    assert lock_is_held(state / "daemon.lock")

    down = command(state, "down")
    out, _ = down.communicate(timeout=90)
    assert (down.returncode, out) == (0, f"massgend is down (process {pid}).\n")
    assert status(state)["pid"] is None
    assert not lock_is_held(state / "daemon.lock")
    again, _ = command(state, "down").communicate(timeout=60)
    assert again == "massgend is not running.\n"


LINGERS = """
import fcntl, signal, sys, time
lock = open(sys.argv[1], "a+")
fcntl.flock(lock, fcntl.LOCK_EX)
signal.signal(signal.SIGUSR1, lambda *_: None)
print("held", flush=True)
signal.pause()
lock.close()
time.sleep(float(sys.argv[2]))
"""


@contextmanager
def lingering(state: Path, linger_s: float) -> Iterator[tuple[Client, Places, int]]:
    """A daemon that lets go of its lock and its socket at once, and whose process stays for a while."""
    where = find_places({"MASSGEND_STATE": str(state)})
    where.sockets.mkdir(parents=True)
    argv = [sys.executable, "-c", LINGERS, str(where.lock), str(linger_s)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        well = health().model_copy(update={"pid": process.pid})

        def answer(asked: Asked) -> Reply:
            if asked.path == "/shutdown":
                where.api_socket.unlink()
                process.send_signal(signal.SIGUSR1)
            return Reply(body=well.model_dump(mode="json"))

        with scripted_api(where.api_socket, answer), Client(where.api_socket) as client:
            yield client, where, process.pid
        process.kill()


def test_down_returns_when_the_process_is_gone_and_tells_that_it_waits(state: Path) -> None:
    notes: list[str] = []
    with lingering(state, 1.5) as (client, where, pid):
        stopped = stop(client, where, note=notes.append, note_every_s=0.5)
        assert stopped is not None
        assert stopped.pid == pid
        assert not alive(pid)
    assert notes
    assert notes[0].startswith(f"massgend (process {pid}) is ending its work (")


def test_down_says_when_the_process_stays(state: Path) -> None:
    with lingering(state, 30) as (client, where, pid), pytest.raises(CliError, match=f"process {pid}.*still runs"):
        stop(client, where, note=lambda _: None, timeout_s=0.5)


def test_status_says_which_runs_wait_for_the_next_start(state: Path) -> None:
    asyncio.run(write_journal(state_folder(state) / "journal.db"))
    assert status(state)["runs_under_way"] == 0
    assert status(state)["runs_paused"] == 1
    said, _ = command(state, "status").communicate(timeout=60)
    assert "  runs paused     1 (massgend up goes on with them)" in said


def test_status_of_a_state_that_is_not_there_or_not_ours_to_read_says_nothing_of_runs(state: Path) -> None:
    assert status(state)["runs_paused"] == 0
    (state_folder(state) / "journal.db").write_text("not a journal")
    assert status(state)["runs_paused"] is None


async def write_journal(path: Path) -> None:
    """One run under way, one that ended."""
    journal = Journal(path)
    for run_id, is_open in (("run1", True), ("run2", False)):
        summary = RunSummary(
            run_id=run_id, status="running", open=is_open, requested_at=1.0, ended_at=None, task="t", agents=("a",),
            winner=None, repository=None,
        )  # fmt: skip
        await journal.append(summary, 1, CloseRequested(at=1.0, cause=Cause.CANCELLED), 1, ())
    journal.close()


def state_folder(state: Path) -> Path:
    state.mkdir(parents=True)
    return state


def test_a_daemon_that_dies_at_its_start_says_why_in_one_sentence(state: Path) -> None:
    (state / "daemon.lock").mkdir(parents=True)
    starter = command(state, "up")
    out, complaint = starter.communicate(timeout=90)
    assert (starter.returncode, out) == (2, "")
    sentences = [line for line in complaint.splitlines() if line != "Starting massgend..."]
    assert len(sentences) == 1
    assert "massgend could not start" in sentences[0]
    assert "Is a directory" in sentences[0]
    assert str(state / "daemon.log") in sentences[0]


def test_a_state_folder_that_cannot_be_made_is_said(state: Path) -> None:
    state.write_text("a file is in its place")
    starter = command(state, "up")
    _, complaint = starter.communicate(timeout=60)
    state.unlink()
    assert starter.returncode == 2
    assert "set MASSGEND_STATE to a folder of yours" in complaint
