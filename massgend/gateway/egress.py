"""One turn's way into the internet: CONNECT and plain proxy requests to the hosts on the list, and no further.

Resolves by itself, refuses addresses that are not public, and connects to the very address that it has checked.
"""

from __future__ import annotations

import asyncio
import base64
import socket
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from time import monotonic

from massgend.gateway.addresses import is_public
from massgend.gateway.egress_rules import EgressRules, Target
from massgend.gateway.proxy_head import BadHead, Head, parse_head
from massgend.gateway.secret import Secret

HEAD_S = 10.0
RESOLVE_S = 10.0
CONNECT_S = 10.0
LINGER_S = 5.0
MAX_HEAD_BYTES = 32 * 1024
PIECE_BYTES = 64 * 1024

Resolve = Callable[[str, int], Awaitable[tuple[str, ...]]]
"""Numeric addresses of a host. Raises OSError."""


_LOOK_UPS = ThreadPoolExecutor(max_workers=32, thread_name_prefix="look-up")
"""Threads of their own: a name server that does not answer must not hold up the daemon's other work."""


async def resolve(host: str, port: int) -> tuple[str, ...]:
    """Asks the system's resolver, in a thread."""
    ask = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    found = await asyncio.get_running_loop().run_in_executor(_LOOK_UPS, ask)
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in found))


@dataclass(frozen=True, kw_only=True)
class EgressRequest:
    """One request as it ended. `refused`: why it was not allowed or not reached, else None."""

    agent: str
    host: str
    port: int
    refused: str | None
    bytes_up: int
    bytes_down: int
    duration_s: float


@dataclass(frozen=True, kw_only=True)
class EgressLimits:
    """Of one turn. `look_ups`: at once, those counted in that nobody waits for any more; `idle_s`: a tunnel through
    which nothing passes for so long is closed."""

    tunnels: int = 64
    look_ups: int = 4
    idle_s: float = 300.0


@dataclass(kw_only=True)
class _Passed:
    up: int = 0
    down: int = 0


class _Refused(Exception):
    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


@dataclass(frozen=True, kw_only=True)
class Egress:
    """Serves proxy requests of one agent. `reached` is told of each one; it must not block.

    `is_open(address, port)` says which addresses may be connected to; tests may open chosen loopback ports with it.
    """

    agent: str
    rules: EgressRules
    reached: Callable[[EgressRequest], None]
    limits: EgressLimits = EgressLimits()
    resolve: Resolve = resolve
    is_open: Callable[[str, int], bool] = lambda address, _port: is_public(address)
    _looking: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_looking", asyncio.Semaphore(self.limits.look_ups))

    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: Secret, tunnels: int
    ) -> None:
        """One connection, one request. `tunnels`: how many this turn has open, this one included."""
        began = monotonic()
        passed = _Passed()
        target: Target | None = None
        refused: str | None = "the turn ended or the program hung up"
        try:
            head = await _read_head(reader)
            _check_token(head, token)
            target = head.target
            if tunnels > self.limits.tunnels:
                raise _Refused(429, f"more than {self.limits.tunnels} connections at once")
            far = await self._connect(target)
            refused = None
            await self._splice(head, (reader, writer), far, passed)
        except _Refused as refusal:
            refused = refusal.reason
            await _answer(writer, refusal)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            if refused is not None:
                refused = f"the connection broke: {type(error).__name__}"
        finally:
            writer.close()
            if target is not None:
                self.reached(
                    EgressRequest(
                        agent=self.agent,
                        host=target.host,
                        port=target.port,
                        refused=refused,
                        bytes_up=passed.up,
                        bytes_down=passed.down,
                        duration_s=monotonic() - began,
                    )
                )

    async def _connect(self, target: Target) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if not self.rules.allow(target.host, target.port):
            raise _Refused(403, f"{target.host}:{target.port} is not on this run's egress list")
        try:
            async with asyncio.timeout(RESOLVE_S):
                addresses = await self._look_up(target)
        except (OSError, TimeoutError):
            raise _Refused(502, f"{target.host} cannot be resolved") from None
        # One closed address among open ones is how a name is made to point inside: none of them is used then.
        if not addresses or not all(self.is_open(address, target.port) for address in addresses):
            raise _Refused(403, f"{target.host} has an address that is not public")
        for address in addresses:
            try:
                async with asyncio.timeout(CONNECT_S):
                    return await asyncio.open_connection(address, target.port)
            except (OSError, TimeoutError):
                continue
        raise _Refused(502, f"{target.host}:{target.port} cannot be reached")

    async def _look_up(self, target: Target) -> tuple[str, ...]:
        """A thread that asks cannot be ended: it keeps its turn's place until it is done, waited for or not."""
        await self._looking.acquire()
        asked = asyncio.ensure_future(self.resolve(target.host, target.port))

        def done(task: asyncio.Future[tuple[str, ...]]) -> None:
            self._looking.release()
            if not task.cancelled():
                task.exception()  # told to who waits; nobody may

        asked.add_done_callback(done)
        return await asyncio.shield(asked)

    async def _splice(
        self,
        head: Head,
        near: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        far: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        passed: _Passed,
    ) -> None:
        (near_reader, near_writer), (far_reader, far_writer) = near, far
        loop = asyncio.get_running_loop()

        async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, up: bool) -> None:
            while piece := await reader.read(PIECE_BYTES):
                if up:
                    passed.up += len(piece)
                else:
                    passed.down += len(piece)
                idle.reschedule(loop.time() + self.limits.idle_s)
                writer.write(piece)
                await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()
            if not up:  # the host has said all: a program that still holds the connection is not waited for long
                idle.reschedule(loop.time() + LINGER_S)

        try:
            if head.is_connect:
                near_writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                far_writer.write(head.onward)
                passed.up += len(head.onward)
            async with asyncio.timeout(self.limits.idle_s) as idle, asyncio.TaskGroup() as tasks:
                tasks.create_task(pump(near_reader, far_writer, up=True))
                tasks.create_task(pump(far_reader, near_writer, up=False))
        except* (OSError, TimeoutError):
            pass
        finally:
            far_writer.transport.abort()


async def _read_head(reader: asyncio.StreamReader) -> Head:
    try:
        async with asyncio.timeout(HEAD_S):
            return parse_head(await reader.readuntil(b"\r\n\r\n"))
    except BadHead as error:
        raise _Refused(400, str(error)) from None
    except asyncio.LimitOverrunError:
        raise _Refused(431, "the request's head is too large") from None


def _check_token(head: Head, token: Secret) -> None:
    scheme, _, value = head.authorization.partition(" ")
    given = ""
    if scheme.lower() == "bearer":
        given = value.strip()
    elif scheme.lower() == "basic":
        try:
            given = base64.b64decode(value.strip(), validate=True).decode().partition(":")[2]
        except ValueError:  # not base64, not ASCII, not UTF-8
            given = ""
    if not token.equals(given):
        raise _Refused(407, "the token is not this turn's")


async def _answer(writer: asyncio.StreamWriter, refusal: _Refused) -> None:
    body = f"massgend: {refusal.reason}\n".encode()
    lines = [
        f"HTTP/1.1 {refusal.status} Refused",
        "Content-Type: text/plain; charset=utf-8",
        f"Content-Length: {len(body)}",
        "Connection: close",
    ]
    if refusal.status == 407:
        lines.append('Proxy-Authenticate: Basic realm="massgend"')
    try:
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        async with asyncio.timeout(HEAD_S):
            await writer.drain()
    except (OSError, TimeoutError):
        return
