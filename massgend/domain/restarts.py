"""Who hears of a new answer, and when: interrupt, protect, restart (rule 6). PURE."""

from __future__ import annotations

from massgend.domain.draft import Draft
from massgend.domain.effects import InterruptTurn, SetTimer
from massgend.domain.events import Clock
from massgend.domain.facts import AgentInterrupted
from massgend.domain.run import Agent, Phase, Run, StopReason


def spread(draft: Draft, author: str) -> None:
    """Rule 6: an answer has become visible; everyone who may be interrupted is restarted with it."""
    for agent in list(draft.run.agents.values()):
        if agent.phase in (Phase.HELD, Phase.SPENT) or (agent.phase is Phase.IDLE and agent.name != author):
            draft.next_turn(agent.name)
        elif agent.phase in (Phase.STARTING, Phase.WORKING):
            tell_news(draft, agent)


def tell_news(draft: Draft, agent: Agent) -> None:
    """Restart a turn that does not show every answer, at once or when its protection is over."""
    if _sees_all(draft.run, agent):
        return
    protected_until = _protected_until(draft.run, agent)
    if protected_until is None or draft.at >= protected_until:
        interrupt(draft, agent, StopReason.NEWS)
    else:
        draft.do(SetTimer(clock=Clock.PROTECTION, due_at=protected_until, agent=agent.name, step=agent.step))


def _sees_all(run: Run, agent: Agent) -> bool:
    """Does the turn's context hold every newest answer that can be seen by now?"""
    return agent.sees == {answer.id for answer in run.newest(visible_only=True)}


def _protected_until(run: Run, agent: Agent) -> float | None:
    """The first turn runs its own way first, for diversity; None: this turn is not protected."""
    if agent.ever_decided or agent.turn is None or agent.turn.context:
        return None
    since = agent.turn.started_at if agent.turn.started_at is not None else agent.turn.requested_at
    return since + run.task.limits.first_turn_protection_s


def interrupt(draft: Draft, agent: Agent, why: StopReason) -> None:
    if agent.step is None:
        return
    grace_s = 0.0 if why is StopReason.CLOSING else draft.run.task.limits.restart_grace_s
    draft.change_agent(agent.name, phase=Phase.STOPPING, stop_reason=why)
    draft.do(InterruptTurn(step=agent.step, agent=agent.name, grace_s=grace_s, why=why))
    draft.tell(AgentInterrupted(at=draft.at, agent=agent.name, why=why.value))
