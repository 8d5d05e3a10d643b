"""The user's repository: what we read from it, the refs we leave in it, and the merge.

Values and the protocol only; all texts in values are valid UTF-8 (`\\xNN` for other bytes). The user's work is sacred:
nothing is ever overwritten, no hook is run, no prompt can block, only refs under `massgend/` are created, moved or
deleted. Contract: tests/git/.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from snapshots.snapshot import Base
from snapshots.texts import settle


class MergeMode(StrEnum):
    AUTO = "auto"
    BRANCH = "branch"
    ASK = "ask"
    SQUASH = "squash"
    NONE = "none"


class MergeStatus(StrEnum):
    MERGED = "merged"
    UP_TO_DATE = "up_to_date"
    NOT_MERGED = "not_merged"


@dataclass(frozen=True, kw_only=True)
class RepositoryReport:
    """What stands at a path, before anything starts. `problem`: a sentence with what to do, or None: it can be used."""

    path: Path
    root: Path | None
    head: str | None
    branch: str | None
    dirty_files: int
    problem: str | None
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        settle(self)


@dataclass(frozen=True, kw_only=True)
class MergeReport:
    """What the merge did, or why it did nothing.

    `reason`: one sentence (also when merged: how). `commands`: what the user types next, exact, to finish by hand
    (not merged) or to undo (merged). `conflicts`: paths. `risky`: paths that the merge brings and that run code on
    the user's side later. `before`/`after`: the branch's commit. `stat`: lines of `git diff --stat`.
    """

    status: MergeStatus
    reason: str
    branch: str | None = None
    before: str | None = None
    after: str | None = None
    conflicts: tuple[str, ...] = ()
    risky: tuple[str, ...] = ()
    stat: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        settle(self)


@dataclass(frozen=True, kw_only=True)
class ReviewBranch:
    """A ref `refs/heads/massgend/<run>/<agent>` in the user's repository. `merged`: HEAD contains it."""

    name: str
    run: str
    agent: str
    commit: str
    merged: bool


class UserRepository(Protocol):
    """One user's repository. Calls block their own thread only; every git call has a timeout."""

    async def look(self, path: Path) -> RepositoryReport:
        """Read-only. A missing path, a bare or broken repository, an unborn branch ... is a `problem`, or is usable."""

    async def import_base(self, path: Path | None, *, run: str, include_dirty: bool) -> Base:
        """Bring HEAD's commit into our bare repository, pinned as `refs/massgend/<run>/base`. Idempotent by run.

        `path` None: an empty base. The user's repository is only read. Raises RepositoryRefused.
        """

    async def publish(self, base: Base, *, agent: str, commit: str) -> str:
        """Set `massgend/<run>/<agent>` in the user's repository to `commit` from our bare repository; the branch name.

        Raises RefTaken for a branch of that name that we did not make, that the user committed to, or that is checked
        out: it is never moved. Raises GitFailed when git's checks refuse the objects. No user's repository: "".
        """

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
        """Bring `commit` (already in the repository) into branch `into` (None: the branch checked out), as
        docs/workspaces.md says. A refusal is a value. Idempotent: a merge that is in already is UP_TO_DATE, also one
        that a killed daemon's git finished alone: a git that holds the index lock is waited for, about a minute.

        An `into` that no working tree has checked out is moved only when the user named it just now
        (`named_by_user`); else they have moved away since the run started, and nothing is touched.
        """

    async def deliver_folder(self, base: Base, *, commit: str, target: Path) -> Path:
        """For a run without a repository: write the files of `commit` to `target` (must not exist or be empty).

        Repeatable: a target that holds just these files already is taken as delivered. Raises RepositoryRefused.
        """

    async def check_target(self, target: Path) -> str | None:
        """One sentence on why a folder cannot be delivered to `target` (not empty, not writable ...), or None."""

    async def review_branches(self, repository: Path) -> tuple[ReviewBranch, ...]: ...

    async def discard(self, repository: Path, *, run: str, force: bool) -> tuple[str, ...]:
        """Delete our refs of a run in the user's repository; unmerged ones only with `force`, checked out ones never.
        The full names of the refs deleted."""
