"""Records hold the traffic without secrets, and are answered again without a network."""

from __future__ import annotations

# ruff: noqa: SIM117 - a call reads better inside the world that it is made in
import asyncio
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from massgend.gateway.live import LiveUpstream
from massgend.gateway.recording import Recorder, RecordError, Replay, load_replay
from massgend.gateway.upstream import Upstream
from tests.support.gateway_world import KEY, TOKEN, Answer, Turn, provider, stream, whole, world

pytestmark = pytest.mark.anyio

EVENTS = [
    b'data: {"type":"message_start","message":{"usage":{"input_tokens":9,"output_tokens":1}}}\n\n',
    "data: h\u00e9".encode()[:-1],
    b"\xa9\n\n",
    b'event: message_delta\ndata: {"type":"message_delta","usage":{"output_tokens":40}}\n\n',
]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def request(text: str = "hello", **more: Any) -> dict[str, Any]:
    return {"model": "claude-opus-4-5", "messages": [{"role": "user", "content": text}], **more}


async def record(path: Path, answer: Answer, *bodies: dict[str, Any], agent: str = "ada") -> None:
    recorders: list[Recorder] = []

    def wrap(live: LiveUpstream) -> Upstream:
        recorders.append(Recorder(live, path, run={"labels": ["oak"]}).__enter__())
        return recorders[0]

    async with provider(answer) as far, world(far, wrap=wrap) as run, run.turn(agent) as turn:
        for body in bodies:
            async with turn.ask("/v1/messages", body) as response:
                await response.read()
    recorders[0].__exit__(None, None, None)


async def replayed(path: Path, *bodies: dict[str, Any], agent: str = "ada", pace: float = 0) -> list[tuple[int, bytes]]:
    """No provider is running, and no key is known."""
    replay: Replay = load_replay(path, pace=pace)
    async with provider(whole(b"never")) as far:
        async with world(far, wrap=lambda _: replay, environment={}) as run, run.turn(agent, token="other" * 8) as turn:
            answers = [await answer_of(turn, body) for body in bodies]
    assert far.asked == []
    return answers


async def answer_of(turn: Turn, body: dict[str, Any]) -> tuple[int, bytes]:
    async with turn.ask("/v1/messages", body) as response:
        return response.status, await response.read()


async def test_a_record_is_answered_again_byte_for_byte(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    await record(path, stream(EVENTS), request("one", stream=True), request("two", stream=True))

    answers = await replayed(path, request("one", stream=True), request("two", stream=True))

    assert answers == [(200, b"".join(EVENTS))] * 2
    assert load_replay(path).head.run == {"labels": ["oak"]}


async def test_a_record_is_for_its_owner_and_holds_no_secret(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    await record(path, whole(json.dumps({"echo": f"{TOKEN}"}).encode()), request(f"my token is {TOKEN}, key {KEY}"))

    text = path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert TOKEN not in text
    assert KEY not in text
    assert "my token is [redacted], key [redacted]" in text
    assert "authorization" not in text.lower()


async def test_errors_are_recorded_and_replayed_as_the_agent_saw_them(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    said = b'{"type":"error","error":{"type":"rate_limit_error","message":"later"}}'
    await record(path, whole(said, status=429, headers={"Retry-After": "99"}), request())

    assert await replayed(path, request()) == [(429, said)]


async def test_a_replay_keeps_the_recorded_pace(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"

    async def slow(number: int) -> None:
        await asyncio.sleep(0.1 if number else 0)

    await record(path, stream(EVENTS, between=slow), request(stream=True))
    began = asyncio.get_running_loop().time()
    await replayed(path, request(stream=True), pace=1.0)
    assert 0.25 < asyncio.get_running_loop().time() - began < 5


async def test_numbers_and_ids_may_differ_but_words_may_not(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    await record(path, whole(b'{"n": 1}'), request("took 17 s, id 0123456789abcdef0123", metadata={"user_id": "x"}))

    assert (await replayed(path, request("took 3 s, id fedcba98765432100000")))[0][0] == 200
    status, said = (await replayed(path, request("took three s")))[0]
    assert status == 400
    assert "the replay does not fit: call 1 of ada was messages of claude-opus-4-5" in said.decode()
    assert "messages[0].content: recorded" in said.decode()


async def test_calls_that_ran_side_by_side_are_found_in_any_order(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    await record(path, whole(b"{}"), request("title"), request("work"))

    answers = await replayed(path, request("work"), request("title"), request("title"))

    assert [status for status, _ in answers] == [200, 200, 400]
    assert b"holds no further call of ada" in answers[2][1]


async def test_another_agents_calls_are_not_answered_with(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    await record(path, whole(b"{}"), request())

    assert (await replayed(path, request(), agent="bob"))[0][0] == 400


async def test_a_record_never_takes_the_place_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text("mine")
    with pytest.raises(RecordError, match="exists already"):
        await record(path, whole(b"{}"), request())
    assert path.read_text() == "mine"


@pytest.mark.parametrize("content", [b"", b"{}", b"x\ny\n", b'{"massgend_record": 2}\n'])
def test_what_is_no_record_is_told(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "r.jsonl"
    path.write_bytes(content)
    with pytest.raises(RecordError, match="is not a record of massgend"):
        load_replay(path)


async def test_a_record_that_a_crash_cut_off_can_be_replayed_up_to_there(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    await record(path, whole(b"{}"), request("one"), request("two"))
    path.write_bytes(path.read_bytes()[:-40])

    answers = await replayed(path, request("one"), request("two"))
    assert [status for status, _ in answers] == [200, 400]


ODD = [
    pytest.param(b'{"model":"m","messages":[{"role":"user","content":"\\ud800 7"}]}', id="half a surrogate pair"),
    pytest.param(b'{"model":"m","\\uDC00":1}', id="in a name"),
    pytest.param(b'{"model":"m","x":' + b"[" * 150 + b"]" * 150 + b"}", id="deep"),
    pytest.param(b'{"model":"m","x":' + b"[" * 600 + b"]" * 600 + b"}", id="deeper"),
]


@pytest.mark.parametrize("body", ODD)
async def test_an_odd_request_is_answered_recorded_and_replayed(tmp_path: Path, body: bytes) -> None:
    path = tmp_path / "r.jsonl"
    with_recorder: list[Recorder] = []

    def wrap(live: LiveUpstream) -> Upstream:
        with_recorder.append(Recorder(live, path).__enter__())
        return with_recorder[0]

    async with provider(whole(b'{"n": 1}')) as far, world(far, wrap=wrap) as run, run.turn() as turn:
        async with turn.ask("/v1/messages", body) as response:
            assert (response.status, await response.read()) == (200, b'{"n": 1}')
    with_recorder[0].__exit__(None, None, None)

    replay = load_replay(path, pace=0)
    async with provider(whole(b"never")) as far, world(far, wrap=lambda _: replay) as run, run.turn() as turn:
        async with turn.ask("/v1/messages", body) as response:
            assert (response.status, await response.read()) == (200, b'{"n": 1}')


async def test_a_full_disk_ends_the_record_and_not_the_calls(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "r.jsonl"
    recorders: list[Recorder] = []

    def wrap(live: LiveUpstream) -> Upstream:
        recorders.append(Recorder(live, path).__enter__())
        return recorders[0]

    async with provider(whole(b"{}")) as far, world(far, wrap=wrap) as run, run.turn() as turn:
        full = os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, recorders[0]._descriptor)
        os.close(full)
        for _ in range(2):
            assert await answer_of(turn, request()) == (200, b"{}")
    recorders[0].__exit__(None, None, None)

    assert [line.getMessage() for line in caplog.records if "the record" in line.getMessage()] == [
        f"the record {path} ends here: No space left on device"
    ]
