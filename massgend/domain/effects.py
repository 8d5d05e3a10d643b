"""What the machine wants done. The orchestrator carries effects out and reports with the same `step`.

Carrying an effect out twice (after a crash) must come to the same: each is idempotent by run, agent and step.
"""

from __future__ import annotations

from dataclasses import dataclass

from massgend.domain.context import TurnContext
from massgend.domain.events import Clock
from massgend.domain.run import AnswerId, StopReason


@dataclass(frozen=True, kw_only=True)
class Prepare:
    """Base and one workspace an agent. Reports Prepared or PrepareFailed."""

    step: int


@dataclass(frozen=True, kw_only=True)
class StartTurn:
    """Reports TurnStarted, at most one HandedIn, and for certain TurnEnded once nothing of it runs."""

    step: int
    agent: str
    context: TurnContext


@dataclass(frozen=True, kw_only=True)
class InterruptTurn:
    """End the turn: told first, `grace_s` to finish the current tool call. Reports TurnEnded (of StartTurn)."""

    step: int
    agent: str
    grace_s: float
    why: StopReason


@dataclass(frozen=True, kw_only=True)
class EndTurn:
    """The decision is in: end the turn at once. Reports TurnEnded (of StartTurn)."""

    step: int
    agent: str


@dataclass(frozen=True, kw_only=True)
class Notify:
    """Say something to the agent in its running turn."""

    step: int
    agent: str
    text: str


@dataclass(frozen=True, kw_only=True)
class FreezeSnapshot:
    """Record the workspace under `name` (`refs/massgend/<run>/<label>/<name>`), `presented` for a presentation.

    Reports SnapshotTaken, SnapshotRefused or SnapshotFailed.
    """

    step: int
    agent: str
    name: str
    summary: str


@dataclass(frozen=True, kw_only=True)
class RunChecks:
    """Reports ChecksFinished, also when the checks could not be run."""

    step: int
    answer: AnswerId


@dataclass(frozen=True, kw_only=True)
class PublishBranch:
    """Point `massgend/<run>/<agent>` at `commit`. Reports BranchPublished."""

    agent: str
    commit: str


@dataclass(frozen=True, kw_only=True)
class SetTimer:
    """Report TimerFired at `due_at` (seconds since the epoch), or soon when that is past."""

    clock: Clock
    due_at: float
    agent: str | None = None
    step: int | None = None


@dataclass(frozen=True, kw_only=True)
class Deliver:
    """The winner's branch, and the merge, of the snapshot of `answer`, voted or presented.

    Reports Delivered, also when nothing could be merged.
    """

    step: int
    answer: AnswerId


@dataclass(frozen=True, kw_only=True)
class Close:
    """Take away everything of the run but workspaces, refs and branches. Reports Closed."""

    step: int


Effect = (
    Prepare
    | StartTurn
    | InterruptTurn
    | EndTurn
    | Notify
    | FreezeSnapshot
    | RunChecks
    | PublishBranch
    | SetTimer
    | Deliver
    | Close
)
