"""The next state under construction: `advance` fills one draft and returns it as a Transition. PURE, never shared."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from massgend.domain.context import TurnContext, build_context
from massgend.domain.effects import Effect, PublishBranch, SetTimer, StartTurn
from massgend.domain.events import Clock
from massgend.domain.facts import AgentRetired, Fact, TurnRequested
from massgend.domain.run import Agent, Phase, Run, Stage, Turn


@dataclass(frozen=True, kw_only=True)
class Transition:
    """`run` is the new value; `effects` are to be carried out; `facts` are to be told, both in order."""

    run: Run
    effects: tuple[Effect, ...] = ()
    facts: tuple[Fact, ...] = ()


class Draft:
    """One step of the machine at the moment `at`."""

    def __init__(self, run: Run, at: float) -> None:
        self.run = run
        self.at = at
        self.effects: list[Effect] = []
        self.facts: list[Fact] = []

    def finish(self) -> Transition:
        return Transition(run=self.run, effects=tuple(self.effects), facts=tuple(self.facts))

    def change(self, **fields: Any) -> None:
        self.run = replace(self.run, **fields)

    def change_agent(self, name: str, **fields: Any) -> Agent:
        agent = replace(self.run.agents[name], **fields)
        self.run = replace(self.run, agents={**self.run.agents, name: agent})
        return agent

    def new_step(self) -> int:
        self.change(steps=self.run.steps + 1)
        return self.run.steps

    def do(self, effect: Effect) -> None:
        self.effects.append(effect)

    def publish(self, name: str, commit: str) -> None:
        self.change(heads={**self.run.heads, name: commit})
        self.do(PublishBranch(agent=name, commit=commit))

    def tell(self, fact: Fact) -> None:
        self.facts.append(fact)

    def next_turn(self, name: str) -> None:
        """Start the agent's next turn with the newest context, or hold it, or retire it (rules 1, 2, 9)."""
        agent = self.run.agents[name]
        if self.run.stage is not Stage.RUNNING:
            self.change_agent(name, phase=Phase.IDLE, step=None, turn=None)
        elif self.run.being_checked:
            self.change_agent(name, phase=Phase.HELD, step=None, turn=None)
        elif agent.used_up is not None:
            self._spend(name, agent.used_up)
        elif agent.turns >= self.run.task.limits.turns:
            self._spend(name, f"it has used its {agent.turns} turns")
        else:
            self._start(agent)

    def _start(self, agent: Agent) -> None:
        context = build_context(self.run, agent, turn=agent.turns + 1, at=self.at)
        if not context.answers_left and not context.may_vote:
            self._spend(agent.name, "it has no answers left and nothing to vote for")
        else:
            self.start_turn(agent, context)

    def start_turn(self, agent: Agent, context: TurnContext) -> None:
        step = self.new_step()
        turn = Turn(
            number=context.turn,
            step=step,
            context=tuple(view.id for view in context.answers),
            requested_at=self.at,
            notice=agent.notice,
        )
        self.change_agent(
            agent.name,
            phase=Phase.STARTING,
            step=step,
            turn=turn,
            turns=turn.number,
            notice=None,
            stop_reason=None,
            pending=None,
        )
        self.do(StartTurn(step=step, agent=agent.name, context=context))
        self.tell(
            TurnRequested(
                at=self.at,
                agent=agent.name,
                turn=turn.number,
                sees=tuple(str(which) for which in turn.context),
                notice=turn.notice,
            )
        )

    def _spend(self, name: str, reason: str) -> None:
        if self.run.agents[name].phase is not Phase.SPENT:
            self.tell(AgentRetired(at=self.at, agent=name, reason=reason))
        self.change_agent(name, phase=Phase.SPENT, step=None, turn=None)

    def back_off(self, name: str, delay_s: float) -> None:
        step, due_at = self.new_step(), self.at + delay_s
        self.change_agent(name, phase=Phase.BACKOFF, step=step, retry_at=due_at)
        self.do(SetTimer(clock=Clock.BACKOFF, due_at=due_at, agent=name, step=step))

    def set_run_timers(self, started_at: float) -> None:
        """A wrap-up that is past is left out: turns that start now see the time left in their context."""
        limits = self.run.task.limits
        limit_at = started_at + limits.run_s
        self.do(SetTimer(clock=Clock.RUN_LIMIT, due_at=limit_at))
        if limit_at - limits.wrap_up_s > self.at:
            self.do(SetTimer(clock=Clock.RUN_WRAP_UP, due_at=limit_at - limits.wrap_up_s))
