"""One started container. Everything in it runs under our supervisor (inside/supervisor.py)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import PurePosixPath

from sandboxes import failure
from sandboxes.docker_engine import DockerEngine
from sandboxes.docker_process import DockerProcess
from sandboxes.docker_spec import INSIDE
from sandboxes.errors import EngineUnreachable, SandboxError, SandboxGone
from sandboxes.exec_stream import ExecStream, StartRefusedError, open_exec_stream
from sandboxes.removal import take_away
from sandboxes.sandbox import Process, SandboxState
from sandboxes.see_through import Cleanups

log = logging.getLogger(__name__)

STOP_WITHIN_S = 10.0
POLL_S = 0.02
# -I -S: nothing in the workspace or the environment reaches into the supervisor, and it starts faster.
SUPERVISOR_ARGV = ("python3", "-I", "-S", f"{INSIDE}/supervisor.py")


class DockerSandbox:
    def __init__(
        self, engine: DockerEngine, cleanups: Cleanups, *, name: str, container: str, user: str, start_label: str
    ) -> None:
        self._engine = engine
        self._cleanups = cleanups
        self._name = name
        self._container = container
        self._user = user
        self._start_label = start_label
        self._had_oom = False

    @property
    def name(self) -> str:
        return self._name

    def run(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        stdin_path: PurePosixPath | None = None,
        grace_s: float = 2.0,
    ) -> AbstractAsyncContextManager[Process]:
        words = ["--grace", f"{grace_s:g}"]
        if stdin_path is not None:
            words += ["--stdin", str(stdin_path)]
        return self._running([*words, "--", *argv], env=env or {}, what=f"{argv[0]} in {self._name}", grace_s=grace_s)

    @asynccontextmanager
    async def _running(
        self, words: Sequence[str], *, env: Mapping[str, str], what: str, grace_s: float
    ) -> AsyncIterator[Process]:
        launch = asyncio.create_task(self._launch(words, env=env, what=what))
        try:
            process = await asyncio.shield(launch)
        except asyncio.CancelledError:
            await self._cleanups.see_through(_end_launched(launch, grace_s))
            raise
        try:
            yield process
        finally:
            await self._cleanups.see_through(process.end(grace_s))

    async def _launch(self, words: Sequence[str], *, env: Mapping[str, str], what: str) -> DockerProcess:
        exec_id, stream = await self._exec(words, env=env, what=what)
        return DockerProcess(
            self._engine, container=self._container, what=what, exec_id=exec_id, stream=stream, sweep=self._sweep
        )

    async def _exec(self, words: Sequence[str], *, env: Mapping[str, str], what: str) -> tuple[str, ExecStream]:
        pairs = [f"{name}={text}" for name, text in env.items() if name != "PATH"]
        if "PATH" in env:
            pairs.append(f"PATH={INSIDE}/bin:{env['PATH']}")
        exec_id = await self._engine.create_exec(
            self._container, [*SUPERVISOR_ARGV, *words], user=self._user, env=pairs, what=what
        )
        try:
            stream = await open_exec_stream(self._engine.socket, await self._engine.api_version(), exec_id)
        except StartRefusedError as error:
            raise failure.error_of(what, error.status, str(error), endpoint=self._engine.endpoint) from error
        except OSError as error:
            raise failure.error_of(what, None, str(error), endpoint=self._engine.endpoint) from error
        return exec_id, stream

    async def _ask_supervisor(self, word: str) -> int | None:
        """Run one of the supervisor's own short jobs; its exit code."""
        exec_id, stream = await self._exec([word], env={}, what=f"supervisor {word} in {self._name}")
        try:
            while await stream.read() is not None:
                pass
        finally:
            await stream.close()
        state = await self._engine.exec_state(exec_id)
        while state.running:
            await asyncio.sleep(POLL_S)
            state = await self._engine.exec_state(exec_id)
        return state.exit_code if state.started else None

    async def _sweep(self) -> None:
        """A program that killed its supervisor may have left others behind. If they cannot be ended, all is."""
        try:
            if await self._ask_supervisor("--sweep") == 0:
                return
        except SandboxGone:
            return
        log.warning("what a program left behind in %s could not be ended: the sandbox is stopped", self._name)
        await self._engine.kill(self._container)

    async def describe(self) -> SandboxState:
        state = await self._engine.state(self._container)
        self._had_oom = self._had_oom or state.out_of_memory
        if state.running and not self._had_oom:
            # Engines before 23 tell of an OOM only once the container has ended; the kernel's counter always does.
            try:
                self._had_oom = await self._ask_supervisor("--oom") == 1
            except SandboxError as error:
                log.info("cannot ask %s whether it ran out of memory: %s", self._name, error)
                state = await self._engine.state(self._container)
        return SandboxState(running=state.running, exit_code=state.exit_code, out_of_memory=self._had_oom)

    async def stop(self) -> None:
        await self._engine.kill(self._container)
        for _ in range(int(STOP_WITHIN_S / POLL_S)):
            if not (await self._engine.state(self._container)).running:
                return
            await asyncio.sleep(POLL_S)
        raise EngineUnreachable(f"sandbox {self._name} still runs {STOP_WITHIN_S:g} s after it was killed")

    async def remove(self) -> None:
        await self._cleanups.see_through(take_away(self._engine, [self._start_label]))


async def _end_launched(launch: asyncio.Task[DockerProcess], grace_s: float) -> None:
    """The start of a program was cancelled while under way: end what came of it."""
    await asyncio.wait([launch])
    if launch.exception() is None:
        await launch.result().end(grace_s)
