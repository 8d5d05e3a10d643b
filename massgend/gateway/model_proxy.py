"""One turn's way to the models: checks a call, passes the answer on as it comes, and counts what it used.

Must not buffer, re-encode or interpret what it passes on; must not answer in any but the provider's own format.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from time import monotonic

import anyio.to_process
from aiohttp import web

from massgend.gateway.bodies import ModelRules, Prepared, Refused, UsageHider, parts, prepare, prepare_apart
from massgend.gateway.meter import Ledger
from massgend.gateway.prices import Prices
from massgend.gateway.refusals import Kind, Refusal, body_of, last_event, status_of
from massgend.gateway.room import TurnRoom
from massgend.gateway.secret import LeakWatch, Secret
from massgend.gateway.upstream import Outgoing, Reply, Upstream
from massgend.gateway.usage import Usage, UsageReader, at_least
from massgend.gateway.wires import Call, Operation, Provider, Wire, allowed_headers, find_call, find_provider

CALLS_AT_ONCE = 12
"""Of one turn: more wait unread, so that one agent's requests cannot fill the daemon's memory."""

LARGE_BODY_BYTES = 256 * 1024
"""Longer requests are parsed beside the event loop: the other agents' streams go on meanwhile."""

MANY_PARTS = 50_000
"""Of a large body's JSON. More are parsed in a process of their own: a thread would take turns with the event loop."""

READ_S = 120.0
"""How long a program inside may take to send its request's body."""

WRITE_S = 120.0
"""How long a program inside may leave its answer unread before it is cut off."""


class Ended(StrEnum):
    COMPLETE = "complete"
    REFUSED = "refused"
    CLIENT_GONE = "client_gone"
    UPSTREAM_GONE = "upstream_gone"


@dataclass(frozen=True, kw_only=True)
class ModelCall:
    """One call as it ended. `model` as the provider was asked; `cost_usd` None: unknown. Never holds what was said."""

    agent: str
    provider: str
    operation: Operation
    model: str | None
    status: int
    ended: Ended
    usage: Usage
    cost_usd: float | None
    first_byte_s: float | None
    duration_s: float
    problem: str | None = None


@dataclass(kw_only=True)
class _Progress:
    """What is known of a call while it runs. `spared`: the provider has not worked on it."""

    began: float
    reader: UsageReader | None = None
    prepared: Prepared | None = None
    spared: bool = False
    response: web.StreamResponse | None = None
    status: int = 0
    ended: Ended = Ended.CLIENT_GONE
    first_byte_s: float | None = None
    problem: str | None = None


@dataclass(frozen=True, kw_only=True)
class ModelProxy:
    """Serves an agent's calls. `called` is told of each generating call that went out; it must not block."""

    agent: str
    providers: Mapping[str, Provider]
    rules: ModelRules
    upstream: Upstream
    ledger: Ledger
    prices: Prices
    called: Callable[[ModelCall], None]
    room: TurnRoom
    places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(CALLS_AT_ONCE))

    async def serve(self, request: web.Request, token: Secret) -> web.StreamResponse:
        """The guard has checked the token already."""
        async with self.places:
            try:
                async with self.room.hold(self._size(request)):
                    return await self._serve(request, token)
            except Refusal as refusal:  # there was no room
                provider, _ = find_provider(request.raw_path.partition("?")[0], self.providers)
                return refused(provider.wire, refusal)

    def _size(self, request: web.Request) -> int:
        """What the body may come to in memory. A compressed one says nothing of that."""
        told = request.content_length
        return self.rules.max_body_bytes if told is None or "Content-Encoding" in request.headers else told

    async def _serve(self, request: web.Request, token: Secret) -> web.StreamResponse:
        progress = _Progress(began=monotonic())
        provider, _ = find_provider(request.raw_path.partition("?")[0], self.providers)
        try:
            outgoing = await self._accept(request, token)
            progress.prepared = outgoing.prepared
            try:
                async with self.upstream.open(outgoing) as reply:
                    await self._pass_on(request, reply, progress)
            except Refusal as refusal:
                # After an error the provider charges nothing; after a silence it may.
                progress.spared = progress.reader is None and refusal.kind is not Kind.TIMEOUT
                raise
            finally:
                progress.spared = progress.spared or outgoing.held.is_set()
        except Refusal as refusal:
            return await self._end_badly(request, provider.wire, refusal, progress)
        except ConnectionError:
            if progress.response is None:
                raise
        finally:
            self._account(progress)
        assert progress.response is not None
        return progress.response

    async def _accept(self, request: web.Request, token: Secret) -> Outgoing:
        call = find_call(request.method, request.raw_path, self.providers)
        if call is None:
            raise Refusal(Kind.NOT_SERVED, "massgend: this path is not served to agents")
        try:
            async with asyncio.timeout(READ_S):
                body = await request.read()
        except TimeoutError:
            raise Refusal(Kind.TIMEOUT, f"massgend: the request's body did not come within {READ_S:g} s") from None
        except web.HTTPRequestEntityTooLarge:
            raise Refusal(
                Kind.TOO_LARGE, f"massgend: a request may have {self.rules.max_body_bytes} bytes at most"
            ) from None
        prepared = await _prepared(call, body, self.rules)
        if call.generates:
            self._check_budget(prepared)
        headers = allowed_headers(request.headers.items())
        return Outgoing(agent=self.agent, prepared=prepared, headers=headers, token=token)

    def _check_budget(self, prepared: Prepared) -> None:
        reason = self.ledger.why_refused(self.agent)
        if reason is not None:
            raise Refusal(Kind.BUDGET, f"massgend: {reason}")
        model = prepared.model or ""
        if self.ledger.needs_prices(self.agent) and not self.prices.knows(model):
            raise Refusal(
                Kind.BUDGET,
                f"massgend: max_cost is set, but no price is known for the model {model[:200]}: add it to prices.toml, "
                "or bound the run by max_tokens instead",
            )

    async def _pass_on(self, request: web.Request, reply: Reply, progress: _Progress) -> None:
        prepared = progress.prepared
        assert prepared is not None
        events = reply.content_type.startswith("text/event-stream")
        reader = progress.reader = UsageReader(prepared.call.operation, events=events)
        watch = LeakWatch(reply.secrets)
        hider = UsageHider() if prepared.hides_usage and events else None
        response = web.StreamResponse(
            status=reply.status, headers={"Content-Type": reply.content_type, **reply.headers}
        )
        progress.status = reply.status
        async for chunk in reply.chunks:
            if watch.completes(chunk):
                raise Refusal(Kind.UPSTREAM, "massgend: the answer held massgend's own key and was cut off")
            if progress.response is None:
                await response.prepare(request)
                progress.response = response
                progress.first_byte_s = monotonic() - progress.began
            shown = chunk if hider is None else hider.feed(chunk)
            if shown:
                await _bounded(response.write(shown))
            reader.feed(chunk)
        reader.finish()
        progress.ended = Ended.COMPLETE
        if progress.response is None:
            await response.prepare(request)
            progress.response = response
        if hider is not None and (rest := hider.finish()):
            await _bounded(response.write(rest))
        await response.write_eof()

    async def _end_badly(
        self, request: web.Request, wire: Wire, refusal: Refusal, progress: _Progress
    ) -> web.StreamResponse:
        progress.problem = refusal.message
        if progress.response is None:
            progress.ended = Ended.REFUSED
            response = refused(wire, refusal)
            progress.status = response.status
            return response
        progress.ended = Ended.UPSTREAM_GONE
        prepared, reader = progress.prepared, progress.reader
        assert prepared is not None
        assert reader is not None
        if reader.between_events and prepared.stream:
            await _bounded(progress.response.write(last_event(prepared.call.operation, wire, refusal)))
            await progress.response.write_eof()
        elif request.transport is not None:
            # In the middle of an event nothing can be said any more: the client must see that the answer is not whole.
            request.transport.abort()
        return progress.response

    def _account(self, progress: _Progress) -> None:
        prepared = progress.prepared
        if prepared is None or not prepared.call.generates:
            return
        model = prepared.model or ""
        cost: float | None = 0.0
        if progress.spared:
            usage = Usage(complete=True)
        else:
            seen = progress.reader.usage if progress.reader is not None else Usage()
            usage = at_least(seen, len(prepared.body))
            cost = self.prices.cost_usd(model, usage)
        self.ledger.add(self.agent, usage, cost)
        self.called(
            ModelCall(
                agent=self.agent,
                provider=prepared.call.provider.name,
                operation=prepared.call.operation,
                model=prepared.model,
                status=progress.status,
                ended=progress.ended,
                usage=usage,
                cost_usd=cost,
                first_byte_s=progress.first_byte_s,
                duration_s=monotonic() - progress.began,
                problem=progress.problem,
            )
        )


async def _prepared(call: Call, body: bytes, rules: ModelRules) -> Prepared:
    if len(body) <= LARGE_BODY_BYTES:
        return prepare(call, body, rules)
    if parts(body) <= MANY_PARTS:
        return await asyncio.to_thread(prepare, call, body, rules)
    found = await anyio.to_process.run_sync(prepare_apart, call, body, rules, cancellable=True)
    if isinstance(found, Refused):
        raise Refusal(found.kind, found.message)
    return found if found.body else replace(found, body=body)


async def _bounded(writing: Awaitable[None]) -> None:
    """A program that does not read its answer must not hold the key's place for ever."""
    try:
        async with asyncio.timeout(WRITE_S):
            await writing
    except TimeoutError:
        raise ConnectionAbortedError from None


def refused(wire: Wire, refusal: Refusal) -> web.Response:
    """The refusal as a whole answer: our own headers only."""
    headers = {}
    if refusal.retry_after_s is not None:
        headers["Retry-After"] = str(max(1, round(refusal.retry_after_s)))
    if not refusal.may_be_retried:
        headers["x-should-retry"] = "false"
    return web.Response(
        status=status_of(wire, refusal),
        body=body_of(wire, refusal),
        content_type="application/json",
        headers=headers,
    )
