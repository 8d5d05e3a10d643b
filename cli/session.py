"""A command's way to the daemon: a client of a daemon that runs, started when it did not."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from cli.client import Client
from cli.daemon import connect, ensure_running, places
from cli.git import find_root
from cli.notes import say
from cli.version import own_version
from massgend.api.schemas import KeysOffer

if TYPE_CHECKING:
    from cli.next_steps import Place


def user_place() -> Place:
    from cli.next_steps import Place

    folder = Path.cwd()
    return Place(folder=folder, repository=find_root(folder))


def offer_environment(client: Client) -> None:
    """Hand the daemon the keys of this environment: it may have been started without them. Kept in its memory only."""
    known = client.keys().variables
    mine = {name: os.environ[name] for name in known if os.environ.get(name)}
    if mine:
        client.offer_keys(KeysOffer(environment=mine))


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
