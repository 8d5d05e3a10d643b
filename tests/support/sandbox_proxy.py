"""A unix socket in front of the real engine that can hold requests back, or change answers."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

REQUEST_LINE = re.compile(rb"^(GET|POST|DELETE|HEAD|PUT) (\S+) HTTP/1\.1\r\n")


@dataclass(kw_only=True)
class Proxy:
    """`holds(line)`: this request is kept from the engine until `release` is set. `rewrite` changes its answers."""

    endpoint: str
    holds: Callable[[str], bool] = lambda line: False
    release: asyncio.Event = field(default_factory=asyncio.Event)
    held: asyncio.Event = field(default_factory=asyncio.Event)
    rewrite: Callable[[bytes], bytes] = lambda content: content


@asynccontextmanager
async def troubled_engine(engine: str, place: Path) -> AsyncIterator[Proxy]:
    proxy = Proxy(endpoint=f"unix://{place}")
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_unix_connection(engine.removeprefix("unix://"))

        async def there() -> None:
            while content := await reader.read(65_536):
                match = REQUEST_LINE.match(content)
                if match and proxy.holds(match.group(0).decode().strip()):
                    proxy.held.set()
                    await proxy.release.wait()
                far_writer.write(content)
                await far_writer.drain()
            far_writer.write_eof()

        async def back() -> None:
            while content := await far_reader.read(65_536):
                writer.write(proxy.rewrite(content))
                await writer.drain()

        async def both() -> None:
            try:
                await asyncio.gather(there(), back())
            except (ConnectionError, OSError):
                return
            finally:
                writer.transport.abort()
                far_writer.transport.abort()

        task = asyncio.create_task(both())
        tasks.add(task)

    server = await asyncio.start_unix_server(serve, place)
    try:
        yield proxy
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
