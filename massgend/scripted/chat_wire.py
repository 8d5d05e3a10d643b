"""OpenAI Chat Completions, streamed and not. PURE. Shapes: https://platform.openai.com/docs/api-reference/chat."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from massgend.scripted.script import MODEL, Asked, Reply, Said, pieces
from massgend.scripted.wire import CREATED, Body, data, merged


class Part(Body):
    type: str
    text: str | None = None


class Message(Body):
    role: str
    content: str | tuple[Part, ...] | None = None


class Function(Body):
    name: str


class Tool(Body):
    type: str
    function: Function | None = None


class StreamOptions(Body):
    include_usage: bool = False


class ChatRequest(Body):
    model: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None

    @property
    def wants_stream(self) -> bool:
        return bool(self.stream)

    def asked(self, digest: str) -> Asked:
        system = "\n".join(_text(one) for one in self.messages if one.role in ("system", "developer"))
        said = [
            Said(by_model=one.role == "assistant", text="" if one.role == "tool" else _text(one))
            for one in self.messages
            if one.role not in ("system", "developer")
        ]
        names = tuple(tool.function.name for tool in self.tools or () if tool.function is not None)
        return Asked(system=system, said=merged(said), tools=names, body_digest=digest)

    def whole(self, reply: Reply) -> Mapping[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": reply.text, "refusal": None}
        if reply.calls:
            message["tool_calls"] = _calls(reply)
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish(reply)}
        return {**_head(reply, "chat.completion"), "choices": [choice], "usage": _usage(reply)}

    def events(self, reply: Reply) -> Iterator[bytes]:
        yield self._chunk(reply, {"role": "assistant", "content": "", "refusal": None})
        for part in pieces(reply.text, reply.step.pieces):
            yield self._chunk(reply, {"content": part})
        for index, call in enumerate(_calls(reply)):
            begun = {"index": index, **call, "function": {"name": call["function"]["name"], "arguments": ""}}
            yield self._chunk(reply, {"tool_calls": [begun]})
            for part in pieces(call["function"]["arguments"], 2):
                yield self._chunk(reply, {"tool_calls": [{"index": index, "function": {"arguments": part}}]})
        yield self._chunk(reply, {}, finish=_finish(reply))
        if self._counts:
            yield data({**_head(reply, "chat.completion.chunk"), "choices": [], "usage": _usage(reply)})
        yield b"data: [DONE]\n\n"

    @property
    def _counts(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage

    def _chunk(self, reply: Reply, delta: Mapping[str, Any], *, finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        counted = {"usage": None} if self._counts else {}
        return data({**_head(reply, "chat.completion.chunk"), "choices": [choice], **counted})


def problem(status: int, message: str) -> Mapping[str, Any]:
    """Chat Completions and Responses have one form of error."""
    kind = {401: "authentication_error", 429: "rate_limit_error"}.get(
        status, "invalid_request_error" if status < 500 else "server_error"
    )
    return {"error": {"message": message, "type": kind, "param": None, "code": None}}


def models() -> Mapping[str, Any]:
    return {
        "object": "list",
        "data": [{"id": MODEL, "object": "model", "created": CREATED, "owned_by": "massgend-scripted"}],
    }


def _text(message: Message) -> str:
    if isinstance(message.content, str):
        return message.content
    return "\n".join(part.text for part in message.content or () if part.type == "text" and part.text)


def _head(reply: Reply, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{reply.id}",
        "object": kind,
        "created": CREATED,
        "model": MODEL,
        "system_fingerprint": "fp_scripted",
    }


def _finish(reply: Reply) -> str:
    return "tool_calls" if reply.calls else "stop"


def _calls(reply: Reply) -> list[dict[str, Any]]:
    return [
        {
            "id": f"call_{call.id}",
            "type": "function",
            "function": {"name": call.name, "arguments": json.dumps(call.arguments, ensure_ascii=False)},
        }
        for call in reply.calls
    ]


def _usage(reply: Reply) -> dict[str, Any]:
    usage = reply.step.usage
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
    }
