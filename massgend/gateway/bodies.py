"""A request's body, understood and made ready for the upstream: model allowed and mapped, usage asked for. PURE."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

from massgend.gateway.reach import reaches_out
from massgend.gateway.refusals import Kind, Refusal
from massgend.gateway.wires import Call, Operation

MEBIBYTE = 1024**2
MAX_PARTS = 3_000_000
"""Bounds what a body can grow to when it is parsed: a few bytes of JSON can be a hundred in memory."""

_CHECKED = frozenset({"model", "tools", "stream", "stream_options"})

_EVENT_ENDS = (b"\n\n", b"\r\n\r\n")


@dataclass(frozen=True, kw_only=True)
class ModelRules:
    """Which models an agent may call. `allow`: names, with `*` and `?`; `map`: asked name -> name at the provider.

    `allow` holds for the names that are asked for. `provider_tools`: whether requests may have the provider itself
    fetch things from the internet (web search, images by URL, hosted MCP): a way out that egress rules do not see.
    """

    allow: tuple[str, ...] = ("*",)
    map: Mapping[str, str] = field(default_factory=dict)
    provider_tools: bool = False
    max_body_bytes: int = 32 * MEBIBYTE


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """`asked` and `model`: the name before and after mapping. `hides_usage`: we asked for usage, the client did not."""

    call: Call
    body: bytes
    asked: str | None = None
    model: str | None = None
    stream: bool = False
    hides_usage: bool = False


def prepare(call: Call, body: bytes, rules: ModelRules) -> Prepared:
    """Raises Refusal. The body is passed on byte for byte unless a rule changes it."""
    if call.operation is Operation.LIST_MODELS:
        return Prepared(call=call, body=b"")
    fields = _parse(body)
    _refuse_ambiguous(fields)
    asked = call.model if call.model is not None else fields.get("model")
    if not isinstance(asked, str) or not asked.isprintable() or not asked:
        raise Refusal(Kind.INVALID, "massgend: the request names no model")
    if not any(fnmatchcase(asked, pattern) for pattern in rules.allow):
        allowed = ", ".join(rules.allow) or "none"
        raise Refusal(
            Kind.FORBIDDEN, f"massgend: the model {asked[:200]} is not allowed in this run (allowed: {allowed})"
        )
    found = None if rules.provider_tools else reaches_out(call.provider.wire, fields)
    if not rules.provider_tools and asked not in rules.map and "online" in asked.lower().split(":")[1:]:
        found = "the model suffix ':online'"
    if found is not None:
        raise Refusal(
            Kind.INVALID,
            f"massgend: {found} would have the provider reach into the internet, which this run does not allow "
            "(models.provider_tools)",
        )
    return _rewritten(call, body, fields, asked, rules.map.get(asked, asked))


@dataclass(frozen=True, kw_only=True)
class Refused:
    """A Refusal that can travel between processes."""

    kind: Kind
    message: str


def prepare_apart(call: Call, body: bytes, rules: ModelRules) -> Prepared | Refused:
    """`prepare` for another process: what it gives back has no body when that is to be passed on as it is."""
    try:
        prepared = prepare(call, body, rules)
    except Refusal as refusal:
        return Refused(kind=refusal.kind, message=refusal.message)
    return replace(prepared, body=b"") if prepared.body is body else prepared


def parts(body: bytes) -> int:
    """How many values its JSON can hold at most: what parsing it costs."""
    return sum(body.count(mark) for mark in (b"[", b"{", b","))


def _refuse_ambiguous(fields: dict[str, Any]) -> None:
    """An upstream may read names in any case; what it would then read must be what we have checked."""
    for name, value in fields.items():
        low = name.lower()
        if low in _CHECKED and name != low:
            raise Refusal(Kind.INVALID, f"massgend: the request's field '{name}' must be written '{low}'")
        if low == "models" and value:
            raise Refusal(Kind.INVALID, "massgend: a list of models is not served: name one in 'model'")
        if low == "background" and value:
            raise Refusal(
                Kind.INVALID, "massgend: 'background' is not served, because what such an answer uses is not known"
            )


def _rewritten(call: Call, body: bytes, fields: dict[str, Any], asked: str, model: str) -> Prepared:
    changes: dict[str, Any] = {}
    if model != asked:
        if call.model is None:
            changes["model"] = model
        else:
            call = replace(call, model=model, path=call.path.replace(f"/{asked}:", f"/{model}:"))
    stream = call.operation is Operation.STREAM_GENERATE or fields.get("stream") is True
    hides_usage = False
    if stream and call.operation is Operation.CHAT:
        options = fields.get("stream_options")
        options = options if isinstance(options, dict) else {}
        hides_usage = options.get("include_usage") is not True
        if hides_usage:
            changes["stream_options"] = {**options, "include_usage": True}
    if changes:
        try:
            body = json.dumps(fields | changes, separators=(",", ":")).encode()
        except RecursionError:
            raise Refusal(Kind.INVALID, "massgend: the request's JSON is nested too deeply") from None
    return Prepared(call=call, body=body, asked=asked, model=model, stream=stream, hides_usage=hides_usage)


def _parse(body: bytes) -> dict[str, Any]:
    """A name twice in one object could mean one thing to us and another to the provider: refused."""
    if parts(body) > MAX_PARTS:
        raise Refusal(Kind.TOO_LARGE, f"massgend: the request's JSON has more than {MAX_PARTS} parts")
    try:
        fields = json.loads(body, object_pairs_hook=_distinct)
    except _TwiceNamed as error:
        raise Refusal(Kind.INVALID, f"massgend: the request's JSON names '{error}' twice in one object") from None
    except (ValueError, RecursionError):
        raise Refusal(Kind.INVALID, "massgend: the request's body is not JSON") from None
    if not isinstance(fields, dict):
        raise Refusal(Kind.INVALID, "massgend: the request's body is not a JSON object")
    return fields


class _TwiceNamed(Exception):
    pass


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise _TwiceNamed(name[:100])
            seen.add(name)
    return fields


class UsageHider:
    """Takes out of a chat stream the one event with usage that only we asked for; all else passes byte for byte.

    An event passes when it is whole: only streams whose client did not ask for usage go through here.
    """

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> bytes:
        content = self._rest + chunk
        end = max((content.rfind(mark) + len(mark) for mark in _EVENT_ENDS if mark in content), default=0)
        self._rest = content[end:]
        whole = content[:end]
        if b'"usage"' not in whole:
            return whole
        separator = b"\r\n\r\n" if b"\r\n\r\n" in whole else b"\n\n"
        return separator.join(event for event in whole.split(separator) if not _is_usage_only(event))

    def finish(self) -> bytes:
        rest, self._rest = self._rest, b""
        return rest


def _is_usage_only(event: bytes) -> bool:
    if not event.startswith(b"data:") or b'"usage"' not in event:
        return False
    try:
        fields = json.loads(event[5:])
    except (ValueError, RecursionError):
        return False
    return isinstance(fields, dict) and fields.get("choices") == [] and isinstance(fields.get("usage"), dict)
