"""Starts and stops the daemon. Two starters at once: the daemon's lock decides, and both clients talk to the one."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from cli.client import Client
from cli.errors import CliError, DaemonDown, Misuse, Refused
from cli.text import clean
from massgend.api.schemas import Health
from massgend.discovery import Places, find_places

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 120.0
"""It ends turns and finishes what it was saving, which can take a minute."""
STOP_NOTE_S = 3.0
NOTE_AFTER_S = 1.0
_PAUSE_S = 0.05


def places() -> Places:
    return find_places(os.environ)


def connect(where: Places | None = None) -> Client:
    """A client of the daemon that may not be there; nothing is started."""
    return Client((where or places()).api_socket)


def running(client: Client) -> Health | None:
    """Raises Refused when somebody answers who is not well."""
    try:
        return client.health(timeout_s=5.0)
    except DaemonDown:
        return None


def ensure_running(client: Client, where: Places, *, note: Callable[[str], None]) -> Health:
    """The daemon's health, after starting it when need be. Raises Misuse with the end of its log when it dies."""
    health = running(client)
    if health is not None:
        return health
    process = _spawn(where)
    began = time.monotonic()
    noted = False
    while (waited := time.monotonic() - began) < START_TIMEOUT_S:
        health = _answers(client)
        if health is not None:
            return health
        if process.poll() is not None and not lock_is_held(where.lock):
            # Another starter's daemon may have come up, and let go of the lock's old holder, between the two looks.
            health = _answers(client)
            if health is not None:
                return health
            raise Misuse(f"massgend could not start: {_last_words(where.log)} (its log: {where.log})")
        if waited > NOTE_AFTER_S and not noted:
            note("Starting massgend...")
            noted = True
        time.sleep(_PAUSE_S)
    raise Misuse(f"massgend does not answer {START_TIMEOUT_S:.0f} s after its start: look into {where.log}")


def stop(
    client: Client,
    where: Places,
    *,
    note: Callable[[str], None],
    timeout_s: float = STOP_TIMEOUT_S,
    note_every_s: float = STOP_NOTE_S,
) -> Health | None:
    """What was stopped, None when nothing ran; returns when the process is gone. Raises CliError when it stays."""
    health = running(client)
    if health is None:
        return None
    # A daemon elsewhere, in a container, has a number that means nothing here.
    is_here = _lock_holder(where.lock) == health.pid
    client.shutdown()
    began = time.monotonic()
    noted = 0
    while (waited := time.monotonic() - began) < timeout_s:
        if not (alive(health.pid) if is_here else where.api_socket.exists() or lock_is_held(where.lock)):
            return health
        if waited >= note_every_s * (noted + 1):
            note(f"massgend (process {health.pid}) is ending its work ({waited:.0f} s)...")
            noted += 1
        time.sleep(_PAUSE_S)
    raise CliError(
        f"massgend (process {health.pid}) was told to stop but still runs after {timeout_s:.0f} s: "
        f"look into {where.log}"
    )


def paused_runs(where: Places) -> int | None:
    """How many runs go on at the next start, from the journal of a daemon that is down; None: it cannot be read."""
    journal = where.state / "journal.db"
    if not journal.exists():
        return 0
    try:
        with closing(sqlite3.connect(f"{journal.as_uri()}?mode=ro", uri=True, timeout=1.0)) as found:
            count = found.execute("SELECT count(*) FROM runs WHERE open = 1").fetchone()[0]
    except sqlite3.Error:
        return None
    return int(count)


def lock_is_held(lock: Path) -> bool:
    """Whether some process holds the daemon's lock."""
    return _lock_holder(lock) is not None


def _lock_holder(lock: Path) -> int | None:
    """Its process. Only looks: trying the lock could get in a daemon's way."""
    try:
        inode = lock.stat().st_ino
        table = Path("/proc/locks").read_text()
    except OSError:
        return None
    fields = (line.split() for line in table.splitlines())
    held = (one for one in fields if len(one) > 5 and one[1] != "->" and one[5].rsplit(":", 1)[-1] == str(inode))
    return next((int(one[4]) for one in held), None)


def _spawn(where: Places) -> subprocess.Popen[bytes]:
    try:
        where.state.mkdir(parents=True, exist_ok=True, mode=0o700)
        log = os.open(where.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Misuse(
            f"{error.filename or where.state}: massgend's state cannot be kept there ({error.strerror}): "
            "set MASSGEND_STATE to a folder of yours"
        ) from None
    try:
        return subprocess.Popen(
            [sys.executable, "-m", "massgend"],
            cwd="/",
            env={**os.environ, "MASSGEND_STATE": str(where.state)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    finally:
        os.close(log)


def _answers(client: Client) -> Health | None:
    """While it starts: a daemon that is not ready yet is as good as none."""
    try:
        return running(client)
    except Refused:
        return None


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def _last_words(log: Path) -> str:
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 4000))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        lines = []
    said = [line for line in map(clean, lines) if line]
    return (said[-1] if said else "it said nothing")[:400]
