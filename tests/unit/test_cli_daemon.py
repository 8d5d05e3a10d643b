"""Starting and stopping the real daemon, with an engine that is not there: it must start all the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.daemon import lock_is_held

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
