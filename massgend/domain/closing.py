"""From the last decision to the end: settle, force, keep, present, deliver, close (rules 7, 9, 10, 12, 13). PURE."""

from __future__ import annotations

from massgend.domain.answers import freeze
from massgend.domain.draft import Draft
from massgend.domain.effects import Close, Deliver
from massgend.domain.events import Closed, Delivered
from massgend.domain.facts import ClosingBegan, RunDecided, RunDelivered, RunEnded
from massgend.domain.keeping import freeze_all
from massgend.domain.presentation import begin_presentation, is_due, stop_presentation
from massgend.domain.restarts import interrupt
from massgend.domain.run import Cause, DecidedBy, Phase, Run, Stage, Status, StopReason
from massgend.domain.tally import decide, valid_votes


def request_close(draft: Draft, cause: Cause) -> None:
    """Rules 9 and 10: end all turns; `settle` decides once everything is quiet."""
    run = draft.run
    if run.cause is Cause.CANCELLED or run.stage in (Stage.DELIVERING, Stage.CLOSING):
        return
    if run.stage is Stage.PRESENTING:
        stop_presentation(draft, cause)
        return
    if cause is Cause.BUDGET and run.stage is Stage.KEEPING and is_due(run):
        draft.change(cause=cause)  # too late for the decision, in time for the presentation
        return
    if cause is not Cause.CANCELLED and (run.cause is not None or run.stage is Stage.KEEPING):
        return
    draft.change(
        cause=cause,
        stage=run.stage if run.stage in (Stage.FORCING, Stage.KEEPING) else Stage.SETTLING,
        decision=None if cause is Cause.CANCELLED else run.decision,
    )
    draft.tell(ClosingBegan(at=draft.at, cause=cause.value))
    for agent in list(draft.run.agents.values()):
        if agent.phase in (Phase.STARTING, Phase.WORKING):
            interrupt(draft, agent, StopReason.CLOSING)
        elif agent.phase is Phase.BACKOFF and agent.pending is not None:
            freeze(draft, agent, agent.pending)
        elif agent.phase in (Phase.BACKOFF, Phase.HELD):
            draft.change_agent(agent.name, phase=Phase.IDLE, step=None)


def settle(draft: Draft) -> None:
    """After every event: go on to the next stage when this one has nothing left to wait for."""
    match draft.run.stage:
        case Stage.RUNNING:
            _look_for_consensus(draft)
        case Stage.SETTLING:
            _settle_closing(draft)
        case Stage.FORCING:
            if not draft.run.keeping and (draft.run.quiet or draft.run.cause is Cause.CANCELLED):
                _decide(draft, DecidedBy.FORCED_AT_LIMIT)
        case Stage.KEEPING:
            if not draft.run.keeping:
                _go_on(draft)
        case Stage.PRESENTING:
            if draft.run.presented is not None and draft.run.presented.over:
                _keep(draft)
        case _:
            pass


def _look_for_consensus(draft: Draft) -> None:
    run = draft.run
    if not run.quiet:
        return
    if len(run.agents) == 1 and run.answers:
        _decide(draft, DecidedBy.ONLY_AGENT)
    elif run.live and all(agent.phase is Phase.VOTED for agent in run.live):
        _decide(draft, DecidedBy.CONSENSUS)
    elif not run.live:
        draft.change(cause=Cause.ALL_OUT, stage=Stage.SETTLING)
        draft.tell(ClosingBegan(at=draft.at, cause=Cause.ALL_OUT.value))
        _settle_closing(draft)


def _settle_closing(draft: Draft) -> None:
    run = draft.run
    cancelled = run.cause is Cause.CANCELLED
    if run.busy or (run.being_checked and not cancelled):
        return
    if run.failure is not None or run.base is None:
        _close_run(draft)
    elif cancelled:
        _keep(draft)
    elif valid_votes(run):
        _decide(draft, DecidedBy.VOTES_AT_LIMIT)
    elif run.answers:
        _decide(draft, DecidedBy.NEWEST_AT_LIMIT)
    else:
        draft.change(stage=Stage.FORCING)
        freeze_all(draft, tuple(run.agents))


def _decide(draft: Draft, by: DecidedBy) -> None:
    decision = None if draft.run.cause is Cause.CANCELLED else decide(draft.run, by)
    if decision is not None:
        draft.change(decision=decision)
        draft.tell(RunDecided(at=draft.at, decision=decision))
    _keep(draft)


def _keep(draft: Draft) -> None:
    """Unfinished work goes on the agents' branches before anything else happens; no limit discards work."""
    draft.change(stage=Stage.KEEPING)
    unfinished = tuple(agent.name for agent in draft.run.agents.values() if agent.unfinished)
    freeze_all(draft, unfinished)
    if not draft.run.keeping:
        _go_on(draft)


def _go_on(draft: Draft) -> None:
    """All work is saved: present, then deliver, then close."""
    decision, result = draft.run.decision, draft.run.result
    if decision is None or result is None:
        _close_run(draft)
    elif is_due(draft.run):
        begin_presentation(draft, decision.winner, decision.by)
        settle(draft)  # it may be over at once
    else:
        step = draft.new_step()
        draft.change(stage=Stage.DELIVERING, step=step)
        draft.do(Deliver(step=step, answer=result))


def _close_run(draft: Draft) -> None:
    step = draft.new_step()
    draft.change(stage=Stage.CLOSING, step=step)
    draft.do(Close(step=step))


def finish_closing(draft: Draft, event: Delivered | Closed) -> None:
    run = draft.run
    if event.step != run.step:
        return
    if isinstance(event, Delivered) and run.stage is Stage.DELIVERING:
        draft.change(delivery=event.delivery)
        draft.tell(RunDelivered(at=event.at, delivery=event.delivery))
        _close_run(draft)
    elif isinstance(event, Closed) and run.stage is Stage.CLOSING:
        draft.change(stage=Stage.DONE, step=None, ended_at=event.at, trouble=(*run.trouble, *event.trouble))
        run = draft.run
        draft.tell(
            RunEnded(at=event.at, status=run.outcome, reason=why_ended(run), branches=run.branches, trouble=run.trouble)
        )


def why_ended(run: Run) -> str:
    """One or two plain sentences."""
    match run.outcome:
        case Status.FAILED:
            return run.failure or "The run failed."
        case Status.CANCELLED:
            return "The run was cancelled; the agents' work is kept."
        case Status.NO_RESULT:
            return _why_nothing(run)
        case _:
            presented = run.presented.reason if run.presented is not None else ""
            return f"{run.decision.reason if run.decision is not None else ''} {presented}".strip()


def _why_nothing(run: Run) -> str:
    failed = [f"{agent.name}: {agent.last_failure}" for agent in run.agents.values() if agent.last_failure]
    because = f" ({'; '.join(failed)})" if failed else ""
    unsaved = ", ".join(agent.name for agent in run.agents.values() if agent.unsaved)
    nothing = f"the work of {unsaved} could not be saved" if unsaved else "no agent had changed anything"
    match run.cause:
        case Cause.RUN_LIMIT:
            return f"The time limit was reached and {nothing}{because}."
        case Cause.BUDGET:
            return f"The budget was used up and {nothing}{because}."
        case _:
            return f"No agent is left and {nothing.replace('no agent', 'none')}{because}."
