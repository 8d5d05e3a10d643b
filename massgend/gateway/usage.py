"""Tokens used, from the provider's own numbers: read beside the stream, which is never held up or changed. PURE."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import Any

from massgend.gateway.wires import Operation

MAX_EVENT_BYTES = 16 * 1024**2
"""An event (or a whole answer that is no stream) longer than this passes, but its usage is not read."""

BYTES_A_TOKEN = 4
"""Of a request, where its provider has not said what it counted."""

_USAGE = re.compile(rb'"usage(?:Metadata)?"\s*:\s*\{')


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Tokens of one call. `input` is what was neither read from nor written to a cache.

    `complete`: the provider's final numbers. Otherwise the call ended early and this is the least that was used.
    """

    input_tokens: int = 0
    cache_write_tokens: int = 0
    cache_write_1h_tokens: int = 0
    cache_read_tokens: int = 0
    output_tokens: int = 0
    complete: bool = False

    @property
    def all_input_tokens(self) -> int:
        return self.input_tokens + self.cache_write_tokens + self.cache_write_1h_tokens + self.cache_read_tokens

    @property
    def total_tokens(self) -> int:
        return self.all_input_tokens + self.output_tokens

    def plus(self, other: Usage) -> Usage:
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            cache_write_1h_tokens=self.cache_write_1h_tokens + other.cache_write_1h_tokens,
            cache_read_tokens=self.cache_read_tokens + other.cache_read_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            complete=self.complete and other.complete,
        )


def at_least(usage: Usage, body_bytes: int) -> Usage:
    """A call that ended without the provider's numbers was read by it all the same: its input is estimated."""
    if usage.complete or usage.all_input_tokens:
        return usage
    return replace(usage, input_tokens=-(-body_bytes // BYTES_A_TOKEN))


class UsageReader:
    """Fed with an answer's bytes as they pass; `usage` is what they have said so far."""

    def __init__(self, operation: Operation, *, events: bool) -> None:
        self._operation = operation
        self._events = events
        self._line = bytearray()
        self._too_long = False
        self._deltas = 0
        self._blank = True
        self._usage = Usage()

    @property
    def usage(self) -> Usage:
        """An unfinished stream counts at least one output token for each delta that was seen."""
        if self._usage.complete:
            return self._usage
        return replace(self._usage, output_tokens=max(self._usage.output_tokens, self._deltas))

    @property
    def between_events(self) -> bool:
        return self._blank and not self._line and not self._too_long

    def feed(self, chunk: bytes) -> None:
        if not self._events:
            self._keep(chunk)
            return
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            self._keep(end)
            line = b"" if self._too_long else bytes(self._line).rstrip(b"\r")
            self._blank = not line and not self._too_long
            self._line.clear()
            self._too_long = False
            if line.startswith(b"data:"):
                self._read_event(line[5:])
        self._keep(rest)

    def finish(self) -> None:
        """The answer is whole. An answer that is no stream is read now."""
        if self._events or self._too_long:
            return
        fields = _parsed(bytes(self._line))
        if isinstance(fields, list) and fields:  # Gemini's stream without alt=sse is an array
            fields = fields[-1]
        if isinstance(fields, dict):
            self._take(fields, final=True)

    def _keep(self, part: bytes) -> None:
        if len(self._line) + len(part) > MAX_EVENT_BYTES:
            self._too_long = True
            self._line.clear()
        if not self._too_long:
            self._line += part

    def _read_event(self, content: bytes) -> None:
        self._deltas += b"delta" in content
        if _USAGE.search(content) is None:  # text that holds these signs has them escaped, or is parsed in vain
            return
        fields = _parsed(content)
        if isinstance(fields, dict):
            self._take(fields, final=False)

    def _take(self, fields: dict[str, Any], *, final: bool) -> None:
        match self._operation:
            case Operation.MESSAGES:
                self._take_anthropic(fields, final)
            case Operation.CHAT:
                found = fields.get("usage")
                if isinstance(found, dict):
                    self._usage = _openai(found, "prompt", "completion")
            case Operation.RESPONSES:
                response = fields if final else fields.get("response")
                found = response.get("usage") if isinstance(response, dict) else None
                if isinstance(found, dict):
                    self._usage = _openai(found, "input", "output")
            case Operation.GENERATE | Operation.STREAM_GENERATE:
                found = fields.get("usageMetadata")
                if isinstance(found, dict):
                    self._usage = _gemini(found, complete=final or _gemini_ended(fields))
            case _:
                return

    def _take_anthropic(self, fields: dict[str, Any], final: bool) -> None:
        message = fields.get("message")
        holder = message if isinstance(message, dict) else fields
        found = holder.get("usage")
        if not isinstance(found, dict):
            return
        ended = final or fields.get("type") == "message_delta"
        self._usage = replace(_anthropic(found, self._usage), complete=ended)


def _parsed(content: bytes) -> object:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def _count(found: dict[str, Any], name: str, default: int = 0) -> int:
    value = found.get(name)
    return value if isinstance(value, int) and value >= 0 else default


def _part(found: dict[str, Any], name: str) -> dict[str, Any]:
    value = found.get(name)
    return value if isinstance(value, dict) else {}


def _anthropic(found: dict[str, Any], before: Usage) -> Usage:
    """Later events repeat or raise the numbers of earlier ones; what they leave out still holds."""
    by_life = _part(found, "cache_creation")
    long_lived = _count(by_life, "ephemeral_1h_input_tokens", before.cache_write_1h_tokens)
    written = _count(found, "cache_creation_input_tokens", before.cache_write_tokens + before.cache_write_1h_tokens)
    return Usage(
        input_tokens=_count(found, "input_tokens", before.input_tokens),
        cache_write_tokens=max(0, written - long_lived),
        cache_write_1h_tokens=long_lived,
        cache_read_tokens=_count(found, "cache_read_input_tokens", before.cache_read_tokens),
        output_tokens=_count(found, "output_tokens", before.output_tokens),
    )


def _openai(found: dict[str, Any], input_name: str, output_name: str) -> Usage:
    details = _part(found, f"{input_name}_tokens_details")
    cached = _count(details, "cached_tokens")
    return Usage(
        input_tokens=max(0, _count(found, f"{input_name}_tokens") - cached),
        cache_read_tokens=cached,
        output_tokens=_count(found, f"{output_name}_tokens"),
        complete=True,
    )


def _gemini(found: dict[str, Any], *, complete: bool) -> Usage:
    cached = _count(found, "cachedContentTokenCount")
    return Usage(
        input_tokens=max(0, _count(found, "promptTokenCount") - cached) + _count(found, "toolUsePromptTokenCount"),
        cache_read_tokens=cached,
        output_tokens=_count(found, "candidatesTokenCount") + _count(found, "thoughtsTokenCount"),
        complete=complete,
    )


def _gemini_ended(fields: dict[str, Any]) -> bool:
    candidates = fields.get("candidates")
    return isinstance(candidates, list) and any(
        isinstance(candidate, dict) and candidate.get("finishReason") for candidate in candidates
    )
