"""Each run's share of the gateway: keys, prices and upstreams meet the run's rules, and what is used is reported.

Must not decide anything about a run: it posts what was used, and that a budget is used up.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from massgend.discovery import socket_address
from massgend.domain.events import BudgetUsedUp, Event, UsageReported
from massgend.domain.run import HostCount, Run, UsageRecord
from massgend.domain.task import Task
from massgend.gateway.bodies import ModelRules
from massgend.gateway.egress import EgressRequest
from massgend.gateway.egress_rules import EgressRules, parse_egress
from massgend.gateway.gateway import GatewayRules, RunGateway, preflight
from massgend.gateway.keys import KeyRing
from massgend.gateway.meter import Budget, Spent
from massgend.gateway.model_proxy import ModelCall
from massgend.gateway.prices import Prices
from massgend.gateway.recording import Recorder, RecordError, load_replay
from massgend.gateway.refusals import Kind, Refusal
from massgend.gateway.room import Room
from massgend.gateway.secret import Secret
from massgend.gateway.upstream import Outgoing, Reply, Upstream
from massgend.gateway.usage import Usage
from massgend.scripted.server import serve as serve_scripted

REPORT_EVERY_S = 2.0
PROVIDER_OF_KIND = {"claude-code": "anthropic"}
"""Which provider an agent of this kind calls; kinds that are not listed call none by themselves."""

MAX_HOSTS = 100
OTHERS = "(others)"
SCRIPTED_KEY = "scripted-model"


@dataclass(frozen=True, kw_only=True)
class Models:
    """What all runs share. `scripted_keys` and `scripted` lead to massgend's own scripted model and nowhere else."""

    keys: KeyRing
    prices: Prices
    live: Upstream
    scripted_keys: KeyRing
    scripted: Upstream
    room: Room = field(default_factory=Room)

    async def problems(self, task: Task) -> tuple[str, ...]:
        """What would fail, before the run begins: sentences for people."""
        if task.models.scripted or task.replay is not None:
            return ()
        wanted = [(PROVIDER_OF_KIND[spec.kind], spec.model) for spec in task.agents if spec.kind in PROVIDER_OF_KIND]
        return await preflight(self.keys, self.prices, wanted=wanted, rules=rules_of(task)) if wanted else ()

    @asynccontextmanager
    async def share(self, run: Run, post: Callable[[Event], None], now: Callable[[], float]) -> AsyncIterator[Share]:
        """The run's share until left; what was used is posted every few seconds, and at the end."""
        reporter = UsageReporter(run, post, now)
        keys = self.scripted_keys if run.task.models.scripted else self.keys
        upstream = self.scripted if run.task.models.scripted else self.live
        async with AsyncExitStack() as stack:
            try:
                upstream = await _on_file(run, upstream, stack)
            except (RecordError, OSError) as error:
                # Its calls are refused with the reason, and the run ends by its own rules: it must not hang for a file.
                upstream = Closed(str(error))
            gateway = RunGateway(
                keys=keys,
                prices=self.prices,
                upstream=upstream,
                rules=rules_of(run.task),
                listener=reporter,
                spent=_spent(tuple(run.usage.values())),
                spent_by_agent={name: _spent((usage,)) for name, usage in run.usage.items()},
                room=self.room,
            )
            reporting = asyncio.create_task(reporter.report_now_and_then())
            try:
                yield Share(gateway=gateway, reporter=reporter)
            finally:
                reporting.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await reporting
                reporter.report()


async def _on_file(run: Run, upstream: Upstream, stack: AsyncExitStack) -> Upstream:
    """The upstream with the run's record or replay, if it has one. Raises RecordError."""
    if run.task.replay is not None:
        return await asyncio.to_thread(load_replay, run.task.replay)
    if run.task.record is None:
        return upstream
    head = {"task": run.task.text, "labels": {name: agent.label for name, agent in run.agents.items()}}
    return stack.enter_context(Recorder(upstream, _free(run.task.record), run=head))


class Closed:
    """An upstream that answers nothing and says why."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def open(self, outgoing: Outgoing) -> AbstractAsyncContextManager[Reply]:
        raise Refusal(Kind.NOT_SERVED, f"massgend: {self._reason}")


@dataclass(frozen=True, kw_only=True)
class Share:
    """One run's gateway, and the reporter of what passes through it."""

    gateway: RunGateway
    reporter: UsageReporter


def rules_of(task: Task) -> GatewayRules:
    """What the run may do. A replay reaches no network at all."""
    return GatewayRules(
        models=ModelRules(allow=task.models.allow, map=task.models.map, provider_tools=task.models.provider_tools),
        egress=parse_egress(task.egress) if task.replay is None else EgressRules(),
        budget=Budget(max_cost_usd=task.limits.max_cost_usd, max_tokens=task.limits.max_tokens),
        agent_budgets={
            spec.name: Budget(max_cost_usd=spec.max_cost_usd, max_tokens=spec.max_tokens)
            for spec in task.agents
            if spec.max_cost_usd is not None or spec.max_tokens is not None
        },
    )


def replayed_labels(path: Path) -> dict[str, str]:
    """The labels of the recorded run: its prompts are only the same under the same labels. Raises RecordError."""
    labels = load_replay(path).head.run.get("labels", {})
    return {str(name): str(label) for name, label in labels.items()}


def _free(path: Path) -> Path:
    """`path`, or a file beside it: a run that is taken up again goes on in another file. Raises RecordError."""
    beside = (path.with_name(f"{path.name}.{number}") for number in range(1, 1000))
    for one in (path, *beside):
        if not os.path.lexists(one):
            return one
    raise RecordError(f"{path} and 999 files beside it exist already: choose another file for the record")


@asynccontextmanager
async def scripted_model(socket: Path, folder: Path) -> AsyncIterator[KeyRing]:
    """massgend's scripted model on `socket` (which is not there yet), and a ring whose every key leads there."""
    address = socket_address(socket)
    async with serve_scripted(Path(address)):
        ring = KeyRing(environment={}, folder=folder, use_keyring=False)
        for name in ring.providers():
            ring.offer(name, Secret(SCRIPTED_KEY), base_url=f"unix://{address}")
        yield ring


class UsageReporter:
    """The gateway's listener: adds up what each agent uses and posts it, not more often than every few seconds."""

    def __init__(self, run: Run, post: Callable[[Event], None], now: Callable[[], float]) -> None:
        self._usage = dict(run.usage)
        self._post = post
        self._now = now
        self._changed: set[str] = set()

    def called(self, call: ModelCall) -> None:
        self._usage[call.agent] = _plus(self._usage.get(call.agent, UsageRecord()), call.usage, call.cost_usd)
        self._changed.add(call.agent)

    def reached(self, request: EgressRequest) -> None:
        before = self._usage.get(request.agent, UsageRecord())
        self._usage[request.agent] = replace(before, hosts=_counted(before.hosts, request))
        self._changed.add(request.agent)

    def used_up(self, agent: str | None, reason: str) -> None:
        self.report()
        self._post(BudgetUsedUp(at=self._now(), agent=agent, reason=reason))

    def report(self) -> None:
        """Post what has changed since the last report."""
        for agent in sorted(self._changed):
            self._post(UsageReported(at=self._now(), agent=agent, usage=self._usage[agent]))
        self._changed.clear()

    async def report_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(REPORT_EVERY_S)
            self.report()


def _plus(record: UsageRecord, usage: Usage, cost_usd: float | None) -> UsageRecord:
    return replace(
        record,
        calls=record.calls + 1,
        input_tokens=record.input_tokens + usage.input_tokens,
        cache_write_tokens=record.cache_write_tokens + usage.cache_write_tokens,
        cache_write_1h_tokens=record.cache_write_1h_tokens + usage.cache_write_1h_tokens,
        cache_read_tokens=record.cache_read_tokens + usage.cache_read_tokens,
        output_tokens=record.output_tokens + usage.output_tokens,
        priced_usd=record.priced_usd + (cost_usd or 0.0),
        unpriced_calls=record.unpriced_calls + (cost_usd is None),
    )


def _counted(hosts: tuple[HostCount, ...], request: EgressRequest) -> tuple[HostCount, ...]:
    size = request.bytes_up + request.bytes_down
    refused = request.refused is not None
    for place, one in enumerate(hosts):
        if (one.host, one.port, one.refused) == (request.host, request.port, refused):
            more = replace(one, requests=one.requests + 1, size_bytes=one.size_bytes + size)
            return (*hosts[:place], more, *hosts[place + 1 :])
    new = HostCount(host=request.host, port=request.port, refused=refused, requests=1, size_bytes=size)
    if len(hosts) < MAX_HOSTS:
        return (*hosts, new)
    # Invented names cannot push out what is there: they are counted together.
    return _counted(hosts, replace(request, host=OTHERS, port=0)) if request.host != OTHERS else (*hosts, new)


def _spent(records: tuple[UsageRecord, ...]) -> Spent:
    usage = Usage(
        input_tokens=sum(one.input_tokens for one in records),
        cache_write_tokens=sum(one.cache_write_tokens for one in records),
        cache_write_1h_tokens=sum(one.cache_write_1h_tokens for one in records),
        cache_read_tokens=sum(one.cache_read_tokens for one in records),
        output_tokens=sum(one.output_tokens for one in records),
        complete=True,
    )
    return Spent(
        calls=sum(one.calls for one in records),
        usage=usage,
        priced_usd=sum(one.priced_usd for one in records),
        unpriced_calls=sum(one.unpriced_calls for one in records),
    )
