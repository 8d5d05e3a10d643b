"""When the provider, the network or a budget says no: in bounded time, in the provider's format, without keys."""

from __future__ import annotations

# ruff: noqa: SIM117 - a call reads better inside the world that it is made in
import asyncio
import io
import json
import logging
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from massgend.gateway.bodies import ModelRules
from massgend.gateway.gateway import GatewayRules, preflight
from massgend.gateway.key_file import KeysError
from massgend.gateway.key_test import try_key
from massgend.gateway.key_variables import Scheme
from massgend.gateway.keys import KeyRing
from massgend.gateway.meter import Budget
from massgend.gateway.model_proxy import CALLS_AT_ONCE, Ended
from massgend.gateway.prices import load_prices
from massgend.gateway.secret import Secret
from massgend.gateway.usage import Usage
from tests.support.gateway_world import FAST, KEY, Answer, provider, stream, whole, world

pytestmark = pytest.mark.anyio

CALLS = {
    "anthropic": ("/v1/messages", {"model": "claude-opus-4-5"}),
    "openai": ("/openai/v1/responses", {"model": "gpt-5"}),
    "gemini": ("/gemini/v1beta/models/gemini-2.5-pro:generateContent", {}),
}
START = b'data: {"type":"message_start","message":{"usage":{"input_tokens":9,"output_tokens":1}}}\n\n'
USED = b'{"usage": {"input_tokens": 600, "output_tokens": 400}}'


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def own_error(wire: str, message: str) -> bytes:
    if wire == "anthropic":
        return json.dumps({"type": "error", "error": {"type": "invalid_request_error", "message": message}}).encode()
    return json.dumps({"error": {"message": message, "code": 400, "status": "X"}}).encode()


def message_of(wire: str, fields: dict[str, Any]) -> str:
    """As each provider's clients read it."""
    assert wire != "anthropic" or fields["type"] == "error"
    return str(fields["error"]["message"])


@pytest.mark.parametrize("wire", CALLS)
@pytest.mark.parametrize("status", [400, 403, 404, 413, 422, 500])
async def test_the_providers_own_error_passes_without_its_headers_and_keys(wire: str, status: int) -> None:
    path, body = CALLS[wire]
    said = own_error(wire, f"prompt is too long, key {KEY}, also sk-proj-abc***********xyz1")
    answer = whole(said, status=status, headers={"X-Organization": "org-secret", "Set-Cookie": "a=b"})
    async with provider(answer) as far, world(far) as run, run.turn() as turn, turn.ask(path, body) as response:
        message = message_of(wire, await response.json())

    assert response.status == status
    assert message == "prompt is too long, key [redacted], also [redacted]"
    assert not {"X-Organization", "Set-Cookie"} & set(response.headers)
    assert run.told.calls[0].ended is Ended.REFUSED


@pytest.mark.parametrize("wire", CALLS)
async def test_a_refused_key_is_told_in_our_words_and_names_its_place(wire: str) -> None:
    path, body = CALLS[wire]
    said = own_error(wire, f"Incorrect API key provided: {KEY[:10]}****{KEY[-4:]}")
    async with provider(whole(said, status=401)) as far, world(far) as run, run.turn() as turn:
        async with turn.ask(path, body) as response:
            message = message_of(wire, await response.json())

    assert response.status == 401
    assert "refused the key from the environment (" in message
    assert KEY[-4:] not in message


@pytest.mark.parametrize("wire", CALLS)
@pytest.mark.parametrize(
    "answer",
    [
        whole(b"<html>500 nginx</html>", status=500),
        whole(b"not even", status=502),
        whole(b'{"error": "odd"}', status=500),
        whole(b"x" * 1_000_000, status=500),
        whole(b"", status=302, headers={"Location": "http://169.254.169.254/"}),
        whole(b"", status=204),
    ],
)
async def test_garbage_becomes_a_clean_error(wire: str, answer: Answer) -> None:
    path, body = CALLS[wire]
    async with provider(answer) as far, world(far) as run, run.turn() as turn, turn.ask(path, body) as response:
        message = message_of(wire, await response.json())

    assert response.status == 502
    assert message.startswith(f"massgend: {wire} answered with ")


async def test_a_web_page_with_status_200_is_no_answer() -> None:
    async def page(_request: web.Request, _body: bytes) -> web.StreamResponse:
        return web.Response(text="<html>Log in to the hotel's network</html>", content_type="text/html")

    async with provider(page) as far, world(far) as run, run.turn() as turn, turn.ask(*CALLS["anthropic"]) as response:
        assert response.status == 502
        assert "no model's answer" in await response.text()


@pytest.mark.parametrize("status", [429, 503, 529])
async def test_later_is_waited_for_and_the_agent_sees_only_the_answer(status: int) -> None:
    async def answer(_request: web.Request, _body: bytes) -> web.StreamResponse:
        if len(far.asked) < 3:
            return web.Response(status=status, headers={"Retry-After": "0.1"})
        return web.json_response({"type": "message"})

    async with provider(answer) as far, world(far) as run, run.turn() as turn:
        began = time.monotonic()
        async with turn.ask(*CALLS["anthropic"]) as response:
            assert response.status == 200

    assert len(far.asked) == 3
    assert time.monotonic() - began >= 0.2


async def test_a_wait_that_is_too_long_is_told_at_once_with_its_length() -> None:
    answer = whole(own_error("anthropic", "slow down"), status=429, headers={"Retry-After": "120"})
    async with provider(answer) as far, world(far) as run, run.turn() as turn:
        began = time.monotonic()
        async with turn.ask(*CALLS["anthropic"]) as first:
            said = await first.json()
        async with turn.ask(*CALLS["anthropic"]) as second:
            assert second.status == 429

    assert time.monotonic() - began < 1
    assert (first.status, first.headers["Retry-After"]) == (429, "120")
    assert said["error"]["message"] == "slow down"
    assert 115 <= int(second.headers["Retry-After"]) <= 120
    assert len(far.asked) == 1, "the second agent must not ask while the key is to wait"


async def test_a_provider_that_stays_overloaded_is_given_up_after_the_attempts() -> None:
    async with provider(whole(b"", status=529)) as far, world(far) as run, run.turn() as turn:
        async with turn.ask(*CALLS["anthropic"]) as response:
            said = await response.json()

    assert response.status == 529
    assert said["error"]["type"] == "overloaded_error"
    assert len(far.asked) == FAST.attempts


async def test_no_more_calls_of_a_key_are_under_way_than_allowed() -> None:
    async def slow(_request: web.Request, _body: bytes) -> web.StreamResponse:
        await asyncio.sleep(0.1)
        return web.json_response({})

    async with provider(slow) as far, world(far, pace=replace(FAST, at_once=3)) as run:
        async with run.turn("ada") as ada, run.turn("bob", token="b" * 40) as bob:

            async def ask(turn: Any) -> int:
                async with turn.ask(*CALLS["anthropic"]) as response:
                    return int(response.status)

            statuses = await asyncio.gather(*(ask(turn) for turn in (ada, bob) * 5))

    assert statuses == [200] * 10
    assert far.most_under_way == 3


async def test_one_turns_calls_wait_for_each_other_before_they_are_read() -> None:
    async def slow(_request: web.Request, _body: bytes) -> web.StreamResponse:
        await asyncio.sleep(0.05)
        return web.json_response({})

    async with provider(slow) as far, world(far, pace=replace(FAST, at_once=100)) as run, run.turn() as turn:

        async def ask() -> int:
            async with turn.ask(*CALLS["anthropic"]) as response:
                return int(response.status)

        assert await asyncio.gather(*(ask() for _ in range(40))) == [200] * 40
    assert far.most_under_way == CALLS_AT_ONCE


async def test_a_request_that_would_grow_in_memory_is_refused_and_holds_nobody_up() -> None:
    bomb = b'{"model": "m", "x": [' + b"[]," * 3_500_000 + b"[]]}"
    async with provider(whole(b"{}")) as far, world(far) as run, run.turn() as turn:
        began = time.monotonic()
        async with turn.ask("/v1/messages", method="POST", data=io.BytesIO(bomb)) as response:
            assert response.status == 413

    assert time.monotonic() - began < 5
    assert far.asked == []


async def test_a_providers_request_id_passes_unless_it_holds_the_key() -> None:
    for value, passes in (("req_1", True), (f"req_{KEY}", False), ("two words", False)):
        answer = whole(b"{}", headers={"request-id": value, "X-Other": "1"})
        async with provider(answer) as far, world(far) as run, run.turn() as turn:
            async with turn.ask(*CALLS["anthropic"]) as response:
                assert ("request-id" in response.headers) is passes
                assert "X-Other" not in response.headers


async def test_a_call_that_finds_no_place_in_time_is_refused() -> None:
    async def slow(_request: web.Request, _body: bytes) -> web.StreamResponse:
        await asyncio.sleep(1)
        return web.json_response({})

    pace = replace(FAST, at_once=1, patience_s=0.2)
    async with provider(slow) as far, world(far, pace=pace) as run, run.turn() as turn:
        first = asyncio.create_task(turn.ask(*CALLS["anthropic"]).__aenter__())
        await asyncio.sleep(0.05)
        async with turn.ask(*CALLS["anthropic"]) as second:
            assert second.status == 429
            assert "under way already" in await second.text()
        (await first).release()


@pytest.mark.parametrize("wire", CALLS)
async def test_a_provider_that_never_answers_is_given_up_in_time(wire: str) -> None:
    async def never(_request: web.Request, _body: bytes) -> web.StreamResponse:
        await asyncio.sleep(30)
        raise AssertionError

    path, body = CALLS[wire]
    async with provider(never) as far, world(far) as run, run.turn() as turn, turn.ask(path, body) as response:
        assert response.status == 504
        assert "did not answer in time" in message_of(wire, await response.json())


async def test_a_provider_that_cannot_be_reached_is_told() -> None:
    async with provider(whole(b"{}")) as far:
        environment = {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": "http://127.0.0.1:1"}
        async with world(far, environment=environment) as run, run.turn() as turn:
            async with turn.ask(*CALLS["anthropic"]) as response:
                assert response.status == 502
                assert "anthropic cannot be reached" in await response.text()


@pytest.mark.parametrize("how", ["cut", "idle"])
@pytest.mark.parametrize(
    ("path", "body", "first", "name"),
    [
        ("/v1/messages", {"model": "m"}, START, b"event: error\n"),
        ("/openai/v1/chat/completions", {"model": "m"}, b'data: {"choices":[{"delta":{}}]}\n\n', b""),
        ("/openai/v1/responses", {"model": "m"}, b'data: {"type":"response.created"}\n\n', b"event: error\n"),
        ("/gemini/v1beta/models/m:streamGenerateContent?alt=sse", {}, b'data: {"candidates":[]}\n\n', b""),
    ],
)
async def test_a_stream_that_breaks_off_between_events_ends_with_an_error_event(
    path: str, body: dict[str, Any], first: bytes, name: bytes, how: str
) -> None:
    async def hang(number: int) -> None:
        if number:
            await asyncio.sleep(30)

    answer = stream([first], cut=True) if how == "cut" else stream([first, b"x"], between=hang)
    async with provider(answer) as far, world(far) as run, run.turn() as turn:
        async with turn.ask(path, {"stream": True, **body}) as response:
            passed = await response.read()

    assert passed.startswith(first + name + b"data: ")
    last = json.loads(passed.removeprefix(first + name + b"data: "))
    assert "massgend: " in json.dumps(last)
    assert passed.endswith(b"\n\n")
    assert run.told.calls[0].ended is Ended.UPSTREAM_GONE


async def test_a_stream_that_breaks_off_inside_an_event_is_not_made_to_look_whole() -> None:
    answer = stream([START, b'event: x\ndata: {"type":"content_bl'], cut=True)
    async with provider(answer) as far, world(far) as run, run.turn() as turn:
        async with turn.ask("/v1/messages", {"model": "m", "stream": True}) as response:
            with pytest.raises(Exception, match="payload is not completed"):
                await response.read()

    assert run.told.calls[0].usage.input_tokens == 9


async def test_a_whole_answer_that_breaks_off_is_not_made_to_look_whole() -> None:
    async def half(request: web.Request, _body: bytes) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": "100"})
        await response.prepare(request)
        await response.write(b'{"half": ')
        await asyncio.sleep(0.05)
        assert request.transport is not None
        request.transport.abort()
        return response

    async with provider(half) as far, world(far) as run, run.turn() as turn:
        async with turn.ask(*CALLS["anthropic"]) as response:
            with pytest.raises(Exception, match="payload is not completed"):
                await response.read()

    assert run.told.calls[0].ended is Ended.UPSTREAM_GONE
    assert run.told.calls[0].usage.input_tokens > 0
    assert not run.told.calls[0].usage.complete


@pytest.mark.parametrize("pieces", [[KEY.encode()], [KEY[:12].encode(), KEY[12:].encode()]])
async def test_an_answer_that_holds_the_key_is_cut_before_the_key_is_whole(pieces: list[bytes]) -> None:
    async def between(_number: int) -> None:
        await asyncio.sleep(0.05)

    answer = stream([START, b"data: ", *pieces, b"\n\n"], between=between)
    async with provider(answer) as far, world(far) as run, run.turn() as turn:
        async with turn.ask("/v1/messages", {"model": "m", "stream": True}) as response:
            passed = bytearray()
            with pytest.raises(Exception, match="payload is not completed"):
                await read_into(passed, response.content)

    assert passed
    assert KEY.encode() not in passed


async def read_into(passed: bytearray, content: aiohttp.StreamReader) -> None:
    async for chunk in content.iter_any():
        passed += chunk


async def test_a_budget_ends_further_calls_and_is_told_once() -> None:
    rules = GatewayRules(budget=Budget(max_tokens=1500))
    async with provider(whole(USED)) as far, world(far, rules=rules) as run:
        async with run.turn("ada") as ada, run.turn("bob", token="b" * 40) as bob:
            statuses = []
            for turn in (ada, bob, ada, bob):
                async with turn.ask(*CALLS["anthropic"]) as response:
                    statuses.append(response.status)
                    said = await response.json()

    assert statuses == [200, 200, 400, 400]
    assert said["error"]["message"] == (
        "massgend: the budget of this run is spent: max_tokens of 1500 is used up (2000 used)"
    )
    assert response.headers["x-should-retry"] == "false"
    assert run.told.used == [(None, said["error"]["message"].removeprefix("massgend: "))]
    assert len(far.asked) == 2


async def test_an_agents_budget_does_not_end_the_others() -> None:
    rules = GatewayRules(agent_budgets={"ada": Budget(max_cost_usd=0.01)})
    async with provider(whole(USED)) as far, world(far, rules=rules) as run:
        async with run.turn("ada") as ada, run.turn("bob", token="b" * 40) as bob:
            statuses = []
            for turn in (ada, ada, bob):
                async with turn.ask(*CALLS["anthropic"]) as response:
                    statuses.append(response.status)

    assert statuses == [200, 400, 200]
    assert [who for who, _ in run.told.used] == ["ada"]
    assert run.run.ledger.agent("ada").spent.cost_usd == pytest.approx(600 * 5e-6 + 400 * 25e-6)


@pytest.mark.parametrize("wire", CALLS)
async def test_a_cost_bound_refuses_a_model_without_a_price_and_says_so(wire: str) -> None:
    path, body = CALLS[wire]
    path, body = path.replace("gemini-2.5-pro", "own"), {**body, "model": "own"}
    rules = GatewayRules(budget=Budget(max_cost_usd=1.0))
    async with provider(whole(USED)) as far, world(far, rules=rules) as run, run.turn() as turn:
        async with turn.ask(path, body) as response:
            message = message_of(wire, await response.json())

    assert response.status in (400, 403)
    assert "no price is known for the model own" in message
    assert far.asked == []


async def test_without_a_cost_bound_an_unknown_price_is_told_as_unknown() -> None:
    async with provider(whole(USED)) as far, world(far) as run, run.turn() as turn:
        async with turn.ask("/v1/messages", {"model": "own"}) as response:
            assert response.status == 200

    assert run.told.calls[0].cost_usd is None
    assert run.run.ledger.run.spent.cost_usd is None
    assert run.run.ledger.run.spent.usage.total_tokens == 1000


async def test_preflight_says_what_will_fail(tmp_path: Path) -> None:
    keys = KeyRing(environment={"OPENAI_API_KEY": KEY}, folder=tmp_path, use_keyring=False)
    problems = await preflight(
        keys,
        load_prices(),
        wanted=[("anthropic", "claude-opus-4-5"), ("openai", "own"), ("nobody", None)],
        rules=GatewayRules(budget=Budget(max_cost_usd=1), models=ModelRules()),
    )

    assert len(problems) == 3
    assert problems[0].startswith("massgend has no key for anthropic: set ANTHROPIC_API_KEY")
    assert problems[1] == f"the provider nobody is not known: name it in {tmp_path}/keys.toml"
    assert "no price is known for the model own" in problems[2]


async def test_a_missing_key_is_told_and_one_that_is_handed_over_is_used() -> None:
    async with provider(whole(b"{}")) as far, world(far, environment={}) as run, run.turn() as turn:
        async with turn.ask(*CALLS["anthropic"]) as response:
            assert response.status == 401
            assert "massgend has no key for anthropic" in await response.text()
        run.keys.offer("anthropic", Secret(KEY), Scheme.API_KEY, far.url)
        async with turn.ask(*CALLS["anthropic"]) as response:
            assert response.status == 200
        run.keys.withdraw("anthropic")
        with pytest.raises(KeysError):
            await run.keys.credential(run.keys.providers()["anthropic"])

    assert far.asked[0].headers["x-api-key"] == KEY


@pytest.mark.parametrize(
    ("name", "answer", "works", "detail"),
    [
        ("anthropic", whole(b"{}"), True, "anthropic accepts the key"),
        ("openai", whole(b"{}", status=401), False, "openai refused the key from the environment (OPENAI_API_KEY)"),
        ("gemini", whole(b"{}", status=500), False, "gemini answered with status 500"),
        ("xai", whole(b"{}"), False, "massgend has no key for xai: set XAI_API_KEY"),
    ],
)
async def test_a_key_is_tested_with_a_call_that_costs_nothing(
    name: str, answer: Answer, works: bool, detail: str
) -> None:
    async with provider(answer) as far, world(far) as run:
        tested = await try_key(run.live, run.keys.providers()[name])

    assert (tested.provider, tested.works) == (name, works)
    assert tested.detail.startswith(detail)
    assert all(asked.method == "GET" for asked in far.asked)


async def test_the_key_is_in_no_log_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    async def odd(request: web.Request, _body: bytes) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        raise ConnectionResetError

    async with provider(odd) as far, world(far) as run, run.turn() as turn:
        async with turn.ask(*CALLS["anthropic"]) as response:
            assert response.status == 502
            assert KEY not in await response.text()

    assert KEY not in caplog.text
    assert KEY not in repr(run.keys.__dict__)


LONG = {"model": "claude-opus-4-5", "messages": [{"role": "user", "content": "x" * 40_000}]}


async def test_a_client_that_always_hangs_up_early_uses_its_budget_up() -> None:
    async def never(_request: web.Request, _body: bytes) -> web.StreamResponse:
        await asyncio.sleep(30)
        raise AssertionError

    rules = GatewayRules(budget=Budget(max_tokens=15_000))
    async with provider(never) as far, world(far, rules=rules) as run, run.turn() as turn:
        for _ in range(2):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await turn.ask("/v1/messages", LONG).__aenter__()
            async with asyncio.timeout(1):
                await far.left.get()
        async with turn.ask("/v1/messages", LONG) as response:
            assert response.status == 400
            assert "max_tokens of 15000 is used up" in await response.text()

    assert len(far.asked) == 2
    for call in run.told.calls:
        assert call.ended is Ended.CLIENT_GONE
        assert 10_000 <= call.usage.input_tokens < 10_100
        assert not call.usage.complete
        assert call.cost_usd == pytest.approx(call.usage.input_tokens * 5e-6)


async def test_a_call_that_waited_for_its_place_and_left_has_used_nothing() -> None:
    async def never(_request: web.Request, _body: bytes) -> web.StreamResponse:
        await asyncio.sleep(30)
        raise AssertionError

    pace = replace(FAST, at_once=1)
    async with provider(never) as far, world(far, pace=pace) as run, run.turn() as turn:
        first = asyncio.create_task(turn.ask("/v1/messages", LONG).__aenter__())
        while not far.asked:  # noqa: ASYNC110 - what we wait for happens in the gateway
            await asyncio.sleep(0.01)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await turn.ask("/v1/messages", LONG).__aenter__()
        while not run.told.calls:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert run.told.calls[0].usage == Usage(complete=True)
        first.cancel()
        await far.left.get()

    assert len(far.asked) == 1


@pytest.mark.parametrize("answer", [b"{}", b'{"status": "queued", "usage": null}'])
async def test_an_answer_without_usage_is_charged_by_its_request(answer: bytes) -> None:
    async with provider(whole(answer)) as far, world(far) as run, run.turn() as turn:
        async with turn.ask("/openai/v1/responses", {"model": "gpt-5", "input": "x" * 4000}) as response:
            assert await response.read() == answer

    usage = run.told.calls[0].usage
    assert 1000 <= usage.input_tokens < 1020
    assert not usage.complete


async def test_an_error_of_the_provider_costs_nothing() -> None:
    async with provider(whole(b"no", status=500)) as far, world(far) as run, run.turn() as turn:
        async with turn.ask("/v1/messages", LONG) as response:
            assert response.status == 502

    assert (run.told.calls[0].usage.total_tokens, run.told.calls[0].cost_usd) == (0, 0.0)
