"""The SDK's control stream over a program in a sandbox. The sandbox's `run` owns the program: here is only the talk."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from claude_agent_sdk import CLIConnectionError, CLIJSONDecodeError, ProcessError, Transport

from sandboxes.sandbox import Chunk, Process, Stream

MAX_LINE_BYTES = 16 * 1024**2
STDERR_TAIL_BYTES = 4_000


class LineTooLong(CLIConnectionError):
    """The CLI sent one line that we will not hold in memory."""


class Lines:
    """PURE: bytes as they come, back into lines. Holds at most MAX_LINE_BYTES."""

    def __init__(self, limit_bytes: int = MAX_LINE_BYTES) -> None:
        self._held = bytearray()
        self._searched = 0
        self._limit_bytes = limit_bytes

    def feed(self, content: bytes) -> list[bytes]:
        self._held += content
        lines: list[bytes] = []
        start = 0
        while (end := self._held.find(b"\n", max(start, self._searched))) >= 0:
            lines.append(bytes(self._held[start:end]))
            start = end + 1
        del self._held[:start]
        self._searched = len(self._held)
        if len(self._held) > self._limit_bytes or any(len(line) > self._limit_bytes for line in lines):
            raise LineTooLong(f"the CLI sent a line of more than {self._limit_bytes // 1024**2} MiB")
        return lines


class SandboxTransport(Transport):
    """`show_error` gets what the program writes to stderr."""

    def __init__(self, process: Process, show_error: Callable[[Chunk], None]) -> None:
        self._process = process
        self._show_error = show_error
        self._writing = asyncio.Lock()
        self._ready = False
        self._stderr = b""

    @property
    def stderr(self) -> str:
        """The last that the program wrote there."""
        return self._stderr.decode(errors="replace")

    async def connect(self) -> None:
        self._ready = True

    async def write(self, data: str) -> None:
        async with self._writing:
            if not self._ready:
                raise CLIConnectionError("the control stream is closed")
            await self._process.send(data.encode())

    async def end_input(self) -> None:
        async with self._writing:
            await self._process.close_stdin()

    async def close(self) -> None:
        """Bounded, as the SDK wants it: who runs the program also ends it."""
        self._ready = False
        await self._process.close_stdin()

    def is_ready(self) -> bool:
        return self._ready

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        lines = Lines()
        async for chunk in self._process.output():
            if chunk.stream is Stream.STDERR:
                self._stderr = (self._stderr + chunk.content)[-STDERR_TAIL_BYTES:]
                self._show_error(chunk)
                continue
            for line in lines.feed(chunk.content):
                message = _message(line)
                if message is not None:
                    yield message
        exit_code = await self._process.wait()
        if exit_code:
            raise ProcessError("claude ended", exit_code=exit_code, stderr=self.stderr)


def _message(line: bytes) -> dict[str, Any] | None:
    """The message in a line; None for what is not one, such as a program's stray output."""
    if not line.lstrip().startswith(b"{"):
        return None
    try:
        message = json.loads(line)
    except ValueError as error:
        raise CLIJSONDecodeError(line[:200].decode(errors="replace"), error) from error
    return message if isinstance(message, dict) else None
