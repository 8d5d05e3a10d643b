"""What the four formats share: a request that knows how it is answered, and server-sent events. PURE."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict

from massgend.scripted.script import Asked, Reply, Said

CREATED = 1_700_000_000
"""The time that replies carry: the scripted model has no clock."""


class Body(BaseModel):
    """Part of a request: fields that we do not need are left alone, as a provider with newer features would."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Request(Protocol):
    """A request in one format."""

    def asked(self, digest: str) -> Asked: ...

    @property
    def wants_stream(self) -> bool: ...

    def whole(self, reply: Reply) -> Mapping[str, Any]:
        """The reply as one JSON object."""

    def events(self, reply: Reply) -> Iterator[bytes]:
        """The reply as a stream of server-sent events."""


def digest_of(body: bytes) -> str:
    """Ids of a reply come from its request, so that the model needs no memory and no randomness."""
    return hashlib.sha256(body).hexdigest()


def merged(said: Sequence[Said]) -> tuple[Said, ...]:
    """Neighbours of one side become one."""
    out: list[Said] = []
    for one in said:
        if out and out[-1].by_model == one.by_model:
            out[-1] = Said(by_model=one.by_model, text=out[-1].text + "\n" + one.text)
        else:
            out.append(one)
    return tuple(out)


def event(name: str, fields: Mapping[str, Any]) -> bytes:
    return f"event: {name}\n".encode() + data(fields)


def data(fields: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(fields, ensure_ascii=False).encode() + b"\n\n"
