"""Gemini generateContent, streamed and not. PURE. Shapes: https://ai.google.dev/api/generate-content."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import Field

from massgend.scripted.script import MODEL, Asked, Reply, Said, pieces
from massgend.scripted.wire import Body, data, merged

STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}


class Part(Body):
    text: str | None = None
    thought: bool = False


class Content(Body):
    role: str | None = None
    parts: tuple[Part, ...] = ()


class Function(Body):
    name: str


class Tool(Body):
    functions: tuple[Function, ...] = Field(default=(), alias="functionDeclarations")


class GeminiRequest(Body):
    """`streams` comes from the path, not from the body."""

    contents: tuple[Content, ...]
    system: Content | None = Field(default=None, alias="systemInstruction")
    tools: tuple[Tool, ...] = ()
    streams: bool = False

    @property
    def wants_stream(self) -> bool:
        return self.streams

    def asked(self, digest: str) -> Asked:
        said = [Said(by_model=one.role == "model", text=_text(one)) for one in self.contents]
        names = tuple(function.name for tool in self.tools for function in tool.functions)
        system = _text(self.system) if self.system is not None else ""
        return Asked(system=system, said=merged(said), tools=names, body_digest=digest)

    def whole(self, reply: Reply) -> Mapping[str, Any]:
        return _response(reply, [{"text": reply.text}, *_calls(reply)], finish="STOP")

    def events(self, reply: Reply) -> Iterator[bytes]:
        texts = pieces(reply.text, reply.step.pieces)
        for text in texts:
            yield data(_response(reply, [{"text": text}]))
        for call in _calls(reply):
            yield data(_response(reply, [call]))
        yield data(_response(reply, [{"text": ""}], finish="STOP"))


def problem(status: int, message: str) -> Mapping[str, Any]:
    return {"error": {"code": status, "message": message, "status": STATUSES.get(status, "UNKNOWN")}}


def model() -> Mapping[str, Any]:
    return {
        "name": f"models/{MODEL}",
        "version": "1",
        "displayName": "Scripted model",
        "description": "Plays a script that stands in the prompt.",
        "inputTokenLimit": 1_048_576,
        "outputTokenLimit": 65_536,
        "supportedGenerationMethods": ["generateContent", "countTokens"],
    }


def _text(content: Content) -> str:
    return "\n".join(part.text for part in content.parts if part.text and not part.thought)


def _calls(reply: Reply) -> list[dict[str, Any]]:
    return [{"functionCall": {"id": call.id, "name": call.name, "args": call.arguments}} for call in reply.calls]


def _response(reply: Reply, parts: list[dict[str, Any]], *, finish: str | None = None) -> Mapping[str, Any]:
    usage = reply.step.usage
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
    if finish is not None:
        candidate["finishReason"] = finish
    return {
        "candidates": [candidate],
        "usageMetadata": {
            "promptTokenCount": usage.input_tokens,
            "candidatesTokenCount": usage.output_tokens,
            "totalTokenCount": usage.input_tokens + usage.output_tokens,
        },
        "modelVersion": MODEL,
        "responseId": reply.id,
    }
