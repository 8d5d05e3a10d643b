"""A program's three streams over one hijacked connection to the engine: framed output, raw input with half-close.

Driven by the event loop (no thread waits for a program). Memory is bounded: what is not read here is not taken from the
socket, which in the end stops the program from writing.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import MappingProxyType

from sandboxes.sandbox import Chunk, Stream

READ_BYTES = 65_536
HEADER_BYTES = 8
MAX_ERROR_BYTES = 65_536
_STREAMS = MappingProxyType({0: Stream.STDOUT, 1: Stream.STDOUT, 2: Stream.STDERR, 3: Stream.STDERR})


class FrameDecoder:
    """PURE: Docker's multiplexed frames (type, 3 zero bytes, length in 4 bytes) back into chunks, however they are cut.

    Holds at most one header; content is passed on as it comes.
    """

    def __init__(self) -> None:
        self._header = b""
        self._left = 0
        self._stream = Stream.STDOUT

    def feed(self, content: bytes) -> list[Chunk]:
        chunks: list[Chunk] = []
        at = 0
        while at < len(content):
            if self._left == 0:
                piece = content[at : at + HEADER_BYTES - len(self._header)]
                at += len(piece)
                self._header += piece
                if len(self._header) == HEADER_BYTES:
                    self._open_frame()
                continue
            piece = content[at : at + self._left]
            at += len(piece)
            self._left -= len(piece)
            chunks.append(Chunk(stream=self._stream, content=piece))
        return chunks

    def _open_frame(self) -> None:
        kind = self._header[0]
        if kind not in _STREAMS or self._header[1:4] != b"\0\0\0":
            raise ValueError(f"not a frame of an exec stream: {self._header!r}")
        self._stream = _STREAMS[kind]
        self._left = int.from_bytes(self._header[4:], "big")
        self._header = b""


class StartRefusedError(Exception):
    """The engine answered the start of an exec with an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class ExecStream:
    """One open connection. `close` must be called by whoever called `open_exec_stream`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._decoder = FrameDecoder()

    async def read(self) -> list[Chunk] | None:
        """The next chunks, at least one; None at the end of both streams."""
        while True:
            try:
                content = await self._reader.read(READ_BYTES)
            except ConnectionError:
                return None
            if not content:
                return None
            if chunks := self._decoder.feed(content):
                return chunks

    async def write(self, content: bytes) -> None:
        """Raises ConnectionError when the far side is gone."""
        if self._writer.is_closing():
            raise ConnectionResetError("the connection is closed")
        self._writer.write(content)
        await self._writer.drain()

    def write_eof(self) -> None:
        try:
            if not self._writer.is_closing():
                self._writer.write_eof()
        except OSError:
            return  # the far side has closed before us: there is nobody left to tell

    async def close(self) -> None:
        self._writer.transport.abort()
        try:
            await self._writer.wait_closed()
        except OSError:
            return


async def open_exec_stream(socket: Path, api_version: str, exec_id: str) -> ExecStream:
    """Start the exec and take over its connection. Raises OSError (no engine) or StartRefusedError."""
    reader, writer = await asyncio.open_unix_connection(str(socket), limit=READ_BYTES)
    try:
        body = b'{"Detach":false,"Tty":false}'
        writer.write(
            f"POST /v{api_version}/exec/{exec_id}/start HTTP/1.1\r\nHost: docker\r\nConnection: Upgrade\r\n"
            f"Upgrade: tcp\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        await writer.drain()
        status, length = _parse_head(await _read_head(reader))
        if status not in (101, 200):
            raise StartRefusedError(status, _message(await reader.read(min(length, MAX_ERROR_BYTES))))
    except BaseException:
        writer.transport.abort()
        raise
    return ExecStream(reader, writer)


async def _read_head(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise ConnectionResetError("the engine hung up before it answered") from error


def _parse_head(head: bytes) -> tuple[int, int]:
    lines = head.decode("latin-1").split("\r\n")
    fields = dict(line.lower().split(":", 1) for line in lines[1:] if ":" in line)
    return int(lines[0].split()[1]), int(fields.get("content-length", MAX_ERROR_BYTES))


def _message(raw: bytes) -> str:
    try:
        return str(json.loads(raw)["message"])
    except (ValueError, KeyError, TypeError):
        return raw.decode("utf-8", "replace")
