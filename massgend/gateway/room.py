"""Memory for large request bodies: bounded for a turn and for the daemon, since a body is held until its call ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from massgend.gateway.refusals import Kind, Refusal

MEBIBYTE = 1024**2


@dataclass(frozen=True, kw_only=True)
class Space:
    """Bytes. Bodies up to `small` are not counted: a turn's calls at once bound them. `patience_s`: a call's wait."""

    daemon: int = 512 * MEBIBYTE
    turn: int = 64 * MEBIBYTE
    small: int = MEBIBYTE
    patience_s: float = 60.0


class Room:
    """Shared by all turns of the daemon. Used from the event loop only. `most` is the most that was ever taken."""

    def __init__(self, space: Space | None = None) -> None:
        self.space = space or Space()
        self.taken = 0
        self.most = 0
        self.changed = asyncio.Condition()

    def turn(self) -> TurnRoom:
        return TurnRoom(self)


class TurnRoom:
    """One turn's share: an agent that sends much waits for itself before others wait for it."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._taken = 0

    @asynccontextmanager
    async def hold(self, size: int) -> AsyncIterator[None]:
        """Room for a body until left. Raises Refusal when there is none in time."""
        room, space = self._room, self._room.space
        if size <= space.small:
            yield
            return
        size = min(size, space.turn, space.daemon)
        try:
            async with asyncio.timeout(space.patience_s), room.changed:
                await room.changed.wait_for(
                    lambda: self._taken + size <= space.turn and room.taken + size <= space.daemon
                )
                self._add(size)
        except TimeoutError:
            raise Refusal(
                Kind.RATE,
                "massgend: too many large requests at once: wait for others to end, or send less",
                retry_after_s=space.patience_s,
            ) from None
        try:
            yield
        finally:
            self._add(-size)
            async with room.changed:
                room.changed.notify_all()

    def _add(self, size: int) -> None:
        self._taken += size
        self._room.taken += size
        self._room.most = max(self._room.most, self._room.taken)
