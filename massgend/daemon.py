"""The composition root: puts the daemon together, starts it, and takes it down in a stated order.

Up: lock, journal, engine, runs (those left open are taken up), then the socket. Down, each step bounded: no new
requests, streams end, runs end their turns and stay open in the journal, engine, journal, lock.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import random
import re
import secrets
import shutil
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TextIO

import uvicorn

from massgend.agents.claude_code import ClaudeCodeAgent
from massgend.agents.command import CommandAgent
from massgend.api.app import make_app
from massgend.api.schemas import DoctorLine, Health
from massgend.discovery import Places, socket_address
from massgend.doctor import examine
from massgend.domain.task import SandboxSettings
from massgend.gateway.keys import KeyRing
from massgend.gateway.live import LiveUpstream
from massgend.gateway.prices import PricesError, load_prices
from massgend.journal import Journal, JournalError
from massgend.orchestrator.feed import Feeds
from massgend.orchestrator.labels import new_labels, new_run_id
from massgend.orchestrator.models import Models, scripted_model
from massgend.orchestrator.ports import Chance, Ports
from massgend.orchestrator.service import Runs
from massgend.settings import Settings, SettingsError, load_settings
from sandboxes.docker_provider import DockerProvider
from snapshots.directories import DirectoryStore
from snapshots.user_repository import GitUserRepository

log = logging.getLogger(__name__)

SCRIPTED_SOCKET = "m.sock"
STREAMS_END_S = 1
RUNS_END_S = 30.0


class AlreadyRunning(Exception):
    """Another daemon holds this state folder."""


def main() -> int:
    """`python -m massgend`: serve until told to stop. Exit code 0 stopped, 1 cannot start, 3 one runs already."""
    try:
        settings = load_settings()
        os.umask(0o022)  # what sandboxes read must be readable; the state folder itself is closed to others
        _set_up_logging(settings.log_level)
        with _lock(settings.places):
            asyncio.run(serve(settings))
    except AlreadyRunning as error:
        print(error, file=sys.stderr)
        return 3
    except (SettingsError, JournalError, PricesError, OSError) as error:
        print(f"massgend cannot start: {error}", file=sys.stderr)
        return 1
    return 0


async def serve(settings: Settings) -> None:
    """One daemon's life."""
    places = settings.places
    instance = _instance(places.state)
    _clear_sockets(places)
    journal = Journal(places.state / "journal.db")
    provider = DockerProvider(
        settings.docker_host,
        inside=places.state / "inside",
        threads=settings.engine_threads,
        call_timeout_s=settings.engine_timeout_s,
    )
    async with AsyncExitStack() as stack:
        stack.callback(journal.close)
        stack.push_async_callback(provider.aclose)
        engine = await provider.check_engine()
        if engine.problem is not None:
            log.warning("%s", engine.problem)
        ports = Ports(
            provider=provider,
            store=DirectoryStore(places.state, uid=settings.uid, gid=settings.gid),
            repository=GitUserRepository(places.state),
            agents={"command": CommandAgent(), "claude-code": ClaudeCodeAgent()},
            models=await _models(settings, stack),
            journal=journal,
            feeds=Feeds(),
            chance=_chance(),
            instance=instance,
            state=places.state,
            sockets=places.sockets,
            uid=settings.uid,
            gid=settings.gid,
            min_free_bytes=settings.min_free_bytes,
        )
        await _serve_runs(settings, ports)


async def _models(settings: Settings, stack: AsyncExitStack) -> Models:
    """Keys, prices, and the ways to the providers and to our own scripted model."""
    keys = KeyRing(environment=settings.keys, folder=settings.config, proxy=settings.proxy)
    scripted_keys = await stack.enter_async_context(
        scripted_model(settings.places.sockets / SCRIPTED_SOCKET, settings.places.state / "scripted")
    )
    return Models(
        keys=keys,
        prices=load_prices(settings.config / "prices.toml"),
        live=await stack.enter_async_context(LiveUpstream(keys, proxy=settings.proxy)),
        scripted_keys=scripted_keys,
        scripted=await stack.enter_async_context(LiveUpstream(scripted_keys)),
    )


async def _serve_runs(settings: Settings, ports: Ports) -> None:
    runs = Runs(ports)
    stop = asyncio.Event()
    started_at = time.time()

    def health() -> Health:
        return Health(
            version=version("massgend"),
            pid=os.getpid(),
            instance=ports.instance,
            state=ports.state,
            docker_host=settings.docker_host,
            runs_under_way=runs.under_way,
            started_at=started_at,
        )

    async def doctor() -> tuple[DoctorLine, ...]:
        return await examine(ports, SandboxSettings().image)

    app = make_app(runs, health=health, doctor=doctor, shut_down=stop.set, version=version("massgend"))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    with _api_socket(settings.places) as listener:
        server = _Server(
            uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=STREAMS_END_S)
        )
        async with asyncio.TaskGroup() as tasks:
            ending = asyncio.Event()
            driving = tasks.create_task(runs.serve(ending))
            serving = tasks.create_task(server.serve(sockets=[listener]))
            log.info("massgend %s serves %s", version("massgend"), settings.places.api_socket)
            await stop.wait()
            log.info("shutting down")
            server.should_exit = True
            await serving
            ending.set()
            await asyncio.wait({driving}, timeout=RUNS_END_S)
            driving.cancel()
    log.info("stopped")


class _Server(uvicorn.Server):
    """The daemon owns the signals; uvicorn's own capture would raise them again at its end."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextmanager
def _api_socket(places: Places) -> Iterator[socket.socket]:
    """The bound socket, for our user only. A stale one is ours to replace: we hold the lock."""
    path = places.api_socket
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listener.bind(socket_address(path))
    finally:
        os.umask(before)
    listener.listen(128)
    try:
        yield listener
    finally:
        listener.close()
        path.unlink(missing_ok=True)


@contextmanager
def _lock(places: Places) -> Iterator[TextIO]:
    """One daemon a state folder, for as long as its process lives. Makes the folders, for our user only."""
    for folder in (places.state, places.sockets):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if folder.stat().st_uid != os.geteuid():
            raise SettingsError(f"{folder} belongs to another user: choose another MASSGEND_STATE")
        folder.chmod(0o700)
    with places.lock.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyRunning(f"a massgend daemon already serves {places.state}") from None
        yield file


def _instance(state: Path) -> str:
    """This state folder's random name in the engine: made once, then read."""
    path = state / "instance"
    if not path.exists():
        new = path.with_name("instance.new")
        new.write_text(secrets.token_hex(8))
        new.replace(path)
    name = path.read_text().strip()
    if not re.fullmatch(r"[0-9a-f]{16}", name):
        raise SettingsError(f"{path} does not hold this state folder's name: delete it when no run is under way")
    return name


def _clear_sockets(places: Places) -> None:
    """Sockets and gateways of a dead daemon's turns: nobody listens there any more."""
    (places.sockets / SCRIPTED_SOCKET).unlink(missing_ok=True)
    turns = places.sockets / "t"
    if turns.is_dir():
        shutil.rmtree(turns)


def _chance() -> Chance:
    source = random.SystemRandom()
    return Chance(
        now=time.time,
        new_run_id=lambda: new_run_id(source),
        new_token=lambda: secrets.token_hex(24),
        new_labels=lambda count: new_labels(source, count),
    )


def _set_up_logging(level: str) -> None:
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    for noisy in ("docker", "urllib3", "watchfiles", "httpx"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
