"""The head of a proxy request, strictly read, and what goes on to the host. PURE.

Strict because two readers of one head must not differ: odd line ends, folded lines and odd names are refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from massgend.gateway.egress_rules import Target, parse_target

_LINE = re.compile(r"([A-Z]{1,16}) (\S+) HTTP/1\.[01]")
_URL = re.compile(r"http://([^/?#@\s]+)(/[^#\s]*|\?[^#\s]*)?")
_FIELD = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*?)[ \t]*")
_DROPPED = frozenset({"host", "connection", "keep-alive", "te", "trailer", "upgrade"})


class BadHead(Exception):
    """Not a proxy request that we serve; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Head:
    """`onward`: the head for the host itself, when the request is not a CONNECT."""

    is_connect: bool
    target: Target
    authorization: str
    onward: bytes


def parse_head(raw: bytes) -> Head:
    """`raw` ends with the empty line. Raises BadHead."""
    text = raw.decode("latin-1")
    first, *lines = text.removesuffix("\r\n\r\n").split("\r\n")
    match = _LINE.fullmatch(first)
    if match is None:
        raise BadHead("this is not a proxy request")
    fields = [_field(line) for line in lines]
    authorization = next((value for name, value in fields if name.lower() == "proxy-authorization"), "")
    method, asked = match[1], match[2]
    if method == "CONNECT":
        target = parse_target(asked)
        if target is None:
            raise BadHead("CONNECT needs host:port")
        return Head(is_connect=True, target=target, authorization=authorization, onward=b"")
    url = _URL.fullmatch(asked)
    target = parse_target(url[1], default_port=80) if url else None
    if url is None or target is None:
        raise BadHead("only http://host/path is served without CONNECT")
    return Head(
        is_connect=False,
        target=target,
        authorization=authorization,
        onward=_onward(method, url[2] or "/", target, fields),
    )


def _field(line: str) -> tuple[str, str]:
    match = _FIELD.fullmatch(line)
    if match is None:
        raise BadHead("a header line is not well-formed")
    return match[1], match[2]


def _onward(method: str, path: str, target: Target, fields: list[tuple[str, str]]) -> bytes:
    """One request, then the connection ends: so each one is seen, checked and counted."""
    host = target.host if target.port == 80 else f"{target.host}:{target.port}"
    lines = [f"{method} {path if path.startswith('/') else '/' + path} HTTP/1.1", f"Host: {host}", "Connection: close"]
    for name, value in fields:
        low = name.lower()
        if low not in _DROPPED and not low.startswith("proxy-"):
            lines.append(f"{name}: {value}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
