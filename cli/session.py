"""A command's way to the daemon: a client of a daemon that runs, started when it did not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cli.client import Client
from cli.daemon import connect, ensure_running, places
from cli.git import find_root
from cli.report import Place
from cli.screens import say
from cli.version import own_version


def user_place() -> Place:
    folder = Path.cwd()
    return Place(folder=folder, repository=find_root(folder))


@contextmanager
def opened() -> Iterator[Client]:
    """Raises Misuse when the daemon cannot be started."""
    where = places()
    with connect(where) as client:
        health = ensure_running(client, where, note=say)
        if health.version != own_version():
            say(
                f"massgend's daemon is version {health.version}, this command {own_version()}: "
                "massgend down, then massgend up"
            )
        yield client
