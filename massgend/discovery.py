"""Where a daemon's state, socket and engine are found. Standard library only: the CLI starts fast with it."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

MAX_SOCKET_PATH = 100
"""Bytes that a unix socket's address may have without a detour; the kernel's limit is 107."""

CONNECT_WITHIN_S = 1.0

OWN_ENGINE = Path("/run/massgend/docker.sock")
"""The engine that `scripts/engine` starts where no service manager runs one."""


@dataclass(frozen=True, kw_only=True)
class Places:
    """`state`: everything that lasts, for its user only. The sockets lie in it too."""

    state: Path

    @property
    def sockets(self) -> Path:
        return self.state / "s"

    @property
    def api_socket(self) -> Path:
        return self.sockets / "api.sock"

    @property
    def lock(self) -> Path:
        return self.state / "daemon.lock"

    @property
    def log(self) -> Path:
        return self.state / "daemon.log"


def find_places(environment: Mapping[str, str]) -> Places:
    """From MASSGEND_STATE, else the XDG state folder. Creates nothing."""
    chosen = environment.get("MASSGEND_STATE")
    if chosen:
        state = Path(chosen).absolute()
    else:
        base = environment.get("XDG_STATE_HOME") or str(Path(environment.get("HOME", "/")) / ".local" / "state")
        state = Path(base) / "massgend"
    return Places(state=state)


def socket_address(path: Path) -> str:
    """What to bind or connect a unix socket to: its path, or the same place by way of an open folder when it is long.

    The folder stays open for as long as this process lives. No second folder at a short path is needed, which somebody
    else could have made first.
    """
    if len(os.fsencode(path)) <= MAX_SOCKET_PATH:
        return str(path)
    return f"/proc/self/fd/{os.open(path.parent, os.O_PATH | os.O_DIRECTORY)}/{path.name}"


def find_engine(environment: Mapping[str, str]) -> str:
    """The engine's endpoint: DOCKER_HOST, else the first usual socket on which somebody listens, else the first."""
    chosen = environment.get("DOCKER_HOST")
    if chosen:
        return chosen
    sockets = [Path("/var/run/docker.sock")]
    if environment.get("XDG_RUNTIME_DIR"):
        sockets.append(Path(environment["XDG_RUNTIME_DIR"]) / "docker.sock")
    sockets.append(OWN_ENGINE)
    return f"unix://{next((path for path in sockets if _listens(path)), sockets[0])}"


def _listens(path: Path) -> bool:
    """A socket can outlive its engine: only a connection tells."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(CONNECT_WITHIN_S)
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True
