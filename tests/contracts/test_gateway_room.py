"""Large requests: bounded in memory, a turn before the daemon, and parsed where they hold up nobody."""

from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from massgend.gateway.bodies import MAX_PARTS, ModelRules, parts
from massgend.gateway.model_proxy import MANY_PARTS
from massgend.gateway.room import MEBIBYTE, Room, Space
from tests.support.gateway_world import provider, whole, world

pytestmark = pytest.mark.anyio

ROOM = Space(daemon=5 * MEBIBYTE, turn=3 * MEBIBYTE, small=MEBIBYTE // 2, patience_s=60)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def messages(size: int) -> bytes:
    return json.dumps({"model": "claude-x", "messages": [{"role": "user", "content": "x" * size}]}).encode()


async def test_many_turns_that_send_the_most_at_once_stay_within_the_daemons_room() -> None:
    large = messages(2 * MEBIBYTE)

    async def slow(_request: web.Request, _body: bytes) -> web.StreamResponse:
        await asyncio.sleep(0.01)
        return web.json_response({})

    room = Room(ROOM)
    async with provider(slow) as far, world(far, room=room) as run:

        async def flood(number: int) -> list[int]:
            async with run.turn(f"agent{number}") as turn:

                async def one() -> int:
                    async with turn.ask("/v1/messages", large) as response:
                        await response.read()
                        return int(response.status)

                return await asyncio.gather(*(one() for _ in range(3)))

        statuses = await asyncio.gather(*(flood(number) for number in range(8)))
    assert statuses == [[200] * 3] * 8, "every one is served in its time"
    assert far.most_under_way <= 2
    assert room.most <= ROOM.daemon
    assert room.taken == 0


async def test_who_holds_its_turns_room_waits_and_others_do_not() -> None:
    go_on = asyncio.Event()

    async def held(_request: web.Request, body: bytes) -> web.StreamResponse:
        if len(body) > MEBIBYTE:
            await go_on.wait()
        return web.json_response({})

    space = Space(daemon=8 * MEBIBYTE, turn=3 * MEBIBYTE, small=MEBIBYTE // 2, patience_s=0.3)
    async with provider(held) as far, world(far, room=Room(space)) as run, run.turn() as turn, run.turn("bob") as bob:

        async def status(who: Any, size: int) -> tuple[int, Any]:
            async with who.ask("/v1/messages", messages(size)) as response:
                return response.status, await response.json()

        async with asyncio.TaskGroup() as tasks:
            first = tasks.create_task(status(turn, 2 * MEBIBYTE))
            while far.under_way == 0:  # noqa: ASYNC110 - what we wait for happens at the far end
                await asyncio.sleep(0.01)
            refused, said = await status(turn, 2 * MEBIBYTE)
            assert refused == 429
            assert said["error"]["type"] == "rate_limit_error"
            assert "too many large requests at once" in said["error"]["message"]
            assert (await status(turn, 10))[0] == 200, "small ones pass"
            others = tasks.create_task(status(bob, 2 * MEBIBYTE))
            while far.under_way < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            go_on.set()
        assert first.result()[0] == others.result()[0] == 200


async def test_a_compressed_body_counts_as_the_largest_there_may_be() -> None:
    room = Room(ROOM)
    rules = ModelRules(max_body_bytes=2 * MEBIBYTE)
    async with provider(whole(b"{}")) as far, world(far, room=room, models=rules) as run, run.turn() as turn:
        packed = gzip.compress(messages(MEBIBYTE))
        async with turn.ask("/v1/messages", packed, headers={"Content-Encoding": "gzip"}) as response:
            await response.read()
    assert room.most == 2 * MEBIBYTE


async def test_a_body_of_many_parts_is_parsed_in_a_process_of_its_own_and_passes_byte_for_byte() -> None:
    blocks = [{"type": "text", "text": "x"}] * MANY_PARTS
    body = json.dumps({"model": "claude-x", "messages": [{"role": "user", "content": blocks}]}, indent=1).encode()
    assert parts(body) > MANY_PARTS
    before = children()
    async with provider(whole(b"{}")) as far, world(far) as run, run.turn() as turn:
        async with turn.ask("/v1/messages", body) as response:
            assert response.status == 200
        assert children() - before, "the process that parsed it waits for more"
        mapped = body.replace(b'"claude-x"', b'"claude-x", "model": "other"')
        async with turn.ask("/v1/messages", mapped) as response:
            assert response.status == 400
            assert "names 'model' twice" in (await response.json())["error"]["message"]
        async with turn.ask("/v1/messages", b"[" * (MAX_PARTS + 1)) as response:
            assert response.status == 413
    assert [asked.body for asked in far.asked] == [body]


def children() -> set[int]:
    """Of any thread of this process."""
    lists = Path("/proc/self/task").glob("*/children")
    return {int(number) for path in lists for number in path.read_text().split()}
