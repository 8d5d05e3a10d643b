"""What agents used, in words: tokens, money, and the hosts outside that they asked for. PURE."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.text import Text

from cli.layout import listed
from cli.text import clean, plural, shown_cost, shown_tokens
from massgend.api.schemas import AgentView, HostView, UsageView
from massgend.domain.run import UsageRecord

MAX_HOSTS = 6


def tokens_in(usage: UsageView | UsageRecord) -> int:
    """All that the models read, from a cache or not."""
    written = usage.cache_write_tokens + usage.cache_write_1h_tokens
    return usage.input_tokens + written + usage.cache_read_tokens


def total_cost(costs: Iterable[float | None]) -> float | None:
    """None, unknown, as soon as one of them is."""
    known = list(costs)
    return None if None in known else sum(cost for cost in known if cost is not None)


def usage_report(agents: tuple[AgentView, ...], width: int) -> Iterator[Text]:
    """Nothing when no agent asked a model or a host."""
    used = [(agent.name, agent.usage) for agent in agents if agent.usage is not None and _any(agent.usage)]
    calling = [usage for _, usage in used if usage.calls]
    cells = max((len(name) for name, _ in used), default=0)
    items: list[str] = []
    for name, usage in used:
        said = [_models((usage,))] if usage.calls else []
        said += [_hosts("reached", usage.hosts, refused=False), _hosts("refused", usage.hosts, refused=True)]
        for number, one in enumerate(filter(None, said)):
            items.append(f"{name if number == 0 else '':<{cells}}  {one}")
    if len(calling) > 1:
        items.append(f"{'all':<{cells}}  {_models(calling)}")
    yield from listed("Used", items, width)


def _any(usage: UsageView) -> bool:
    return bool(usage.calls or usage.hosts)


def _models(used: Iterable[UsageView]) -> str:
    each = list(used)
    read, written = sum(map(tokens_in, each)), sum(usage.output_tokens for usage in each)
    calls = plural(sum(usage.calls for usage in each), "call")
    cost = shown_cost(total_cost(usage.cost_usd for usage in each))
    return f"{shown_tokens(read)} tokens in, {shown_tokens(written)} out, {calls}, {cost}"


def _hosts(word: str, hosts: tuple[HostView, ...], *, refused: bool) -> str:
    named = [
        f"{clean(host.host)}:{host.port}" + (f" ({host.requests} times)" if host.requests > 1 else "")
        for host in hosts
        if host.refused is refused
    ]
    more = f" and {len(named) - MAX_HOSTS} more" if len(named) > MAX_HOSTS else ""
    return f"{word} {', '.join(named[:MAX_HOSTS])}{more}" if named else ""
