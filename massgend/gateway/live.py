"""Calls to the real providers: puts the key in, waits when they say so, and never follows where they point.

Must not read what is said in a successful answer; it only hands the bytes on.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from io import BytesIO
from time import time
from types import TracebackType

import aiohttp
from yarl import URL

from massgend.gateway.key_file import KeysError
from massgend.gateway.key_variables import Scheme
from massgend.gateway.keys import Credential, KeyRing
from massgend.gateway.refusals import Kind, Refusal, is_error_body
from massgend.gateway.secret import Secret, scrub
from massgend.gateway.throttle import Pace, Throttle
from massgend.gateway.upstream import Outgoing, Reply
from massgend.gateway.wires import OAUTH_BETA, Operation, Wire

LATER = (429, 503, 529)
MAX_ERROR_BYTES = 64 * 1024
ERROR_BODY_S = 10.0
LARGE_BODY_BYTES = 512 * 1024
MAX_RETRY_AFTER_S = 3600.0
ANTHROPIC_VERSION = "2023-06-01"
_PASSED_BACK = ("request-id", "x-request-id")
_ID = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
_ANSWERS = ("application/json", "text/event-stream")


@dataclass(frozen=True, kw_only=True)
class Timeouts:
    """Seconds. `first_byte_s`: from the request to the answer's head; `idle_s`: between two chunks of it."""

    connect_s: float = 15.0
    first_byte_s: float = 600.0
    idle_s: float = 300.0


class LiveUpstream:
    """All providers, over the network or a unix socket. Enter it before use. `proxy`: an HTTP proxy of the host's."""

    def __init__(
        self,
        keys: KeyRing,
        *,
        timeouts: Timeouts = Timeouts(),
        pace: Pace | None = None,
        proxy: str | None = None,
        chance: random.Random | None = None,
    ) -> None:
        self._keys = keys
        self._timeouts = timeouts
        self._pace = pace or Pace()
        self._proxy = proxy
        self._chance = chance or random.Random()  # noqa: S311 - spreads retries
        self._throttles: dict[tuple[str, Secret | str | None], Throttle] = {}
        self._sessions: dict[str, aiohttp.ClientSession] = {}
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> LiveUpstream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()
        self._sessions.clear()
        await self._keys.settle()

    @asynccontextmanager
    async def open(self, outgoing: Outgoing) -> AsyncIterator[Reply]:
        """Raises Refusal. A call waits `patience_s` at most for its place and for a provider that said "later"."""
        deadline = asyncio.get_running_loop().time() + self._pace.patience_s
        name = outgoing.prepared.call.provider.name
        outgoing.held.set()
        credential = await self._credential(outgoing)
        async with self._throttle(name, credential).place(deadline):
            response = await self._ask(outgoing, credential, deadline)
            try:
                chunks = self._chunks(response, name)
                async with aclosing(chunks):
                    yield await self._reply(outgoing, credential, response, chunks)
            finally:
                # Only an answer that was read to its end leaves a connection that can be used again.
                if response.content.at_eof():
                    response.release()
                else:
                    response.close()

    async def _credential(self, outgoing: Outgoing) -> Credential:
        try:
            return await self._keys.credential(outgoing.prepared.call.provider)
        except KeysError as error:
            raise Refusal(Kind.NO_KEY, f"massgend: {error}") from None

    def _throttle(self, name: str, credential: Credential) -> Throttle:
        """A key that changes by itself keeps its pace: the account behind it is the same."""
        key = (name, credential.where) if credential.renewable else (name, credential.secret)
        return self._throttles.setdefault(key, Throttle(self._pace, self._chance))

    async def _ask(self, outgoing: Outgoing, credential: Credential, deadline: float) -> aiohttp.ClientResponse:
        """The head of an answer that is not "later", after as many tries as patience allows."""
        loop = asyncio.get_running_loop()
        throttle = self._throttle(outgoing.prepared.call.provider.name, credential)
        renewed = False
        for attempt in range(1, self._pace.attempts + 1):
            if loop.time() + throttle.open_in() > deadline:
                raise Refusal(
                    Kind.RATE,
                    f"massgend: {outgoing.prepared.call.provider.name} asked all agents of this key to wait",
                    retry_after_s=throttle.open_in(),
                )
            await throttle.wait_open()
            outgoing.held.clear()
            response = await self._send(outgoing, credential)
            if response.status == 401 and credential.renewable and credential.secret and not renewed:
                response.close()
                renewed = True
                self._keys.renew(outgoing.prepared.call.provider.name, credential.secret)
                credential = await self._credential(outgoing)
                continue
            if response.status not in LATER:
                throttle.served()
                return response
            outgoing.held.set()
            wait = throttle.hold(_retry_after(response.headers))
            if attempt == self._pace.attempts or loop.time() + wait > deadline:
                raise await self._refused(outgoing, credential, response, retry_after_s=wait)
            response.close()
        raise AssertionError("the last attempt returns or raises")

    async def _send(self, outgoing: Outgoing, credential: Credential) -> aiohttp.ClientResponse:
        """A connection that the provider closed while it lay idle is no fault: one more try for that."""
        for last in (False, True):
            try:
                return await self._send_once(outgoing, credential)
            except TimeoutError:  # first: it is an OSError too
                name = outgoing.prepared.call.provider.name
                raise Refusal(Kind.TIMEOUT, f"massgend: {name} did not answer in time") from None
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
                if last or isinstance(error, aiohttp.ClientConnectorError):
                    raise _unreachable(outgoing, error) from None
            except (aiohttp.ClientError, OSError) as error:
                raise _unreachable(outgoing, error) from None
        raise AssertionError("the last try returns or raises")

    async def _send_once(self, outgoing: Outgoing, credential: Credential) -> aiohttp.ClientResponse:
        call = outgoing.prepared.call
        session, base = self._session(credential.base_url)
        query = f"?{call.query}" if call.query else ""
        own = credential.base_url.startswith(("unix:", "http://127.", "http://localhost", "http://[::1]"))
        async with asyncio.timeout(self._timeouts.first_byte_s):
            return await session.request(
                "GET" if call.operation is Operation.LIST_MODELS else "POST",
                URL(f"{base}{call.path}{query}", encoded=True),
                data=_payload(outgoing.prepared.body),
                headers=_headers(outgoing, credential),
                allow_redirects=False,
                proxy=None if own else self._proxy,
                skip_auto_headers=("User-Agent",),
            )

    def _session(self, base_url: str) -> tuple[aiohttp.ClientSession, str]:
        """A session an upstream socket, and one for the network; with what stands before the path in its URLs."""
        unix = base_url.removeprefix("unix://") if base_url.startswith("unix://") else ""
        if unix not in self._sessions:
            connector = aiohttp.UnixConnector(path=unix, limit=0) if unix else aiohttp.TCPConnector(limit=0)
            session = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._timeouts.connect_s),
                trust_env=False,
            )
            self._sessions[unix] = session
            self._stack.push_async_callback(session.close)
        return self._sessions[unix], "http://upstream" if unix else base_url

    async def _reply(
        self,
        outgoing: Outgoing,
        credential: Credential,
        response: aiohttp.ClientResponse,
        chunks: AsyncIterator[bytes],
    ) -> Reply:
        content_type = response.headers.get("Content-Type", "")
        if response.status != 200:
            raise await self._refused(outgoing, credential, response)
        name = outgoing.prepared.call.provider.name
        kind = content_type.partition(";")[0].strip().lower()
        secret = credential.secret
        if kind not in _ANSWERS:
            raise Refusal(Kind.UPSTREAM, f"massgend: {name} answered with something that is no model's answer")
        ids = {key: response.headers[key] for key in _PASSED_BACK if _ID.fullmatch(response.headers.get(key, ""))}
        return Reply(
            status=200,
            content_type=kind if "utf-8" not in content_type.lower() else f"{kind}; charset=utf-8",
            chunks=chunks,
            headers={key: value for key, value in ids.items() if not (secret and secret.reveal() in value)},
            secrets=(secret,) if secret else (),
        )

    async def _chunks(self, response: aiohttp.ClientResponse, name: str) -> AsyncGenerator[bytes, None]:
        while True:
            try:
                async with asyncio.timeout(self._timeouts.idle_s):
                    chunk = await response.content.readany()
            except TimeoutError:
                raise Refusal(Kind.TIMEOUT, f"massgend: {name} sent nothing for {self._timeouts.idle_s:g} s") from None
            except (aiohttp.ClientError, OSError):
                raise Refusal(Kind.UPSTREAM, f"massgend: {name} broke off in the middle of its answer") from None
            if not chunk:
                return
            yield chunk

    async def _refused(
        self,
        outgoing: Outgoing,
        credential: Credential,
        response: aiohttp.ClientResponse,
        retry_after_s: float | None = None,
    ) -> Refusal:
        """The provider's own error where it is one; a key that was refused is told in our words."""
        wire, name, status = outgoing.prepared.call.provider.wire, outgoing.prepared.call.provider.name, response.status
        if status == 401:
            return Refusal(
                Kind.NO_KEY, f"massgend: {name} refused the key from {credential.where}: check it with massgend setup"
            )
        body = b""
        try:
            async with asyncio.timeout(ERROR_BODY_S):
                body = await response.content.read(MAX_ERROR_BYTES + 1)
                while body and len(body) <= MAX_ERROR_BYTES and (more := await response.content.read(MAX_ERROR_BYTES)):
                    body += more
        except (TimeoutError, aiohttp.ClientError, OSError):
            body = b""
        finally:
            response.close()
        kind = _kind(status)
        message = f"massgend: {name} answered with status {status}"
        secrets = (credential.secret,) if credential.secret else ()
        if status < 400 or len(body) > MAX_ERROR_BYTES or not is_error_body(wire, body):
            return Refusal(kind, message, retry_after_s=retry_after_s)
        return Refusal(kind, message, retry_after_s=retry_after_s, status=status, body=scrub(body, secrets))


def _payload(body: bytes) -> bytes | BytesIO | None:
    """A large body is written piece by piece, so that no other agent waits for it."""
    return BytesIO(body) if len(body) > LARGE_BODY_BYTES else body or None


def _headers(outgoing: Outgoing, credential: Credential) -> dict[str, str]:
    wire = outgoing.prepared.call.provider.wire
    headers = {**outgoing.headers, "accept-encoding": "identity"}
    if outgoing.prepared.body:
        headers["content-type"] = "application/json"
    if wire is Wire.ANTHROPIC:
        headers.setdefault("anthropic-version", ANTHROPIC_VERSION)
    if credential.secret is None:
        return headers
    key = credential.secret.reveal()
    match credential.scheme:
        case Scheme.API_KEY if wire is Wire.ANTHROPIC:
            headers["x-api-key"] = key
        case Scheme.API_KEY if wire is Wire.GEMINI:
            headers["x-goog-api-key"] = key
        case Scheme.OAUTH:
            headers["authorization"] = f"Bearer {key}"
            betas = [beta for beta in headers.get("anthropic-beta", "").split(",") if beta]
            headers["anthropic-beta"] = ",".join(dict.fromkeys([*betas, OAUTH_BETA]))
        case _:
            headers["authorization"] = f"Bearer {key}"
    return headers


def _unreachable(outgoing: Outgoing, error: Exception) -> Refusal:
    """Only the system's own words: a library's message could quote the request."""
    why = (error.strerror if isinstance(error, OSError) else None) or type(error).__name__
    return Refusal(Kind.UPSTREAM, f"massgend: {outgoing.prepared.call.provider.name} cannot be reached: {why}")


def _kind(status: int) -> Kind:
    known = {404: Kind.NOT_SERVED, 403: Kind.FORBIDDEN, 413: Kind.TOO_LARGE, 429: Kind.RATE, 408: Kind.TIMEOUT}
    if status in known:
        return known[status]
    if status in (503, 529):
        return Kind.OVERLOADED
    if status == 504:
        return Kind.TIMEOUT
    return Kind.INVALID if 400 <= status < 500 else Kind.UPSTREAM


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that the provider asks for, bounded; None: it names none that we understand."""
    text = headers.get("retry-after-ms") or headers.get("Retry-After", "")
    try:
        seconds = float(text) / (1000 if "retry-after-ms" in headers else 1)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(text).timestamp() - time()
        except (ValueError, TypeError):
            return None
    return min(MAX_RETRY_AFTER_S, seconds) if seconds >= 0 else 0.0
