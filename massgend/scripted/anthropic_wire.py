"""Anthropic Messages, streamed and not. PURE. Shapes: https://docs.anthropic.com/en/api/messages and .../streaming."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from massgend.scripted.script import MODEL, Asked, Reply, Said, pieces
from massgend.scripted.wire import Body, event, merged

KINDS = MappingProxyType(
    {
        400: "invalid_request_error",
        401: "authentication_error",
        403: "permission_error",
        404: "not_found_error",
        413: "request_too_large",
        429: "rate_limit_error",
        529: "overloaded_error",
    }
)


class Block(Body):
    type: str
    text: str | None = None


class Message(Body):
    role: str
    content: str | tuple[Block, ...]


class Tool(Body):
    name: str


class MessagesRequest(Body):
    model: str
    max_tokens: int = 1
    messages: tuple[Message, ...]
    system: str | tuple[Block, ...] = ""
    tools: tuple[Tool, ...] = ()
    stream: bool = False

    @property
    def wants_stream(self) -> bool:
        return self.stream

    def asked(self, digest: str) -> Asked:
        said = [Said(by_model=one.role == "assistant", text=text_of(one.content)) for one in self.messages]
        names = tuple(tool.name for tool in self.tools)
        return Asked(system=text_of(self.system), said=merged(said), tools=names, body_digest=digest)

    def whole(self, reply: Reply) -> Mapping[str, Any]:
        usage = reply.step.usage
        return {
            "id": f"msg_{reply.id}",
            "type": "message",
            "role": "assistant",
            "model": MODEL,
            "content": _content(reply),
            "stop_reason": "tool_use" if reply.calls else "end_turn",
            "stop_sequence": None,
            "usage": {
                "input_tokens": usage.input_tokens,
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 0,
                "output_tokens": usage.output_tokens,
            },
        }

    def events(self, reply: Reply) -> Iterator[bytes]:
        whole = self.whole(reply)
        begun = {**whole, "content": [], "stop_reason": None, "usage": {**whole["usage"], "output_tokens": 1}}
        yield event("message_start", {"type": "message_start", "message": begun})
        for index, block in enumerate(whole["content"]):
            yield from _block(index, block, reply.step.pieces)
        stop = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
        counted = {"output_tokens": whole["usage"]["output_tokens"]}
        yield event("message_delta", {"type": "message_delta", "delta": stop, "usage": counted})
        yield event("message_stop", {"type": "message_stop"})


def text_of(content: str | tuple[Block, ...]) -> str:
    """Its text without results of tools: those are material, never a prompt."""
    if isinstance(content, str):
        return content
    return "\n".join(block.text for block in content if block.type == "text" and block.text)


def problem(status: int, message: str) -> Mapping[str, Any]:
    return {"type": "error", "error": {"type": KINDS.get(status, "api_error"), "message": message}}


def models() -> Mapping[str, Any]:
    model = {"type": "model", "id": MODEL, "display_name": "Scripted model", "created_at": "2023-11-14T22:13:20Z"}
    return {"data": [model], "has_more": False, "first_id": MODEL, "last_id": MODEL}


def _content(reply: Reply) -> list[dict[str, Any]]:
    content: list[dict[str, Any]] = []
    if reply.thinking is not None:
        content.append({"type": "thinking", "thinking": reply.thinking, "signature": "c2NyaXB0ZWQ="})
    content.append({"type": "text", "text": reply.text})
    content.extend(
        {"type": "tool_use", "id": f"toolu_{call.id}", "name": call.name, "input": call.arguments}
        for call in reply.calls
    )
    return content


def _block(index: int, block: dict[str, Any], count: int) -> Iterator[bytes]:
    empty: dict[str, Any]
    deltas: list[dict[str, Any]]
    match block["type"]:
        case "text":
            empty = {"type": "text", "text": ""}
            deltas = [{"type": "text_delta", "text": part} for part in pieces(block["text"], count)]
        case "thinking":
            empty = {"type": "thinking", "thinking": "", "signature": ""}
            deltas = [{"type": "thinking_delta", "thinking": part} for part in pieces(block["thinking"], count)]
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
        case _:
            empty = {**block, "input": {}}
            parts = pieces(json.dumps(block["input"], ensure_ascii=False), 2)
            deltas = [{"type": "input_json_delta", "partial_json": part} for part in parts]
    yield event("content_block_start", {"type": "content_block_start", "index": index, "content_block": empty})
    for delta in deltas:
        yield event("content_block_delta", {"type": "content_block_delta", "index": index, "delta": delta})
    yield event("content_block_stop", {"type": "content_block_stop", "index": index})
