"""One turn's gateway: a folder with a socket and a token, mounted read-only at /run/gateway.

Whoever speaks on the socket is the turn's agent and nobody else; the token dies with the turn. Serves the desk's two
decisions, and with `services` the models and the egress. Must not decide anything itself: it asks them.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from massgend.gateway.desk import MAX_BODY_BYTES, Take, open_desk, problem
from massgend.gateway.egress import Egress
from massgend.gateway.front import Front
from massgend.gateway.model_proxy import ModelProxy, refused
from massgend.gateway.refusals import Kind, Refusal
from massgend.gateway.secret import Secret
from massgend.gateway.wires import find_provider, token_candidates

SOCKET_NAME = "s.sock"
TOKEN_NAME = "token"  # noqa: S105 - the name of a file
_DESK_PATHS = frozenset({"/v1/answer", "/v1/vote"})
_ENDING_S = 0.2


@dataclass(frozen=True, kw_only=True)
class TurnServices:
    """What a turn's socket offers beyond the desk."""

    models: ModelProxy | None = None
    egress: Egress | None = None


@asynccontextmanager
async def open_gateway(
    folder: Path, *, token: str, uid: int, gid: int, take: Take, services: TurnServices | None = None
) -> AsyncIterator[None]:
    """Serve `folder`/s.sock until left. The folder exists, is empty, and is deleted by its owner.

    The socket can be used by `uid` only. Works for folders whose path is too long for a socket address. When left,
    calls and tunnels under way are cut, and their connections to the outside closed.
    """
    services = services or TurnServices()
    secret = Secret(token)
    async with AsyncExitStack() as stack:
        desk = await stack.enter_async_context(open_desk(take))
        app = web.Application(client_max_size=_largest(services), middlewares=[_guard(secret, services)])
        app.router.add_post("/v1/answer", desk.answer)
        app.router.add_post("/v1/vote", desk.vote)
        if services.models is not None:
            app.router.add_route("*", "/{path:.*}", _model_route(services.models, secret))
        # Cancellation: a program that hangs up ends its call at the provider at once.
        runner = web.AppRunner(
            app, access_log=None, handle_signals=False, shutdown_timeout=_ENDING_S, handler_cancellation=True
        )
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        assert runner.server is not None
        front = Front(http=runner.server, egress=services.egress, token=secret)
        stack.push_async_callback(front.aclose)
        server = await asyncio.get_running_loop().create_unix_server(front, sock=_listen(folder, uid, gid))
        stack.callback(server.close)
        _write_token(folder / TOKEN_NAME, token, uid, gid)
        yield


def _largest(services: TurnServices) -> int:
    return MAX_BODY_BYTES if services.models is None else max(MAX_BODY_BYTES, services.models.rules.max_body_bytes)


def _model_route(models: ModelProxy, token: Secret) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        return await models.serve(request, token)

    return handle


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


def _guard(token: Secret, services: TurnServices) -> Middleware:
    """The token first, before anything is read or looked up; then each kind of error in the form its asker knows."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        for_desk = services.models is None or request.path in _DESK_PATHS
        given = token_candidates(request.headers, request.query)
        if any(token.equals(candidate) for candidate in given):
            return await handler(request)
        if for_desk:
            return problem(401, "The token is not this turn's: read it anew from /run/gateway/token.")
        assert services.models is not None
        provider, _ = find_provider(request.raw_path, services.models.providers)
        return refused(provider.wire, Refusal(Kind.TOKEN, "massgend: the token is not this turn's"))

    return check
