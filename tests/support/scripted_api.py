"""A small real HTTP server on a unix socket that answers as scripted: for clients of the API, without a daemon."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from fastapi.sse import KEEPALIVE_COMMENT


@dataclass(frozen=True, kw_only=True)
class Reply:
    """`chunks` are sent one after the other as they come; then the connection is closed. `cut`: in the middle."""

    status: int = 200
    body: Any = None
    content_type: str = "application/json"
    chunks: Iterator[bytes] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: bool = False


@dataclass(frozen=True, kw_only=True)
class Asked:
    method: str
    path: str
    headers: Mapping[str, str]
    body: Any


KEEPALIVE = KEEPALIVE_COMMENT
"""What the daemon sends on a stream when nothing has happened for a while: the very bytes."""


class ScriptedApi:
    """`answer` decides each reply; `asked` holds every request, oldest first."""

    def __init__(self, socket: Path, answer: Callable[[Asked], Reply]) -> None:
        self.socket = socket
        self.answer = answer
        self.asked: list[Asked] = []


@contextmanager
def scripted_api(socket: Path, answer: Callable[[Asked], Reply]) -> Iterator[ScriptedApi]:
    """Serves until the block ends."""
    api = ScriptedApi(socket, answer)
    with _Server(str(socket), _handler(api)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield api
        finally:
            server.shutdown()
            thread.join()


def problem(status: int, code: str, detail: str) -> Reply:
    body = {"title": "No", "status": status, "detail": detail, "code": code}
    return Reply(status=status, body=body, content_type="application/problem+json")


def sse(kind: str, content: Mapping[str, Any], *, id: str | None = None) -> bytes:
    number = f"id: {id}\n" if id is not None else ""
    return f"{number}event: {kind}\ndata: {json.dumps(content)}\n\n".encode()


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    block_on_close = False

    def get_request(self) -> tuple[Any, Any]:
        connection, _ = super().get_request()
        return connection, ("unix", 0)


def _handler(api: ScriptedApi) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            body = json.loads(raw) if raw else None
            asked = Asked(method=self.command, path=self.path, headers=dict(self.headers.items()), body=body)
            api.asked.append(asked)
            self._send(api.answer(asked))

        do_GET = do_POST = do_PUT = _serve  # noqa: N815 - the names that the base class calls

        def _send(self, reply: Reply) -> None:
            self.close_connection = True
            content = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
            self.send_response(reply.status)
            self.send_header("Content-Type", reply.content_type)
            self.send_header("Connection", "close")
            for name, value in reply.headers.items():
                self.send_header(name, value)
            if reply.chunks is None:
                self.send_header("Content-Length", str(len(content) + (100 if reply.cut else 0)))
                self.end_headers()
                self.wfile.write(content)
                return
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for chunk in reply.chunks:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
                self.wfile.flush()
            if not reply.cut:
                self.wfile.write(b"0\r\n\r\n")

        def log_message(self, *_: object) -> None:
            """Quiet."""

    return Handler
