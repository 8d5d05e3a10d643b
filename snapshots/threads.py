"""A blocking call in a thread, waited for to its end: whoever is cancelled meanwhile gets the cancellation only then.

Both kinds count, a cancelled scope of anyio's and a plain `task.cancel()`, and the end of the loop, which cancels
every task: what guards the call (locks, the limiter) is held until the thread has ended. The call must be bounded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

from anyio import CancelScope, CapacityLimiter

T = TypeVar("T")


async def to_its_end(call: Callable[[], T], limiter: CapacityLimiter) -> T:
    """The result of `call`, or its error. Cancelled while it runs: CancelledError after it has ended."""
    async with limiter:
        thread = ThreadPoolExecutor(1, thread_name_prefix="massgend-snapshots")
        try:
            # A future, not a task: the end of the loop cancels tasks, and then nobody would wait for the thread.
            result = asyncio.get_running_loop().run_in_executor(thread, copy_context().run, call)
        finally:
            thread.shutdown(wait=False)
        await _done(result)
        return result.result()


async def _done(result: asyncio.Future[T]) -> None:
    cancelled: asyncio.CancelledError | None = None
    with CancelScope(shield=True):
        while not result.done():
            try:
                await asyncio.wait((result,))
            except asyncio.CancelledError as error:
                cancelled = error
    if cancelled is not None:
        result.exception()  # looked at, so that nobody is told of an error that came too late to matter
        raise cancelled
