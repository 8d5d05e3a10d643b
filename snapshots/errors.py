"""What can go wrong with workspaces, snapshots and the user's repository, and what the caller should do.

SnapshotError
├── RepositoryRefused   the user's repository cannot be used: tell the user why, nothing was made
├── RefTaken            a branch of the user's stands where ours should: tell the user its name, leave it
├── SnapshotFailed      not recorded, the workspace is as it was: the answer is not accepted, try again or give up
├── WorkspaceFailed     a workspace could not be made: the run fails, say why
└── GitFailed           a git command failed; `argv`, `exit_code`, `stderr`: the first error is the one shown
"""

from __future__ import annotations

from collections.abc import Sequence

from snapshots.texts import readable


class SnapshotError(Exception):
    """Base of this package's errors. The message, valid UTF-8, says what failed, on what, and what to do next."""

    def __init__(self, message: str) -> None:
        super().__init__(readable(message))


class RepositoryRefused(SnapshotError):
    pass


class RefTaken(SnapshotError):
    pass


class SnapshotFailed(SnapshotError):
    pass


class WorkspaceFailed(SnapshotError):
    pass


class GitFailed(SnapshotError):
    def __init__(self, argv: Sequence[str], exit_code: int | None, stderr: str) -> None:
        self.argv = tuple(map(readable, argv))
        self.exit_code = exit_code
        self.stderr = readable(stderr)
        how = "timed out" if exit_code is None else f"failed with exit code {exit_code}"
        super().__init__(f"{' '.join(self.argv)} {how}: {stderr.strip() or 'no message'}")
