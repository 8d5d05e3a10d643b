"""A decision that an agent hands in, and whether its vote counts (rules 3 and 5). PURE."""

from __future__ import annotations

from massgend.domain.draft import Draft
from massgend.domain.effects import EndTurn
from massgend.domain.events import HandedIn
from massgend.domain.facts import AnswerSubmitted, VoteCast
from massgend.domain.hand_in import refusal
from massgend.domain.run import Agent, AnswerId, NewAnswer, Phase, Run, Stage, Vote, VoteFor


def handed_in(draft: Draft, event: HandedIn) -> None:
    if refusal(draft.run, event.agent, event.step, event.choice) is not None:
        return
    agent = draft.run.agents[event.agent]
    if isinstance(event.choice, NewAnswer):
        vote = agent.vote if draft.run.stage is Stage.PRESENTING else None  # what has won stays voted for
        draft.change_agent(agent.name, phase=Phase.ENDING, pending=event.choice, vote=vote)
        draft.tell(AnswerSubmitted(at=event.at, agent=agent.name, summary=event.choice.summary))
    else:
        _cast(draft, agent, event.choice)
    draft.change_agent(agent.name, ever_decided=True, failures=0)
    draft.do(EndTurn(step=event.step, agent=agent.name))


def _cast(draft: Draft, agent: Agent, choice: VoteFor) -> None:
    run = draft.run
    answer = _voted_answer(run, agent, choice.label)
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


def _voted_answer(run: Run, agent: Agent, label: str) -> AnswerId:
    """The answer that the agent's turn shows under `label`. Raises StopIteration when it shows none."""
    context = agent.turn.context if agent.turn is not None else ()
    return next(which for which in context if run.agents[which.agent].label == label)


def _is_current(run: Run, agent: Agent) -> bool:
    """Does the turn's context hold every newest answer, those still being checked included (rule 5)?"""
    return agent.sees == {answer.id for answer in run.newest(visible_only=False)}
