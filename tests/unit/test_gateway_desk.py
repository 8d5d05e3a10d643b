"""A decision that was handed in counts, whatever becomes of the program that handed it in."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from massgend.domain.run import Choice, NewAnswer
from massgend.gateway.turn_gateway import open_gateway

pytestmark = pytest.mark.anyio
TOKEN = "t" * 48


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def hand_in(folder: Path) -> asyncio.StreamWriter:
    _, writer = await asyncio.open_unix_connection(str(folder / "s.sock"))
    body = b'{"summary": "done"}'
    head = (
        f"POST /v1/answer HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    writer.write(head.encode() + body)
    return writer


async def test_a_program_that_hangs_up_while_its_answer_is_saved_has_handed_in(tmp_path: Path) -> None:
    began, go_on, taken = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def take(choice: Choice) -> str | None:
        assert choice == NewAnswer(summary="done")
        began.set()
        await go_on.wait()
        taken.set()
        return None

    async with open_gateway(tmp_path, token=TOKEN, uid=os.geteuid(), gid=os.getegid(), take=take):
        writer = await hand_in(tmp_path)
        async with asyncio.timeout(5):
            await began.wait()
        writer.transport.abort()
        await asyncio.sleep(0.1)
        go_on.set()
        async with asyncio.timeout(5):
            await taken.wait()


async def test_the_turns_end_does_not_wait_for_an_answer_that_is_never_saved(tmp_path: Path) -> None:
    began, given_up = asyncio.Event(), asyncio.Event()

    async def take(_choice: Choice) -> str | None:
        began.set()
        try:
            await asyncio.sleep(1000)
        finally:
            given_up.set()
        return None

    async with asyncio.timeout(5):
        async with open_gateway(tmp_path, token=TOKEN, uid=os.geteuid(), gid=os.getegid(), take=take):
            writer = await hand_in(tmp_path)
            await began.wait()
    writer.close()
    assert given_up.is_set()


async def test_without_services_the_socket_serves_the_desk_alone(tmp_path: Path) -> None:
    async def take(_choice: Choice) -> str | None:
        return None

    statuses = []
    async with open_gateway(tmp_path, token=TOKEN, uid=os.geteuid(), gid=os.getegid(), take=take):
        for head in ("POST /v1/messages", "CONNECT pypi.org:443", "GET http://pypi.org/"):
            reader, writer = await asyncio.open_unix_connection(str(tmp_path / "s.sock"))
            writer.write(f"{head} HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
            statuses.append((await reader.readline()).split()[1])
            writer.close()
    assert statuses == [b"404", b"403", b"403"]
