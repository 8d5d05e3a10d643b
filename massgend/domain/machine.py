"""The coordination machine: `advance(run, event) -> Transition`. PURE, total, deterministic, replayable.

An event that does not fit the state changes nothing. Rules by number: docs/coordination.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import assert_never

from massgend.domain.closing import finish_closing, keep_or_force_done, settle
from massgend.domain.draft import Draft, Transition
from massgend.domain.effects import (
    EndTurn,
    FreezeSnapshot,
    InterruptTurn,
    Notify,
    Prepare,
    RunChecks,
    SetTimer,
)
from massgend.domain.events import (
    BranchPublished,
    ChecksFinished,
    Clock,
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
    TurnEnd,
    TurnEnded,
    TurnStarted,
)
from massgend.domain.facts import (
    AgentInterrupted,
    AgentRetired,
    AnswerAccepted,
    AnswerChecked,
    AnswerRefused,
    AnswerSubmitted,
    BranchUpdated,
    ClosingBegan,
    RunCreated,
    RunStarted,
    TurnBegan,
    TurnFailed,
    VoteCast,
)
from massgend.domain.hand_in import refusal
from massgend.domain.recovery import recover
from massgend.domain.run import (
    IN_TURN,
    WINNER,
    Agent,
    Answer,
    AnswerId,
    Cause,
    CheckResult,
    NewAnswer,
    Phase,
    Run,
    Stage,
    StopReason,
    Vote,
    VoteFor,
)

MAX_BACKOFF_S = 300.0


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
    match event:
        case RunRequested():
            pass
        case Prepared() | PrepareFailed():
            _prepared(draft, event)
        case TurnStarted():
            _turn_started(draft, event)
        case HandedIn():
            _handed_in(draft, event)
        case TurnEnded():
            _turn_ended(draft, event)
        case SnapshotTaken():
            _snapshot_taken(draft, event)
        case SnapshotRefused():
            _snapshot_refused(draft, event)
        case SnapshotFailed():
            _snapshot_failed(draft, event)
        case ChecksFinished():
            _checked(draft, event)
        case BranchPublished():
            _published(draft, event)
        case TimerFired():
            _timer(draft, event)
        case CloseRequested():
            _close(draft, event.cause)
        case Delivered() | Closed():
            finish_closing(draft, event)
        case DaemonRestarted():
            recover(draft, end_turn=_after_turn)
        case _:
            assert_never(event)


# -- beginning ---------------------------------------------------------------------------------------------------


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


def _turn_started(draft: Draft, event: TurnStarted) -> None:
    agent = draft.run.agents[event.agent]
    if agent.phase not in IN_TURN or agent.turn is None or agent.step != event.step:
        return
    if agent.turn.started_at is not None:
        return
    limits = draft.run.task.limits
    phase = Phase.WORKING if agent.phase is Phase.STARTING else agent.phase
    draft.change_agent(agent.name, phase=phase, turn=replace(agent.turn, started_at=event.at))
    draft.tell(TurnBegan(at=event.at, agent=agent.name, turn=agent.turn.number))
    limit = SetTimer(clock=Clock.TURN_LIMIT, due_at=event.at + limits.turn_s, agent=agent.name, step=event.step)
    draft.do(limit)
    if limits.wrap_up_s < limits.turn_s:
        draft.do(replace(limit, clock=Clock.TURN_WRAP_UP, due_at=limit.due_at - limits.wrap_up_s))


# -- decisions ---------------------------------------------------------------------------------------------------


def _handed_in(draft: Draft, event: HandedIn) -> None:
    if refusal(draft.run, event.agent, event.step, event.choice) is not None:
        return
    agent = draft.run.agents[event.agent]
    if isinstance(event.choice, NewAnswer):
        draft.change_agent(agent.name, phase=Phase.ENDING, pending=event.choice, vote=None)
        draft.tell(AnswerSubmitted(at=event.at, agent=agent.name, summary=event.choice.summary))
    else:
        _cast(draft, agent, event.choice)
    draft.change_agent(agent.name, ever_decided=True, failures=0)
    draft.do(EndTurn(step=event.step, agent=agent.name))


def _cast(draft: Draft, agent: Agent, choice: VoteFor) -> None:
    run = draft.run
    answer = voted_answer(run, agent, choice.label)
    valid = _is_current(run, agent)
    vote = Vote(voter=agent.name, answer=answer, reason=choice.reason, cast_at=draft.at, order=run.votes_cast + 1)
    draft.change(
        votes_cast=run.votes_cast + 1,
        votes_voided=run.votes_voided + (0 if valid else 1),
        past_votes=(*run.past_votes, vote),
    )
    draft.change_agent(
        agent.name,
        phase=Phase.ENDING,
        pending=None,
        vote=vote if valid else None,
        unfinished=agent.unfinished and not valid,
    )
    draft.tell(
        VoteCast(
            at=draft.at,
            agent=agent.name,
            votes_for=answer.agent,
            number=answer.number,
            reason=choice.reason,
            valid=valid,
        )
    )


def voted_answer(run: Run, agent: Agent, label: str) -> AnswerId:
    """The answer that the agent's turn shows under `label`. Raises StopIteration when it shows none."""
    context = agent.turn.context if agent.turn is not None else ()
    return next(which for which in context if run.agents[which.agent].label == label)


def _is_current(run: Run, agent: Agent) -> bool:
    """Does the turn's context hold every newest answer, those still being checked included (rule 5)?"""
    return _context(agent) == {answer.id for answer in run.newest(visible_only=False)}


def _sees_all(run: Run, agent: Agent) -> bool:
    """Does the turn's context hold every newest answer that can be seen by now?"""
    return _context(agent) == {answer.id for answer in run.newest(visible_only=True)}


def _context(agent: Agent) -> set[AnswerId]:
    return set(agent.turn.context) if agent.turn is not None else set()


def _turn_ended(draft: Draft, event: TurnEnded) -> None:
    agent = draft.run.agents[event.agent]
    if agent.phase not in IN_TURN or agent.step != event.step:
        return
    _after_turn(draft, agent, event)


def _after_turn(draft: Draft, agent: Agent, event: TurnEnded | None) -> None:
    """The turn is over for certain. `event` None: the daemon came back and found it ended."""
    if agent.phase is Phase.ENDING:
        if agent.pending is not None:
            _freeze(draft, agent, agent.pending)
        elif agent.vote is not None:
            draft.change_agent(agent.name, phase=Phase.VOTED, step=None, turn=None)
        else:
            draft.next_turn(agent.name)
        return
    draft.change_agent(agent.name, unfinished=True)
    if draft.run.stage is not Stage.RUNNING:
        draft.change_agent(agent.name, phase=Phase.IDLE, step=None, turn=None)
    elif agent.phase is Phase.STOPPING and agent.stop_reason is StopReason.TURN_LIMIT:
        _failed(draft, agent, f"its turn ran longer than {draft.run.task.limits.turn_s:g} s", None)
    elif agent.phase is Phase.STOPPING or event is None:
        draft.next_turn(agent.name)
    elif event.end in (TurnEnd.FAILED, TurnEnd.UNDECIDED):
        _failed(draft, agent, event.reason or "it ended without an answer or a vote", event.retry_after_s)
    else:
        draft.next_turn(agent.name)


def _failed(draft: Draft, agent: Agent, reason: str, retry_after_s: float | None) -> None:
    """Rule 10: again after a while, or out."""
    limits = draft.run.task.limits
    failures = agent.failures + 1
    out = failures >= limits.max_failures
    wait = min(MAX_BACKOFF_S, limits.backoff_s * 2 ** (failures - 1))
    delay = None if out else max(wait, retry_after_s or 0.0)
    draft.change_agent(
        agent.name,
        failures=failures,
        last_failure=reason,
        reminders=0,
        notice=f"Your last turn failed: {reason}. Your workspace is as you left it.",
        unfinished=True,
        turn=None,
    )
    draft.tell(TurnFailed(at=draft.at, agent=agent.name, reason=reason, failures=failures, retry_in_s=delay))
    if delay is None:
        draft.change_agent(agent.name, phase=Phase.OUT, step=None)
        draft.tell(AgentRetired(at=draft.at, agent=agent.name, reason=f"it failed {failures} times: {reason}"))
    else:
        draft.back_off(agent.name, delay)


# -- answers -----------------------------------------------------------------------------------------------------


def _freeze(draft: Draft, agent: Agent, answer: NewAnswer) -> None:
    step = draft.new_step()
    draft.change_agent(agent.name, phase=Phase.FREEZING, step=step, turn=None)
    draft.do(
        FreezeSnapshot(step=step, agent=agent.name, name=str(agent.answers + 1), summary=answer.summary),
    )


def _snapshot_taken(draft: Draft, event: SnapshotTaken) -> None:
    agent = draft.run.agents[event.agent]
    if draft.run.stage in (Stage.FORCING, Stage.KEEPING):
        keep_or_force_done(draft, event, accept=_accept)
    elif agent.phase is Phase.FREEZING and agent.step == event.step and agent.pending is not None:
        _accept(draft, event, agent.pending.summary, forced=False)
        if draft.run.stage is Stage.RUNNING and len(draft.run.agents) == 1:
            return
        draft.next_turn(agent.name)


def _accept(draft: Draft, event: SnapshotTaken, summary: str, *, forced: bool) -> None:
    """Rules 4, 5, 8: saved, so accepted; every vote is void; seen by others once it is checked."""
    run = draft.run
    agent = run.agents[event.agent]
    which = AnswerId(agent=agent.name, number=agent.answers + 1)
    checks = run.task.checks
    check_step = draft.new_step() if checks else None
    answer = Answer(
        id=which,
        summary=summary,
        snapshot=event.snapshot,
        accepted_at=event.at,
        checks=None if checks else (),
        check_step=check_step,
        forced=forced,
    )
    voted = [a.name for a in run.agents.values() if a.vote is not None]
    draft.change(answers=(*run.answers, answer), votes_voided=run.votes_voided + len(voted))
    draft.change_agent(
        agent.name,
        answers=which.number,
        phase=Phase.IDLE,
        pending=None,
        step=None,
        reminders=0,
        failures=0,
        unfinished=False,
        notice=None,
    )
    for name in voted:
        draft.change_agent(name, vote=None)
    draft.tell(
        AnswerAccepted(
            at=event.at,
            agent=agent.name,
            number=which.number,
            summary=summary,
            commit=event.snapshot.commit,
            changed_files=event.snapshot.changed_files,
            about=event.snapshot.about,
            votes_voided=len(voted),
            forced=forced,
        )
    )
    draft.publish(agent.name, event.snapshot.commit)
    if check_step is not None:
        draft.do(RunChecks(step=check_step, answer=which))
    if draft.run.stage is Stage.RUNNING:
        _wake_voters(draft, voted)
        if check_step is None:
            _spread(draft, which.agent)


def _wake_voters(draft: Draft, voters: list[str]) -> None:
    for name in voters:
        if draft.run.agents[name].phase is Phase.VOTED:
            draft.next_turn(name)


def _snapshot_refused(draft: Draft, event: SnapshotRefused) -> None:
    agent = draft.run.agents[event.agent]
    if draft.run.stage in (Stage.FORCING, Stage.KEEPING):
        keep_or_force_done(draft, event, accept=_accept)
        return
    if agent.phase is not Phase.FREEZING or agent.step != event.step:
        return
    draft.tell(AnswerRefused(at=event.at, agent=agent.name, reason=event.reason))
    agent = draft.change_agent(
        agent.name,
        pending=None,
        reminders=agent.reminders + 1,
        notice=f"Your last answer was not accepted: {event.reason}",
    )
    if draft.run.stage is Stage.RUNNING and agent.reminders > draft.run.task.limits.max_reminders:
        _failed(draft, agent, f"its answers were refused {agent.reminders} times: {event.reason}", None)
    else:
        draft.next_turn(agent.name)


def _snapshot_failed(draft: Draft, event: SnapshotFailed) -> None:
    """The hand-in is kept and the snapshot tried again; nothing of the workspace is touched (rule 4)."""
    agent = draft.run.agents[event.agent]
    if draft.run.stage in (Stage.FORCING, Stage.KEEPING):
        keep_or_force_done(draft, event, accept=_accept)
        return
    if agent.phase is not Phase.FREEZING or agent.step != event.step:
        return
    reason = f"its answer could not be saved: {event.reason}"
    draft.change(trouble=(*draft.run.trouble, f"{agent.name}: {reason}"))
    if draft.run.stage is Stage.RUNNING:
        _failed(draft, agent, reason, None)
    else:
        draft.change_agent(agent.name, phase=Phase.IDLE, step=None, unfinished=True, last_failure=reason)


# -- checks, and who hears of an answer --------------------------------------------------------------------------


def _checked(draft: Draft, event: ChecksFinished) -> None:
    run = draft.run
    answer = next((a for a in run.answers if a.check_step == event.step and not a.visible), None)
    if answer is None:
        return
    results = _with_missing(run, event.results)
    checked = replace(answer, checks=results, check_step=None)
    draft.change(answers=tuple(checked if a is answer else a for a in run.answers))
    draft.tell(
        AnswerChecked(at=event.at, agent=answer.id.agent, number=answer.id.number, checks=results),
    )
    if draft.run.stage is Stage.RUNNING:
        _spread(draft, answer.id.agent)


def _with_missing(run: Run, results: tuple[CheckResult, ...]) -> tuple[CheckResult, ...]:
    """A check without a result was not run, and so has not passed."""
    known = {result.name for result in results}
    missing = (spec for spec in run.task.checks if spec.name not in known)
    return results + tuple(
        CheckResult(name=spec.name, required=spec.required, passed=False, exit_code=None, duration_s=0.0)
        for spec in missing
    )


def _spread(draft: Draft, author: str) -> None:
    """Rule 6: an answer has become visible; everyone who may be interrupted is restarted with it."""
    for agent in list(draft.run.agents.values()):
        if agent.phase in (Phase.HELD, Phase.SPENT) or (agent.phase is Phase.IDLE and agent.name != author):
            draft.next_turn(agent.name)
        elif agent.phase in (Phase.STARTING, Phase.WORKING):
            _news_for(draft, agent)


def _news_for(draft: Draft, agent: Agent) -> None:
    if _sees_all(draft.run, agent):
        return
    protected_until = _protected_until(draft.run, agent)
    if protected_until is None or draft.at >= protected_until:
        _interrupt(draft, agent, StopReason.NEWS)
    else:
        draft.do(SetTimer(clock=Clock.PROTECTION, due_at=protected_until, agent=agent.name, step=agent.step))


def _protected_until(run: Run, agent: Agent) -> float | None:
    """The first turn runs its own way first, for diversity; None: this turn is not protected."""
    if agent.ever_decided or agent.turn is None or agent.turn.context:
        return None
    since = agent.turn.started_at if agent.turn.started_at is not None else agent.turn.requested_at
    return since + run.task.limits.first_turn_protection_s


def _interrupt(draft: Draft, agent: Agent, why: StopReason) -> None:
    if agent.step is None:
        return
    grace_s = 0.0 if why is StopReason.CLOSING else draft.run.task.limits.restart_grace_s
    draft.change_agent(agent.name, phase=Phase.STOPPING, stop_reason=why)
    draft.do(InterruptTurn(step=agent.step, agent=agent.name, grace_s=grace_s, why=why))
    draft.tell(AgentInterrupted(at=draft.at, agent=agent.name, why=why.value))


def _published(draft: Draft, event: BranchPublished) -> None:
    if event.branch:
        draft.change(branches={**draft.run.branches, event.agent: event.branch})
    if event.problem is not None and event.problem not in draft.run.trouble:
        draft.change(trouble=(*draft.run.trouble, event.problem))
    if event.branch or event.problem is not None:
        draft.tell(BranchUpdated(at=event.at, agent=event.agent, branch=event.branch, problem=event.problem))


# -- time and the end --------------------------------------------------------------------------------------------


def _timer(draft: Draft, event: TimerFired) -> None:
    match event.clock:
        case Clock.RUN_LIMIT:
            _close(draft, Cause.RUN_LIMIT)
        case Clock.RUN_WRAP_UP:
            for agent in draft.run.agents.values():
                if agent.phase is Phase.WORKING:
                    _notify_time(draft, agent, "run")
        case Clock.BACKOFF:
            _try_again(draft, event)
        case Clock.TURN_LIMIT | Clock.TURN_WRAP_UP | Clock.PROTECTION:
            _turn_timer(draft, event)
        case _:
            assert_never(event.clock)


def _turn_timer(draft: Draft, event: TimerFired) -> None:
    agent = draft.run.agents.get(event.agent or "")
    if agent is None or agent.step != event.step or agent.phase not in (Phase.STARTING, Phase.WORKING):
        return
    if event.clock is Clock.TURN_LIMIT:
        _interrupt(draft, agent, StopReason.TURN_LIMIT)
    elif event.clock is Clock.TURN_WRAP_UP:
        _notify_time(draft, agent, "turn")
    else:
        _news_for(draft, agent)  # asks again: the turn may have begun later than was known when the timer was set


def _notify_time(draft: Draft, agent: Agent, what: str) -> None:
    if agent.step is not None:
        text = f"This {what} ends in {draft.run.task.limits.wrap_up_s:g} seconds: hand in what you have, or vote."
        draft.do(Notify(step=agent.step, agent=agent.name, text=text))


def _try_again(draft: Draft, event: TimerFired) -> None:
    agent = draft.run.agents.get(event.agent or "")
    if agent is None or agent.phase is not Phase.BACKOFF or agent.step != event.step:
        return
    if agent.pending is not None:
        _freeze(draft, agent, agent.pending)
    else:
        draft.next_turn(agent.name)


def _close(draft: Draft, cause: Cause) -> None:
    """Rules 9 and 10: end all turns; `settle` decides once everything is quiet."""
    run = draft.run
    if run.cause is Cause.CANCELLED or run.stage in (Stage.DELIVERING, Stage.CLOSING):
        return
    if cause is not Cause.CANCELLED and (run.cause is not None or run.stage is Stage.KEEPING):
        return
    draft.change(cause=cause, stage=run.stage if run.stage in (Stage.FORCING, Stage.KEEPING) else Stage.SETTLING)
    draft.tell(ClosingBegan(at=draft.at, cause=cause.value))
    for agent in list(draft.run.agents.values()):
        if agent.phase in (Phase.STARTING, Phase.WORKING):
            _interrupt(draft, agent, StopReason.CLOSING)
        elif agent.phase is Phase.BACKOFF and agent.pending is not None:
            _freeze(draft, agent, agent.pending)
        elif agent.phase in (Phase.BACKOFF, Phase.HELD):
            draft.change_agent(agent.name, phase=Phase.IDLE, step=None)
