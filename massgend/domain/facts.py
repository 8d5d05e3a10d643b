"""What users, the API's stream and metrics are told: derived by the machine, journalled beside its events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from massgend.domain.run import CheckResult, Decision, Delivery, Status, UsageRecord


@dataclass(frozen=True, kw_only=True)
class RunCreated:
    at: float
    task: str
    agents: tuple[str, ...]
    scripted: bool
    type: Literal["run_created"] = "run_created"


@dataclass(frozen=True, kw_only=True)
class RunStarted:
    at: float
    base_commit: str
    branch: str | None
    warnings: tuple[str, ...]
    type: Literal["run_started"] = "run_started"


@dataclass(frozen=True, kw_only=True)
class TurnRequested:
    """A turn's container is being started. `sees`: the answers in its context, as `agent.number`."""

    at: float
    agent: str
    turn: int
    sees: tuple[str, ...]
    notice: str | None
    type: Literal["turn_requested"] = "turn_requested"


@dataclass(frozen=True, kw_only=True)
class TurnBegan:
    at: float
    agent: str
    turn: int
    type: Literal["turn_began"] = "turn_began"


@dataclass(frozen=True, kw_only=True)
class AnswerSubmitted:
    """Handed in, not yet saved and so not yet accepted."""

    at: float
    agent: str
    summary: str
    type: Literal["answer_submitted"] = "answer_submitted"


@dataclass(frozen=True, kw_only=True)
class AnswerAccepted:
    """Saved as a snapshot. `votes_voided`: how many votes it made void."""

    at: float
    agent: str
    number: int
    summary: str
    commit: str
    changed_files: int
    about: tuple[str, ...]
    votes_voided: int
    forced: bool
    type: Literal["answer_accepted"] = "answer_accepted"


@dataclass(frozen=True, kw_only=True)
class AnswerRefused:
    at: float
    agent: str
    reason: str
    type: Literal["answer_refused"] = "answer_refused"


@dataclass(frozen=True, kw_only=True)
class AnswerChecked:
    at: float
    agent: str
    number: int
    checks: tuple[CheckResult, ...]
    type: Literal["answer_checked"] = "answer_checked"


@dataclass(frozen=True, kw_only=True)
class VoteCast:
    """`valid` False: cast without a newer answer in view, so void at once."""

    at: float
    agent: str
    votes_for: str
    number: int
    reason: str
    valid: bool
    type: Literal["vote_cast"] = "vote_cast"


@dataclass(frozen=True, kw_only=True)
class AgentInterrupted:
    at: float
    agent: str
    why: str
    type: Literal["agent_interrupted"] = "agent_interrupted"


@dataclass(frozen=True, kw_only=True)
class TurnFailed:
    """`retry_in_s` None: the agent is out. `failures`: in a row, or of the presentation."""

    at: float
    agent: str
    reason: str
    failures: int
    retry_in_s: float | None
    type: Literal["turn_failed"] = "turn_failed"


@dataclass(frozen=True, kw_only=True)
class AgentRetired:
    """No vote is awaited from this agent any more."""

    at: float
    agent: str
    reason: str
    type: Literal["agent_retired"] = "agent_retired"


@dataclass(frozen=True, kw_only=True)
class ClosingBegan:
    at: float
    cause: str
    type: Literal["closing_began"] = "closing_began"


@dataclass(frozen=True, kw_only=True)
class WorkKept:
    """Unfinished work was recorded on the agent's branch."""

    at: float
    agent: str
    commit: str
    changed_files: int
    type: Literal["work_kept"] = "work_kept"


@dataclass(frozen=True, kw_only=True)
class BranchUpdated:
    at: float
    agent: str
    branch: str
    problem: str | None
    type: Literal["branch_updated"] = "branch_updated"


@dataclass(frozen=True, kw_only=True)
class RunDecided:
    at: float
    decision: Decision
    type: Literal["run_decided"] = "run_decided"


@dataclass(frozen=True, kw_only=True)
class PresentationBegan:
    """The winner has one more turn to polish its answer `number`."""

    at: float
    agent: str
    number: int
    type: Literal["presentation_began"] = "presentation_began"


@dataclass(frozen=True, kw_only=True)
class PresentationEnded:
    """`kept`: the presented snapshot is what is delivered; else the voted one is. Comes alone when none could begin.

    `commit` and `checks`: of the presented snapshot, when there is one.
    """

    at: float
    agent: str
    kept: bool
    reason: str
    commit: str | None
    checks: tuple[CheckResult, ...]
    type: Literal["presentation_ended"] = "presentation_ended"


@dataclass(frozen=True, kw_only=True)
class RunDelivered:
    at: float
    delivery: Delivery
    type: Literal["run_delivered"] = "run_delivered"


@dataclass(frozen=True, kw_only=True)
class RunRecovered:
    at: float
    agents: tuple[str, ...]
    type: Literal["run_recovered"] = "run_recovered"


@dataclass(frozen=True, kw_only=True)
class UsageUpdated:
    """What the agent has used in the whole run so far; `cost_usd` None: unknown."""

    at: float
    agent: str
    usage: UsageRecord
    cost_usd: float | None
    type: Literal["usage_updated"] = "usage_updated"


@dataclass(frozen=True, kw_only=True)
class BudgetReached:
    """Further calls are refused: the run's (`agent` None) or one agent's."""

    at: float
    agent: str | None
    reason: str
    type: Literal["budget_reached"] = "budget_reached"


@dataclass(frozen=True, kw_only=True)
class RunEnded:
    at: float
    status: Status
    reason: str
    branches: Mapping[str, str]
    trouble: tuple[str, ...]
    type: Literal["run_ended"] = "run_ended"


Fact = (
    RunCreated
    | RunStarted
    | TurnRequested
    | TurnBegan
    | AnswerSubmitted
    | AnswerAccepted
    | AnswerRefused
    | AnswerChecked
    | VoteCast
    | AgentInterrupted
    | TurnFailed
    | AgentRetired
    | ClosingBegan
    | WorkKept
    | BranchUpdated
    | RunDecided
    | PresentationBegan
    | PresentationEnded
    | RunDelivered
    | RunRecovered
    | UsageUpdated
    | BudgetReached
    | RunEnded
)
