"""Sandboxes on a Docker engine: checks, starts that leave nothing behind when they fail, and finding what is ours."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from anyio import to_thread

from sandboxes.docker_engine import DockerEngine, Found
from sandboxes.docker_probe import Probe
from sandboxes.docker_sandbox import DockerSandbox
from sandboxes.docker_spec import Creation, creation, lost_limits
from sandboxes.errors import EngineUnreachable, SandboxError, SandboxRefused
from sandboxes.removal import take_away
from sandboxes.sandbox import EngineCheck, ImageCheck, Owner, Resource, Sandbox, SandboxSpec
from sandboxes.see_through import Cleanups
from sandboxes.staging import stage

log = logging.getLogger(__name__)

# How long a cancelled start waits for the engine before the rest is left to `_chase`.
PATIENCE_S = 10.0
CHASE_AFTER_S = (0.5, 2.0, 10.0, 30.0, 60.0)


class DockerProvider:
    """`endpoint`: unix://...; `inside`: a folder of ours (made if missing) that the engine can mount from.

    To be closed with `aclose` or used as an async context manager.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        inside: Path,
        threads: int = 16,
        call_timeout_s: float = 60,
        new_id: Callable[[], str] = lambda: secrets.token_hex(8),
    ) -> None:
        self._engine = DockerEngine(endpoint, threads=threads, call_timeout_s=call_timeout_s)
        self._inside = inside
        self._new_id = new_id
        self._cleanups = Cleanups()
        self._closing = asyncio.Event()
        self._probe = Probe(self._engine, inside, self._cleanups, new_id)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Finish the cleanups under way, let go of the engine. Sandboxes stay: their owners remove them."""
        self._closing.set()
        await self._cleanups.settle()
        await self._engine.aclose()

    async def check_engine(self) -> EngineCheck:
        return await self._probe.check_engine()

    async def check_image(self, image: str) -> ImageCheck:
        return await self._probe.check_image(image)

    async def start(self, spec: SandboxSpec) -> Sandbox:
        staged = await to_thread.run_sync(lambda: stage(self._inside, uid=spec.uid, gid=spec.gid))
        image = await self._engine.image(spec.image)
        wanted = creation(spec, image, staged, start_id=self._new_id(), socket=self._engine.socket)
        abandoned = asyncio.Event()
        birth = asyncio.create_task(self._bring_up(wanted, abandoned))
        try:
            container = await asyncio.shield(birth)
        except BaseException:
            abandoned.set()
            await self._cleanups.see_through(self._undo(birth, wanted))
            raise
        return DockerSandbox(
            self._engine,
            self._cleanups,
            name=spec.name,
            container=container,
            user=f"{spec.uid}:{spec.gid}",
            start_label=wanted.start_label,
        )

    async def _bring_up(self, wanted: Creation, abandoned: asyncio.Event) -> str:
        made = await self._engine.create(wanted)
        if lost := lost_limits(made.warnings):
            raise SandboxRefused(f"sandbox {wanted.name}: the engine cannot keep a limit: {lost[0]}")
        if not abandoned.is_set():
            await self._engine.start(made.container_id)
        return made.container_id

    async def _undo(self, birth: asyncio.Task[str], wanted: Creation) -> None:
        await asyncio.wait([birth], timeout=PATIENCE_S)
        in_doubt = not birth.done() or isinstance(birth.exception(), EngineUnreachable)
        try:
            await take_away(self._engine, [wanted.start_label])
        except SandboxError as error:
            log.warning("what is left of %s cannot be removed yet: %s", wanted.name, error)
            in_doubt = True
        if in_doubt:
            self._cleanups.add(self._chase(wanted))

    async def _chase(self, wanted: Creation) -> None:
        """The engine did not say whether it made a container: it may yet appear, so look again for a while."""
        for delay_s in CHASE_AFTER_S:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), delay_s)
            try:
                if await take_away(self._engine, [wanted.start_label]) or self._closing.is_set():
                    return
            except SandboxError as error:
                log.warning("what is left of %s cannot be removed: %s", wanted.name, error)
                if self._closing.is_set():
                    return

    async def list_ours(self, instance: str, run: str | None = None) -> tuple[Resource, ...]:
        found = await self._engine.find(_labels(instance, run, None))
        return tuple(
            Resource(kind=one.kind, name=one.name, owner=owner) for one in found if (owner := _owner(one)) is not None
        )

    async def remove_ours(self, instance: str, run: str | None = None, agent: str | None = None) -> int:
        return await self._cleanups.see_through(take_away(self._engine, _labels(instance, run, agent)))


def _labels(instance: str, run: str | None, agent: str | None) -> list[str]:
    """What proves that a resource is this instance's: all four labels are there, and those given are equal."""
    return [
        f"massgend.instance={instance}",
        "massgend.run" if run is None else f"massgend.run={run}",
        "massgend.agent" if agent is None else f"massgend.agent={agent}",
        "massgend.generation",
    ]


def _owner(found: Found) -> Owner | None:
    labels = found.labels
    try:
        return Owner(
            instance=labels["massgend.instance"],
            run=labels["massgend.run"],
            agent=labels["massgend.agent"],
            generation=int(labels["massgend.generation"]),
        )
    except (KeyError, ValueError):
        return None
