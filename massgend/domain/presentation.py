"""The winner's presentation: one more turn, saved, checked, and compared with what was voted for (rules 12, 14). PURE.

Whatever goes wrong in it, the voted answer stands and the run ends.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from massgend.domain.answers import freeze, with_missing
from massgend.domain.context import build_presentation
from massgend.domain.draft import Draft
from massgend.domain.effects import RunChecks
from massgend.domain.events import ChecksFinished, SnapshotFailed, SnapshotRefused, SnapshotTaken, TurnEnd, TurnEnded
from massgend.domain.facts import ClosingBegan, PresentationBegan, PresentationEnded, TurnFailed
from massgend.domain.failures import wait_s
from massgend.domain.restarts import interrupt
from massgend.domain.run import (
    Agent,
    Answer,
    AnswerId,
    Cause,
    DecidedBy,
    Phase,
    Presented,
    Run,
    Stage,
    StopReason,
)

MAX_FAILURES = 2  # the first try, and one more
MAX_STARTS = 4  # with those after restarts of the daemon


def is_due(run: Run) -> bool:
    """Is a presentation asked for that has not been told of yet?"""
    asked = run.task.presentation or run.task.planning
    return asked and run.decision is not None and run.presented is None


def begin_presentation(draft: Draft, voted: AnswerId, by: DecidedBy) -> None:
    """Everything unfinished is saved by now. The presentation is over at once when it cannot be held."""
    run = draft.run
    limits = run.task.limits
    run_limit_at = (run.started_at if run.started_at is not None else draft.at) + limits.run_s
    limit_at = min(draft.at, run_limit_at) + limits.turn_s
    draft.change(stage=Stage.PRESENTING, presented=Presented(voted=voted, limit_at=limit_at))
    why_not = _ruled_out(draft.run, by)
    if why_not is not None:
        _end(draft, f"{voted.agent} did not present its answer: {why_not}.")
        return
    draft.change_agent(voted.agent, notice=None)
    draft.tell(PresentationBegan(at=draft.at, agent=voted.agent, number=voted.number))
    start_presentation(draft)


def _ruled_out(run: Run, by: DecidedBy) -> str | None:
    if by is DecidedBy.FORCED_AT_LIMIT:
        return "it was recorded by force"
    if run.cause is Cause.BUDGET:
        return "the budget is used up"
    winner = run.agents[_presented(run).voted.agent]
    if winner.used_up is not None:
        return winner.used_up
    return "it had failed too often" if winner.phase is Phase.OUT else None


def start_presentation(draft: Draft) -> None:
    """The turn, for the first time or again, while there is time."""
    presented = _presented(draft.run)
    if draft.at >= presented.limit_at or presented.starts >= MAX_STARTS:
        _end(draft, f"{presented.voted.agent}'s presentation did not end in time.")
        return
    _change(draft, starts=presented.starts + 1)
    winner = draft.run.agents[presented.voted.agent]
    draft.start_turn(winner, build_presentation(draft.run, presented, turn=winner.turns + 1, at=draft.at))


def presentation_turn_over(draft: Draft, winner: Agent, event: TurnEnded | None) -> None:
    """The turn is over for certain. `event` None: the daemon came back and found it ended."""
    if winner.phase is Phase.ENDING and winner.pending is not None:
        freeze(draft, winner, winner.pending)
        return
    stopped = winner.phase is Phase.STOPPING
    winner = draft.change_agent(winner.name, phase=Phase.IDLE, step=None, turn=None, unfinished=True)
    if stopped:
        _end(draft, f"{winner.name}'s presentation {_why_stopped(draft.run, winner)}.")
    elif event is None:
        start_presentation(draft)
    elif event.end is TurnEnd.UNDECIDED:
        _end(draft, f"{winner.name} ended its presentation without handing in.")
    else:
        _failed(draft, winner, event.reason or "its program was ended", event.retry_after_s)


def _why_stopped(run: Run, winner: Agent) -> str:
    if winner.stop_reason is StopReason.TURN_LIMIT:
        return "did not end in time"
    return "was cancelled" if run.cause is Cause.CANCELLED else "was ended: the budget is used up"


def _failed(draft: Draft, winner: Agent, reason: str, retry_after_s: float | None) -> None:
    presented = _change(draft, failures=_presented(draft.run).failures + 1)
    winner = draft.change_agent(
        winner.name,
        last_failure=reason,
        unfinished=True,
        notice=f"Your last turn failed: {reason}. Your workspace is as you left it.",
    )
    delay_s = wait_s(draft.run, winner.name, presented.failures, retry_after_s)
    closing = draft.run.cause in (Cause.CANCELLED, Cause.BUDGET) or winner.used_up is not None
    if closing or presented.failures >= MAX_FAILURES or draft.at + delay_s >= presented.limit_at:
        _end(draft, f"{winner.name}'s presentation failed: {reason}.")
        return
    draft.tell(
        TurnFailed(at=draft.at, agent=winner.name, reason=reason, failures=presented.failures, retry_in_s=delay_s)
    )
    draft.back_off(winner.name, delay_s)


def presentation_saved(draft: Draft, event: SnapshotTaken | SnapshotRefused | SnapshotFailed) -> None:
    """The presented snapshot was taken, or not."""
    winner = draft.run.agents[event.agent]
    if winner.phase is not Phase.FREEZING or winner.step != event.step or winner.pending is None:
        return
    match event:
        case SnapshotTaken():
            _saved(draft, event, winner.pending.summary)
        case SnapshotRefused():
            draft.change_agent(winner.name, unfinished=not event.unchanged)
            why = "changed nothing more" if event.unchanged else f"could not have its work saved: {event.reason}"
            _end(draft, f"{winner.name} {why}.")
        case SnapshotFailed():
            reason = f"its presentation could not be saved: {event.reason}"
            draft.change(trouble=(*draft.run.trouble, f"{winner.name}: {reason}"))
            _failed(draft, winner, reason, None)


def _saved(draft: Draft, event: SnapshotTaken, summary: str) -> None:
    voted = _presented(draft.run).voted
    cancelled = draft.run.cause is Cause.CANCELLED
    check_step = draft.new_step() if draft.run.task.checks and not cancelled else None
    answer = Answer(
        id=replace(voted, presented=True),
        summary=summary,
        snapshot=event.snapshot,
        accepted_at=event.at,
        checks=None if check_step is not None else (),
        check_step=check_step,
    )
    _change(draft, answer=answer)
    draft.change_agent(event.agent, phase=Phase.IDLE, step=None, pending=None, unfinished=False, notice=None)
    draft.publish(event.agent, event.snapshot.commit)
    if cancelled:
        _end(draft, f"{event.agent}'s presentation was cancelled.")
    elif check_step is not None:
        draft.do(RunChecks(step=check_step, answer=answer.id))
    else:
        _compare(draft, answer)


def presentation_checked(draft: Draft, event: ChecksFinished) -> None:
    presented = _presented(draft.run)
    answer = presented.answer
    if presented.over or answer is None or answer.check_step != event.step:
        return
    checked = replace(answer, checks=with_missing(draft.run, event.results), check_step=None)
    _change(draft, answer=checked)
    _compare(draft, checked)


def _compare(draft: Draft, answer: Answer) -> None:
    """A polish that breaks what passed is not delivered."""
    voted = draft.run.answer(_presented(draft.run).voted)
    passing = {check.name for check in answer.checks or () if check.passed}
    broken = [
        check.name for check in voted.checks or () if check.required and check.passed and check.name not in passing
    ]
    what = f"{answer.id.agent}'s presentation is not delivered"
    if broken:
        _end(draft, f"{what}: the required check {', '.join(broken)} passed before and fails now.")
    elif answer.checks_passed < voted.checks_passed:
        _end(draft, f"{what}: it passes {answer.checks_passed} checks, and the voted answer {voted.checks_passed}.")
    else:
        _end(draft, f"{answer.id.agent} presented its answer, and that is what is delivered.", kept=True)


def stop_presentation(draft: Draft, cause: Cause) -> None:
    """A cancel or a used-up budget ends it; the run's time limit does not, its own limit does."""
    if cause is Cause.RUN_LIMIT or (cause is Cause.BUDGET and draft.run.cause is Cause.BUDGET):
        return
    presented = _presented(draft.run)
    cancelled = cause is Cause.CANCELLED
    draft.change(cause=cause, decision=None if cancelled else draft.run.decision)
    draft.tell(ClosingBegan(at=draft.at, cause=cause.value))
    winner = draft.run.agents[presented.voted.agent]
    if winner.phase in (Phase.STARTING, Phase.WORKING):
        interrupt(draft, winner, StopReason.CLOSING)
    elif winner.phase is Phase.BACKOFF and winner.pending is not None:
        freeze(draft, winner, winner.pending)
    elif winner.phase is Phase.BACKOFF or (cancelled and presented.answer is not None):
        why = "was cancelled" if cancelled else "was ended: the budget is used up"
        _end(draft, f"{winner.name}'s presentation {why}.")


def _end(draft: Draft, reason: str, *, kept: bool = False) -> None:
    presented = _presented(draft.run)
    winner = presented.voted.agent
    if not kept and draft.run.decision is not None:
        reason += " The answer that won is delivered as it was."
        handed_in = presented.answer is not None or draft.run.agents[winner].pending is not None
        if draft.run.task.planning and not handed_in:
            reason += " What was planned outside the sandbox was not carried out, or only in part."
    answer = presented.answer
    _change(draft, delivered=kept, reason=reason, ended_at=draft.at)
    if presented.starts:
        draft.change_agent(winner, phase=Phase.IDLE, step=None, turn=None, pending=None)
    draft.tell(
        PresentationEnded(
            at=draft.at,
            agent=winner,
            kept=kept,
            reason=reason,
            commit=answer.snapshot.commit if answer is not None else None,
            checks=answer.checks or () if answer is not None else (),
        )
    )


def _presented(run: Run) -> Presented:
    if run.presented is None:
        raise ValueError(f"run {run.id} has no presentation")
    return run.presented


def _change(draft: Draft, **fields: Any) -> Presented:
    presented = replace(_presented(draft.run), **fields)
    draft.change(presented=presented)
    return presented
