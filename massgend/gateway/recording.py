"""Records of model traffic, and their replay without a network. JSON lines: one head, then one line a call.

A record holds what was asked and answered, with timings; no headers, no tokens, no keys. It is for its owner only.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from massgend.gateway.fingerprint import fingerprint, first_difference
from massgend.gateway.refusals import Kind, Refusal, body_of, status_of
from massgend.gateway.secret import Secret, scrub
from massgend.gateway.upstream import Outgoing, Reply, Upstream

log = logging.getLogger(__name__)

VERSION: Literal[1] = 1
MAX_KEPT_BYTES = 64 * 1024**2
MAX_DEPTH = 100
"""A request that is nested deeper is recorded without its body: such JSON cannot be read back everywhere."""


class RecordError(Exception):
    """A record cannot be written or used; the message says why."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RecordHead(_Model):
    """`run`: what a replay must repeat for its requests to be the same (task, agents, labels), for the caller."""

    massgend_record: Literal[1]
    run: Mapping[str, Any] = Field(default_factory=dict)


class Piece(_Model):
    """One chunk; `at_ms` since the request. `text` where it is UTF-8, else `base64`."""

    at_ms: float
    text: str | None = None
    base64: str | None = None

    @property
    def content(self) -> bytes:
        return base64.b64decode(self.base64) if self.base64 is not None else (self.text or "").encode()


class Exchange(_Model):
    """One call. `problem`: what the gateway answered instead of, or after, the provider."""

    agent: str
    sequence: int
    provider: str
    operation: str
    model: str | None = None
    fingerprint: str
    request: Any = None
    status: int
    content_type: str = "application/json"
    pieces: tuple[Piece, ...] = ()
    ended: Literal["complete", "cut", "upstream"]
    problem: str | None = None
    kind: str | None = None
    retry_after_s: float | None = None


class Recorder:
    """An upstream that writes down what passes between an agent and another upstream. Enter it before use."""

    def __init__(self, upstream: Upstream, path: Path, *, run: Mapping[str, Any] | None = None) -> None:
        self._upstream = upstream
        self._path = path
        self._head = RecordHead(massgend_record=VERSION, run=run or {})
        self._sequences: dict[str, int] = {}
        self._descriptor = -1

    def __enter__(self) -> Recorder:
        """Raises RecordError when the file is there already, or cannot be made."""
        try:
            self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            raise RecordError(f"{self._path} exists already: choose another file for the record") from None
        except OSError as error:
            raise RecordError(f"the record {self._path} cannot be written: {error.strerror}") from None
        try:
            self._append(self._head)
        except OSError as error:
            self._close()
            raise RecordError(f"the record {self._path} cannot be written: {error.strerror}") from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def open(self, outgoing: Outgoing) -> AbstractAsyncContextManager[Reply]:
        return self._open(outgoing)

    @asynccontextmanager
    async def _open(self, outgoing: Outgoing) -> AsyncIterator[Reply]:
        tape = _Tape(outgoing, self._next(outgoing.agent))
        try:
            async with self._upstream.open(outgoing) as reply:
                tape.begin(reply)
                chunks = tape.follow(reply.chunks)
                async with aclosing(chunks):
                    yield Reply(
                        status=reply.status,
                        content_type=reply.content_type,
                        chunks=chunks,
                        headers=reply.headers,
                        secrets=reply.secrets,
                    )
        except Refusal as refusal:
            tape.refuse(refusal)
            raise
        finally:
            self._keep(tape.exchange())

    def _next(self, agent: str) -> int:
        self._sequences[agent] = self._sequences.get(agent, 0) + 1
        return self._sequences[agent]

    def _keep(self, exchange: Exchange) -> None:
        """A call goes on when it cannot be written down; a record with a gap would be of no use, so it ends there."""
        if self._descriptor < 0:
            return
        try:
            self._append(exchange)
        except OSError as error:
            log.warning("the record %s ends here: %s", self._path, error.strerror)
            self._close()

    def _append(self, line: BaseModel) -> None:
        rest = line.model_dump_json(exclude_none=True).encode() + b"\n"
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class _Tape:
    """What is known of one call while it runs."""

    def __init__(self, outgoing: Outgoing, sequence: int) -> None:
        self._outgoing = outgoing
        self._sequence = sequence
        self._began = asyncio.get_running_loop().time()
        self._secrets: tuple[Secret, ...] = (outgoing.token,)
        self._pieces: list[tuple[float, bytes]] = []
        self._kept = 0
        self._status = 0
        self._content_type = "application/json"
        self._ended: Literal["complete", "cut", "upstream"] = "cut"
        self._refusal: Refusal | None = None

    def begin(self, reply: Reply) -> None:
        self._status, self._content_type = reply.status, reply.content_type
        self._secrets += reply.secrets

    async def follow(self, chunks: AsyncIterator[bytes]) -> Any:
        async for chunk in chunks:
            self._kept += len(chunk)
            if self._kept <= MAX_KEPT_BYTES:
                self._pieces.append(((asyncio.get_running_loop().time() - self._began) * 1000, chunk))
            yield chunk
        self._ended = "complete"

    def refuse(self, refusal: Refusal) -> None:
        self._refusal = refusal
        self._ended = "upstream"
        if self._status == 0:
            wire = self._outgoing.prepared.call.provider.wire
            self._status = status_of(wire, refusal)
            self._pieces = [(0.0, body_of(wire, refusal))]

    def exchange(self) -> Exchange:
        prepared = self._outgoing.prepared
        request = _without(prepared.body, self._secrets)
        return Exchange(
            agent=self._outgoing.agent,
            sequence=self._sequence,
            provider=prepared.call.provider.name,
            operation=prepared.call.operation.value,
            model=prepared.model,
            fingerprint=fingerprint(prepared.call.operation.value, prepared.model, request),
            request=request,
            status=self._status,
            content_type=self._content_type,
            pieces=tuple(_piece(at_ms, content, self._secrets) for at_ms, content in self._pieces),
            ended=self._ended,
            problem=self._refusal.message if self._refusal else None,
            kind=self._refusal.kind.value if self._refusal else None,
            retry_after_s=self._refusal.retry_after_s if self._refusal else None,
        )


def _without(body: bytes, secrets: tuple[Secret, ...]) -> Any:
    """The parsed body; half a surrogate pair, which is no text, becomes `?`. None where it cannot be kept."""
    try:
        request = json.loads(scrub(body, secrets)) if body else None
        if b"\\ud" in body.lower():
            request = json.loads(json.dumps(request, ensure_ascii=False).encode(errors="replace"))
    except (ValueError, RecursionError):
        return None
    return None if _is_deep(request) else request


def _is_deep(request: object) -> bool:
    level = [request]
    for _ in range(MAX_DEPTH):
        inner = [part.values() if isinstance(part, dict) else part for part in level if isinstance(part, dict | list)]
        level = [part for parts in inner for part in parts if isinstance(part, dict | list)]
        if not level:
            return False
    return True


def _piece(at_ms: float, content: bytes, secrets: tuple[Secret, ...]) -> Piece:
    content = scrub(content, secrets)
    try:
        return Piece(at_ms=round(at_ms, 2), text=content.decode())
    except UnicodeDecodeError:
        return Piece(at_ms=round(at_ms, 2), base64=base64.b64encode(content).decode())


class Replay:
    """An upstream that answers from a record, and reaches no network. `pace`: 1.0 as it was, 0 at once.

    A call is answered by the first unused exchange of its agent with the same fingerprint.
    """

    def __init__(self, exchanges: Iterable[Exchange], *, head: RecordHead, pace: float = 1.0) -> None:
        self.head = head
        self._pace = pace
        self._waiting: dict[str, list[Exchange]] = {}
        for exchange in exchanges:
            self._waiting.setdefault(exchange.agent, []).append(exchange)
        for waiting in self._waiting.values():
            waiting.sort(key=lambda exchange: exchange.sequence)

    @asynccontextmanager
    async def open(self, outgoing: Outgoing) -> AsyncIterator[Reply]:
        exchange = self._take(outgoing)
        if exchange.ended == "upstream" and exchange.status != 200:
            raise Refusal(
                Kind(exchange.kind or Kind.UPSTREAM.value),
                exchange.problem or "",
                status=exchange.status,
                body=b"".join(piece.content for piece in exchange.pieces),
                retry_after_s=exchange.retry_after_s,
            )
        chunks = self._chunks(exchange)
        async with aclosing(chunks):
            yield Reply(status=exchange.status, content_type=exchange.content_type, chunks=chunks)

    async def _chunks(self, exchange: Exchange) -> Any:
        loop = asyncio.get_running_loop()
        began = loop.time()
        for piece in exchange.pieces:
            if self._pace > 0:
                await asyncio.sleep(max(0.0, began + piece.at_ms / 1000 * self._pace - loop.time()))
            yield piece.content
        if exchange.ended == "upstream":
            raise Refusal(Kind(exchange.kind or Kind.UPSTREAM.value), exchange.problem or "")
        if exchange.ended == "cut":  # the agent hung up then, so it must hang up now as well
            await asyncio.sleep(3600)

    def _take(self, outgoing: Outgoing) -> Exchange:
        prepared = outgoing.prepared
        request = _without(prepared.body, (outgoing.token,))
        mark = fingerprint(prepared.call.operation.value, prepared.model, request)
        waiting = self._waiting.get(outgoing.agent, [])
        for index, exchange in enumerate(waiting):
            if exchange.fingerprint == mark:
                return waiting.pop(index)
        if not waiting:
            raise Refusal(
                Kind.INVALID, f"massgend: the record holds no further call of {outgoing.agent}: the replay ends here"
            )
        expected = waiting[0]
        difference = first_difference(expected.request, request)
        raise Refusal(
            Kind.INVALID,
            f"massgend: the replay does not fit: call {expected.sequence} of {outgoing.agent} was "
            f"{expected.operation} of {expected.model}, and differs at {difference}",
        )


def load_replay(path: Path, *, pace: float = 1.0) -> Replay:
    """Raises RecordError. A last line that was cut off by a crash is left out."""
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise RecordError(f"the record {path} cannot be read: {error.strerror}") from None
    try:
        head = RecordHead.model_validate_json(lines[0])
    except ValidationError:
        raise RecordError(f"{path} is not a record of massgend, version {VERSION}") from None
    exchanges = []
    for number, line in enumerate(lines[1:], start=2):
        if not line:
            continue
        try:
            exchanges.append(Exchange.model_validate_json(line))
        except ValidationError:
            if number == len(lines):
                continue
            raise RecordError(f"{path}, line {number}, is not a call") from None
    return Replay(exchanges, head=head, pace=pace)
