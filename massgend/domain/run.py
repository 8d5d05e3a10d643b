"""The state of one run, as the machine folds it from its events. Values and questions about them; no rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from massgend.domain.task import Task


class Phase(StrEnum):
    """Where one agent stands."""

    IDLE = "idle"  # before its first turn, or resting after the run began to close
    HELD = "held"  # its next turn waits until a new answer's checks are done
    STARTING = "starting"  # its turn's container is being started
    WORKING = "working"
    STOPPING = "stopping"  # interrupted; a decision made within the grace still counts
    ENDING = "ending"  # it has decided; its turn is being ended
    FREEZING = "freezing"  # its answer's snapshot is being taken
    BACKOFF = "backoff"  # a failed turn (or snapshot) is tried again soon
    VOTED = "voted"
    SPENT = "spent"  # no turns left and no valid vote: no vote is awaited from it
    OUT = "out"  # failed too often: no vote is awaited from it, its answers stay eligible


IN_TURN = frozenset({Phase.STARTING, Phase.WORKING, Phase.STOPPING, Phase.ENDING})
BUSY = IN_TURN | {Phase.FREEZING}
NOT_LIVE = frozenset({Phase.SPENT, Phase.OUT})

WINNER = "winner"
"""Stands where an agent's name stands, for the winner's branch. No agent may have this name."""

PRESENTED = "presented"
"""Stands where an answer's number stands, for the snapshot of the winner's presentation."""


class Stage(StrEnum):
    """Where the run stands."""

    PREPARING = "preparing"
    RUNNING = "running"
    SETTLING = "settling"  # a limit or a cancel: turns are being ended
    FORCING = "forcing"  # no answer at the limit: every changed workspace becomes one
    KEEPING = "keeping"  # unfinished work is being recorded for the branches
    PRESENTING = "presenting"  # the winner polishes its answer in one more turn
    DELIVERING = "delivering"
    CLOSING = "closing"
    DONE = "done"


class Status(StrEnum):
    """What users see of the stage, and how it ended."""

    PREPARING = "preparing"
    RUNNING = "running"
    DELIVERED = "delivered"
    DECIDED = "decided"
    NO_RESULT = "no_result"
    CANCELLED = "cancelled"
    FAILED = "failed"


class StopReason(StrEnum):
    """Why a turn is interrupted."""

    NEWS = "news"
    TURN_LIMIT = "turn_limit"
    CLOSING = "closing"


class Cause(StrEnum):
    """Why the run closes before consensus."""

    RUN_LIMIT = "run_limit"
    BUDGET = "budget"
    CANCELLED = "cancelled"
    ALL_OUT = "all_out"


class DecidedBy(StrEnum):
    CONSENSUS = "consensus"
    ONLY_AGENT = "only_agent"
    VOTES_AT_LIMIT = "votes_at_limit"
    NEWEST_AT_LIMIT = "newest_at_limit"
    FORCED_AT_LIMIT = "forced_at_limit"


@dataclass(frozen=True, kw_only=True)
class AnswerId:
    """`presented`: the winner's polish of this answer, not the answer itself."""

    agent: str
    number: int
    presented: bool = False

    def __str__(self) -> str:
        return f"{self.agent}.{PRESENTED if self.presented else self.number}"


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """`exit_code` None: not run, or out of time. `tail`: the end of its output, at most 4,000 characters."""

    name: str
    required: bool
    passed: bool
    exit_code: int | None
    duration_s: float
    tail: str = ""


@dataclass(frozen=True, kw_only=True)
class SnapshotRecord:
    """What the machine keeps of a snapshot: enough to find it again in the store."""

    ref: str
    commit: str
    git_tree: str
    changed_files: int
    about: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Answer:
    """`checks` None: still being checked, so nobody sees it yet."""

    id: AnswerId
    summary: str
    snapshot: SnapshotRecord
    accepted_at: float
    checks: tuple[CheckResult, ...] | None
    check_step: int | None = None
    forced: bool = False

    @property
    def visible(self) -> bool:
        return self.checks is not None

    @property
    def checks_passed(self) -> int:
        return sum(check.passed for check in self.checks or ())

    @property
    def fails_required(self) -> bool:
        return any(check.required and not check.passed for check in self.checks or ())


@dataclass(frozen=True, kw_only=True)
class Vote:
    """One agent's vote for the answer it saw under a label; `order` counts all votes of the run."""

    voter: str
    answer: AnswerId
    reason: str
    cast_at: float
    order: int


@dataclass(frozen=True, kw_only=True)
class NewAnswer:
    """The decision to submit the workspace as it is."""

    summary: str


@dataclass(frozen=True, kw_only=True)
class VoteFor:
    """The decision to vote for the answer under `label`."""

    label: str
    reason: str


Choice = NewAnswer | VoteFor


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One attempt of one agent. `context`: the answers it sees. `step` ties the effect's reports to it."""

    number: int
    step: int
    context: tuple[AnswerId, ...]
    requested_at: float
    started_at: float | None = None
    notice: str | None = None


@dataclass(frozen=True, kw_only=True)
class Agent:
    """`step` is the one whose report is awaited (turn, freeze, backoff); other reports are ignored."""

    name: str
    label: str
    phase: Phase = Phase.IDLE
    step: int | None = None
    turn: Turn | None = None
    turns: int = 0
    answers: int = 0
    failures: int = 0
    reminders: int = 0
    pending: NewAnswer | None = None
    vote: Vote | None = None
    stop_reason: StopReason | None = None
    notice: str | None = None
    ever_decided: bool = False
    unfinished: bool = False  # its workspace holds work that no answer, and no vote after it, accounts for
    last_failure: str | None = None
    used_up: str | None = None  # which budget of its own is used up: it gets no further turn
    retry_at: float | None = None  # in BACKOFF: when it is tried again
    shown: tuple[AnswerId, ...] = ()  # what its last turn that went well had in view
    unsaved: bool = False  # its unfinished work could not be saved and is in its workspace alone

    @property
    def live(self) -> bool:
        return self.phase not in NOT_LIVE

    @property
    def sees(self) -> frozenset[AnswerId]:
        """The answers in its turn's context."""
        return frozenset(self.turn.context) if self.turn is not None else frozenset()


@dataclass(frozen=True, kw_only=True)
class TallyLine:
    answer: AnswerId
    votes: int
    checks_passed: int
    eligible: bool


@dataclass(frozen=True, kw_only=True)
class Decision:
    """`reason` says in one or two plain sentences why; `overruled`: the votes wanted another that fails its checks."""

    winner: AnswerId
    by: DecidedBy
    reason: str
    tally: tuple[TallyLine, ...]
    overruled: bool = False


@dataclass(frozen=True, kw_only=True)
class Presented:
    """The winner's presentation of the answer `voted` (rule 12). `delivered`: its snapshot, not the voted one, is.

    `reason` says why, in one or two plain sentences, once it is over. `answer`: what was saved, also when it is not
    delivered. `limit_at` bounds all its tries together.
    """

    voted: AnswerId
    limit_at: float
    starts: int = 0
    failures: int = 0
    answer: Answer | None = None
    delivered: bool = False
    reason: str = ""
    ended_at: float | None = None

    @property
    def over(self) -> bool:
        return self.ended_at is not None


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """What came of the merge: the repository's own report, as values."""

    merged: bool
    mode: str
    reason: str
    branch: str | None = None
    before: str | None = None
    after: str | None = None
    folder: str | None = None
    conflicts: tuple[str, ...] = ()
    risky: tuple[str, ...] = ()
    stat: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class HostCount:
    """Requests of one agent to one host and port; `refused`: they were not let out."""

    host: str
    port: int
    refused: bool
    requests: int
    size_bytes: int


@dataclass(frozen=True, kw_only=True)
class UsageRecord:
    """What one agent has used so far, by the providers' own numbers. `priced_usd`: of the calls with a known price."""

    calls: int = 0
    input_tokens: int = 0
    cache_write_tokens: int = 0
    cache_write_1h_tokens: int = 0
    cache_read_tokens: int = 0
    output_tokens: int = 0
    priced_usd: float = 0.0
    unpriced_calls: int = 0
    hosts: tuple[HostCount, ...] = ()

    @property
    def cost_usd(self) -> float | None:
        """None: unknown, because a call had no known price."""
        return None if self.unpriced_calls else self.priced_usd


@dataclass(frozen=True, kw_only=True)
class BaseRecord:
    """The commit all agents start from. `bare` is the id of our repository that holds it."""

    commit: str
    source_commit: str | None
    branch: str | None
    bare: str
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Run:
    id: str
    task: Task
    requested_at: float
    agents: Mapping[str, Agent]
    stage: Stage = Stage.PREPARING
    steps: int = 0
    step: int | None = None
    base: BaseRecord | None = None
    started_at: float | None = None
    answers: tuple[Answer, ...] = ()
    votes_cast: int = 0
    votes_voided: int = 0
    past_votes: tuple[Vote, ...] = ()
    cause: Cause | None = None
    decision: Decision | None = None
    presented: Presented | None = None
    delivery: Delivery | None = None
    usage: Mapping[str, UsageRecord] = field(default_factory=dict)
    keeping: Mapping[str, int] = field(default_factory=dict)
    heads: Mapping[str, str] = field(default_factory=dict)  # agent -> the commit its branch is to point at
    branches: Mapping[str, str] = field(default_factory=dict)
    trouble: tuple[str, ...] = ()
    failure: str | None = None
    ended_at: float | None = None

    @property
    def status(self) -> Status:
        match self.stage:
            case Stage.PREPARING:
                return Status.PREPARING
            case Stage.DONE:
                return self.outcome
            case _:
                return Status.RUNNING

    @property
    def outcome(self) -> Status:
        """How it ends, as far as it is known."""
        if self.failure is not None:
            return Status.FAILED
        if self.cause is Cause.CANCELLED:
            return Status.CANCELLED
        if self.decision is None:
            return Status.NO_RESULT
        return Status.DELIVERED if self.delivery is not None and self.delivery.merged else Status.DECIDED

    @property
    def live(self) -> tuple[Agent, ...]:
        return tuple(agent for agent in self.agents.values() if agent.live)

    def answer(self, which: AnswerId) -> Answer:
        """Also the presented one. Raises StopIteration when there is none."""
        presented = self.presented.answer if self.presented is not None else None
        known = self.answers if presented is None else (*self.answers, presented)
        return next(answer for answer in known if answer.id == which)

    @property
    def result(self) -> AnswerId | None:
        """What is, or was, delivered: the winner's answer, as voted or as presented; None without a winner."""
        if self.decision is None:
            return None
        if self.presented is not None and self.presented.delivered and self.presented.answer is not None:
            return self.presented.answer.id
        return self.decision.winner

    def newest(self, *, visible_only: bool) -> tuple[Answer, ...]:
        """The newest answer of each agent, in the order of acceptance."""
        newest: dict[str, Answer] = {}
        for answer in self.answers:
            if answer.visible or not visible_only:
                newest[answer.id.agent] = answer
        return tuple(sorted(newest.values(), key=lambda answer: self.answers.index(answer)))

    @property
    def being_checked(self) -> bool:
        return any(not answer.visible for answer in self.answers)

    @property
    def busy(self) -> bool:
        """Some agent's turn or snapshot is under way."""
        return any(agent.phase in BUSY for agent in self.agents.values())

    @property
    def quiet(self) -> bool:
        """Nothing of any agent is under way and every answer is checked, so that the run can be settled."""
        return not self.busy and not self.being_checked
