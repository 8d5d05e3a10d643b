"""Work that must finish although the one who waits for it is cancelled, even twice: cleanups.

asyncio's own cancellation goes through anyio's shields, so a cleanup runs in a task of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import anyio

T = TypeVar("T")


class Cleanups:
    """Holds the cleanups under way; whoever owns this calls `settle` before it goes."""

    def __init__(self) -> None:
        self._under_way: set[asyncio.Task[Any]] = set()

    async def see_through(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for `work`. When cancelled, wait on (unless cancelled once more): `work` runs to its end anyway."""
        task = self.add(work)
        with anyio.CancelScope(shield=True):
            try:
                await asyncio.shield(task)
            except asyncio.CancelledError:
                await asyncio.wait([task])
                raise
        return task.result()

    def add(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start `work` without waiting for it; `settle` does."""
        task = asyncio.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._forget)
        return task

    async def settle(self) -> None:
        with anyio.CancelScope(shield=True):
            while self._under_way:
                await asyncio.wait(set(self._under_way))

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            task.exception()  # seen by the one who waited, or by nobody any more
