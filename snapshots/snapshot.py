"""The snapshot noun: permanent workspaces, immutable snapshots, and the views peers get of them.

Values and protocols only: no I/O. The contract suite is tests/contracts/test_snapshots.py.
All paths are absolute host paths of ours. Agents' files are hostile: see docs/security.md 5.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from snapshots.texts import settle


@dataclass(frozen=True, kw_only=True)
class WorkspaceId:
    """Names one agent's workspace in one run. Both parts are ids of ours: `[a-z0-9][a-z0-9-]*`."""

    run: str
    agent: str


@dataclass(frozen=True, kw_only=True)
class Author:
    """Recorded as author and committer of a snapshot."""

    name: str
    email: str


@dataclass(frozen=True, kw_only=True)
class Budget:
    """How much a snapshot may hold. `max_files` counts folders too, also empty ones; `max_ignored_bytes` bounds what
    the peers' tree carries of ignored files. More folders than that, or three times as many things, are over the
    budget even when they are ignored: then the workspace is not looked through to its end."""

    max_bytes: int = 2 * 1024**3
    max_files: int = 200_000
    max_ignored_bytes: int = 4 * 1024**3


@dataclass(frozen=True, kw_only=True)
class Base:
    """The commit that a run starts from, imported into our bare repository and pinned there.

    `commit` is what workspaces start at (with `--include-dirty`: one commit of ours on top of `source_commit`);
    `branch` is the user's branch at that moment (None: detached, or no repository). `warnings` are plain
    sentences for the user (LFS pointers kept, a submodule that is not initialised, shallow history ...).
    """

    run: str
    repository: Path | None
    bare: Path
    commit: str
    source_commit: str | None
    branch: str | None
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        settle(self)


@dataclass(frozen=True, kw_only=True)
class Workspace:
    """An agent's permanent folders: `path` -> /workspace, `home` -> /home/agent. Both belong to `uid`:`gid`."""

    id: WorkspaceId
    path: Path
    home: Path


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """A workspace at one moment: a commit in our bare repository plus an immutable tree on disk.

    `git_tree` identifies the content (equal content, equal id). `about` are plain sentences on what the commit or the
    peers' tree leaves out (a FIFO, ignored files over their budget, a nested repository's history ...).
    `paths` are the paths that differ from the parent, valid UTF-8 (`\\xNN` for other bytes), at most 1,000 of
    `changed_files`.
    """

    workspace: WorkspaceId
    ref: str
    commit: str
    git_tree: str
    tree: Path
    changed_files: int
    paths: tuple[str, ...]
    about: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        settle(self)


@dataclass(frozen=True, kw_only=True)
class Unchanged:
    """No snapshot was taken: the workspace equals what it was compared with (`against`: "base", or a ref)."""

    against: str


@dataclass(frozen=True, kw_only=True)
class OverBudget:
    """No snapshot was taken: too big. `reason` is one sentence that names the largest paths and the limit."""

    reason: str

    def __post_init__(self) -> None:
        settle(self)


FreezeResult = Snapshot | Unchanged | OverBudget


@dataclass(frozen=True, kw_only=True)
class View:
    """A peer's snapshot for one turn: `lower` immutable, `upper`/`work` private scratch for an overlay mount.

    `upper` holds whiteouts for the names that are masked (CLIs' instruction files).
    """

    lower: Path
    upper: Path
    work: Path


@dataclass(frozen=True, kw_only=True)
class Usage:
    """What one run holds on disk."""

    run: str
    size_bytes: int
    files: int


class SnapshotStore(Protocol):
    """Where workspaces and snapshots live. Blocking calls inside run in threads; every git call has a timeout."""

    async def create_workspace(self, base: Base, workspace: WorkspaceId, branch: str) -> Workspace:
        """The agent's workspace: an independent clone of `base` on `branch`. Idempotent: an existing one is kept."""

    async def freeze(
        self,
        base: Base,
        workspace: WorkspaceId,
        *,
        name: str,
        message: str,
        author: Author,
        taken_at: int,
        budget: Budget,
        refuse_unchanged: bool = True,
    ) -> FreezeResult:
        """Record the workspace as `refs/massgend/<run>/<agent>/<name>`, on top of its newest snapshot or the base.

        To be called only while nothing can write to the workspace. Idempotent by `name`: a ref that exists is
        returned as it is, never taken twice. Raises SnapshotFailed (disk full, ...): then no ref was made and the
        workspace is untouched. `taken_at`: seconds since the epoch.
        """

    async def snapshots(self, base: Base, workspace: WorkspaceId) -> tuple[Snapshot, ...]:
        """The snapshots recorded for this workspace, oldest first (from refs, not from memory)."""

    async def open_view(self, snapshot: Snapshot, *, run: str, agent: str, turn: int, label: str) -> View:
        """Make the scratch for a peer's view in the given agent's turn."""

    async def close_views(self, run: str, agent: str, turn: int | None = None) -> None:
        """Delete that turn's scratch (None: all turns'), also what belongs to other users in overlay work folders."""

    async def open_check(self, snapshot: Snapshot, *, run: str, name: str) -> View:
        """Scratch over a snapshot for a check's sandbox (nothing masked). Closed with `close_check`."""

    async def close_check(self, run: str, name: str) -> None: ...

    async def changed(self, base: Base, workspace: WorkspaceId) -> bool:
        """Does the workspace differ from its newest snapshot (or the base)? Only while nothing can write."""

    async def usage(self, runs: Sequence[str] | None = None) -> tuple[Usage, ...]: ...

    async def release_trees(self, run: str) -> None:
        """Drop the peers' trees of a finished run; commits, refs and workspaces stay."""

    async def delete_run(self, run: str) -> int:
        """Delete workspaces, trees and refs of a run; the bytes freed. Never follows a link out of its folders."""
