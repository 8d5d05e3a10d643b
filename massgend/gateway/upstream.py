"""The upstream noun: who answers a call that the gateway has let through. The live provider, a recorder, a replay."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol

from massgend.gateway.bodies import Prepared
from massgend.gateway.secret import Secret


@dataclass(frozen=True, kw_only=True)
class Outgoing:
    """A call on its way out. `token` is the turn's, which no record may hold; `headers` are allowed ones.

    `held` is set by an upstream while the call waits and has reached nobody: ended then, it has used nothing.
    """

    agent: str
    prepared: Prepared
    headers: Mapping[str, str]
    token: Secret
    held: asyncio.Event = field(default_factory=asyncio.Event, compare=False)


@dataclass(frozen=True, kw_only=True)
class Reply:
    """A successful answer as it begins. `chunks` yields bytes as they come, and raises Refusal when they break off.

    `secrets` must not be completed by the chunks.
    """

    status: int
    content_type: str
    chunks: AsyncIterator[bytes]
    headers: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[Secret, ...] = ()


class Upstream(Protocol):
    def open(self, outgoing: Outgoing) -> AbstractAsyncContextManager[Reply]:
        """Ask. Raises Refusal for every answer that is an error. Leaving closes the connection at once."""
