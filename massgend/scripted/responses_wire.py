"""OpenAI Responses, streamed and not. PURE. Shapes: https://platform.openai.com/docs/api-reference/responses."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Any

from massgend.scripted.script import MODEL, Asked, Reply, Said, pieces
from massgend.scripted.wire import CREATED, Body, event, merged

BY_MODEL = ("function_call", "custom_tool_call", "local_shell_call", "reasoning", "web_search_call")


class Part(Body):
    type: str
    text: str | None = None


class Item(Body):
    type: str = "message"
    role: str | None = None
    content: str | tuple[Part, ...] | None = None


class Tool(Body):
    type: str
    name: str | None = None
    tools: tuple[Tool, ...] = ()


class ResponsesRequest(Body):
    model: str
    input: str | tuple[Item, ...]
    instructions: str | None = None
    tools: tuple[Tool, ...] | None = None
    stream: bool | None = None
    store: bool | None = None

    @property
    def wants_stream(self) -> bool:
        return bool(self.stream)

    def asked(self, digest: str) -> Asked:
        items = (Item(role="user", content=self.input),) if isinstance(self.input, str) else self.input
        system = [self.instructions or ""]
        said: list[Said] = []
        for item in items:
            if item.role in ("system", "developer"):
                system.append(_text(item))
            else:
                by_model = item.role == "assistant" or item.type in BY_MODEL
                said.append(Said(by_model=by_model, text=_text(item)))
        return Asked(system="\n".join(system), said=merged(said), tools=tuple(self._offered()), body_digest=digest)

    def _offered(self) -> Iterator[str]:
        """Names of functions; those in a namespace as `namespace.name`."""
        for tool in self.tools or ():
            if tool.type == "namespace":
                yield from (f"{tool.name}.{one.name}" for one in tool.tools)
            elif tool.name is not None:
                yield tool.name

    def whole(self, reply: Reply) -> Mapping[str, Any]:
        return self._response(reply, status="completed", output=self._output(reply), usage=_usage(reply))

    def events(self, reply: Reply) -> Iterator[bytes]:
        numbers = itertools.count()

        def say(kind: str, **fields: Any) -> bytes:
            return event(kind, {"type": kind, "sequence_number": next(numbers), **fields})

        begun = self._response(reply, status="in_progress", output=[], usage=None)
        yield say("response.created", response=begun)
        yield say("response.in_progress", response=begun)
        for index, item in enumerate(self._output(reply)):
            if item["type"] == "message":
                yield from _message_events(say, index, item, reply.step.pieces)
            else:
                yield from _call_events(say, index, item)
            yield say("response.output_item.done", output_index=index, item=item)
        yield say("response.completed", response=self.whole(reply))

    def _output(self, reply: Reply) -> list[dict[str, Any]]:
        content = [{"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []}]
        message = {
            "type": "message",
            "id": f"msg_{reply.id}",
            "status": "completed",
            "role": "assistant",
            "content": content,
        }
        return [message, *(self._call(call.id, call.name, call.arguments) for call in reply.calls)]

    def _call(self, call_id: str, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        spaces = {tool.name for tool in self.tools or () if tool.type == "namespace"}
        space, _, rest = name.partition(".")
        item = {
            "type": "function_call",
            "id": f"fc_{call_id}",
            "call_id": f"call_{call_id}",
            "name": rest if space in spaces else name,
            "arguments": json.dumps(arguments, ensure_ascii=False),
            "status": "completed",
        }
        return {**item, "namespace": space} if space in spaces else item

    def _response(
        self, reply: Reply, *, status: str, output: list[dict[str, Any]], usage: dict[str, Any] | None
    ) -> dict[str, Any]:
        return {
            "id": f"resp_{reply.id}",
            "object": "response",
            "created_at": CREATED,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": None,
            "instructions": self.instructions,
            "max_output_tokens": None,
            "model": MODEL,
            "output": output,
            "parallel_tool_calls": True,
            "previous_response_id": None,
            "reasoning": {"effort": None, "summary": None},
            "store": bool(self.store),
            "temperature": 1.0,
            "text": {"format": {"type": "text"}},
            "tool_choice": "auto",
            "tools": [],
            "top_p": 1.0,
            "truncation": "disabled",
            "usage": usage,
            "user": None,
            "metadata": {},
        }


def _text(item: Item) -> str:
    if item.type != "message":
        return ""
    if isinstance(item.content, str):
        return item.content
    return "\n".join(part.text for part in item.content or () if part.text)


def _message_events(say: Any, index: int, item: dict[str, Any], count: int) -> Iterator[bytes]:
    where = {"item_id": item["id"], "output_index": index, "content_index": 0}
    part = item["content"][0]
    yield say("response.output_item.added", output_index=index, item={**item, "status": "in_progress", "content": []})
    yield say("response.content_part.added", **where, part={**part, "text": ""})
    for delta in pieces(part["text"], count):
        yield say("response.output_text.delta", **where, delta=delta, logprobs=[])
    yield say("response.output_text.done", **where, text=part["text"], logprobs=[])
    yield say("response.content_part.done", **where, part=part)


def _call_events(say: Any, index: int, item: dict[str, Any]) -> Iterator[bytes]:
    where = {"item_id": item["id"], "output_index": index}
    yield say("response.output_item.added", output_index=index, item={**item, "status": "in_progress", "arguments": ""})
    for delta in pieces(item["arguments"], 2):
        yield say("response.function_call_arguments.delta", **where, delta=delta)
    yield say("response.function_call_arguments.done", **where, name=item["name"], arguments=item["arguments"])


def _usage(reply: Reply) -> dict[str, Any]:
    usage = reply.step.usage
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }
