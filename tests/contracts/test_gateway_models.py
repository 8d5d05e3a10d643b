"""The way to the models: every wire format, byte for byte and as it comes, the key put in, the usage counted."""

from __future__ import annotations

# ruff: noqa: SIM117 - a call reads better inside the world that it is made in
import asyncio
import io
import json
import os
from typing import Any

import pytest
from aiohttp import web

from massgend.gateway.bodies import ModelRules
from massgend.gateway.gateway import GatewayRules
from massgend.gateway.meter import Budget
from massgend.gateway.model_proxy import Ended
from massgend.gateway.usage import Usage
from tests.support.gateway_world import KEY, TOKEN, provider, stream, whole, world

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def event(fields: dict[str, Any], name: str | None = None) -> bytes:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(fields)}\n\n".encode()


MESSAGES_USAGE = {
    "input_tokens": 100,
    "cache_creation_input_tokens": 30,
    "cache_creation": {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 20},
    "cache_read_input_tokens": 5,
    "output_tokens": 1,
}
MESSAGES_STREAM = [
    event({"type": "message_start", "message": {"id": "m", "usage": MESSAGES_USAGE}}, "message_start"),
    event({"type": "content_block_delta", "delta": {"text": 'he said "usage": \u00e9'}}, "content_block_delta"),
    b": ping\n\n",
    event({"type": "message_delta", "delta": {}, "usage": {"output_tokens": 40}}, "message_delta"),
    event({"type": "message_stop"}, "message_stop"),
]
MESSAGES_SEEN = Usage(
    input_tokens=100,
    cache_write_tokens=10,
    cache_write_1h_tokens=20,
    cache_read_tokens=5,
    output_tokens=40,
    complete=True,
)
CHAT_USAGE = {"prompt_tokens": 50, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 20}}
CHAT_SEEN = Usage(input_tokens=30, cache_read_tokens=20, output_tokens=7, complete=True)
CHAT_STREAM = [
    event({"choices": [{"delta": {"content": "a"}}], "usage": None}),
    event({"choices": [{"delta": {"content": "b"}, "finish_reason": "stop"}], "usage": None}),
    event({"choices": [], "usage": CHAT_USAGE}),
    b"data: [DONE]\n\n",
]
RESPONSES_USAGE = {"input_tokens": 50, "output_tokens": 7, "input_tokens_details": {"cached_tokens": 20}}
RESPONSES_STREAM = [
    event({"type": "response.created", "response": {"usage": None}}, "response.created"),
    event({"type": "response.output_text.delta", "delta": "a"}, "response.output_text.delta"),
    event({"type": "response.completed", "response": {"usage": RESPONSES_USAGE}}, "response.completed"),
]
GEMINI_USAGE = {
    "promptTokenCount": 50,
    "cachedContentTokenCount": 20,
    "candidatesTokenCount": 4,
    "thoughtsTokenCount": 3,
}
GEMINI_STREAM = [
    event({"candidates": [{"content": {}}], "usageMetadata": {"promptTokenCount": 50, "candidatesTokenCount": 1}}),
    event({"candidates": [{"finishReason": "STOP"}], "usageMetadata": GEMINI_USAGE}),
]

STREAMS = [
    pytest.param("/v1/messages?beta=true", {"model": "claude-opus-4-5"}, MESSAGES_STREAM, MESSAGES_SEEN, id="messages"),
    pytest.param(
        "/openai/v1/chat/completions",
        {"model": "gpt-5", "stream_options": {"include_usage": True}},
        CHAT_STREAM,
        CHAT_SEEN,
        id="chat",
    ),
    pytest.param("/openai/v1/responses", {"model": "gpt-5"}, RESPONSES_STREAM, CHAT_SEEN, id="responses"),
    pytest.param(
        "/gemini/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse", {}, GEMINI_STREAM, CHAT_SEEN, id="gemini"
    ),
]
WHOLES = [
    pytest.param("/v1/messages", {"model": "m"}, {"type": "message", "usage": MESSAGES_USAGE}, 1, id="messages"),
    pytest.param("/openai/v1/chat/completions", {"model": "m"}, {"usage": CHAT_USAGE}, 7, id="chat"),
    pytest.param("/openai/v1/responses", {"model": "m"}, {"usage": RESPONSES_USAGE}, 7, id="responses"),
    pytest.param("/gemini/v1beta/models/m:generateContent", {}, {"usageMetadata": GEMINI_USAGE}, 7, id="gemini"),
    pytest.param(
        "/gemini/v1beta/models/m:streamGenerateContent", {}, [{"a": 1}, {"usageMetadata": GEMINI_USAGE}], 7, id="array"
    ),
]


@pytest.mark.parametrize(("path", "body", "chunks", "seen"), STREAMS)
@pytest.mark.parametrize("cut_at", [None, 1, 7, 33])
async def test_a_stream_passes_byte_for_byte_and_its_usage_is_read(
    path: str, body: dict[str, Any], chunks: list[bytes], seen: Usage, cut_at: int | None
) -> None:
    """Also when chunks end anywhere: `cut_at` bytes each."""
    text = b"".join(chunks)
    pieces = chunks if cut_at is None else [text[i : i + cut_at] for i in range(0, len(text), cut_at)]
    async with provider(stream(pieces)) as far, world(far) as run, run.turn() as turn:
        async with turn.ask(path, {"stream": True, **body}) as response:
            passed = await response.read()

    assert response.status == 200
    assert response.headers["Content-Type"] == "text/event-stream"
    assert passed == text
    assert [call.usage for call in run.told.calls] == [seen]
    assert run.told.calls[0].ended is Ended.COMPLETE
    assert run.run.ledger.agent("ada").spent.usage == seen


@pytest.mark.parametrize(("path", "body", "answer", "output_tokens"), WHOLES)
async def test_a_whole_answer_passes_byte_for_byte_and_its_usage_is_read(
    path: str, body: dict[str, Any], answer: Any, output_tokens: int
) -> None:
    raw = json.dumps(answer, indent=3).encode()
    async with provider(whole(raw)) as far, world(far) as run, run.turn() as turn, turn.ask(path, body) as response:
        assert await response.read() == raw

    assert run.told.calls[0].usage.output_tokens == output_tokens
    assert run.told.calls[0].usage.complete


@pytest.mark.parametrize(("path", "body", "chunks", "seen"), STREAMS)
async def test_the_first_chunk_arrives_before_the_second_is_sent(
    path: str, body: dict[str, Any], chunks: list[bytes], seen: Usage
) -> None:
    go_on = asyncio.Event()

    async def wait(number: int) -> None:
        if number:
            await go_on.wait()

    async with provider(stream(chunks, between=wait)) as far, world(far) as run, run.turn() as turn:
        async with turn.ask(path, {"stream": True, **body}) as response, asyncio.timeout(5):
            assert await response.content.readany() == chunks[0]
            assert run.told.calls == []
            go_on.set()
            assert await response.read() == b"".join(chunks[1:])


async def test_the_key_is_put_in_and_nothing_else_of_the_agents_credentials_passes() -> None:
    async with provider(whole(b"{}")) as far, world(far) as run, run.turn() as turn:
        odd = {
            "x-api-key": TOKEN,
            "Cookie": "a=b",
            "Proxy-Authorization": "Basic x",
            "X-Forwarded-For": "1.2.3.4",
            "OpenAI-Organization": "org",
            "anthropic-beta": "some-beta",
            "TE": "trailers",
        }
        for path in ("/v1/messages", "/openai/v1/responses", "/gemini/v1beta/models/m:generateContent?key=" + TOKEN):
            async with turn.ask(path, {"model": "m"}, headers=odd) as response:
                assert response.status == 200

    anthropic, openai, gemini = ({name.lower(): value for name, value in asked.headers.items()} for asked in far.asked)
    assert anthropic["x-api-key"] == KEY
    assert anthropic["anthropic-beta"] == "some-beta"
    assert openai["authorization"] == f"Bearer {KEY}"
    assert gemini["x-goog-api-key"] == KEY
    for headers in (anthropic, openai, gemini):
        assert TOKEN not in str(headers)
        assert not headers.keys() & {"cookie", "proxy-authorization", "x-forwarded-for", "openai-organization", "te"}
    assert [asked.path for asked in far.asked] == ["/v1/messages", "/responses", "/v1beta/models/m:generateContent"]


async def test_a_claude_oauth_token_goes_as_bearer_with_its_beta() -> None:
    async with provider(whole(b"{}")) as far:
        environment = {"CLAUDE_CODE_OAUTH_TOKEN": KEY, "ANTHROPIC_BASE_URL": far.url}
        async with world(far, environment=environment) as run, run.turn() as turn:
            async with turn.ask("/v1/messages", {"model": "m"}, headers={"anthropic-beta": "one"}) as response:
                assert response.status == 200

    headers = {name.lower(): value for name, value in far.asked[0].headers.items()}
    assert headers["authorization"] == f"Bearer {KEY}"
    assert headers["anthropic-beta"] == "one,oauth-2025-04-20"
    assert "x-api-key" not in headers


@pytest.mark.parametrize("header", ["Authorization", "x-api-key", "x-goog-api-key"])
async def test_the_token_is_taken_where_a_cli_puts_its_key(header: str) -> None:
    async with provider(whole(b"{}")) as far, world(far) as run, run.turn() as turn:
        value = f"Bearer {TOKEN}" if header == "Authorization" else TOKEN
        async with turn.client.post(
            "http://gateway/v1/messages", json={"model": "m"}, headers={header: value}
        ) as response:
            assert response.status == 200


@pytest.mark.parametrize("token", ["", "wrong", TOKEN[:-1], TOKEN + "x", KEY])
async def test_another_token_is_refused_before_anything_is_read(token: str) -> None:
    async with provider(whole(b"{}")) as far, world(far) as run, run.turn() as turn:
        headers = {"x-api-key": token, "x-goog-api-key": token, "Authorization": f"Bearer {token}"}
        async with turn.client.post(
            "http://gateway/openai/v1/responses", json={"model": "m"}, headers=headers
        ) as response:
            refused = await response.json()

    assert response.status == 401
    assert refused["error"]["code"] == "invalid_api_key"
    assert far.asked == []


@pytest.mark.parametrize(
    "path",
    [
        "/v1/files",
        "/v1/messages/batches",
        "/v1/messages/../files",
        "/v1/messages/%2e%2e/files",
        "/v1//messages",
        "/v1/messages/",
        "/V1/messages",
        "/openai/v1/chat/completions/../../files",
        "/openai/v1/files",
        "/openai/v1/organization/admin_api_keys",
        "/openai/v1/responses/resp_1",
        "/gemini/v1beta/models/m:batchGenerateContent",
        "/gemini/v1beta/files",
        "/gemini/v1beta/models/../files:generateContent",
        "/gemini/v1beta/models/m%2f..%2fx:generateContent",
        "/unknown/v1/messages",
    ],
)
async def test_other_paths_of_a_provider_are_not_served(path: str) -> None:
    async with provider(whole(b"{}")) as far, world(far) as run, run.turn() as turn:
        reader, writer = await asyncio.open_unix_connection(turn.socket)
        body = b'{"model":"m"}'
        head = f"POST {path} HTTP/1.1\r\nHost: g\r\nx-api-key: {TOKEN}\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        status = await reader.readline()
        writer.close()

    assert b" 404 " in status
    assert far.asked == []


async def test_count_tokens_and_models_pass_and_cost_nothing() -> None:
    rules = GatewayRules(budget=Budget(max_tokens=1, max_requests=1))
    async with provider(whole(b'{"input_tokens": 9}')) as far, world(far, rules=rules) as run, run.turn() as turn:
        for path, body in (
            ("/v1/messages/count_tokens", {"model": "m"}),
            ("/v1/models?limit=2&secret=1", None),
            ("/openai/v1/models/gpt-5", None),
            ("/gemini/v1beta/models/m:countTokens", {}),
        ):
            async with turn.ask(path, body) as response:
                assert response.status == 200

    assert [asked.path for asked in far.asked] == [
        "/v1/messages/count_tokens",
        "/v1/models?limit=2",
        "/models/gpt-5",
        "/v1beta/models/m:countTokens",
    ]
    assert run.told.calls == []
    assert run.run.ledger.run.spent.calls == 0


async def test_only_allowed_models_are_called_and_mapped_names_reach_the_provider() -> None:
    models = ModelRules(allow=("claude-*", "small"), map={"small": "gpt-5-nano", "claude-x": "claude-opus-4-5"})
    async with provider(whole(b"{}")) as far, world(far, models=models) as run, run.turn() as turn:
        statuses = []
        for path, model in (
            ("/v1/messages", "claude-x"),
            ("/openai/v1/responses", "small"),
            ("/openai/v1/responses", "gpt-5"),
            ("/gemini/v1beta/models/small:generateContent", None),
            ("/gemini/v1beta/models/gemini-2.5-pro:generateContent", None),
        ):
            async with turn.ask(path, {"model": model} if model else {}) as response:
                statuses.append(response.status)

    assert statuses == [200, 200, 403, 200, 403]
    assert json.loads(far.asked[0].body)["model"] == "claude-opus-4-5"
    assert json.loads(far.asked[1].body)["model"] == "gpt-5-nano"
    assert far.asked[2].path == "/v1beta/models/gpt-5-nano:generateContent"
    assert [call.model for call in run.told.calls] == ["claude-opus-4-5", "gpt-5-nano", "gpt-5-nano"]


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"claude-a","model":"gpt-5"}',
        b'{"mod\\u0065l":"gpt-5","model":"claude-a"}',
        b'{"stream":true}',
        b'{"model":"claude-a","Model":"gpt-5"}',
        b'{"model":"claude-a","STREAM":true}',
        b'{"model":"claude-a","Tools":[]}',
        b'{"model":"claude-a","models":["gpt-5"]}',
        b'{"model":"claude-a","background":true}',
        b'{"model":"claude-\\ud800"}',
        b'{"model":"claude-a",' + b",".join(b'"%d":1' % n for n in range(50_000)) + b',"49999":1}',
        b'{"model":["claude-a"]}',
        b"[]",
        b"no json",
        b"[" * 100_000,
        b"\xff",
    ],
)
async def test_a_body_that_could_be_read_in_two_ways_or_not_at_all_is_refused(body: bytes) -> None:
    models = ModelRules(allow=("claude-*",))
    async with provider(whole(b"{}")) as far, world(far, models=models) as run, run.turn() as turn:
        async with asyncio.timeout(5), turn.ask("/v1/messages", body) as response:
            refused = await response.json()

    assert response.status == 400
    assert refused["error"]["type"] == "invalid_request_error"
    assert far.asked == []


async def test_the_body_passes_byte_for_byte_when_nothing_has_to_change() -> None:
    body = b'{ "model" : "m",\n "x": "\\u00e9\xc3\xa9", "n": 1.50 }'
    async with provider(whole(b"{}")) as far, world(far) as run, run.turn() as turn:
        async with turn.ask("/v1/messages", body) as response:
            assert response.status == 200

    assert far.asked[0].body == body


async def test_a_large_request_passes_whole() -> None:
    body = json.dumps({"model": "m", "x": "y" * (5 * 1024**2)}).encode()
    async with provider(whole(b"{}")) as far, world(far) as run, run.turn() as turn:
        async with turn.ask("/v1/messages", method="POST", data=io.BytesIO(body)) as response:
            assert response.status == 200

    assert far.asked[0].body == body


async def test_a_request_that_is_too_large_is_refused_in_the_providers_format() -> None:
    models = ModelRules(max_body_bytes=2 * 1024**2)
    async with provider(whole(b"{}")) as far, world(far, models=models) as run, run.turn() as turn:
        body = io.BytesIO(json.dumps({"model": "m", "x": "y" * (2 * 1024**2)}).encode())
        async with turn.ask("/v1/messages", method="POST", data=body) as response:
            refused = await response.json()

    assert response.status == 413
    assert refused["error"]["type"] == "request_too_large"
    assert far.asked == []


async def test_usage_that_only_we_asked_for_is_not_shown_to_the_client() -> None:
    text = b"".join(CHAT_STREAM)
    pieces = [text[i : i + 11] for i in range(0, len(text), 11)]
    async with provider(stream(pieces)) as far, world(far) as run, run.turn() as turn:
        async with turn.ask("/openai/v1/chat/completions", {"model": "gpt-5", "stream": True}) as response:
            passed = await response.read()

    assert json.loads(far.asked[0].body)["stream_options"] == {"include_usage": True}
    assert passed == CHAT_STREAM[0] + CHAT_STREAM[1] + CHAT_STREAM[3]
    assert run.told.calls[0].usage == CHAT_SEEN


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/messages", {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}),
        ("/v1/messages", {"mcp_servers": [{"url": "https://evil.example"}]}),
        (
            "/v1/messages",
            {
                "messages": [
                    {"content": [{"type": "image", "source": {"type": "url", "url": "http://evil.example/?x"}}]}
                ]
            },
        ),
        ("/openai/v1/responses", {"tools": [{"type": "mcp", "server_url": "https://evil.example"}]}),
        ("/openai/v1/responses", {"input": [{"content": [{"type": "input_image", "image_url": "http://evil"}]}]}),
        (
            "/openai/v1/chat/completions",
            {"messages": [{"content": [{"type": "image_url", "image_url": {"url": "http://evil"}}]}]},
        ),
        ("/gemini/v1beta/models/m:generateContent", {"tools": [{"urlContext": {}}]}),
        (
            "/gemini/v1beta/models/m:generateContent",
            {"contents": [{"parts": [{"fileData": {"fileUri": "https://evil"}}]}]},
        ),
        ("/v1/messages", {"MCP_servers": [{"url": "https://evil"}]}),
        (
            "/v1/messages",
            {"messages": [{"name": "x", "response": [{"source": {"type": "url", "url": "http://evil"}}]}]},
        ),
        (
            "/v1/messages",
            {"messages": [{"content": [{"type": "tool_result", "content": [{"args": {"url": "http://evil"}}]}]}]},
        ),
        ("/openai/v1/chat/completions", {"messages": [{"arguments": {"image_url": "http://evil"}}]}),
        ("/openai/v1/chat/completions", {"search_parameters": {"mode": "on"}}),
        ("/openai/v1/chat/completions", {"Web_Search_Options": {"a": 1}}),
        ("/openai/v1/chat/completions", {"plugins": [{"id": "web"}]}),
        ("/openai/v1/chat/completions", {"model": "x-ai/grok:online"}),
        ("/openai/v1/chat/completions", {"messages": [{"content": [{"image_URL": {"URL": "http://evil"}}]}]}),
        ("/openai/v1/responses", {"tools": [{"type": "namespace", "tools": [{"type": "mcp"}]}]}),
        ("/openai/v1/responses", {"input": [{"type": "additional_tools", "tools": [{"type": "web_search"}]}]}),
        ("/gemini/v1beta/models/m:generateContent", {"tools": {"google_search": {}}}),
        ("/gemini/v1beta/models/m:generateContent", {"tools": [{"functionDeclarations": [], "googleSearch": {}}]}),
        ("/gemini/v1beta/models/m:generateContent", {"cachedContent": "cachedContents/1"}),
        (
            "/gemini/v1beta/models/m:generateContent",
            {"systemInstruction": {"parts": [{"fileData": {"fileUri": "https://evil"}}]}},
        ),
        (
            "/gemini/v1beta/models/m:generateContent",
            {"system_instruction": {"parts": [{"file_data": {"file_URI": "https://evil"}}]}},
        ),
        (
            "/gemini/v1beta/models/m:generateContent",
            {"contents": [{"parts": [{"name": "x", "response": {"file_data": {"file_uri": "u"}}}]}]},
        ),
        (
            "/gemini/v1beta/models/m:countTokens",
            {"generateContentRequest": {"contents": [{"parts": [{"fileData": {"fileUri": "https://evil"}}]}]}},
        ),
    ],
)
async def test_the_provider_is_not_made_to_reach_into_the_internet_unless_it_may(
    path: str, body: dict[str, Any]
) -> None:
    async with provider(whole(b"{}")) as far:
        async with world(far) as run, run.turn() as turn, turn.ask(path, {"model": "m", **body}) as response:
            assert response.status == 400
            assert "provider_tools" in await response.text()
        assert far.asked == []
        async with world(far, models=ModelRules(provider_tools=True)) as run, run.turn() as turn:
            async with turn.ask(path, {"model": "m", **body}) as response:
                assert response.status == 200


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (
            "/v1/messages",
            {
                "tools": [{"name": "fetch", "input_schema": {"properties": {"url": {"type": "string"}}}}],
                "messages": [
                    {"content": [{"type": "tool_use", "name": "fetch", "input": {"url": "http://x"}}]},
                    {"content": [{"type": "image", "source": {"type": "base64", "data": "aGk="}}]},
                ],
            },
        ),
        ("/openai/v1/responses", {"input": [{"content": [{"type": "input_image", "image_url": "data:image/png,x"}]}]}),
        ("/openai/v1/responses", {"input": [{"type": "local_shell_call", "action": {"env": {"URL": "http://x"}}}]}),
        ("/openai/v1/responses", {"input": [{"type": "tool_search_call", "arguments": {"url": "http://x"}}]}),
        (
            "/gemini/v1beta/models/m:generateContent",
            {"contents": [{"parts": [{"functionResponse": {"name": "f", "response": {"url": "http://x"}}}]}]},
        ),
        (
            "/gemini/v1beta/models/m:generateContent",
            {
                "tools": [{"functionDeclarations": [{"name": "f"}]}],
                "contents": [{"parts": [{"functionCall": {"name": "f", "args": {"url": "http://x"}}}]}],
            },
        ),
    ],
)
async def test_what_the_agents_own_tools_were_called_with_is_no_way_out(path: str, body: dict[str, Any]) -> None:
    async with provider(whole(b"{}")) as far, world(far) as run, run.turn() as turn:
        async with turn.ask(path, {"model": "m", **body}) as response:
            assert response.status == 200


async def test_a_client_that_hangs_up_closes_the_upstream_within_a_second() -> None:
    async def hang(number: int) -> None:
        if number:
            await asyncio.sleep(30)

    async with provider(stream(MESSAGES_STREAM[:2], between=hang)) as far, world(far) as run, run.turn() as turn:
        response = await turn.ask("/v1/messages", {"model": "claude-opus-4-5", "stream": True})
        await response.content.readany()
        left = asyncio.get_running_loop().time()
        response.close()
        async with asyncio.timeout(1):
            gone = await far.left.get()

    assert gone - left < 1
    call = run.told.calls[0]
    assert call.ended is Ended.CLIENT_GONE
    assert call.usage.input_tokens == 100
    assert call.usage.output_tokens == 1
    assert not call.usage.complete


async def test_a_client_that_hangs_up_before_the_first_byte_closes_the_upstream_too() -> None:
    async def never(_request: web.Request, _body: bytes) -> web.StreamResponse:
        await asyncio.sleep(30)
        raise AssertionError

    async with provider(never) as far, world(far) as run, run.turn() as turn:
        asking = asyncio.create_task(turn.ask("/v1/messages", {"model": "m"}).__aenter__())
        while not far.asked:  # noqa: ASYNC110 - what we wait for happens in the gateway
            await asyncio.sleep(0.01)
        asking.cancel()
        async with asyncio.timeout(1):
            await far.left.get()

    assert [call.ended for call in run.told.calls] == [Ended.CLIENT_GONE]


async def test_calls_that_end_in_every_way_leave_no_descriptor_and_no_task_behind() -> None:
    async def hang(number: int) -> None:
        if number:
            await asyncio.sleep(30)

    async with provider(stream(MESSAGES_STREAM)) as far, world(far) as run, run.turn() as turn:

        async def some() -> None:
            far.answer = stream(MESSAGES_STREAM)
            async with turn.ask("/v1/messages", {"model": "m", "stream": True}) as response:
                await response.read()
            far.answer = stream(MESSAGES_STREAM[:2], between=hang)
            response = await turn.ask("/v1/messages", {"model": "m", "stream": True})
            await response.content.readany()
            response.close()
            far.answer = whole(b"no", status=500)
            async with turn.ask("/v1/messages", {"model": "m"}) as response:
                await response.read()
            await far.left.get()

        await some()
        before = len(os.listdir("/proc/self/fd")), len(asyncio.all_tasks())
        for _ in range(30):
            await some()
        await asyncio.sleep(0.1)
        after = len(os.listdir("/proc/self/fd")), len(asyncio.all_tasks())

    assert after[0] <= before[0] + 2
    assert after[1] <= before[1] + 2


async def test_the_end_of_the_turn_cuts_calls_under_way_and_their_upstream() -> None:
    async def hang(number: int) -> None:
        if number:
            await asyncio.sleep(30)

    async with provider(stream(MESSAGES_STREAM[:2], between=hang)) as far, world(far) as run:
        async with run.turn() as turn:
            response = await turn.ask("/v1/messages", {"model": "m", "stream": True})
            await response.content.readany()
            ended = asyncio.get_running_loop().time()
        async with asyncio.timeout(1):
            gone = await far.left.get()

    response.close()
    assert gone - ended < 1
    assert run.told.calls[0].ended is Ended.CLIENT_GONE


async def test_a_turns_socket_does_not_know_another_turns_token() -> None:
    async with provider(whole(b"{}")) as far, world(far) as run:
        async with run.turn(token="a" * 40) as first, run.turn("bob", token="b" * 40) as second:
            async with first.ask("/v1/messages", {"model": "m"}, headers={"Authorization": "Bearer " + "b" * 40}) as no:
                assert no.status == 401
            async with second.ask("/v1/messages", {"model": "m"}) as yes:
                assert yes.status == 200
        async with run.turn(token="c" * 40) as later:
            async with later.ask("/v1/messages", {"model": "m"}, headers={"Authorization": "Bearer " + "a" * 40}) as no:
                assert no.status == 401
        with pytest.raises(FileNotFoundError):
            await asyncio.open_unix_connection(first.socket)
