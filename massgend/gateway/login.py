"""An OAuth login of the daemon's own: its access token, refreshed before it ends or when it was refused.

The daemon alone refreshes (RFC 6749, section 6): a provider that gives a new refresh token each time takes the old one
for stolen when two use it. So two daemons take turns by a lock, and a new token lies on the disk before it is used.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import aiohttp
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from massgend.gateway.private_files import KeysError, read_private, replace_private
from massgend.gateway.secret import Secret

REFRESH_BEFORE_S = 300.0
"""A call that begins now may go on for minutes, but its token is looked at only when it begins."""
REFRESH_TIMEOUT_S = 30.0
LOCK_TIMEOUT_S = 60.0
_MAX_ANSWER = 64 * 1024
_ERROR_CODE = re.compile(r"[a-z_]{1,60}")


def _check_token_url(url: str) -> str:
    if re.fullmatch(r"https://[^\s/?#@]+/[^\s#]*|http://(127\.0\.0\.1|localhost|\[::1\])(:\d+)?/[^\s#]*", url) is None:
        raise ValueError("write https://host/path (http:// only for this machine)")
    return url


class _Login(BaseModel):
    """The login's file. Other fields that stand in it are kept. `expires_at`: seconds since 1970."""

    model_config = ConfigDict(extra="allow", frozen=True, hide_input_in_errors=True)

    access_token: str = Field(repr=False)
    refresh_token: str = Field(repr=False, min_length=1)
    expires_at: float | None = None
    token_url: Annotated[str, AfterValidator(_check_token_url)]
    client_id: str = Field(min_length=1)
    client_secret: str | None = Field(default=None, repr=False)


class _Answer(BaseModel):
    """What the token endpoint gives. A refresh token that is not renewed stays good."""

    model_config = ConfigDict(extra="ignore", frozen=True, hide_input_in_errors=True)

    access_token: str = Field(repr=False, min_length=1)
    refresh_token: str | None = Field(default=None, repr=False)
    expires_in: float | None = Field(default=None, gt=0)


class Login:
    """One login file (mode 0600). `now`: seconds since 1970; `proxy`: an HTTP proxy of the host's."""

    def __init__(self, path: Path, *, proxy: str | None = None, now: Callable[[], float] = time.time) -> None:
        self.path = path
        self._proxy = proxy
        self._now = now
        self._refreshing: asyncio.Task[Secret] | None = None

    async def access_token(self, *, refused: Secret | None = None) -> Secret:
        """A token that is good now; not `refused`, which the provider has not taken. Raises KeysError.

        However many ask, one refresh is under way, and it goes to its end also when all who asked are gone: the answer
        may hold the only refresh token that is still good.
        """
        login = await asyncio.to_thread(self._read)
        if not self._ends_soon(login) and not _is(login, refused):
            return self._secret(login)
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._refresh(refused), name=f"refresh {self.path.name}")
            self._refreshing.add_done_callback(_look_at)
        return await asyncio.shield(self._refreshing)

    async def settle(self) -> None:
        """Until no refresh is under way. Bounded."""
        if self._refreshing is not None and not self._refreshing.done():
            await asyncio.wait({self._refreshing})

    async def _refresh(self, refused: Secret | None) -> Secret:
        lock = _Lock(self.path)
        await asyncio.to_thread(lock.take)
        try:
            login = await asyncio.to_thread(self._read)
            if not self._ends_soon(login) and not _is(login, refused):
                return self._secret(login)  # another daemon did it
            try:
                answer = await self._ask(login)
            except _NotNow as trouble:
                if login.expires_at is not None and self._now() < login.expires_at and not _is(login, refused):
                    return self._secret(login)
                raise KeysError(f"the login {self.path} could not be refreshed: {trouble}") from None
            renewed = login.model_copy(
                update={
                    "access_token": answer.access_token,
                    "refresh_token": answer.refresh_token or login.refresh_token,
                    "expires_at": None if answer.expires_in is None else self._now() + answer.expires_in,
                }
            )
            try:
                await asyncio.to_thread(replace_private, self.path, renewed.model_dump_json(indent=2).encode() + b"\n")
            except OSError as error:
                raise KeysError(
                    f"the login was refreshed, but {self.path} cannot be written ({error.strerror}): make it writable "
                    "and log in again"
                ) from None
            return self._secret(renewed)
        finally:
            lock.give()

    async def _ask(self, login: _Login) -> _Answer:
        form = {"grant_type": "refresh_token", "refresh_token": login.refresh_token, "client_id": login.client_id}
        if login.client_secret:
            form["client_secret"] = login.client_secret
        local = login.token_url.startswith("http://")
        try:
            async with (
                asyncio.timeout(REFRESH_TIMEOUT_S),
                aiohttp.ClientSession(trust_env=False) as session,
                session.post(
                    login.token_url,
                    data=form,
                    headers={"Accept": "application/json"},
                    allow_redirects=False,
                    proxy=None if local else self._proxy,
                ) as response,
            ):
                status, body = response.status, await response.content.read(_MAX_ANSWER)
                while len(body) < _MAX_ANSWER and (more := await response.content.read(_MAX_ANSWER)):
                    body += more
        except TimeoutError:
            raise _NotNow(f"no answer within {REFRESH_TIMEOUT_S:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            why = (error.strerror if isinstance(error, OSError) else None) or type(error).__name__
            raise _NotNow(why) from None
        if status in (400, 401, 403):
            raise KeysError(
                f"the login {self.path} has ended ({_error_code(body)}): log in again and write the new tokens there"
            )
        if status != 200:
            raise _NotNow(f"the token endpoint answered with status {status}")
        try:
            return _Answer.model_validate_json(body)
        except ValidationError:
            raise _NotNow("the token endpoint's answer holds no access token") from None

    def _read(self) -> _Login:
        content = read_private(self.path)
        try:
            return _Login.model_validate_json(content)
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False, include_context=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            raise KeysError(f"{self.path}: {where + ': ' if where else ''}{first['msg']}") from None

    def _ends_soon(self, login: _Login) -> bool:
        return login.expires_at is not None and self._now() >= login.expires_at - REFRESH_BEFORE_S

    def _secret(self, login: _Login) -> Secret:
        try:
            return Secret(login.access_token)
        except ValueError as error:
            raise KeysError(f"{self.path}: {error}") from None


class _NotNow(Exception):
    """The token endpoint cannot be asked at the moment; the login may still be good."""


class _Lock:
    """Of one login, among all processes of this machine. Taken and given on threads: it may take a while."""

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(f".{path.name}.lock")
        self._descriptor: int | None = None

    def take(self) -> None:
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise KeysError(f"{self._path} cannot be made: {error.strerror}") from None
        end = time.monotonic() + LOCK_TIMEOUT_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                if time.monotonic() > end:
                    os.close(descriptor)
                    raise KeysError(f"another massgend has been refreshing {self._path} for a minute") from None
                time.sleep(0.05)
            else:
                self._descriptor = descriptor
                return

    def give(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)


def _is(login: _Login, refused: Secret | None) -> bool:
    return refused is not None and refused.equals(login.access_token)


def _error_code(body: bytes) -> str:
    """The endpoint's own word for it (RFC 6749, section 5.2): a code, never free text."""
    try:
        code = _Refused.model_validate_json(body).error
    except ValidationError:
        return "refused"
    return code if _ERROR_CODE.fullmatch(code) else "refused"


class _Refused(BaseModel):
    model_config = ConfigDict(extra="ignore")

    error: str


def _look_at(task: asyncio.Task[Secret]) -> None:
    """All who waited may be gone: their error was told to nobody, and the next call meets it again."""
    if not task.cancelled():
        task.exception()
