"""A turn's way: its start, its end, and the next try (rules 1, 9, 10). PURE."""

from __future__ import annotations

from dataclasses import replace

from massgend.domain.answers import freeze
from massgend.domain.draft import Draft
from massgend.domain.effects import SetTimer
from massgend.domain.events import Clock, TimerFired, TurnEnd, TurnEnded, TurnStarted
from massgend.domain.facts import TurnBegan
from massgend.domain.failures import fail
from massgend.domain.presentation import presentation_turn_over, start_presentation
from massgend.domain.run import IN_TURN, Agent, Phase, Run, Stage, StopReason


def turn_started(draft: Draft, event: TurnStarted) -> None:
    agent = draft.run.agents[event.agent]
    if agent.phase not in IN_TURN or agent.turn is None or agent.step != event.step:
        return
    if agent.turn.started_at is not None:
        return
    limits = draft.run.task.limits
    phase = Phase.WORKING if agent.phase is Phase.STARTING else agent.phase
    draft.change_agent(agent.name, phase=phase, turn=replace(agent.turn, started_at=event.at))
    draft.tell(TurnBegan(at=event.at, agent=agent.name, turn=agent.turn.number))
    limit = SetTimer(clock=Clock.TURN_LIMIT, due_at=_limit_at(draft.run, event.at), agent=agent.name, step=event.step)
    draft.do(limit)
    if limit.due_at - limits.wrap_up_s > event.at:
        draft.do(replace(limit, clock=Clock.TURN_WRAP_UP, due_at=limit.due_at - limits.wrap_up_s))


def _limit_at(run: Run, started_at: float) -> float:
    if run.stage is Stage.PRESENTING and run.presented is not None:
        return run.presented.limit_at
    return started_at + run.task.limits.turn_s


def turn_ended(draft: Draft, event: TurnEnded) -> None:
    agent = draft.run.agents[event.agent]
    if agent.phase not in IN_TURN or agent.step != event.step:
        return
    if event.end is not TurnEnd.FAILED and agent.turn is not None and agent.turn.started_at is not None:
        agent = draft.change_agent(agent.name, shown=agent.turn.context)
    after_turn(draft, agent, event)


def after_turn(draft: Draft, agent: Agent, event: TurnEnded | None) -> None:
    """The turn is over for certain. `event` None: the daemon came back and found it ended."""
    if draft.run.stage is Stage.PRESENTING:
        presentation_turn_over(draft, agent, event)
        return
    if agent.phase is Phase.ENDING:
        if agent.pending is not None:
            freeze(draft, agent, agent.pending)
        elif agent.vote is not None:
            draft.change_agent(agent.name, phase=Phase.VOTED, step=None, turn=None)
        else:
            draft.next_turn(agent.name)
        return
    draft.change_agent(agent.name, unfinished=True)
    if draft.run.stage is not Stage.RUNNING:
        draft.change_agent(agent.name, phase=Phase.IDLE, step=None, turn=None)
    elif agent.phase is Phase.STOPPING and agent.stop_reason is StopReason.TURN_LIMIT:
        fail(draft, agent, f"its turn ran longer than {draft.run.task.limits.turn_s:g} s", None)
    elif agent.phase is Phase.STOPPING or event is None:
        draft.next_turn(agent.name)
    elif event.end in (TurnEnd.FAILED, TurnEnd.UNDECIDED):
        fail(draft, agent, event.reason or "it ended without an answer or a vote", event.retry_after_s)
    else:
        draft.next_turn(agent.name)


def try_again(draft: Draft, event: TimerFired) -> None:
    agent = draft.run.agents.get(event.agent or "")
    if agent is None or agent.phase is not Phase.BACKOFF or agent.step != event.step:
        return
    if agent.pending is not None:
        freeze(draft, agent, agent.pending)
    elif draft.run.stage is Stage.PRESENTING:
        start_presentation(draft)
    else:
        draft.next_turn(agent.name)
