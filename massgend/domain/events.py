"""What happens to a run: the machine's only input, journalled in this order. `at` is seconds since the epoch.

Reports of effects carry the effect's `step`; a report whose step is not the awaited one changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from massgend.domain.run import BaseRecord, Cause, CheckResult, Choice, Delivery, SnapshotRecord, UsageRecord
from massgend.domain.task import Task


@dataclass(frozen=True, kw_only=True)
class RunRequested:
    """`labels`: agent name -> this run's random anonymous label."""

    at: float
    run: str
    task: Task
    labels: Mapping[str, str]
    type: Literal["run_requested"] = "run_requested"


@dataclass(frozen=True, kw_only=True)
class Prepared:
    at: float
    step: int
    base: BaseRecord
    type: Literal["prepared"] = "prepared"


@dataclass(frozen=True, kw_only=True)
class PrepareFailed:
    at: float
    step: int
    reason: str
    type: Literal["prepare_failed"] = "prepare_failed"


@dataclass(frozen=True, kw_only=True)
class TurnStarted:
    at: float
    agent: str
    step: int
    type: Literal["turn_started"] = "turn_started"


@dataclass(frozen=True, kw_only=True)
class HandedIn:
    """The agent decided. Journalled before the agent is told that it was received."""

    at: float
    agent: str
    step: int
    choice: Choice
    type: Literal["handed_in"] = "handed_in"


class TurnEnd(StrEnum):
    DECIDED = "decided"
    UNDECIDED = "undecided"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, kw_only=True)
class TurnEnded:
    """Nothing of the turn runs any more. `retry_after_s`: the provider's wish, honoured before the next try."""

    at: float
    agent: str
    step: int
    end: TurnEnd
    reason: str = ""
    retry_after_s: float | None = None
    type: Literal["turn_ended"] = "turn_ended"


@dataclass(frozen=True, kw_only=True)
class SnapshotTaken:
    at: float
    agent: str
    step: int
    snapshot: SnapshotRecord
    type: Literal["snapshot_taken"] = "snapshot_taken"


@dataclass(frozen=True, kw_only=True)
class SnapshotRefused:
    """Nothing to save (`unchanged`), or too much; `reason` is told to the agent."""

    at: float
    agent: str
    step: int
    reason: str
    unchanged: bool = False
    type: Literal["snapshot_refused"] = "snapshot_refused"


@dataclass(frozen=True, kw_only=True)
class SnapshotFailed:
    at: float
    agent: str
    step: int
    reason: str
    type: Literal["snapshot_failed"] = "snapshot_failed"


@dataclass(frozen=True, kw_only=True)
class ChecksFinished:
    at: float
    step: int
    results: tuple[CheckResult, ...]
    type: Literal["checks_finished"] = "checks_finished"


@dataclass(frozen=True, kw_only=True)
class BranchPublished:
    """`branch` "" when there is no repository; `problem`: why there is no branch."""

    at: float
    agent: str
    branch: str
    problem: str | None = None
    type: Literal["branch_published"] = "branch_published"


class Clock(StrEnum):
    """The timers that the machine sets."""

    TURN_WRAP_UP = "turn_wrap_up"
    TURN_LIMIT = "turn_limit"
    PROTECTION = "protection"
    BACKOFF = "backoff"
    RUN_WRAP_UP = "run_wrap_up"
    RUN_LIMIT = "run_limit"


@dataclass(frozen=True, kw_only=True)
class TimerFired:
    """`agent`/`step` as in the effect that set it; None for the run's own timers."""

    at: float
    clock: Clock
    agent: str | None = None
    step: int | None = None
    type: Literal["timer_fired"] = "timer_fired"


@dataclass(frozen=True, kw_only=True)
class CloseRequested:
    """The user cancelled, or a budget is used up."""

    at: float
    cause: Cause
    type: Literal["close_requested"] = "close_requested"


@dataclass(frozen=True, kw_only=True)
class UsageReported:
    """What the agent has used in the whole run so far."""

    at: float
    agent: str
    usage: UsageRecord
    type: Literal["usage_reported"] = "usage_reported"


@dataclass(frozen=True, kw_only=True)
class BudgetUsedUp:
    """Further calls are refused: the run's (`agent` None) or one agent's."""

    at: float
    reason: str
    agent: str | None = None
    type: Literal["budget_used_up"] = "budget_used_up"


@dataclass(frozen=True, kw_only=True)
class Delivered:
    at: float
    step: int
    delivery: Delivery
    type: Literal["delivered"] = "delivered"


@dataclass(frozen=True, kw_only=True)
class Closed:
    """Nothing of the run is left in the engine. `trouble`: what could not be cleaned up, plain sentences."""

    at: float
    step: int
    trouble: tuple[str, ...] = ()
    type: Literal["closed"] = "closed"


@dataclass(frozen=True, kw_only=True)
class DaemonRestarted:
    """The daemon came back: whatever was under way is over for certain, and is taken up again."""

    at: float
    type: Literal["daemon_restarted"] = "daemon_restarted"


Event = (
    RunRequested
    | Prepared
    | PrepareFailed
    | TurnStarted
    | HandedIn
    | TurnEnded
    | SnapshotTaken
    | SnapshotRefused
    | SnapshotFailed
    | ChecksFinished
    | BranchPublished
    | TimerFired
    | CloseRequested
    | UsageReported
    | BudgetUsedUp
    | Delivered
    | Closed
    | DaemonRestarted
)
