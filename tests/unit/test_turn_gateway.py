"""The turn's socket: only this turn's token is heard, only well-formed decisions are passed on."""

from __future__ import annotations

import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from massgend.domain.run import Choice, NewAnswer, VoteFor
from massgend.gateway.turn_gateway import MAX_BODY_BYTES, open_gateway

TOKEN = "t" * 48

pytestmark = pytest.mark.anyio


class Desk:
    def __init__(self) -> None:
        self.taken: list[Choice] = []
        self.refusal: str | None = None

    async def take(self, choice: Choice) -> str | None:
        if self.refusal is None:
            self.taken.append(choice)
        return self.refusal


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
async def client(desk: Desk, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    gateway = open_gateway(tmp_path, token=TOKEN, uid=os.geteuid(), gid=os.getegid(), take=desk.take)
    transport = httpx.AsyncHTTPTransport(uds=str(tmp_path / "s.sock"))
    async with gateway, httpx.AsyncClient(transport=transport, base_url="http://gateway") as http:
        yield http


def authorised() -> dict[str, str]:
    return {"Authorization": f"Bearer {TOKEN}"}


async def test_an_answer_is_passed_on(client: httpx.AsyncClient, desk: Desk) -> None:
    response = await client.post("/v1/answer", json={"summary": "done"}, headers=authorised())

    assert response.status_code == 200
    assert desk.taken == [NewAnswer(summary="done")]


async def test_a_vote_is_passed_on(client: httpx.AsyncClient, desk: Desk) -> None:
    response = await client.post("/v1/vote", json={"label": "oak", "reason": "runs"}, headers=authorised())

    assert response.status_code == 200
    assert desk.taken == [VoteFor(label="oak", reason="runs")]


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x"])
async def test_another_token_is_refused_and_nothing_is_taken(
    client: httpx.AsyncClient, desk: Desk, header: str
) -> None:
    response = await client.post("/v1/answer", json={"summary": "x"}, headers={"Authorization": header})

    assert response.status_code == 401
    assert desk.taken == []


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"summary": 1}', b'{"summary": "x", "agent": "bob"}', b"\xff"])
async def test_a_malformed_answer_is_refused_in_one_sentence(
    client: httpx.AsyncClient, desk: Desk, body: bytes
) -> None:
    response = await client.post("/v1/answer", content=body, headers=authorised())

    assert response.status_code == 422
    assert response.headers["content-type"].startswith("application/problem+json")
    assert desk.taken == []


async def test_a_body_that_is_too_large_is_refused(client: httpx.AsyncClient, desk: Desk) -> None:
    response = await client.post("/v1/answer", json={"summary": "x" * MAX_BODY_BYTES}, headers=authorised())

    assert response.status_code == 413
    assert desk.taken == []


async def test_a_refusal_reaches_the_agent_with_its_reason(client: httpx.AsyncClient, desk: Desk) -> None:
    desk.refusal = "You have submitted all your 3 answers: vote for one."
    response = await client.post("/v1/answer", json={"summary": "x"}, headers=authorised())

    assert response.status_code == 409
    assert response.json()["detail"] == desk.refusal


async def test_the_socket_is_for_one_user_only_and_ends_with_the_turn(desk: Desk, tmp_path: Path) -> None:
    async with open_gateway(tmp_path, token=TOKEN, uid=os.geteuid(), gid=os.getegid(), take=desk.take):
        assert stat.S_IMODE((tmp_path / "s.sock").stat().st_mode) == 0o600
        assert stat.S_IMODE((tmp_path / "token").stat().st_mode) == 0o400

    transport = httpx.AsyncHTTPTransport(uds=str(tmp_path / "s.sock"))
    async with httpx.AsyncClient(transport=transport) as http:
        with pytest.raises(httpx.ConnectError):
            await http.post("http://gateway/v1/answer", json={"summary": "late"}, headers=authorised())


async def test_a_folder_whose_path_is_too_long_for_a_socket_works(desk: Desk, tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    async with open_gateway(deep, token=TOKEN, uid=os.geteuid(), gid=os.getegid(), take=desk.take):
        assert (deep / "s.sock").is_socket()
