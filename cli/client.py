"""The daemon's API, spoken over its unix socket. Answers are the models of massgend.api.schemas."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import httpx
from httpx_sse import SSEError, connect_sse
from pydantic import BaseModel, TypeAdapter, ValidationError

from cli.errors import CliError, DaemonDown, Misuse, Refused
from cli.text import clean
from massgend.api.schemas import (
    Created,
    DoctorLine,
    GcRequest,
    GcView,
    Health,
    KeysOffer,
    KeysView,
    KeyTestView,
    MergeRequest,
    MergeView,
    Problem,
    RunLine,
    RunRequest,
    RunView,
)
from massgend.discovery import socket_address

CALL_TIMEOUT_S = 30.0
LONG_TIMEOUT_S = 600.0
"""For what works on repositories and disks: starting, merging, collecting."""

SILENCE_S = 60.0
"""A stream that says nothing for so long, not even a comment, is opened again."""

LOG_SIZE = "Massgend-Log-Size"
"""Header: the log's whole size in bytes, of which the body is the end."""

Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True, kw_only=True)
class Event:
    """One event of a run's stream. `id`: of the newest event so far that is in the journal, to go on from."""

    type: str
    id: str | None
    content: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class LogTail:
    content: bytes
    size_bytes: int


class Client:
    """One daemon. Calls block; each has a timeout. Raises DaemonDown when nobody answers, Refused when it says no."""

    def __init__(self, socket_path: Path) -> None:
        self.socket = socket_path
        self._opened: httpx.Client | None = None

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._opened is not None:
            self._opened.close()

    @cached_property
    def _address(self) -> str:
        """Once: a long path holds a folder open."""
        return socket_address(self.socket)

    @property
    def _http(self) -> httpx.Client:
        """Made once somebody has answered: only then is the socket's folder sure to be there."""
        if self._opened is None:
            transport = httpx.HTTPTransport(uds=self._address)
            self._opened = httpx.Client(transport=transport, base_url="http://localhost", timeout=CALL_TIMEOUT_S)
        return self._opened

    def health(self, *, timeout_s: float = CALL_TIMEOUT_S) -> Health:
        return self._one(Health, "GET", "/health", timeout_s=timeout_s)

    def create(self, request: RunRequest) -> Created:
        return self._one(Created, "POST", "/runs", body=request, timeout_s=LONG_TIMEOUT_S)

    def runs(self) -> list[RunLine]:
        return self._many(RunLine, "/runs")

    def run(self, run_id: str) -> RunView:
        return self._one(RunView, "GET", f"/runs/{_part(run_id)}")

    def cancel(self, run_id: str) -> RunLine:
        return self._one(RunLine, "POST", f"/runs/{_part(run_id)}/cancel")

    def merge(self, request: MergeRequest) -> MergeView:
        return self._one(MergeView, "POST", "/merges", body=request, timeout_s=LONG_TIMEOUT_S)

    def gc(self, request: GcRequest) -> GcView:
        return self._one(GcView, "POST", "/gc", body=request, timeout_s=LONG_TIMEOUT_S)

    def doctor(self) -> list[DoctorLine]:
        return self._many(DoctorLine, "/doctor", timeout_s=LONG_TIMEOUT_S)

    def keys(self) -> KeysView:
        return self._one(KeysView, "GET", "/keys")

    def offer_keys(self, offer: KeysOffer) -> KeysView:
        return self._one(KeysView, "POST", "/keys", body=offer)

    def give_key(self, provider: str, key: str, *, save: bool) -> KeysView:
        """`key` goes over the daemon's own socket."""
        return self._one(KeysView, "PUT", f"/keys/{_part(provider)}", content={"key": key, "save": save})

    def withdraw_key(self, provider: str) -> KeysView:
        return self._one(KeysView, "DELETE", f"/keys/{_part(provider)}")

    def test_key(self, provider: str) -> KeyTestView:
        return self._one(KeyTestView, "POST", f"/keys/{_part(provider)}/test", timeout_s=LONG_TIMEOUT_S)

    def shutdown(self) -> None:
        self._call("POST", "/shutdown")

    def log(self, run_id: str, agent: str, *, tail_bytes: int) -> LogTail:
        path = f"/runs/{_part(run_id)}/agents/{_part(agent)}/log?tail_bytes={tail_bytes}"
        answer = self._call("GET", path)
        size = answer.headers.get(LOG_SIZE, "")
        return LogTail(content=answer.content, size_bytes=int(size) if size.isdigit() else len(answer.content))

    def events(self, run_id: str, *, after: str | None) -> Iterator[Event]:
        """Events from the one after `after` on, until the daemon ends the stream. Raises DaemonDown when it breaks."""
        headers = {} if after is None else {"Last-Event-ID": after}
        timeout = httpx.Timeout(CALL_TIMEOUT_S, read=SILENCE_S)
        path = f"/runs/{_part(run_id)}/events"
        with self._translated():
            self._knock()
        with self._translated(), connect_sse(self._http, "GET", path, headers=headers, timeout=timeout) as source:
            if source.response.is_error:
                source.response.read()
                raise _refusal(source.response)
            for sent in source.iter_sse():
                if not sent.data:
                    # A keepalive comment: once an id has been seen, the reader makes an empty event of each.
                    continue
                content = json.loads(sent.data)
                if isinstance(content, dict):
                    yield Event(type=sent.event, id=sent.id or None, content=content)

    def _one(
        self,
        model: type[Model],
        method: str,
        path: str,
        *,
        body: BaseModel | None = None,
        content: Mapping[str, object] | None = None,
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> Model:
        answer = self._call(method, path, body=body, content=content, timeout_s=timeout_s)
        with self._translated():
            return model.model_validate_json(answer.content)

    def _many(self, model: type[Model], path: str, *, timeout_s: float = CALL_TIMEOUT_S) -> list[Model]:
        answer = self._call("GET", path, timeout_s=timeout_s)
        with self._translated():
            return TypeAdapter(list[model]).validate_json(answer.content)  # type: ignore[valid-type]

    def _call(
        self,
        method: str,
        path: str,
        *,
        body: BaseModel | None = None,
        content: Mapping[str, object] | None = None,
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> httpx.Response:
        """`content`: a body that no model may print, such as a key."""
        text = body.model_dump_json() if body is not None else json.dumps(content) if content is not None else None
        sent = None if text is None else text.encode()
        headers = {} if sent is None else {"Content-Type": "application/json"}
        with self._translated():
            self._knock()
            answer = self._http.request(method, path, content=sent, headers=headers, timeout=timeout_s)
        if answer.is_error:
            raise _refusal(answer)
        return answer

    def _knock(self) -> None:
        """Is anybody there? Asked apart, because httpx leaves a socket open when a connection is refused."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
            door.settimeout(CALL_TIMEOUT_S)
            door.connect(self._address)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (httpx.ConnectError, OSError):
            raise DaemonDown(f"massgend is not running (nobody answers at {self.socket}): massgend up") from None
        except httpx.TimeoutException:
            raise DaemonDown(f"massgend did not answer in time at {self.socket}: see massgend doctor") from None
        except (httpx.TransportError, SSEError) as error:
            said = clean(str(error)) or type(error).__name__
            raise DaemonDown(f"the connection to massgend broke ({said}): massgend status") from None
        except (ValidationError, json.JSONDecodeError):
            raise CliError(
                "massgend's daemon answers in a way this command does not know, so they are of different versions: "
                "massgend down, then massgend up"
            ) from None


def _part(name: str) -> str:
    """A name as one part of a path; whatever the user typed cannot become another route."""
    from urllib.parse import quote

    if not name.strip():
        raise Misuse("which run? massgend ps lists them")
    quoted = quote(name, safe="")
    return quoted if quoted.strip(".") else "%2E"


def _refusal(answer: httpx.Response) -> Refused:
    try:
        problem = Problem.model_validate_json(answer.content)
    except ValidationError:
        said = clean(answer.text)[:200] or answer.reason_phrase
        return Refused(f"massgend answered {answer.status_code}: {said}", status=answer.status_code)
    detail = "\n".join(clean(line) for line in problem.detail.splitlines()[:4] if line.strip())
    return Refused(detail or clean(problem.title), status=problem.status, code=problem.code)
