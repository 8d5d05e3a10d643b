"""The control API's routes. Thin: ask the orchestrator, answer in the API's words; errors are problem+json."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import FastAPI, Header, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse, StreamingResponse
from starlette.exceptions import HTTPException

from massgend.api.guard import PROBLEM_TYPE, BodyLimit, problem
from massgend.api.keys import keys_view
from massgend.api.schemas import (
    Created,
    DoctorLine,
    GcLine,
    GcRequest,
    GcView,
    Health,
    KeyGiven,
    KeysOffer,
    KeysView,
    KeyTestView,
    MergeRequest,
    MergeView,
    Problem,
    RunLine,
    RunRequest,
    RunView,
)
from massgend.api.stream import stream
from massgend.api.views import merge_view, run_line, run_view, task_of
from massgend.gateway.key_file import KeysError, add_key
from massgend.gateway.key_test import try_key
from massgend.gateway.key_variables import variables
from massgend.gateway.keys import KeyRing
from massgend.gateway.secret import Secret
from massgend.gateway.wires import Provider
from massgend.orchestrator.actor import summarise
from massgend.orchestrator.collection import collect, look
from massgend.orchestrator.merging import MergeRefused, merge_answer
from massgend.orchestrator.output import read_tail
from massgend.orchestrator.ports import log_path
from massgend.orchestrator.service import RunAmbiguous, RunNotFound, RunRefused, Runs

log = logging.getLogger(__name__)

MAX_BODY_BYTES = 8 * 1024**2
MAX_TAIL_BYTES = 16 * 1024**2
_PROBLEMS: dict[int | str, dict[str, object]] = {
    code: {"model": Problem, "content": {PROBLEM_TYPE: {}}} for code in (404, 409, 413, 422, 500)
}


def make_app(
    runs: Runs,
    *,
    health: Callable[[], Health],
    doctor: Callable[[], Awaitable[tuple[DoctorLine, ...]]],
    shut_down: Callable[[], None],
    version: str,
) -> FastAPI:
    """The application over one daemon's runs. `shut_down` asks the daemon to end, and returns at once."""
    app = FastAPI(title="massgend", version=version, docs_url=None, redoc_url=None, responses=_PROBLEMS)
    app.add_middleware(BodyLimit, max_bytes=MAX_BODY_BYTES)
    _add_problems(app)
    _add_runs(app, runs)
    _add_daemon(app, runs, health, doctor, shut_down)
    return app


def _add_runs(app: FastAPI, runs: Runs) -> None:
    @app.post("/runs", status_code=201)
    async def create_run(request: RunRequest) -> Created:
        requested = await runs.request(task_of(request))
        return Created(run_id=requested.run.id, status=requested.run.status, warnings=requested.warnings)

    @app.get("/runs")
    async def list_runs() -> list[RunLine]:
        return [run_line(summary) for summary in await runs.list()]

    @app.get("/runs/{run_id}")
    async def get_run(run_id: str) -> RunView:
        return run_view(await runs.get(await runs.find(run_id)), runs.ports.state)

    @app.get("/runs/{run_id}/events")
    async def events(
        run_id: str,
        last_event_id: Annotated[str, Header(pattern=r"^\d{0,18}$")] = "",
    ) -> Response:
        """Server-sent events: facts with ids (resume with Last-Event-ID), activities without, the result last."""
        found = await runs.find(run_id)
        body = stream(runs, found, int(last_event_id or 0))
        return StreamingResponse(body, media_type="text/event-stream", headers={"Cache-Control": "no-store"})

    @app.post("/runs/{run_id}/cancel", status_code=202)
    async def cancel_run(run_id: str) -> RunLine:
        return run_line(summarise(await runs.cancel(await runs.find(run_id))))

    @app.get("/runs/{run_id}/agents/{agent}/log")
    async def agent_log(
        run_id: str, agent: str, tail_bytes: Annotated[int, Query(ge=1, le=MAX_TAIL_BYTES)] = 65_536
    ) -> Response:
        """The end of everything the agent's programs printed, as they printed it: escape it before showing it."""
        run = await runs.get(await runs.find(run_id))
        if agent not in run.agents:
            raise RunNotFound(f"Run {run.id} has no agent '{agent}': it has {', '.join(run.agents)}.")
        tail, size_bytes = read_tail(log_path(runs.ports, run.id, run.agents[agent].label), tail_bytes)
        return PlainTextResponse(tail, headers={"Massgend-Log-Size": str(size_bytes)})

    @app.post("/merges")
    async def merge(request: MergeRequest) -> MergeView:
        """Merge an agent's answer into a branch, from the branches in the repository alone."""
        delivery = await merge_answer(
            runs,
            repository=request.repository,
            run_id=request.run_id,
            agent=request.agent,
            into=request.into,
            mode=request.mode,
        )
        return merge_view(delivery)


def _add_daemon(
    app: FastAPI,
    runs: Runs,
    health: Callable[[], Health],
    doctor: Callable[[], Awaitable[tuple[DoctorLine, ...]]],
    shut_down: Callable[[], None],
) -> None:
    @app.post("/gc")
    async def gc(request: GcRequest) -> GcView:
        """Delete ended runs whose work is safe in the users' repositories; with `force` also the others."""
        wanted = tuple([await runs.find(prefix) for prefix in request.run_ids])
        found = await look(runs, wanted)
        lines = tuple(
            GcLine(
                run_id=one.run,
                status=one.status,
                age_s=one.age_s,
                size_bytes=one.size_bytes,
                merged=one.merged,
                action="keep" if one.under_way or (one.keep is not None and not request.force) else "delete",
                why=one.keep or "its work is on branches of the repository",
            )
            for one in found
        )
        freed = 0 if request.dry_run else await collect(runs, found, force=request.force)
        return GcView(dry_run=request.dry_run, lines=lines, freed_bytes=freed)

    @app.get("/keys")
    async def list_keys() -> KeysView:
        """Where each provider's key lies, never the key; and what a client may hand over."""
        return await keys_view(runs.ports.models.keys)

    @app.post("/keys")
    async def offer_keys(offer: KeysOffer) -> KeysView:
        """Hand over keys from the client's environment: kept in memory until the daemon ends."""
        known = {name: value for name, value in offer.environment.items() if name in variables()}
        runs.ports.models.keys.offer_environment(known)
        return await keys_view(runs.ports.models.keys)

    @app.put("/keys/{provider}")
    async def give_key(provider: str, given: KeyGiven) -> KeysView:
        """Take one provider's key: into memory, and with `save` into the key file (mode 0600)."""
        keys = runs.ports.models.keys
        _known_provider(keys, provider)
        try:
            keys.give(provider, Secret(given.key.get_secret_value()))
        except ValueError as error:
            raise KeysError(f"this is no key for {provider}: {error}") from None
        if given.save:
            await asyncio.to_thread(add_key, keys.path, provider, given.key.get_secret_value())
        return await keys_view(keys)

    @app.delete("/keys/{provider}")
    async def withdraw_key(provider: str) -> KeysView:
        """Forget a key that was handed over; those in the environment and in the file stay."""
        keys = runs.ports.models.keys
        _known_provider(keys, provider)
        keys.withdraw(provider)
        return await keys_view(keys)

    @app.post("/keys/{provider}/test")
    async def test_key(provider: str) -> KeyTestView:
        """One cheap call to the provider with its key."""
        models = runs.ports.models
        known = _known_provider(models.keys, provider)
        tested = await try_key(models.live, known)
        return KeyTestView(provider=provider, works=tested.works, detail=tested.detail)

    @app.get("/doctor")
    async def examine() -> list[DoctorLine]:
        return list(await doctor())

    @app.get("/health")
    async def get_health() -> Health:
        return health()

    @app.post("/shutdown", status_code=202)
    async def shutdown() -> Health:
        """End the daemon; runs under way go on at the next start."""
        shut_down()
        return health()


def _known_provider(keys: KeyRing, name: str) -> Provider:
    known = keys.providers()
    if name not in known:
        raise RunNotFound(f"There is no provider '{name}': massgend knows {', '.join(sorted(known))}.")
    return known[name]


def _add_problems(app: FastAPI) -> None:
    @app.exception_handler(RunNotFound)
    async def not_found(_: Request, error: RunNotFound) -> Response:
        return problem(404, "not_found", "Not found", str(error))

    @app.exception_handler(RunAmbiguous)
    async def ambiguous(_: Request, error: RunAmbiguous) -> Response:
        return problem(409, "ambiguous", "Ambiguous", str(error))

    @app.exception_handler(RunRefused)
    async def refused(_: Request, error: RunRefused) -> Response:
        return problem(422, error.code, "The run cannot start", str(error))

    @app.exception_handler(KeysError)
    async def keys_unusable(_: Request, error: KeysError) -> Response:
        return problem(422, "keys_unusable", "The key cannot be used", str(error))

    @app.exception_handler(MergeRefused)
    async def merge_refused(_: Request, error: MergeRefused) -> Response:
        return problem(422, "merge_refused", "The merge cannot start", str(error))

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        return problem(422, "invalid_request", "The request is not valid", _first_mistake(error))

    @app.exception_handler(HTTPException)
    async def http_error(_: Request, error: HTTPException) -> Response:
        return problem(error.status_code, "http_error", "The request cannot be served", str(error.detail))

    @app.exception_handler(Exception)
    async def unexpected(request: Request, error: Exception) -> Response:
        log.error("%s %s failed", request.method, request.url.path, exc_info=error)
        return problem(500, "internal_error", "massgend made a mistake", "An internal error: see the daemon's log.")


def _first_mistake(error: RequestValidationError) -> str:
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"] if part != "body")
    return f"{where}: {first['msg']}" if where else str(first["msg"])
