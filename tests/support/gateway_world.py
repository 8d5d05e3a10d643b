"""A turn's gateway on a real socket, in front of a real HTTP server that answers as a test says. No network."""

from __future__ import annotations

import asyncio
import io
import os
import random
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from massgend.domain.run import Choice
from massgend.gateway.bodies import ModelRules
from massgend.gateway.egress import EgressRequest
from massgend.gateway.gateway import GatewayRules, RunGateway
from massgend.gateway.keys import KeyRing
from massgend.gateway.live import LiveUpstream, Timeouts
from massgend.gateway.model_proxy import ModelCall
from massgend.gateway.prices import Prices, load_prices
from massgend.gateway.room import Room
from massgend.gateway.throttle import Pace
from massgend.gateway.turn_gateway import TurnServices, open_gateway
from massgend.gateway.upstream import Upstream

KEY = "sk-ant-canary-5f2e9d7c1b3a48e6"
TOKEN = "turn-token-0123456789abcdef0123456789abcdef"
FAST = Pace(at_once=4, patience_s=2.0, attempts=4, backoff_s=0.05, longest_backoff_s=0.2)
QUICK = Timeouts(connect_s=2.0, first_byte_s=2.0, idle_s=1.0)

Answer = Callable[[web.Request, bytes], Awaitable[web.StreamResponse]]


@dataclass(kw_only=True)
class Asked:
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(kw_only=True)
class Provider:
    """The far end. `answer` may be changed at any time; `left`: when clients hung up before their answer's end."""

    url: str
    answer: Answer
    asked: list[Asked] = field(default_factory=list)
    left: asyncio.Queue[float] = field(default_factory=asyncio.Queue)
    under_way: int = 0
    most_under_way: int = 0


@asynccontextmanager
async def provider(answer: Answer) -> AsyncIterator[Provider]:
    async def serve(request: web.Request) -> web.StreamResponse:
        body = await request.read()
        asked = Asked(method=request.method, path=request.raw_path, headers=dict(request.headers), body=body)
        far.asked.append(asked)
        far.under_way += 1
        far.most_under_way = max(far.most_under_way, far.under_way)
        try:
            return await far.answer(request, body)
        except (asyncio.CancelledError, ConnectionError):
            far.left.put_nowait(asyncio.get_running_loop().time())
            raise
        finally:
            far.under_way -= 1

    app = web.Application(client_max_size=64 * 1024**2)
    app.router.add_route("*", "/{path:.*}", serve)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    folder = Path(tempfile.mkdtemp(prefix="mgp-"))
    far = Provider(url=f"unix://{folder}/p.sock", answer=answer)
    try:
        await web.UnixSite(runner, f"{folder}/p.sock").start()
        yield far
    finally:
        await runner.cleanup()
        shutil.rmtree(folder)


class Told:
    """The run's listener: keeps what it is told."""

    def __init__(self) -> None:
        self.calls: list[ModelCall] = []
        self.requests: list[EgressRequest] = []
        self.used: list[tuple[str | None, str]] = []

    def called(self, call: ModelCall) -> None:
        self.calls.append(call)

    def reached(self, request: EgressRequest) -> None:
        self.requests.append(request)

    def used_up(self, agent: str | None, reason: str) -> None:
        self.used.append((agent, reason))


@dataclass(kw_only=True)
class World:
    """One run with its gateway. `turn` opens a turn's socket and gives a client that speaks on it."""

    run: RunGateway
    keys: KeyRing
    told: Told
    live: LiveUpstream
    taken: list[Choice] = field(default_factory=list)

    @asynccontextmanager
    async def turn(
        self,
        agent: str = "ada",
        *,
        token: str = TOKEN,
        uid: int | None = None,
        change: Callable[[TurnServices], TurnServices] = lambda services: services,
    ) -> AsyncIterator[Turn]:
        """`uid`: whose the socket is, when it is to be used from inside a sandbox."""

        async def take(choice: Choice) -> str | None:
            self.taken.append(choice)
            return None

        folder = Path(tempfile.mkdtemp(prefix="mgt-"))
        os.chmod(folder, 0o755)
        owner = os.geteuid() if uid is None else uid
        services = change(self.run.turn(agent))
        try:
            async with AsyncExitStack() as stack:
                await stack.enter_async_context(
                    open_gateway(folder, token=token, uid=owner, gid=owner, take=take, services=services)
                )
                client = aiohttp.ClientSession(connector=aiohttp.UnixConnector(path=f"{folder}/s.sock", limit=0))
                stack.push_async_callback(client.close)
                yield Turn(folder=folder, client=client, token=token)
        finally:
            shutil.rmtree(folder)


@dataclass(kw_only=True)
class Turn:
    folder: Path
    client: aiohttp.ClientSession
    token: str

    @property
    def socket(self) -> str:
        return f"{self.folder}/s.sock"

    def ask(self, path: str, body: Any = None, **options: Any) -> Any:
        """A context manager with the response. POST when there is a body."""
        headers = {"Authorization": f"Bearer {self.token}", **options.pop("headers", {})}
        method = options.pop("method", "GET" if body is None else "POST")
        if isinstance(body, bytes):
            options["data"] = io.BytesIO(body)  # a large one in pieces
        elif body is not None:
            options["json"] = body
        return self.client.request(method, f"http://gateway{path}", headers=headers, **options)


@asynccontextmanager
async def world(
    far: Provider,
    *,
    rules: GatewayRules | None = None,
    models: ModelRules | None = None,
    pace: Pace = FAST,
    timeouts: Timeouts = QUICK,
    prices: Prices | None = None,
    wrap: Callable[[LiveUpstream], Upstream] = lambda live: live,
    environment: Mapping[str, str] | None = None,
    room: Room | None = None,
) -> AsyncIterator[World]:
    """All three providers lie at `far`; their keys are the canary."""
    folder = Path(tempfile.mkdtemp(prefix="mgk-"))
    known = {
        "ANTHROPIC_API_KEY": KEY,
        "OPENAI_API_KEY": KEY,
        "GEMINI_API_KEY": KEY,
        "ANTHROPIC_BASE_URL": far.url,
        "OPENAI_BASE_URL": far.url,
        "GOOGLE_GEMINI_BASE_URL": far.url,
    }
    keys = KeyRing(environment=known if environment is None else environment, folder=folder, use_keyring=False)
    told = Told()
    rules = rules or GatewayRules()
    if models is not None:
        rules = replace(rules, models=models)
    try:
        async with LiveUpstream(keys, timeouts=timeouts, pace=pace, chance=random.Random(1)) as live:
            run = RunGateway(
                keys=keys,
                prices=prices or load_prices(),
                upstream=wrap(live),
                rules=rules,
                listener=told,
                room=room,
            )
            yield World(run=run, keys=keys, told=told, live=live)
    finally:
        shutil.rmtree(folder)


def whole(body: bytes, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    """An answer in one piece."""

    async def answer(_request: web.Request, _body: bytes) -> web.StreamResponse:
        return web.Response(status=status, body=body, content_type="application/json", headers=headers)

    return answer


def stream(
    chunks: list[bytes], *, between: Callable[[int], Awaitable[None]] | None = None, cut: bool = False
) -> Answer:
    """Server-sent events, chunk by chunk; `between(i)` runs before chunk i. `cut`: the connection breaks at the end."""

    async def answer(request: web.Request, _body: bytes) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for number, chunk in enumerate(chunks):
            if between is not None:
                await between(number)
            await response.write(chunk)
        if cut:
            assert request.transport is not None
            await asyncio.sleep(0.05)
            request.transport.abort()
        else:
            await response.write_eof()
        return response

    return answer
