"""What one turn sees (rule 2), built from the run and nothing else."""

from __future__ import annotations

from dataclasses import dataclass

from massgend.domain.run import Agent, Answer, AnswerId, CheckResult, Run


@dataclass(frozen=True, kw_only=True)
class AnswerView:
    """One answer as shown to an agent. `agent` and `votes` only when the run discloses them."""

    id: AnswerId
    label: str
    summary: str
    mine: bool
    checks: tuple[CheckResult, ...]
    agent: str | None = None
    votes: int | None = None


@dataclass(frozen=True, kw_only=True)
class TurnContext:
    """Immutable for the whole turn. `you` is the agent's own label; answers stand in the order of labels.

    `seconds_left`: of this turn or the run, whichever ends first, when the turn was requested. `notice`: what happened
    to the last turn or answer, to be told first. `reminders_left`: how often an undecided agent may be asked again.
    """

    task: str
    you: str
    turn: int
    answers: tuple[AnswerView, ...]
    answers_left: int
    seconds_left: float
    reminders_left: int
    may_vote: bool
    notice: str | None = None


def build_context(run: Run, agent: Agent, *, turn: int, at: float) -> TurnContext:
    """The context of the agent's next turn."""
    limits = run.task.limits
    shown = sorted(run.newest(visible_only=True), key=lambda answer: run.agents[answer.id.agent].label)
    run_left = limits.run_s - (at - run.started_at) if run.started_at is not None else limits.run_s
    return TurnContext(
        task=run.task.text,
        you=agent.label,
        turn=turn,
        answers=tuple(_view(run, agent, answer) for answer in shown),
        answers_left=max(0, limits.answers - agent.answers),
        seconds_left=max(0.0, min(limits.turn_s, run_left)),
        reminders_left=max(0, limits.max_reminders - agent.reminders),
        may_vote=any(_may_vote_for(run, agent, answer) for answer in shown),
        notice=agent.notice,
    )


def _view(run: Run, reader: Agent, answer: Answer) -> AnswerView:
    disclose = run.task.disclose
    return AnswerView(
        id=answer.id,
        label=run.agents[answer.id.agent].label,
        summary=answer.summary,
        mine=answer.id.agent == reader.name,
        checks=answer.checks or (),
        agent=answer.id.agent if disclose.identities else None,
        votes=sum(a.vote is not None and a.vote.answer == answer.id for a in run.agents.values())
        if disclose.votes
        else None,
    )


def _may_vote_for(run: Run, agent: Agent, answer: Answer) -> bool:
    return run.task.allow_self_vote or answer.id.agent != agent.name
