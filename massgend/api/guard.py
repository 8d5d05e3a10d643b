"""What stands before the routes: limits on requests, and the one form of errors."""

from __future__ import annotations

from fastapi.responses import JSONResponse
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from massgend.api.schemas import Problem

PROBLEM_TYPE = "application/problem+json"


def problem(status: int, code: str, title: str, detail: str) -> Response:
    body = Problem(title=title, status=status, detail=detail, code=code)
    return JSONResponse(body.model_dump(), status_code=status, media_type=PROBLEM_TYPE)


class BodyLimit:
    """Refuses a request that announces a body above `max_bytes`, or does not announce its length."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            length = headers.get("content-length", "0")
            if not length.isdecimal() or int(length) > self._max_bytes or "transfer-encoding" in headers:
                detail = f"A request says its length, and its body has at most {self._max_bytes} bytes."
                await problem(413, "too_large", "Too large", detail)(scope, receive, send)
                return
        await self._app(scope, receive, send)
