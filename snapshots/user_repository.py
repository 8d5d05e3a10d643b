"""The async face of the user's repository: each call runs in a thread of its own limiter, never in the event loop.

A call that was started is always waited for: half a merge in the background would be worse than a late cancel. It
ends, because every git command has a timeout.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar
from weakref import WeakValueDictionary

from anyio import CapacityLimiter, Lock

from snapshots import branches, checkouts, delivery, imports, merge, patience
from snapshots.repository import MergeMode, MergeReport, RepositoryReport, ReviewBranch
from snapshots.snapshot import Base
from snapshots.threads import to_its_end

T = TypeVar("T")


class GitUserRepository:
    """`UserRepository` with real git. `state`: our folder, which holds `repos/`. Keeps nothing in memory.

    `patience_s`: how long a merge waits for another git that has the index locked.
    """

    def __init__(
        self,
        state: Path,
        *,
        threads: int = 4,
        clock: Callable[[], float] = time.time,
        patience_s: float = patience.PATIENCE_S,
    ) -> None:
        self._repos = state / "repos"
        self._patience_s = patience_s
        self._clock = clock
        self._threads = threads
        self._limiter: CapacityLimiter | None = None
        # Two runs that end at once must not meet at the index of their repository: the second would be refused.
        self._writing: WeakValueDictionary[Path, Lock] = WeakValueDictionary()

    async def look(self, path: Path) -> RepositoryReport:
        return await self._in_thread(partial(checkouts.look, path))

    async def import_base(self, path: Path | None, *, run: str, include_dirty: bool) -> Base:
        now = int(self._clock())
        call = partial(imports.import_base, self._repos, path, run=run, include_dirty=include_dirty, now=now)
        return await self._in_thread(call)

    async def publish(self, base: Base, *, agent: str, commit: str) -> str:
        call = partial(branches.publish, base, agent=agent, commit=commit)
        if base.repository is None:
            return await self._in_thread(call)
        async with self._alone_in(base.repository):
            return await self._in_thread(call)

    async def merge(
        self,
        repository: Path,
        *,
        run: str,
        commit: str,
        into: str | None,
        mode: MergeMode,
        message: str,
        named_by_user: bool = False,
    ) -> MergeReport:
        call = partial(
            merge.merge,
            repository,
            run=run,
            commit=commit,
            into=into,
            mode=mode,
            message=message,
            named_by_user=named_by_user,
            patience_s=self._patience_s,
        )
        async with self._alone_in(repository):
            return await self._in_thread(call)

    async def deliver_folder(self, base: Base, *, commit: str, target: Path) -> Path:
        async with self._alone_in(target):
            return await self._in_thread(partial(delivery.deliver_folder, base, commit=commit, target=target))

    async def check_target(self, target: Path) -> str | None:
        return await self._in_thread(partial(delivery.check_target, target))

    async def review_branches(self, repository: Path) -> tuple[ReviewBranch, ...]:
        return await self._in_thread(partial(branches.review_branches, repository))

    async def discard(self, repository: Path, *, run: str, force: bool) -> tuple[str, ...]:
        async with self._alone_in(repository):
            return await self._in_thread(partial(branches.discard, repository, run=run, force=force))

    def _alone_in(self, repository: Path) -> Lock:
        # Not `resolve`: it raises for a link that leads to itself.
        return self._writing.setdefault(Path(os.path.realpath(repository)), Lock())

    async def _in_thread(self, call: Callable[[], T]) -> T:
        if self._limiter is None:
            self._limiter = CapacityLimiter(self._threads)
        return await to_its_end(call, self._limiter)
