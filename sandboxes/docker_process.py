"""A program in a Docker sandbox: its streams, its end, and what that end means."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

import anyio

from sandboxes import failure
from sandboxes.docker_engine import DockerEngine
from sandboxes.errors import SandboxError, SandboxGone
from sandboxes.exec_stream import ExecStream
from sandboxes.sandbox import Chunk

log = logging.getLogger(__name__)

# After the grace: the supervisor's sweep, and the way of the news to us.
END_WITHIN_S = 5.0
SETTLE_WITHIN_S = 5.0
POLL_S = 0.02
ASK_EVERY_S = 0.5
KILLED = 137
SAID_BYTES = 2_000


class DockerProcess:
    """Made by DockerSandbox.run, which also calls `end`. `sweep` ends what a killed supervisor left behind."""

    def __init__(
        self,
        engine: DockerEngine,
        *,
        container: str,
        what: str,
        exec_id: str,
        stream: ExecStream,
        sweep: Callable[[], Awaitable[None]],
    ) -> None:
        self._engine = engine
        self._container = container
        self._what = what
        self._exec_id = exec_id
        self._stream = stream
        self._sweep = sweep
        self._one_reader = asyncio.Lock()
        self._one_judge = asyncio.Lock()
        self._at_end = asyncio.Event()
        self._readers = 0
        self._reader_left = asyncio.Event()
        self._said = b""
        self._verdict: int | SandboxError | None = None

    async def send(self, content: bytes) -> None:
        """What is sent after the program closed its stdin, or ended, is lost as in a shell; `wait` tells."""
        try:
            await self._stream.write(content)
        except ConnectionError as error:
            if not (await self._engine.state(self._container)).running:
                raise SandboxGone(f"{self._what}: the sandbox ended while it ran") from error

    async def close_stdin(self) -> None:
        self._stream.write_eof()

    def output(self) -> AsyncIterator[Chunk]:
        self._readers += 1
        self._reader_left.clear()
        return self._read_on()

    async def _read_on(self) -> AsyncIterator[Chunk]:
        try:
            while (chunks := await self._read()) is not None:
                for chunk in chunks:
                    yield chunk
        finally:
            self._readers -= 1
            self._reader_left.set()

    async def wait(self) -> int:
        """Output that nobody reads, or goes on reading, is thrown away."""
        await asyncio.sleep(0)  # a reader's task that was made just before this call gets its turn first
        while self._readers and not await self._ended_by_itself():
            with anyio.move_on_after(ASK_EVERY_S):
                await self._reader_left.wait()
        while not self._readers and await self._read() is not None:
            pass
        verdict = await self._judge()
        if isinstance(verdict, SandboxError):
            raise verdict
        return verdict

    async def _ended_by_itself(self) -> bool:
        """A reader may have stopped without letting go of its iterator, so the end of the stream is not waited for."""
        try:
            return self._at_end.is_set() or not (await self._engine.exec_state(self._exec_id)).running
        except SandboxGone:
            return True

    async def end(self, grace_s: float) -> None:
        """End the program and all that it started; the sandbox itself when nothing else helps."""
        try:
            with anyio.move_on_after(grace_s + END_WITHIN_S) as limit:
                self._stream.write_eof()
                await self._drain()
                await self._judge()
            if limit.cancelled_caught:
                log.warning("%s did not end in time: its sandbox is stopped", self._what)
                await self._engine.kill(self._container)
        except SandboxGone:
            return
        except SandboxError as error:
            # Closing the connection cuts the life line, on which the supervisor ends everything by itself.
            log.warning("the end of %s was not seen: %s", self._what, error)
        finally:
            await self._stream.close()

    async def _read(self) -> list[Chunk] | None:
        async with self._one_reader:
            if self._at_end.is_set():
                return None
            chunks = await self._stream.read()
        if chunks is None:
            self._at_end.set()
        elif len(self._said) < SAID_BYTES:
            self._said = (self._said + chunks[0].content)[:SAID_BYTES]
        return chunks

    async def _drain(self) -> None:
        while await self._read() is not None:
            pass

    async def _judge(self) -> int | SandboxError:
        async with self._one_judge:
            if self._verdict is None:
                self._verdict = await self._find_verdict()
            return self._verdict

    async def _find_verdict(self) -> int | SandboxError:
        try:
            state = await self._engine.exec_state(self._exec_id)
            with anyio.move_on_after(SETTLE_WITHIN_S):
                while state.running:
                    await asyncio.sleep(POLL_S)
                    state = await self._engine.exec_state(self._exec_id)
        except SandboxGone:
            return SandboxGone(f"{self._what}: the sandbox was removed while it ran")
        sandbox_runs = True
        if not state.started or state.exit_code in (None, KILLED):
            if state.exit_code == KILLED:
                await self._sweep()
            sandbox_runs = (await self._engine.state(self._container)).running
        return failure.end_of_exec(
            self._what,
            exit_code=None if state.running else state.exit_code,
            started=state.started,
            sandbox_runs=sandbox_runs,
            said=self._said.decode("utf-8", "replace"),
        )
