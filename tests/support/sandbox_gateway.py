"""A tiny gateway for tests: answers every request on a unix socket with one canned reply and keeps what it was sent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(kw_only=True)
class Gateway:
    status: int = 200
    reply: dict[str, object] = field(default_factory=lambda: {"message": "Taken."})
    requests: list[tuple[str, str, dict[str, object]]] = field(default_factory=list)


@asynccontextmanager
async def serve_gateway(folder: Path, *, token: str = "t0ken") -> AsyncIterator[Gateway]:
    """Serves folder/s.sock, and writes folder/token. Requests are kept as (path, authorization, body)."""
    gateway = Gateway()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        fields = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
        body = json.loads(await reader.readexactly(int(fields["Content-Length"])))
        gateway.requests.append((head.split()[1], fields["Authorization"], body))
        raw = json.dumps(gateway.reply).encode()
        writer.write(f"HTTP/1.1 {gateway.status} X\r\nContent-Length: {len(raw)}\r\n\r\n".encode() + raw)
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    (folder / "token").write_text(token)
    server = await asyncio.start_unix_server(answer, folder / "s.sock")
    (folder / "s.sock").chmod(0o666)
    async with server:
        yield gateway
