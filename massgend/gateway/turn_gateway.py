"""One turn's gateway: a folder with a socket and a token, mounted read-only at /run/gateway.

Whoever speaks on the socket is the turn's agent and nobody else; the token dies with the turn. Serves the desk's
two decisions. Must not decide anything itself: it asks `take`.
"""

from __future__ import annotations

import hmac
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from pydantic import BaseModel, ConfigDict, ValidationError

from massgend.domain.run import Choice, NewAnswer, VoteFor

SOCKET_NAME = "s.sock"
TOKEN_NAME = "token"  # noqa: S105 - the name of a file
MAX_BODY_BYTES = 1024**2

Take = Callable[[Choice], Awaitable[str | None]]
"""Hands a decision in: None when it was taken, else why not."""


class _AnswerBody(BaseModel):
    model_config = ConfigDict(extra="forbid")
    summary: str


class _VoteBody(BaseModel):
    model_config = ConfigDict(extra="forbid")
    label: str
    reason: str = ""


@asynccontextmanager
async def open_gateway(folder: Path, *, token: str, uid: int, gid: int, take: Take) -> AsyncIterator[None]:
    """Serve `folder`/s.sock until left. The folder exists, is empty, and is deleted by its owner.

    The socket can be used by `uid` only. Works for folders whose path is too long for a socket address.
    """
    app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[_guard(token)])
    app.router.add_post("/v1/answer", _answer(take))
    app.router.add_post("/v1/vote", _vote(take))
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=0.2)
    await runner.setup()
    try:
        listener = _listen(folder, uid, gid)
        site = web.SockSite(runner, listener)
        await site.start()
        _write_token(folder / TOKEN_NAME, token, uid, gid)
        yield
    finally:
        await runner.cleanup()


def _listen(folder: Path, uid: int, gid: int) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.setblocking(False)
    directory = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        path = f"/proc/self/fd/{directory}/{SOCKET_NAME}"
        listener.bind(path)
        os.chmod(path, 0o600)
        if os.geteuid() == 0:
            os.chown(path, uid, gid)
    except OSError:
        listener.close()
        raise
    finally:
        os.close(directory)
    listener.listen(64)
    return listener


def _write_token(path: Path, token: str, uid: int, gid: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400)
    with os.fdopen(descriptor, "w") as file:
        if os.geteuid() == 0:
            os.fchown(file.fileno(), uid, gid)
        file.write(token)


def _guard(token: str) -> Middleware:
    expected = f"Bearer {token}".encode()

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        given = request.headers.get("Authorization", "").encode(errors="surrogateescape")
        if not hmac.compare_digest(given, expected):
            return _problem(401, "The token is not this turn's: read it anew from /run/gateway/token.")
        return await handler(request)

    return check


def _answer(take: Take) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        try:
            body = _AnswerBody.model_validate_json(await request.read())
        except ValidationError:
            return _problem(422, 'An answer is JSON of the form {"summary": "..."}.')
        return await _taken(take, NewAnswer(summary=body.summary), "Received. Your turn ends now.")

    return handle


def _vote(take: Take) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        try:
            body = _VoteBody.model_validate_json(await request.read())
        except ValidationError:
            return _problem(422, 'A vote is JSON of the form {"label": "...", "reason": "..."}.')
        choice = VoteFor(label=body.label, reason=body.reason)
        return await _taken(take, choice, f"Your vote for {body.label} is cast. Your turn ends now.")

    return handle


async def _taken(take: Take, choice: Choice, message: str) -> web.StreamResponse:
    refusal = await take(choice)
    if refusal is not None:
        return _problem(409, refusal)
    return web.json_response({"message": message})


def _problem(status: int, detail: str) -> web.StreamResponse:
    return web.json_response(
        {"title": "Not taken", "status": status, "detail": detail},
        status=status,
        content_type="application/problem+json",
    )
