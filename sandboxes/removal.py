"""Takes away whatever carries given labels: containers first, then the volumes that they held."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from sandboxes.docker_engine import DockerEngine
from sandboxes.errors import SandboxRefused

# The engine says "in use" or "busy" for a moment after a container is gone.
RETRY_AFTER_S = (0.05, 0.2, 0.5, 1.0, 2.0)


async def take_away(engine: DockerEngine, labels: Sequence[str]) -> int:
    """How many were removed. What somebody else removes meanwhile is fine. Raises when something could not be."""
    found = await engine.find(labels)
    removed = 0
    for kind, remove in (("container", engine.remove_container), ("volume", engine.remove_volume)):
        results = await asyncio.gather(
            *(_patiently(remove, one.id) for one in found if one.kind == kind), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result
            removed += result
    return removed


async def _patiently(remove: Callable[[str], Awaitable[bool]], name: str) -> bool:
    for delay_s in RETRY_AFTER_S:
        try:
            return await remove(name)
        except SandboxRefused:
            await asyncio.sleep(delay_s)
    return await remove(name)
