"""The gateway as the daemon has it: a run's share of it, and what a turn of that run gets on its socket."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from massgend.gateway.bodies import ModelRules
from massgend.gateway.egress import Egress, EgressRequest
from massgend.gateway.egress_rules import EgressRules
from massgend.gateway.key_file import KeysError
from massgend.gateway.keys import KeyRing
from massgend.gateway.meter import Budget, Ledger, Meter, Spent
from massgend.gateway.model_proxy import ModelCall, ModelProxy
from massgend.gateway.prices import Prices
from massgend.gateway.room import Room
from massgend.gateway.turn_gateway import TurnServices
from massgend.gateway.upstream import Upstream
from massgend.gateway.wires import PROVIDERS, Provider


class Listener(Protocol):
    """Who is told what passes through a run's gateway. Called on the event loop; must not block or raise."""

    def called(self, call: ModelCall) -> None: ...

    def reached(self, request: EgressRequest) -> None: ...

    def used_up(self, agent: str | None, reason: str) -> None:
        """Told once: the run's budget (agent None) or an agent's; further calls are refused already."""


@dataclass(frozen=True, kw_only=True)
class GatewayRules:
    """What one run may do. `agent_models` and `agent_budgets` are by agent's name; without: `models`, no own bound."""

    models: ModelRules = field(default_factory=ModelRules)
    agent_models: Mapping[str, ModelRules] = field(default_factory=dict)
    egress: EgressRules = field(default_factory=EgressRules)
    budget: Budget = field(default_factory=Budget)
    agent_budgets: Mapping[str, Budget] = field(default_factory=dict)


class RunGateway:
    """One run's share: its rules, its meters, its record. `spent`: what was used before the daemon restarted;
    `room`: the daemon's, shared with all other runs."""

    def __init__(
        self,
        *,
        keys: KeyRing,
        prices: Prices,
        upstream: Upstream,
        rules: GatewayRules,
        listener: Listener,
        spent: Spent | None = None,
        spent_by_agent: Mapping[str, Spent] | None = None,
        room: Room | None = None,
    ) -> None:
        self._room = room or Room()
        self._keys = keys
        self._prices = prices
        self._upstream = upstream
        self._rules = rules
        self._listener = listener
        agents = {*rules.agent_budgets, *(spent_by_agent or {})}
        self.ledger = Ledger(
            run=Meter(budget=rules.budget, spent=spent or Spent()),
            agents={
                name: Meter(
                    budget=rules.agent_budgets.get(name, Budget()), spent=(spent_by_agent or {}).get(name, Spent())
                )
                for name in agents
            },
            used_up=listener.used_up,
        )

    def turn(self, agent: str) -> TurnServices:
        """What the agent's next turn gets on its socket."""
        models = ModelProxy(
            agent=agent,
            providers=_providers(self._keys),
            rules=self._rules.agent_models.get(agent, self._rules.models),
            upstream=self._upstream,
            ledger=self.ledger,
            prices=self._prices,
            called=self._listener.called,
            room=self._room.turn(),
        )
        egress = Egress(agent=agent, rules=self._rules.egress, reached=self._listener.reached)
        return TurnServices(models=models, egress=egress)


def _providers(keys: KeyRing) -> Mapping[str, Provider]:
    """A key file that cannot be used is told at the first call, in the provider's own format."""
    try:
        return keys.providers()
    except KeysError:
        return {provider.name: provider for provider in PROVIDERS}


async def preflight(
    keys: KeyRing, prices: Prices, *, wanted: Iterable[tuple[str, str | None]], rules: GatewayRules
) -> tuple[str, ...]:
    """What would fail, before a run begins: sentences for people. `wanted`: (provider, model or None) of each agent."""
    problems: list[str] = []
    try:
        providers = keys.providers()
    except KeysError as error:
        return (f"{error}",)
    bounded = rules.budget.max_cost_usd is not None or any(
        budget.max_cost_usd is not None for budget in rules.agent_budgets.values()
    )
    for name, model in sorted(set(wanted), key=str):
        provider = providers.get(name)
        if provider is None:
            problems.append(f"the provider {name} is not known: name it in {keys.path}")
            continue
        try:
            await keys.credential(provider)
        except KeysError as error:
            problems.append(str(error))
        real = rules.models.map.get(model, model) if model is not None else None
        if bounded and real is not None and not prices.knows(real):
            problems.append(
                f"max_cost is set, but no price is known for the model {real}: its calls will be refused; add it to "
                "prices.toml, or bound the run by max_tokens"
            )
    return tuple(dict.fromkeys(problems))
