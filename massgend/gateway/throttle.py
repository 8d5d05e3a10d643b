"""One key's traffic: so many calls at once, and when the provider says "later", later for every agent of that key."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from massgend.gateway.refusals import Kind, Refusal


@dataclass(frozen=True, kw_only=True)
class Pace:
    """`at_once`: calls of one key under way. `patience_s`: how long a call waits in all before it gets the refusal.

    Without a Retry-After the wait begins at `backoff_s` and doubles up to `longest_backoff_s`.
    """

    at_once: int = 16
    patience_s: float = 60.0
    attempts: int = 5
    backoff_s: float = 1.0
    longest_backoff_s: float = 30.0


class Throttle:
    """Shared by all agents of a key. Used from the event loop only."""

    def __init__(self, pace: Pace, chance: random.Random) -> None:
        self._pace = pace
        self._chance = chance
        self._places = asyncio.Semaphore(pace.at_once)
        self._open_at = 0.0
        self._refusals = 0

    @asynccontextmanager
    async def place(self, deadline: float) -> AsyncIterator[None]:
        """One of the places for calls under way. Raises Refusal when none is free until `deadline` (loop time)."""
        try:
            async with asyncio.timeout_at(deadline):
                await self._places.acquire()
        except TimeoutError:
            raise Refusal(
                Kind.RATE,
                f"massgend: {self._pace.at_once} calls of this key are under way already, and none ended in time",
                retry_after_s=self._pace.backoff_s,
            ) from None
        try:
            yield
        finally:
            self._places.release()

    async def wait_open(self) -> None:
        """Returns when the provider may be asked again; a little apart for each of those who wait."""
        loop = asyncio.get_running_loop()
        while (wait := self._open_at - loop.time()) > 0:  # noqa: ASYNC110 - "later" may move meanwhile
            await asyncio.sleep(wait + self._chance.uniform(0, 0.1 * wait))

    def open_in(self) -> float:
        """Seconds until then."""
        return max(0.0, self._open_at - asyncio.get_running_loop().time())

    def hold(self, retry_after_s: float | None) -> float:
        """The provider said "later": nobody asks for that long. Returns the seconds."""
        if retry_after_s is None:
            doubled = min(self._pace.longest_backoff_s, self._pace.backoff_s * 2 ** min(self._refusals, 16))
            retry_after_s = doubled * self._chance.uniform(0.75, 1.0)
        self._refusals += 1
        self._open_at = max(self._open_at, asyncio.get_running_loop().time() + retry_after_s)
        return retry_after_s

    def served(self) -> None:
        """The provider answered."""
        self._refusals = 0
