"""What happens when a timer fires (rules 6, 9, 10). A timer of an earlier step changes nothing. PURE."""

from __future__ import annotations

from typing import assert_never

from massgend.domain.closing import request_close
from massgend.domain.draft import Draft
from massgend.domain.effects import Notify
from massgend.domain.events import Clock, TimerFired
from massgend.domain.restarts import interrupt, tell_news
from massgend.domain.run import Agent, Cause, Phase, Stage, StopReason
from massgend.domain.turns import try_again


def timer_fired(draft: Draft, event: TimerFired) -> None:
    match event.clock:
        case Clock.RUN_LIMIT:
            request_close(draft, Cause.RUN_LIMIT)
        case Clock.RUN_WRAP_UP:
            for agent in draft.run.agents.values():
                if agent.phase is Phase.WORKING and draft.run.stage is not Stage.PRESENTING:
                    _notify_time(draft, agent, "run")
        case Clock.BACKOFF:
            try_again(draft, event)
        case Clock.TURN_LIMIT | Clock.TURN_WRAP_UP | Clock.PROTECTION:
            _turn_timer(draft, event)
        case _:
            assert_never(event.clock)


def _turn_timer(draft: Draft, event: TimerFired) -> None:
    agent = draft.run.agents.get(event.agent or "")
    if agent is None or agent.step != event.step or agent.phase not in (Phase.STARTING, Phase.WORKING):
        return
    if event.clock is Clock.TURN_LIMIT:
        interrupt(draft, agent, StopReason.TURN_LIMIT)
    elif event.clock is Clock.TURN_WRAP_UP:
        _notify_time(draft, agent, "turn")
    else:
        tell_news(draft, agent)  # asks again: the turn may have begun later than was known when the timer was set


def _notify_time(draft: Draft, agent: Agent, what: str) -> None:
    if agent.step is not None:
        text = f"This {what} ends in {draft.run.task.limits.wrap_up_s:g} seconds: hand in what you have, or vote."
        draft.do(Notify(step=agent.step, agent=agent.name, text=text))
