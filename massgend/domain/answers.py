"""From a hand-in to an answer that others see: saved, accepted, checked (rules 4, 5, 8). PURE."""

from __future__ import annotations

from dataclasses import replace

from massgend.domain.draft import Draft
from massgend.domain.effects import FreezeSnapshot, RunChecks
from massgend.domain.events import ChecksFinished, SnapshotFailed, SnapshotRefused, SnapshotTaken
from massgend.domain.facts import AnswerAccepted, AnswerChecked, AnswerRefused
from massgend.domain.failures import fail
from massgend.domain.restarts import spread
from massgend.domain.run import PRESENTED, Agent, Answer, AnswerId, CheckResult, NewAnswer, Phase, Run, Stage


def freeze(draft: Draft, agent: Agent, answer: NewAnswer) -> None:
    step = draft.new_step()
    draft.change_agent(agent.name, phase=Phase.FREEZING, step=step, turn=None)
    draft.do(freezing(draft.run, agent, answer, step))


def freezing(run: Run, agent: Agent, answer: NewAnswer, step: int) -> FreezeSnapshot:
    """The effect that saves what was handed in."""
    name = PRESENTED if run.stage is Stage.PRESENTING else str(agent.answers + 1)
    return FreezeSnapshot(step=step, agent=agent.name, name=name, summary=answer.summary)


def snapshot_taken(draft: Draft, event: SnapshotTaken) -> None:
    agent = draft.run.agents[event.agent]
    if agent.phase is Phase.FREEZING and agent.step == event.step and agent.pending is not None:
        accept(draft, event, agent.pending.summary, forced=False)
        if draft.run.stage is Stage.RUNNING and len(draft.run.agents) == 1:
            return
        draft.next_turn(agent.name)


def accept(draft: Draft, event: SnapshotTaken, summary: str, *, forced: bool) -> None:
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
            spread(draft, which.agent)


def _wake_voters(draft: Draft, voters: list[str]) -> None:
    for name in voters:
        if draft.run.agents[name].phase is Phase.VOTED:
            draft.next_turn(name)


def snapshot_refused(draft: Draft, event: SnapshotRefused) -> None:
    agent = draft.run.agents[event.agent]
    if agent.phase is not Phase.FREEZING or agent.step != event.step:
        return
    draft.tell(AnswerRefused(at=event.at, agent=agent.name, reason=event.reason))
    agent = draft.change_agent(
        agent.name,
        pending=None,
        reminders=agent.reminders + 1,
        unfinished=agent.unfinished or not event.unchanged,
        notice=f"Your last answer was not accepted: {event.reason}",
    )
    if draft.run.stage is Stage.RUNNING and agent.reminders > draft.run.task.limits.max_reminders:
        fail(draft, agent, f"its answers were refused {agent.reminders} times: {event.reason}", None)
    else:
        draft.next_turn(agent.name)


def snapshot_failed(draft: Draft, event: SnapshotFailed) -> None:
    """The hand-in is kept and the snapshot tried again; nothing of the workspace is touched (rule 4)."""
    agent = draft.run.agents[event.agent]
    if agent.phase is not Phase.FREEZING or agent.step != event.step:
        return
    reason = f"its answer could not be saved: {event.reason}"
    draft.change(trouble=(*draft.run.trouble, f"{agent.name}: {reason}"))
    if draft.run.stage is Stage.RUNNING:
        fail(draft, agent, reason, None)
    else:
        draft.change_agent(agent.name, phase=Phase.IDLE, step=None, unfinished=True, last_failure=reason)


def checks_finished(draft: Draft, event: ChecksFinished) -> None:
    run = draft.run
    answer = next((a for a in run.answers if a.check_step == event.step and not a.visible), None)
    if answer is None:
        return
    results = with_missing(run, event.results)
    checked = replace(answer, checks=results, check_step=None)
    draft.change(answers=tuple(checked if a is answer else a for a in run.answers))
    draft.tell(
        AnswerChecked(at=event.at, agent=answer.id.agent, number=answer.id.number, checks=results),
    )
    if draft.run.stage is Stage.RUNNING:
        spread(draft, answer.id.agent)


def with_missing(run: Run, results: tuple[CheckResult, ...]) -> tuple[CheckResult, ...]:
    """A check without a result was not run, and so has not passed."""
    known = {result.name for result in results}
    missing = (spec for spec in run.task.checks if spec.name not in known)
    return results + tuple(
        CheckResult(name=spec.name, required=spec.required, passed=False, exit_code=None, duration_s=0.0)
        for spec in missing
    )
