"""Budgets: what a run and each of its agents may use, have used, and when the next call is refused.

`Meter` is a value; `Ledger` holds one for the run and one an agent, and tells once when one is used up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from massgend.gateway.usage import Usage


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Upper bounds; None: no bound. Every reported token counts, also those read from a cache.

    A bound stops further calls; calls under way are finished, so it can be passed by their cost.
    """

    max_cost_usd: float | None = None
    max_tokens: int | None = None
    max_requests: int | None = None


@dataclass(frozen=True, kw_only=True)
class Spent:
    """Used so far. `priced_usd` covers the calls with a known price only."""

    calls: int = 0
    usage: Usage = field(default_factory=lambda: Usage(complete=True))
    priced_usd: float = 0.0
    unpriced_calls: int = 0

    @property
    def cost_usd(self) -> float | None:
        """None: unknown, because a call had no known price."""
        return None if self.unpriced_calls else self.priced_usd

    def plus(self, usage: Usage, cost_usd: float | None) -> Spent:
        return Spent(
            calls=self.calls + 1,
            usage=self.usage.plus(usage),
            priced_usd=self.priced_usd + (cost_usd or 0.0),
            unpriced_calls=self.unpriced_calls + (cost_usd is None),
        )


@dataclass(frozen=True, kw_only=True)
class Meter:
    budget: Budget = Budget()
    spent: Spent = Spent()

    def plus(self, usage: Usage, cost_usd: float | None) -> Meter:
        return replace(self, spent=self.spent.plus(usage, cost_usd))

    @property
    def used_up(self) -> str | None:
        """Which bound is reached, for people; None: none is."""
        budget, spent = self.budget, self.spent
        if budget.max_cost_usd is not None and spent.priced_usd >= budget.max_cost_usd:
            return f"max_cost of ${budget.max_cost_usd:.2f} is used up (${spent.priced_usd:.2f} spent)"
        if budget.max_tokens is not None and spent.usage.total_tokens >= budget.max_tokens:
            return f"max_tokens of {budget.max_tokens} is used up ({spent.usage.total_tokens} used)"
        if budget.max_requests is not None and spent.calls >= budget.max_requests:
            return f"max_requests of {budget.max_requests} is used up"
        return None


UsedUp = Callable[[str | None, str], None]
"""Told once for the run (agent None) or an agent: whose budget is used up, and the sentence that says which bound."""


class Ledger:
    """The meters of one run. Used from the event loop only."""

    def __init__(self, *, run: Meter, agents: Mapping[str, Meter], used_up: UsedUp) -> None:
        self._run = run
        self._agents = dict(agents)
        self._tell = used_up
        self._told: set[str | None] = set()

    @property
    def run(self) -> Meter:
        return self._run

    def agent(self, name: str) -> Meter:
        return self._agents.get(name, Meter())

    def needs_prices(self, agent: str) -> bool:
        """A cost bound holds for the agent, so a call without a known price cannot be allowed."""
        return any(meter.budget.max_cost_usd is not None for meter in (self._run, self.agent(agent)))

    def why_refused(self, agent: str) -> str | None:
        """The reason why the agent may make no further call; None: it may. Told to the machine, too."""
        for who, meter in ((None, self._run), (agent, self.agent(agent))):
            reason = meter.used_up
            if reason is not None:
                whose = "this run" if who is None else f"the agent {who}"
                sentence = f"the budget of {whose} is spent: {reason}"
                self._tell_once(who, sentence)
                return sentence
        return None

    def add(self, agent: str, usage: Usage, cost_usd: float | None) -> None:
        self._run = self._run.plus(usage, cost_usd)
        self._agents[agent] = self.agent(agent).plus(usage, cost_usd)
        self.why_refused(agent)

    def _tell_once(self, who: str | None, sentence: str) -> None:
        if who not in self._told:
            self._told.add(who)
            self._tell(who, sentence)
