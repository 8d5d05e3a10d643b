"""The scripted model over HTTP: each format as its provider publishes it, streamed and not, and every way to fail."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from massgend.scripted.script import MODEL, SIGN
from massgend.scripted.server import serve

pytestmark = pytest.mark.anyio

SCRIPT = """Please.
```massgend-script
steps:
  - say: I look around first
    call: Bash
    with: {command: "ls é"}
    usage: {in: 1234, out: 56}
```
"""
SAYS = f"{SIGN} I look around first"
FORMATS = ["anthropic", "chat", "responses", "gemini"]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with serve() as url, httpx.AsyncClient(base_url=url, timeout=10, trust_env=False) as opened:
        yield opened


def request_of(kind: str, text: str, *, stream: bool) -> tuple[str, dict[str, Any]]:
    user = {"role": "user", "content": text}
    schema = {"type": "object", "properties": {"command": {"type": "string"}}}
    if kind == "anthropic":
        tool = {"name": "Bash", "description": "x", "input_schema": schema}
        return "/v1/messages", {"model": "m", "max_tokens": 99, "messages": [user], "tools": [tool], "stream": stream}
    if kind == "chat":
        tool = {"type": "function", "function": {"name": "Bash", "parameters": schema}}
        body: dict[str, Any] = {"model": "m", "messages": [user], "tools": [tool], "stream": stream}
        return "/v1/chat/completions", {**body, "stream_options": {"include_usage": True}} if stream else body
    if kind == "responses":
        tool = {"type": "function", "name": "Bash", "parameters": schema}
        return "/v1/responses", {"model": "m", "input": [user], "tools": [tool], "stream": stream}
    contents = [{"role": "user", "parts": [{"text": text}]}]
    tools = [{"functionDeclarations": [{"name": "Bash", "parameters": schema}]}]
    verb = "streamGenerateContent?alt=sse" if stream else "generateContent"
    return f"/v1beta/models/any-model:{verb}", {"contents": contents, "tools": tools}


async def post(client: httpx.AsyncClient, kind: str, text: str, *, stream: bool = False) -> httpx.Response:
    path, body = request_of(kind, text, stream=stream)
    return await client.post(path, json=body)


def events_of(response: httpx.Response) -> list[tuple[str | None, Any]]:
    """(event name, data) of each server-sent event, read strictly."""
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.text.endswith("\n\n")
    found: list[tuple[str | None, Any]] = []
    for block in response.text[:-2].split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n"))
        assert set(fields) <= {"event", "data"}
        data = fields["data"]
        found.append((fields.get("event"), data if data == "[DONE]" else json.loads(data)))
    return found


async def test_anthropic_answers_with_a_message(client: httpx.AsyncClient) -> None:
    body = (await post(client, "anthropic", SCRIPT)).json()

    call = body["content"][1]
    assert body == {
        "id": body["id"],
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": [
            {"type": "text", "text": SAYS},
            {"type": "tool_use", "id": call["id"], "name": "Bash", "input": {"command": "ls é"}},
        ],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 1234,
            "output_tokens": 56,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
        },
    }
    assert body["id"].startswith("msg_")
    assert call["id"].startswith("toolu_")


async def test_anthropic_streams_the_same_message(client: httpx.AsyncClient) -> None:
    events = events_of(await post(client, "anthropic", SCRIPT, stream=True))

    assert all(name == data["type"] for name, data in events)
    kinds = [name for name, _ in events]
    assert kinds[0] == "message_start"
    assert kinds[-2:] == ["message_delta", "message_stop"]
    blocks: dict[int, dict[str, Any]] = {}
    for _, data in events:
        match data["type"]:
            case "content_block_start":
                assert data["index"] == len(blocks)
                blocks[data["index"]] = {**data["content_block"], "json": ""}
            case "content_block_delta" if data["delta"]["type"] == "text_delta":
                blocks[data["index"]]["text"] += data["delta"]["text"]
            case "content_block_delta":
                assert data["delta"]["type"] == "input_json_delta"
                blocks[data["index"]]["json"] += data["delta"]["partial_json"]
    assert blocks[0]["text"] == SAYS
    assert (blocks[1]["name"], blocks[1]["input"], json.loads(blocks[1]["json"])) == ("Bash", {}, {"command": "ls é"})
    assert kinds.count("content_block_stop") == 2
    assert events[0][1]["message"]["usage"]["input_tokens"] == 1234
    assert events[-2][1] == {
        "type": "message_delta",
        "delta": {"stop_reason": "tool_use", "stop_sequence": None},
        "usage": {"output_tokens": 56},
    }


async def test_anthropic_streams_thinking_with_its_signature(client: httpx.AsyncClient) -> None:
    script = "```massgend-script\nsteps: [{think: let me see, say: done}]\n```"
    events = [data for _, data in events_of(await post(client, "anthropic", script, stream=True))]

    assert events[1]["content_block"] == {"type": "thinking", "thinking": "", "signature": ""}
    deltas = [one["delta"] for one in events if one["type"] == "content_block_delta" and one["index"] == 0]
    assert "".join(one.get("thinking", "") for one in deltas) == f"{SIGN} let me see"
    assert deltas[-1]["type"] == "signature_delta"


async def test_chat_answers_with_a_completion(client: httpx.AsyncClient) -> None:
    body = (await post(client, "chat", SCRIPT)).json()

    choice = body["choices"][0]
    assert (body["object"], body["model"], choice["finish_reason"]) == ("chat.completion", MODEL, "tool_calls")
    assert choice["message"]["content"] == SAYS
    (call,) = choice["message"]["tool_calls"]
    assert (call["type"], call["function"]["name"]) == ("function", "Bash")
    assert json.loads(call["function"]["arguments"]) == {"command": "ls é"}
    usage = body["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (1234, 56, 1290)


async def test_chat_streams_the_same_completion(client: httpx.AsyncClient) -> None:
    events = [data for _, data in events_of(await post(client, "chat", SCRIPT, stream=True))]

    assert events[-1] == "[DONE]"
    *chunks, counted = events[:-1]
    assert counted["choices"] == []
    assert counted["usage"]["total_tokens"] == 1290
    assert all(one["object"] == "chat.completion.chunk" and one["usage"] is None for one in chunks)
    deltas = [one["choices"][0]["delta"] for one in chunks]
    assert deltas[0]["role"] == "assistant"
    assert "".join(one.get("content") or "" for one in deltas) == SAYS
    calls = [one["tool_calls"][0] for one in deltas if "tool_calls" in one]
    assert (calls[0]["index"], calls[0]["type"], calls[0]["function"]["name"]) == (0, "function", "Bash")
    assert json.loads("".join(one["function"]["arguments"] for one in calls)) == {"command": "ls é"}
    assert [one["choices"][0]["finish_reason"] for one in chunks if one["choices"][0]["finish_reason"]] == [
        "tool_calls"
    ]


async def test_responses_answers_with_a_response(client: httpx.AsyncClient) -> None:
    body = (await post(client, "responses", SCRIPT)).json()

    message, call = body["output"]
    assert (body["object"], body["status"], body["model"]) == ("response", "completed", MODEL)
    assert message["content"] == [{"type": "output_text", "text": SAYS, "annotations": [], "logprobs": []}]
    assert (call["type"], call["name"], json.loads(call["arguments"])) == ("function_call", "Bash", {"command": "ls é"})
    assert call["call_id"] != call["id"]
    assert (body["usage"]["input_tokens"], body["usage"]["output_tokens"]) == (1234, 56)


async def test_responses_streams_numbered_events_that_end_in_the_same_response(client: httpx.AsyncClient) -> None:
    events = events_of(await post(client, "responses", SCRIPT, stream=True))

    assert all(name == data["type"] for name, data in events)
    assert [data["sequence_number"] for _, data in events] == list(range(len(events)))
    kinds = [name for name, _ in events]
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-1] == "response.completed"
    text = "".join(data["delta"] for name, data in events if name == "response.output_text.delta")
    arguments = "".join(data["delta"] for name, data in events if name == "response.function_call_arguments.delta")
    assert (text, json.loads(arguments)) == (SAYS, {"command": "ls é"})
    done = [data["item"] for name, data in events if name == "response.output_item.done"]
    assert done == events[-1][1]["response"]["output"]


async def test_responses_counts_items_of_one_model_turn_as_one(client: httpx.AsyncClient) -> None:
    script = "```massgend-script\nsteps: [{say: one}, {say: two}]\n```"
    turn = [
        {"type": "reasoning", "id": "r", "summary": []},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "one"}]},
        {"type": "function_call", "call_id": "c", "name": "Bash", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "ok"},
    ]
    body = {"model": "m", "input": [{"role": "user", "content": script}, *turn]}

    assert (await client.post("/v1/responses", json=body)).json()["output"][0]["content"][0]["text"] == f"{SIGN} two"


async def test_responses_puts_a_namespace_apart(client: httpx.AsyncClient) -> None:
    script = "```massgend-script\nsteps: [{call: vote, with: {label: a}}]\n```"
    space = {"type": "namespace", "name": "massgend", "tools": [{"type": "function", "name": "vote"}]}
    body = {"model": "m", "input": script, "tools": [space]}

    call = (await client.post("/v1/responses", json=body)).json()["output"][1]
    assert (call["namespace"], call["name"]) == ("massgend", "vote")


async def test_gemini_answers_with_a_candidate(client: httpx.AsyncClient) -> None:
    body = (await post(client, "gemini", SCRIPT)).json()

    (candidate,) = body["candidates"]
    text, call = candidate["content"]["parts"]
    assert (candidate["finishReason"], candidate["content"]["role"], text) == ("STOP", "model", {"text": SAYS})
    assert (call["functionCall"]["name"], call["functionCall"]["args"]) == ("Bash", {"command": "ls é"})
    assert body["usageMetadata"] == {"promptTokenCount": 1234, "candidatesTokenCount": 56, "totalTokenCount": 1290}
    assert body["modelVersion"] == MODEL


async def test_gemini_streams_candidates_of_which_the_last_has_the_reason(client: httpx.AsyncClient) -> None:
    events = [data for _, data in events_of(await post(client, "gemini", SCRIPT, stream=True))]

    parts = [part for one in events for part in one["candidates"][0]["content"]["parts"]]
    assert "".join(part.get("text", "") for part in parts) == SAYS
    assert [part["functionCall"]["name"] for part in parts if "functionCall" in part] == ["Bash"]
    assert [one["candidates"][0].get("finishReason") for one in events][-2:] == [None, "STOP"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", FORMATS)
async def test_every_reply_says_that_it_is_scripted(client: httpx.AsyncClient, kind: str, stream: bool) -> None:
    response = await post(client, kind, "Hello.", stream=stream)

    assert response.headers["massgend-scripted"] == MODEL
    assert MODEL in response.text


@pytest.mark.parametrize("kind", FORMATS)
async def test_an_error_is_in_the_providers_own_form(client: httpx.AsyncClient, kind: str) -> None:
    script = "```massgend-script\nsteps: [{error: 429, retry_after_s: 7, message: slow down}]\n```"
    response = await post(client, kind, script, stream=True)

    assert (response.status_code, response.headers["retry-after"]) == (429, "7")
    said = f"{SIGN} slow down"
    expected: dict[str, Any] = {
        "anthropic": {"type": "error", "error": {"type": "rate_limit_error", "message": said}},
        "gemini": {"error": {"code": 429, "message": said, "status": "RESOURCE_EXHAUSTED"}},
    }
    openai = {"error": {"message": said, "type": "rate_limit_error", "param": None, "code": None}}
    assert response.json() == expected.get(kind, openai)


@pytest.mark.parametrize("kind", FORMATS)
async def test_a_wrong_script_or_request_is_refused_with_the_reason(client: httpx.AsyncClient, kind: str) -> None:
    response = await post(client, kind, "```massgend-script\nsteps: [{shout: hi}]\n```")
    assert response.status_code == 400
    assert "steps.0.shout" in response.text

    path, _ = request_of(kind, "x", stream=False)
    assert (await client.post(path, content=b"{nonsense")).status_code == 400
    assert (await client.post(path, json=[1])).status_code == 400


async def test_a_delay_is_kept_before_the_first_byte_and_between_pieces(client: httpx.AsyncClient) -> None:
    script = "```massgend-script\nsteps: [{say: abcdef, wait_s: 0.3, pieces: 3, pace_s: 0.1}]\n```"
    began = time.monotonic()
    path, body = request_of("anthropic", script, stream=True)
    async with client.stream("POST", path, json=body) as response:
        arrived = [time.monotonic() - began async for _ in response.aiter_raw()]

    assert arrived[0] >= 0.3
    assert arrived[-1] - arrived[0] >= 0.3


@pytest.mark.parametrize("stream", [False, True])
async def test_a_hang_lasts_until_the_client_goes_away(client: httpx.AsyncClient, stream: bool) -> None:
    for fault in ("hang", "hang midway"):
        script = f"```massgend-script\nsteps: [{{say: abcdef, fault: {fault}}}]\n```"
        path, body = request_of("anthropic", script, stream=stream)
        with pytest.raises(httpx.ReadTimeout):
            await client.post(path, json=body, timeout=0.3)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_cut_ends_the_connection_before_the_reply_is_whole(client: httpx.AsyncClient, stream: bool) -> None:
    script = "```massgend-script\nsteps: [{say: abcdef, fault: cut midway}]\n```"
    with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
        await post(client, "anthropic", script, stream=stream)


async def test_garbage_is_no_format_at_all(client: httpx.AsyncClient) -> None:
    response = await post(client, "chat", "```massgend-script\nsteps: [{fault: garbage}]\n```", stream=True)

    assert response.status_code == 200
    assert b"data: " not in response.content


async def test_models_are_listed_as_each_provider_does(client: httpx.AsyncClient) -> None:
    anthropic = (await client.get("/v1/models", headers={"anthropic-version": "2023-06-01"})).json()
    openai = (await client.get("/v1/models")).json()
    gemini = (await client.get("/v1beta/models")).json()

    assert (anthropic["data"][0]["id"], anthropic["has_more"]) == (MODEL, False)
    assert (openai["object"], openai["data"][0]["id"]) == ("list", MODEL)
    assert gemini["models"][0]["name"] == f"models/{MODEL}"


async def test_tokens_are_counted(client: httpx.AsyncClient) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "x" * 400}]}

    assert (await client.post("/v1/messages/count_tokens", json=body)).json()["input_tokens"] > 100
    contents = {"contents": [{"parts": [{"text": "x" * 400}]}]}
    assert (await client.post("/v1beta/models/m:countTokens", json=contents)).json()["totalTokens"] > 100


async def test_it_listens_on_a_unix_socket_and_leaves_at_once_while_a_request_hangs(tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    transport = httpx.AsyncHTTPTransport(uds=str(path))
    async with httpx.AsyncClient(transport=transport, base_url="http://scripted", trust_env=False) as client:
        async with serve(path) as url:
            assert url == "http://scripted"
            assert MODEL in (await client.get("/")).text
            script = "```massgend-script\nsteps: [{fault: hang}]\n```"
            hanging = asyncio.create_task(post(client, "anthropic", script))
            await asyncio.sleep(0.2)
            began = time.monotonic()
        assert time.monotonic() - began < 2
        with pytest.raises(httpx.TransportError):
            await hanging


async def test_replies_to_one_request_are_one_reply(client: httpx.AsyncClient) -> None:
    first, again = await post(client, "anthropic", SCRIPT), await post(client, "anthropic", SCRIPT)

    assert first.json() == again.json()
