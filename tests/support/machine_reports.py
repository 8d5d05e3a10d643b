"""What outstanding work of the simulated world is, and every report that it could make next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

from massgend.domain.effects import Close, Deliver, FreezeSnapshot, Prepare, RunChecks, StartTurn
from massgend.domain.events import (
    ChecksFinished,
    Closed,
    Delivered,
    Event,
    HandedIn,
    Prepared,
    PrepareFailed,
    RunRequested,
    SnapshotFailed,
    SnapshotRefused,
    SnapshotTaken,
    TurnEnd,
    TurnEnded,
    TurnStarted,
)
from massgend.domain.presentation import MAX_FAILURES, MAX_STARTS
from massgend.domain.run import AnswerId, BaseRecord, CheckResult, Choice, Delivery, NewAnswer, SnapshotRecord, VoteFor
from massgend.domain.task import AgentSpec, CheckSpec, Disclosure, Limits, Task

NAMES = ("ada", "bob", "cyd", "dan")
LABELS = ("newt", "kite", "moth", "lark")
T0 = 1_000_000.0
MAX_TRIES = 2  # hand-ins of one turn that are refused, before the agent gives up

Job = Prepare | FreezeSnapshot | RunChecks | Deliver | Close


def request(
    agents: int = 3,
    *,
    checks: tuple[CheckSpec, ...] = (),
    limits: Limits | None = None,
    allow_self_vote: bool = True,
    disclose: Disclosure | None = None,
    labels: Mapping[str, str] | None = None,
    presentation: bool = False,
    planning: bool = False,
) -> RunRequested:
    names = NAMES[:agents]
    task = Task(
        text="fix the failing test",
        agents=tuple(AgentSpec(name=name, kind="command") for name in names),
        repository=None,
        checks=checks,
        limits=limits or Limits(),
        allow_self_vote=allow_self_vote,
        disclose=disclose or Disclosure(),
        presentation=presentation,
        planning=planning,
    )
    return RunRequested(at=T0, run="r1", task=task, labels=labels or dict(zip(names, LABELS, strict=False)))


def most_steps(task: Task) -> int:
    """No order of events makes the machine ask for more than this: the bound of termination."""
    limits = task.limits
    per_turn = 2 + 2 * limits.max_failures  # the turn; its answer's tries to be saved, and the waits between them
    per_agent = limits.turns * per_turn + limits.answers + 4  # each answer's check; forced, its check, kept
    presentation = 2 * MAX_STARTS + 2 * MAX_FAILURES + 2  # turns and snapshots, waits, the check, what is kept
    return 3 + len(task.agents) * per_agent + presentation


@dataclass(frozen=True, kw_only=True)
class LiveTurn:
    effect: StartTurn
    started: bool = False
    decided: bool = False
    stopping: bool = False
    tries: int = 0

    @property
    def context(self) -> frozenset[AnswerId]:
        return frozenset(view.id for view in self.effect.context.answers)


def turn_reports(turn: LiveTurn, at: float) -> list[Event]:
    step, agent = turn.effect.step, turn.effect.agent
    found: list[Event] = [TurnEnded(at=at, agent=agent, step=step, end=end) for end in TurnEnd]
    if not turn.started:
        found.append(TurnStarted(at=at, agent=agent, step=step))
    if not turn.decided and turn.tries < MAX_TRIES:
        votes = [VoteFor(label=view.label, reason="better") for view in turn.effect.context.answers]
        choices: list[Choice] = [NewAnswer(summary="done"), *votes]
        found += [HandedIn(at=at, agent=agent, step=step, choice=c) for c in choices]
    return found


def job_reports(job: Job, at: float, task: Task) -> list[Event]:
    step = job.step
    match job:
        case Prepare():
            base = BaseRecord(commit="base", source_commit=None, branch=None, bare="r1")
            return [Prepared(at=at, step=step, base=base), PrepareFailed(at=at, step=step, reason="no repository")]
        case FreezeSnapshot():
            kept = SnapshotRecord(ref=job.name, commit=f"{job.agent}-{step}", git_tree=str(step), changed_files=1)
            return [
                SnapshotTaken(at=at, agent=job.agent, step=step, snapshot=kept),
                SnapshotRefused(
                    at=at, agent=job.agent, step=step, reason="your workspace has not changed", unchanged=True
                ),
                SnapshotRefused(at=at, agent=job.agent, step=step, reason="it is 3 GB"),
                SnapshotFailed(at=at, agent=job.agent, step=step, reason="the disk is full"),
            ]
        case RunChecks():
            return [
                ChecksFinished(at=at, step=step, results=tuple(map(result, task.checks, passed)))
                for passed in product((True, False), repeat=len(task.checks))
            ]
        case Deliver():
            return [
                Delivered(at=at, step=step, delivery=Delivery(merged=merged, mode="auto", reason="."))
                for merged in (True, False)
            ]
        case Close():
            return [Closed(at=at, step=step)]


def result(check: CheckSpec, passed: bool) -> CheckResult:
    return CheckResult(
        name=check.name, required=check.required, passed=passed, exit_code=0 if passed else 1, duration_s=1.0
    )
