"""The first look at a connection: proxy requests go to the egress, all others to the HTTP server, which then has it
to itself. So the way to the models costs one look at the first bytes.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Callable
from typing import cast

from massgend.gateway.egress import HEAD_S, MAX_HEAD_BYTES, Egress
from massgend.gateway.secret import Secret

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 256
"""Of one turn: a program that opens more must not take the daemon's file descriptors from the others."""

LONGEST_METHOD = 16


class Front:
    """Makes the protocols of a turn's connections, and cuts every connection when the turn is over."""

    def __init__(self, *, http: Callable[[], asyncio.Protocol], egress: Egress | None, token: Secret) -> None:
        self.http = http
        self.egress = egress
        self.token = token
        self.closed = False
        self._transports: weakref.WeakSet[asyncio.Transport] = weakref.WeakSet()
        self._tunnels: set[asyncio.Task[None]] = set()

    def __call__(self) -> asyncio.Protocol:
        return _FirstLook(self)

    def admit(self, transport: asyncio.Transport) -> bool:
        """Counts a new connection; False: one too many, or too late."""
        open_ones = sum(1 for known in self._transports if not known.is_closing())
        if self.closed or open_ones >= MAX_CONNECTIONS:
            return False
        self._transports.add(transport)
        return True

    def start_tunnel(self, transport: asyncio.Transport, seen: bytes) -> None:
        egress = self.egress
        if egress is None:
            transport.write(b"HTTP/1.1 403 Refused\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
            transport.close()
            return

        def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.get_running_loop().create_task(
                egress.serve(reader, writer, self.token, len(self._tunnels) + 1)
            )
            self._tunnels.add(task)
            task.add_done_callback(self._tunnel_ended)

        reader = asyncio.StreamReader(limit=MAX_HEAD_BYTES)
        protocol = asyncio.StreamReaderProtocol(reader, begin)
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        protocol.data_received(seen)

    def _tunnel_ended(self, task: asyncio.Task[None]) -> None:
        self._tunnels.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a tunnel failed unexpectedly: %s", type(error).__name__, exc_info=error)

    async def aclose(self) -> None:
        """Every tunnel ends now; every other connection is cut."""
        self.closed = True
        tunnels = tuple(self._tunnels)
        for task in tunnels:
            task.cancel()
        await asyncio.gather(*tunnels, return_exceptions=True)
        for transport in tuple(self._transports):
            # One that flushed its last bytes while it closed is over, and must not be aborted any more.
            if transport.get_extra_info("socket").fileno() != -1:
                transport.abort()


class _FirstLook(asyncio.Protocol):
    def __init__(self, front: Front) -> None:
        self._front = front
        self._seen = b""
        self._transport: asyncio.Transport | None = None
        self._late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if not self._front.admit(self._transport):
            self._transport.abort()
            return
        self._late = asyncio.get_running_loop().call_later(HEAD_S, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self._seen += data
        method, space, rest = self._seen.partition(b" ")
        if not (space and rest) and len(self._seen) <= LONGEST_METHOD:
            return
        self._forget()
        # An own path ("/...") is asked of the gateway itself; whatever else is asked of it as a proxy.
        if space and method.isalpha() and not rest.startswith(b"/"):
            self._front.start_tunnel(self._transport, self._seen)
            return
        protocol = self._front.http()
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        protocol.data_received(self._seen)

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()

    def _forget(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None
