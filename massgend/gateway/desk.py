"""The desk's two routes on a turn's socket: an answer, a vote. Must not decide anything: it asks `take`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web
from pydantic import BaseModel, ConfigDict, ValidationError

from massgend.domain.run import Choice, NewAnswer, VoteFor

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


class Desk:
    """What is handed in is taken, even when the program that did so has hung up. `open_desk` makes one."""

    def __init__(self, take: Take) -> None:
        self._take = take
        self._taking: set[asyncio.Task[str | None]] = set()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        try:
            body = _AnswerBody.model_validate_json(await _read(request))
        except ValidationError:
            return problem(422, 'An answer is JSON of the form {"summary": "..."}.')
        return await self._taken(NewAnswer(summary=body.summary), "Received. Your turn ends now.")

    async def vote(self, request: web.Request) -> web.StreamResponse:
        try:
            body = _VoteBody.model_validate_json(await _read(request))
        except ValidationError:
            return problem(422, 'A vote is JSON of the form {"label": "...", "reason": "..."}.')
        choice = VoteFor(label=body.label, reason=body.reason)
        return await self._taken(choice, f"Your vote for {body.label} is cast. Your turn ends now.")

    async def _taken(self, choice: Choice, message: str) -> web.StreamResponse:
        async def take() -> str | None:
            return await self._take(choice)

        taking = asyncio.create_task(take())
        self._taking.add(taking)
        taking.add_done_callback(self._taking.discard)
        refusal = await asyncio.shield(taking)
        if refusal is not None:
            return problem(409, refusal)
        return web.json_response({"message": message})

    async def aclose(self) -> None:
        """The turn is over: what is still being handed in is given up."""
        for taking in self._taking:
            taking.cancel()
        await asyncio.gather(*self._taking, return_exceptions=True)


@asynccontextmanager
async def open_desk(take: Take) -> AsyncIterator[Desk]:
    desk = Desk(take)
    try:
        yield desk
    finally:
        await desk.aclose()


async def _read(request: web.Request) -> bytes:
    """The socket allows models' requests, which are larger than any decision."""
    if (request.content_length or 0) > MAX_BODY_BYTES:
        raise web.HTTPRequestEntityTooLarge(max_size=MAX_BODY_BYTES, actual_size=request.content_length or 0)
    body = await request.read()
    if len(body) > MAX_BODY_BYTES:
        raise web.HTTPRequestEntityTooLarge(max_size=MAX_BODY_BYTES, actual_size=len(body))
    return body


def problem(status: int, detail: str) -> web.Response:
    return web.json_response(
        {"title": "Not taken", "status": status, "detail": detail},
        status=status,
        content_type="application/problem+json",
    )
