"""When are two requests the same one? PURE. Numbers, dates, ids and digests differ between runs, words must not."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

_UUID = r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"
_DIGEST = r"\b[0-9a-f]{12,}\b|\b(?=[a-f]*\d)[0-9a-f]{7,}\b"  # a commit's short form has a digit, or it is a word
_CHANGING = re.compile(rf"{_UUID}|{_DIGEST}|\d+", re.IGNORECASE)
_IGNORED = frozenset({"metadata", "user", "prompt_cache_key", "client_metadata", "safety_identifier"})
SHOWN = 80


def fingerprint(operation: str, model: str | None, request: Any) -> str:
    """`request`: the parsed body, already without secrets."""
    text = json.dumps([operation, model, _steady(request)], sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def first_difference(recorded: Any, asked: Any) -> str:
    """Where the two differ first, in words for people."""
    return _difference(_steady(recorded), _steady(asked), "") or "its operation or model"


def _steady(part: Any) -> Any:
    if isinstance(part, dict):
        return {name: _steady(value) for name, value in part.items() if name not in _IGNORED}
    if isinstance(part, list):
        return [_steady(value) for value in part]
    return _CHANGING.sub("#", part) if isinstance(part, str) else part


def _difference(one: Any, other: Any, where: str) -> str | None:
    if isinstance(one, dict) and isinstance(other, dict):
        for name in sorted({*one, *other}):
            if name not in one or name not in other:
                return f"{where}.{name}: only in {'the record' if name in one else 'the request'}".lstrip(".")
            if (found := _difference(one[name], other[name], f"{where}.{name}")) is not None:
                return found
        return None
    if isinstance(one, list) and isinstance(other, list):
        for index, (left, right) in enumerate(zip(one, other, strict=False)):
            if (found := _difference(left, right, f"{where}[{index}]")) is not None:
                return found
        return None if len(one) == len(other) else f"{where}: {len(one)} entries in the record, now {len(other)}"
    return None if one == other else f"{where.lstrip('.') or 'the body'}: {_shown(one, other)}"


def _shown(one: Any, other: Any) -> str:
    left, right = json.dumps(one, ensure_ascii=False), json.dumps(other, ensure_ascii=False)
    start = next((i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))
    begin = max(0, start - SHOWN // 4)
    return f"recorded {left[begin : begin + SHOWN]}, now {right[begin : begin + SHOWN]}"
