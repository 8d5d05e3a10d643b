"""What one turn sees (rule 2), built from the run and nothing else."""

from __future__ import annotations

from dataclasses import dataclass

from massgend.domain.run import Agent, Answer, AnswerId, CheckResult, Presented, Run, Vote
from massgend.domain.tally import valid_votes


@dataclass(frozen=True, kw_only=True)
class AnswerView:
    """One answer as shown to an agent. `agent` and `votes` only when the run discloses them.

    `seen`: the agent's last turn had it in view already.
    """

    id: AnswerId
    label: str
    summary: str
    mine: bool
    checks: tuple[CheckResult, ...]
    agent: str | None = None
    votes: int | None = None
    seen: bool = False


@dataclass(frozen=True, kw_only=True)
class VoteShown:
    """One valid vote as the winner sees it: labels of the answer and the voter, names only when disclosed."""

    label: str
    voter: str
    reason: str
    voter_agent: str | None = None


@dataclass(frozen=True, kw_only=True)
class TurnContext:
    """Immutable for the whole turn. `you` is the agent's own label; answers stand in the order of labels.

    `seconds_left`: of this turn or the run, whichever ends first, when the turn was requested. `notice`: what happened
    to the last turn or answer, to be told first. `reminders_left`: how often an undecided agent may be asked again.
    `presentation`: the winner's last turn; its own answer in `answers` is the one that won, and `votes_cast` are the
    votes that counted. `planning`: tools with effects outside are described in this turn, not executed.
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
    presentation: bool = False
    planning: bool = False
    votes_cast: tuple[VoteShown, ...] = ()


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
        planning=run.task.planning,
    )


def build_presentation(run: Run, presented: Presented, *, turn: int, at: float) -> TurnContext:
    """The context of the winner's presentation (rule 12): nothing to vote for, one answer to hand in."""
    winner = run.agents[presented.voted.agent]
    newest = {answer.id.agent: answer for answer in run.newest(visible_only=True)}
    shown = sorted(
        (newest | {winner.name: run.answer(presented.voted)}).values(),
        key=lambda answer: run.agents[answer.id.agent].label,
    )
    ids = {answer.id for answer in shown}
    return TurnContext(
        task=run.task.text,
        you=winner.label,
        turn=turn,
        answers=tuple(_view(run, winner, answer) for answer in shown),
        answers_left=1,
        seconds_left=max(0.0, presented.limit_at - at),
        reminders_left=run.task.limits.max_reminders,
        may_vote=False,
        notice=winner.notice,
        presentation=True,
        votes_cast=tuple(_vote(run, vote) for vote in valid_votes(run) if vote.answer in ids),
    )


def _vote(run: Run, vote: Vote) -> VoteShown:
    return VoteShown(
        label=run.agents[vote.answer.agent].label,
        voter=run.agents[vote.voter].label,
        reason=vote.reason,
        voter_agent=vote.voter if run.task.disclose.identities else None,
    )


def _view(run: Run, reader: Agent, answer: Answer) -> AnswerView:
    disclose = run.task.disclose
    return AnswerView(
        id=answer.id,
        label=run.agents[answer.id.agent].label,
        summary=answer.summary,
        mine=answer.id.agent == reader.name,
        checks=answer.checks or (),
        seen=answer.id in reader.shown,
        agent=answer.id.agent if disclose.identities else None,
        votes=sum(a.vote is not None and a.vote.answer == answer.id for a in run.agents.values())
        if disclose.votes
        else None,
    )


def _may_vote_for(run: Run, agent: Agent, answer: Answer) -> bool:
    return run.task.allow_self_vote or answer.id.agent != agent.name
