"""The scripted model as a server on a unix socket or a port. Holds no state; must never be taken for a real model.

Every reply carries the header `massgend-scripted`, the model's name `scripted-1`, and texts that begin with it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from aiohttp import web
from pydantic import ValidationError

from massgend.scripted import anthropic_wire, chat_wire, gemini_wire
from massgend.scripted.anthropic_wire import MessagesRequest
from massgend.scripted.chat_wire import ChatRequest
from massgend.scripted.gemini_wire import GeminiRequest
from massgend.scripted.responses_wire import ResponsesRequest
from massgend.scripted.script import MODEL, Fault, Reply, ScriptError, reply_to
from massgend.scripted.wire import Request, digest_of

MAX_REQUEST_BYTES = 128 * 1024**2
PAGE = f"This is massgend's scripted model ({MODEL}). Nothing it says comes from a real model.\n"
BYTES_PER_TOKEN = 4
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
OnRequest = Callable[[str, bytes], None]
ON_REQUEST: web.AppKey[OnRequest] = web.AppKey("on_request")


@asynccontextmanager
async def serve(
    path: Path | None = None, *, host: str = "127.0.0.1", port: int = 0, on_request: OnRequest | None = None
) -> AsyncIterator[str]:
    """Serve on the unix socket `path`, or on host and port (0: any that is free), until left. Yields the base URL.

    For a socket the URL's host means nothing: http://scripted. What hangs is cut when it is left.
    `on_request` gets the path and body of each request that a script answers.
    """
    runner = web.AppRunner(
        application(on_request), access_log=None, handle_signals=False, shutdown_timeout=0.1, handler_cancellation=True
    )
    await runner.setup()
    try:
        if path is not None:
            await web.UnixSite(runner, path).start()
            yield "http://scripted"
        else:
            await web.TCPSite(runner, host, port).start()
            yield f"http://{host}:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def application(on_request: OnRequest | None = None) -> web.Application:
    app = web.Application(client_max_size=MAX_REQUEST_BYTES)
    app[ON_REQUEST] = on_request or (lambda path, body: None)
    app.on_response_prepare.append(_label)
    app.router.add_post("/v1/messages", _answers(anthropic_wire, lambda body, _: MessagesRequest.model_validate(body)))
    app.router.add_post("/v1/messages/count_tokens", _count("input_tokens"))
    app.router.add_post("/v1/chat/completions", _answers(chat_wire, lambda body, _: ChatRequest.model_validate(body)))
    app.router.add_post("/v1/responses", _answers(chat_wire, lambda body, _: ResponsesRequest.model_validate(body)))
    app.router.add_get("/v1/models", _models)
    app.router.add_get("/v1/models/{model}", _model)
    for version in ("/v1beta", "/v1"):
        base = version + "/models/{model}"
        app.router.add_post(base + ":generateContent", _answers(gemini_wire, _gemini(streams=False)))
        app.router.add_post(base + ":streamGenerateContent", _answers(gemini_wire, _gemini(streams=True)))
        app.router.add_post(base + ":countTokens", _count("totalTokens"))
    app.router.add_get("/v1beta/models", _gemini_models)
    app.router.add_get("/v1beta/models/{model}", _gemini_model)
    app.router.add_get("/", _page)
    return app


async def _label(request: web.Request, response: web.StreamResponse) -> None:
    response.headers["massgend-scripted"] = MODEL


async def _page(request: web.Request) -> web.StreamResponse:
    return web.Response(text=PAGE)


def _gemini(*, streams: bool) -> Callable[[Any, web.Request], Request]:
    return lambda body, _: GeminiRequest.model_validate({**body, "streams": streams})


def _answers(wire: ModuleType, read: Callable[[Any, web.Request], Request]) -> Handler:
    """The handler of one format: `wire` writes its errors, `read` reads its requests."""

    async def handle(http: web.Request) -> web.StreamResponse:
        raw = await http.read()
        http.app[ON_REQUEST](http.path, raw)
        try:
            request = read(json.loads(raw), http)
            reply = reply_to(request.asked(digest_of(raw)))
        except (ValidationError, ScriptError, TypeError, json.JSONDecodeError) as error:
            return web.json_response(wire.problem(400, f"[{MODEL}] {error}"), status=400)
        return await _play(http, wire, request, reply)

    return handle


async def _play(http: web.Request, wire: ModuleType, request: Request, reply: Reply) -> web.StreamResponse:
    step = reply.step
    await asyncio.sleep(step.wait_s)
    if step.error is not None:
        headers = {} if step.retry_after_s is None else {"retry-after": str(step.retry_after_s)}
        body = wire.problem(step.error, f"[{MODEL}] {step.message}")
        return web.json_response(body, status=step.error, headers=headers)
    if step.fault is Fault.HANG:
        await _hang()
    if step.fault is Fault.GARBAGE:
        return web.Response(body=b"\x00\xff<html>no model speaks so", content_type="text/event-stream")
    if request.wants_stream:
        return await _stream(http, request, reply)
    if step.fault is Fault.CUT_MIDWAY:
        _cut(http)
    if step.fault is not None:
        await _hang()
    return web.json_response(request.whole(reply))


async def _stream(http: web.Request, request: Request, reply: Reply) -> web.StreamResponse:
    step = reply.step
    events = list(request.events(reply))
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
    await response.prepare(http)
    for number, content in enumerate(events):
        if step.fault is not None and number >= len(events) // 2:
            if step.fault is Fault.CUT_MIDWAY:
                _cut(http)
                return response
            await _hang()
        await response.write(content)
        if step.pace_s:
            await asyncio.sleep(step.pace_s)
    await response.write_eof()
    return response


def _cut(http: web.Request) -> None:
    if http.transport is not None:
        http.transport.abort()


async def _hang() -> None:
    """Until the client goes away: the server then cancels us."""
    await asyncio.Event().wait()


def _count(name: str) -> Handler:
    async def handle(http: web.Request) -> web.StreamResponse:
        return web.json_response({name: len(await http.read()) // BYTES_PER_TOKEN})

    return handle


async def _models(http: web.Request) -> web.StreamResponse:
    """Anthropic's and OpenAI's list have one path; Anthropic's clients say their version."""
    listed: Mapping[str, Any] = anthropic_wire.models() if _is_anthropic(http) else chat_wire.models()
    return web.json_response(listed)


async def _model(http: web.Request) -> web.StreamResponse:
    listed: Mapping[str, Any] = anthropic_wire.models() if _is_anthropic(http) else chat_wire.models()
    return web.json_response(listed["data"][0])


def _is_anthropic(http: web.Request) -> bool:
    return "anthropic-version" in http.headers


async def _gemini_models(http: web.Request) -> web.StreamResponse:
    return web.json_response({"models": [gemini_wire.model()]})


async def _gemini_model(http: web.Request) -> web.StreamResponse:
    return web.json_response(gemini_wire.model())
