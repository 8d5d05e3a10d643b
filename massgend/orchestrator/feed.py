"""Who wants to know: readers of a run are woken when something is new, and pull it themselves.

Nothing is queued for a reader, so a slow one costs nothing and slows nobody. Activities (what an agent does at this
moment) are kept as the newest one an agent only.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Doing:
    """What an agent does now. `version` grows with every change of the run's feed."""

    version: int
    at: float
    agent: str
    line: str
    changed_files: int


class Feed:
    """One run's bell. Used from the event loop's thread only."""

    def __init__(self) -> None:
        self.version = 0
        self.doing: dict[str, Doing] = {}
        self._bell = asyncio.Event()

    def ring(self) -> None:
        self.version += 1
        self._bell.set()
        self._bell = asyncio.Event()

    def show(self, agent: str, *, at: float, line: str | None = None, changed_files: int | None = None) -> None:
        """Replace what is shown of the agent; None keeps that part."""
        before = self.doing.get(agent)
        self.ring()
        self.doing[agent] = Doing(
            version=self.version,
            at=at,
            agent=agent,
            line=line if line is not None else before.line if before is not None else "",
            changed_files=changed_files
            if changed_files is not None
            else before.changed_files
            if before is not None
            else 0,
        )

    async def wait(self, seen: int, timeout_s: float) -> bool:
        """Return True once `version` is above `seen`, or False after `timeout_s`."""
        if self.version > seen:
            return True
        bell = self._bell
        try:
            async with asyncio.timeout(timeout_s):
                await bell.wait()
        except TimeoutError:
            return False
        return True


class Feeds:
    """The feeds of all runs that somebody writes to or reads from."""

    def __init__(self) -> None:
        self._feeds: dict[str, Feed] = {}

    def of(self, run_id: str) -> Feed:
        return self._feeds.setdefault(run_id, Feed())

    def forget(self, run_id: str) -> None:
        feed = self._feeds.pop(run_id, None)
        if feed is not None:
            feed.ring()
