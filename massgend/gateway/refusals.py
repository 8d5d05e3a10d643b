"""What the gateway answers instead of a model, in each provider's own error format, whole or as a last event. PURE."""

from __future__ import annotations

import json
from enum import Enum
from typing import Any

from massgend.gateway.wires import Operation, Wire


class Kind(Enum):
    """Why. The numbers and names that each wire format uses for it stand in the table below."""

    TOKEN = "token"  # noqa: S105 - a kind of refusal
    NOT_SERVED = "not served"
    INVALID = "invalid"
    FORBIDDEN = "forbidden"
    TOO_LARGE = "too large"
    BUDGET = "budget"
    NO_KEY = "no key"
    RATE = "rate"
    OVERLOADED = "overloaded"
    UPSTREAM = "upstream"
    TIMEOUT = "timeout"


class Refusal(Exception):
    """A call that is answered with an error. `body`, when given, is the upstream's own, already without secrets."""

    def __init__(
        self,
        kind: Kind,
        message: str,
        *,
        retry_after_s: float | None = None,
        status: int | None = None,
        body: bytes | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.retry_after_s = retry_after_s
        self.status = status
        self.body = body

    @property
    def may_be_retried(self) -> bool:
        return self.kind in (Kind.RATE, Kind.OVERLOADED, Kind.UPSTREAM, Kind.TIMEOUT)


_ANTHROPIC = {
    Kind.TOKEN: (401, "authentication_error"),
    Kind.NOT_SERVED: (404, "not_found_error"),
    Kind.INVALID: (400, "invalid_request_error"),
    Kind.FORBIDDEN: (403, "permission_error"),
    Kind.TOO_LARGE: (413, "request_too_large"),
    Kind.BUDGET: (400, "invalid_request_error"),  # as Anthropic itself says that the credit is used up
    Kind.NO_KEY: (401, "authentication_error"),
    Kind.RATE: (429, "rate_limit_error"),
    Kind.OVERLOADED: (529, "overloaded_error"),
    Kind.UPSTREAM: (502, "api_error"),
    Kind.TIMEOUT: (504, "timeout_error"),
}
_OPENAI = {
    Kind.TOKEN: (401, "invalid_api_key"),
    Kind.NOT_SERVED: (404, "not_found"),
    Kind.INVALID: (400, "invalid_request"),
    Kind.FORBIDDEN: (403, "model_not_allowed"),
    Kind.TOO_LARGE: (413, "request_too_large"),
    Kind.BUDGET: (403, "insufficient_quota"),
    Kind.NO_KEY: (401, "invalid_api_key"),
    Kind.RATE: (429, "rate_limit_exceeded"),
    Kind.OVERLOADED: (503, "server_overloaded"),
    Kind.UPSTREAM: (502, "server_error"),
    Kind.TIMEOUT: (504, "timeout"),
}
_GEMINI = {
    Kind.TOKEN: (401, "UNAUTHENTICATED"),
    Kind.NOT_SERVED: (404, "NOT_FOUND"),
    Kind.INVALID: (400, "INVALID_ARGUMENT"),
    Kind.FORBIDDEN: (403, "PERMISSION_DENIED"),
    Kind.TOO_LARGE: (413, "INVALID_ARGUMENT"),
    Kind.BUDGET: (403, "PERMISSION_DENIED"),
    Kind.NO_KEY: (401, "UNAUTHENTICATED"),
    Kind.RATE: (429, "RESOURCE_EXHAUSTED"),
    Kind.OVERLOADED: (503, "UNAVAILABLE"),
    Kind.UPSTREAM: (502, "UNAVAILABLE"),
    Kind.TIMEOUT: (504, "DEADLINE_EXCEEDED"),
}
_TABLE = {Wire.ANTHROPIC: _ANTHROPIC, Wire.OPENAI: _OPENAI, Wire.GEMINI: _GEMINI}


def status_of(wire: Wire, refusal: Refusal) -> int:
    return refusal.status or _TABLE[wire][refusal.kind][0]


def body_of(wire: Wire, refusal: Refusal) -> bytes:
    if refusal.body is not None:
        return refusal.body
    return json.dumps(_error(wire, refusal)).encode()


def _error(wire: Wire, refusal: Refusal) -> dict[str, Any]:
    name = _TABLE[wire][refusal.kind][1]
    if wire is Wire.ANTHROPIC:
        return {"type": "error", "error": {"type": name, "message": refusal.message}}
    if wire is Wire.OPENAI:
        kind = "invalid_request_error" if not refusal.may_be_retried else "server_error"
        return {"error": {"message": refusal.message, "type": kind, "param": None, "code": name}}
    return {"error": {"code": status_of(wire, refusal), "message": refusal.message, "status": name}}


def last_event(operation: Operation, wire: Wire, refusal: Refusal) -> bytes:
    """The event that ends a stream which cannot be completed."""
    if operation is Operation.RESPONSES:
        failed = {"type": "error", "code": _OPENAI[refusal.kind][1], "message": refusal.message, "param": None}
        return b"event: error\ndata: " + json.dumps(failed).encode() + b"\n\n"
    name = b"event: error\n" if wire is Wire.ANTHROPIC else b""
    return name + b"data: " + json.dumps(_error(wire, refusal)).encode() + b"\n\n"


def is_error_body(wire: Wire, body: bytes) -> bool:
    """Is it an error as the wire format has it, so that it can be passed on?"""
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        return False
    if isinstance(fields, list) and wire is Wire.GEMINI and fields:
        fields = fields[0]
    if not isinstance(fields, dict) or not isinstance(fields.get("error"), dict):
        return False
    return wire is not Wire.ANTHROPIC or fields.get("type") == "error"
