"""A merge that was asked for, and what in the state of the repository forbids it before anything is computed."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from snapshots.checkouts import Checkout, under_way, worktrees
from snapshots.merge_result import preview
from snapshots.next_commands import git_at, merge_by_hand
from snapshots.repository import MergeReport, MergeStatus


@dataclass(frozen=True, kw_only=True)
class Request:
    """A merge that somebody asked for. `name` is what they would type for `commit`; `before` None: an unborn branch.

    `uncommitted_on`: `before` holds what was uncommitted on top of this commit until a moment ago.
    """

    checkout: Checkout
    run: str
    commit: str
    name: str
    branch: str
    before: str | None
    squash: bool
    message: str
    uncommitted_on: str | None = None

    @property
    def here(self) -> bool:
        return self.checkout.branch == self.branch

    def by_hand(self, folder: Path | None = None, *, unrelated: bool = False) -> tuple[str, ...]:
        return merge_by_hand(folder or self.checkout.root, self.name, squash=self.squash, unrelated=unrelated)

    def not_merged(
        self, reason: str, commands: tuple[str, ...] | None = None, *, conflicts: tuple[str, ...] = ()
    ) -> MergeReport:
        risky, stat = preview(self.checkout, self.before, self.commit)
        return MergeReport(
            status=MergeStatus.NOT_MERGED,
            reason=reason,
            branch=self.branch,
            before=self.before,
            conflicts=conflicts,
            risky=risky,
            stat=stat,
            commands=self.by_hand() if commands is None else commands,
        )


def hindrance(request: Request, named_by_user: bool) -> MergeReport | None:
    """Reasons that lie in the state of the repository, before anything is computed."""
    checkout, branch = request.checkout, request.branch
    holders = [worktree for worktree in worktrees(checkout) if worktree.branch == branch]
    elsewhere = (
        [worktree.path for worktree in holders if not worktree.path.samefile(checkout.root)]
        if all(worktree.path.exists() for worktree in holders)
        else [worktree.path for worktree in holders]
    )
    operation = under_way(checkout)
    if elsewhere:
        where = elsewhere[0]
        return request.not_merged(
            f"{branch} is checked out or in work in {where}: merge there.", request.by_hand(where)
        )
    if operation and (request.here or holders):
        return request.not_merged(
            f"{operation.capitalize()} is under way in {checkout.root}: finish or abort it, then merge.",
            (git_at(checkout.root, "status"), *(() if request.here else to_branch(request)), *request.by_hand()),
        )
    if not request.here:
        if named_by_user:
            return None
        return request.not_merged(
            f"{checkout.root} is no longer on {branch}: nothing was touched there.",
            (*to_branch(request), *request.by_hand()),
        )
    if os.path.lexists(checkout.git_dir / "index.lock"):
        lock = checkout.git_dir / "index.lock"
        return request.not_merged(f"Another git command is at work in {checkout.root} ({lock}): merge when it is done.")
    if checkout.git.run("ls-files", "--unmerged", "-z"):
        return request.not_merged(
            f"There are unresolved conflicts in {checkout.root}: resolve them, then merge.",
            (git_at(checkout.root, "status"), *request.by_hand()),
        )
    return None


def _same_folder(one: Path, other: Path) -> bool:
    """A working tree whose folder is gone (or is on a disk that is not mounted) is no other's."""
    return one.exists() and one.samefile(other)


def to_branch(request: Request) -> tuple[str, ...]:
    return (git_at(request.checkout.root, "switch", request.branch),)
