"""The coordination machine: `advance(run, event) -> Transition`. PURE, total, deterministic, replayable.

An event that does not fit the state changes nothing. This table says which module each event belongs to; rules by
number: docs/coordination.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from massgend.domain.answers import checks_finished, snapshot_failed, snapshot_refused, snapshot_taken
from massgend.domain.closing import finish_closing, request_close, settle
from massgend.domain.decisions import handed_in
from massgend.domain.draft import Draft, Transition
from massgend.domain.effects import Prepare
from massgend.domain.events import (
    BranchPublished,
    BudgetUsedUp,
    ChecksFinished,
    Closed,
    CloseRequested,
    DaemonRestarted,
    Delivered,
    Event,
    HandedIn,
    Prepared,
    PrepareFailed,
    RunRequested,
    SnapshotFailed,
    SnapshotRefused,
    SnapshotTaken,
    TimerFired,
    TurnEnded,
    TurnStarted,
    UsageReported,
)
from massgend.domain.facts import BranchUpdated, BudgetReached, RunCreated, RunStarted, UsageUpdated
from massgend.domain.keeping import kept_or_forced
from massgend.domain.presentation import presentation_checked, presentation_saved
from massgend.domain.recovery import recover
from massgend.domain.run import WINNER, Agent, Cause, Run, Stage
from massgend.domain.timers import timer_fired
from massgend.domain.turns import turn_ended, turn_started


def begin(event: RunRequested) -> Transition:
    """The first event makes the run."""
    agents = {spec.name: Agent(name=spec.name, label=event.labels[spec.name]) for spec in event.task.agents}
    draft = Draft(Run(id=event.run, task=event.task, requested_at=event.at, agents=agents), event.at)
    step = draft.new_step()
    draft.change(step=step)
    draft.do(Prepare(step=step))
    draft.tell(
        RunCreated(at=event.at, task=event.task.text, agents=tuple(agents), scripted=event.task.scripted),
    )
    return draft.finish()


def replay(events: Iterable[Event]) -> Run:
    """Fold a journal. Raises ValueError when it does not begin with RunRequested."""
    run: Run | None = None
    for event in events:
        if run is None:
            if not isinstance(event, RunRequested):
                raise ValueError(f"a run's journal begins with run_requested, not {event.type}")
            run = begin(event).run
        else:
            run = advance(run, event).run
    if run is None:
        raise ValueError("a run's journal is empty")
    return run


def advance(run: Run, event: Event) -> Transition:
    """The run after `event`, what is to be done, and what is to be told."""
    draft = Draft(run, event.at)
    if run.stage is not Stage.DONE and _is_known(run, event):
        _apply(draft, event)
        settle(draft)
    return draft.finish()


def _is_known(run: Run, event: Event) -> bool:
    """Does the event speak of this run's agents only? The winner's branch is published under a name of its own."""
    name = getattr(event, "agent", None)
    return name in {None, *run.agents} or (isinstance(event, BranchPublished) and name == WINNER)


def _apply(draft: Draft, event: Event) -> None:
    run = draft.run
    match event:
        case RunRequested():
            pass
        case Prepared() | PrepareFailed():
            _prepared(draft, event)
        case TurnStarted():
            turn_started(draft, event)
        case HandedIn():
            handed_in(draft, event)
        case TurnEnded():
            turn_ended(draft, event)
        case SnapshotTaken() | SnapshotRefused() | SnapshotFailed():
            _snapshot_ended(draft, event)
        case ChecksFinished():
            if run.stage is Stage.PRESENTING:
                presentation_checked(draft, event)
            else:
                checks_finished(draft, event)
        case BranchPublished():
            _published(draft, event)
        case TimerFired():
            timer_fired(draft, event)
        case CloseRequested():
            request_close(draft, event.cause)
        case UsageReported():
            _used(draft, event)
        case BudgetUsedUp():
            _used_up(draft, event)
        case Delivered() | Closed():
            finish_closing(draft, event)
        case DaemonRestarted():
            recover(draft)
        case _:
            assert_never(event)


def _prepared(draft: Draft, event: Prepared | PrepareFailed) -> None:
    run = draft.run
    if run.stage is not Stage.PREPARING or event.step != run.step:
        return
    if isinstance(event, PrepareFailed):
        draft.change(failure=event.reason, step=None, stage=Stage.SETTLING)
        return
    draft.change(base=event.base, step=None, stage=Stage.RUNNING, started_at=event.at)
    draft.tell(
        RunStarted(
            at=event.at,
            base_commit=event.base.source_commit or event.base.commit,
            branch=event.base.branch,
            warnings=event.base.warnings,
        )
    )
    draft.set_run_timers(event.at)
    for name in run.agents:
        draft.next_turn(name)


def _snapshot_ended(draft: Draft, event: SnapshotTaken | SnapshotRefused | SnapshotFailed) -> None:
    """An agent's answer, the presented one, or what is saved by force at the end."""
    if draft.run.stage in (Stage.FORCING, Stage.KEEPING):
        kept_or_forced(draft, event)
        return
    if draft.run.stage is Stage.PRESENTING:
        presentation_saved(draft, event)
        return
    match event:
        case SnapshotTaken():
            snapshot_taken(draft, event)
        case SnapshotRefused():
            snapshot_refused(draft, event)
        case SnapshotFailed():
            snapshot_failed(draft, event)


def _published(draft: Draft, event: BranchPublished) -> None:
    if event.branch:
        draft.change(branches={**draft.run.branches, event.agent: event.branch})
    if event.problem is not None and event.problem not in draft.run.trouble:
        draft.change(trouble=(*draft.run.trouble, event.problem))
    if event.branch or event.problem is not None:
        draft.tell(BranchUpdated(at=event.at, agent=event.agent, branch=event.branch, problem=event.problem))


def _used(draft: Draft, event: UsageReported) -> None:
    if draft.run.usage.get(event.agent) == event.usage:
        return
    draft.change(usage={**draft.run.usage, event.agent: event.usage})
    draft.tell(UsageUpdated(at=event.at, agent=event.agent, usage=event.usage, cost_usd=event.usage.cost_usd))


def _used_up(draft: Draft, event: BudgetUsedUp) -> None:
    """Rule 9: the run closes; or the agent gets no further turn once this one has ended. Told once."""
    told = draft.run.cause is not None if event.agent is None else draft.run.agents[event.agent].used_up is not None
    if told:
        return
    draft.tell(BudgetReached(at=event.at, agent=event.agent, reason=event.reason))
    if event.agent is None:
        request_close(draft, Cause.BUDGET)
    else:
        draft.change_agent(event.agent, used_up=event.reason)
