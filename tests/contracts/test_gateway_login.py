"""OAuth logins: the daemon alone refreshes them, once for all who ask, and never loses what it was given."""

from __future__ import annotations

import asyncio
import json
import stat
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from massgend.gateway.key_file import KeysError
from massgend.gateway.key_variables import Scheme
from massgend.gateway.keys import KeyRing
from massgend.gateway.secret import Secret
from tests.support.gateway_world import provider, whole, world

pytestmark = pytest.mark.anyio

MESSAGES = ("/v1/messages", {"model": "claude-x", "messages": []})


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@dataclass(kw_only=True)
class TokenEndpoint:
    """Gives access-1, access-2 ..., and a new refresh token each time: an old one is taken for stolen."""

    url: str = ""
    refresh_token: str = "refresh-0"
    asked: list[dict[str, str]] = field(default_factory=list)
    status: int = 200
    body: dict[str, Any] | None = None
    began: asyncio.Event = field(default_factory=asyncio.Event)
    hold: asyncio.Event = field(default_factory=asyncio.Event)
    expires_in: float = 3600

    async def answer(self, request: web.Request) -> web.Response:
        form = {name: str(value) for name, value in (await request.post()).items()}
        self.asked.append(form)
        self.began.set()
        await self.hold.wait()
        if self.status != 200 or self.body is not None:
            return web.json_response(self.body or {}, status=self.status)
        if form["refresh_token"] != self.refresh_token:
            return web.json_response({"error": "invalid_grant"}, status=400)
        number = len(self.asked)
        self.refresh_token = f"refresh-{number}"
        tokens = {"access_token": f"access-{number}", "refresh_token": self.refresh_token, "token_type": "bearer"}
        return web.json_response({**tokens, "expires_in": self.expires_in})


@asynccontextmanager
async def token_endpoint() -> AsyncIterator[TokenEndpoint]:
    endpoint = TokenEndpoint()
    endpoint.hold.set()
    app = web.Application()
    app.router.add_post("/token", endpoint.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        endpoint.url = f"http://{host}:{port}/token"
        yield endpoint
    finally:
        endpoint.hold.set()
        await runner.cleanup()


def write_login(folder: Path, url: str, *, ends_in_s: float | None, mode: int = 0o600, **more: Any) -> Path:
    """A login file beside a keys.toml that names it."""
    (folder / "keys.toml").write_text('[anthropic]\nlogin = "login.json"\nscheme = "oauth"\n')
    (folder / "keys.toml").chmod(0o600)
    path = folder / "login.json"
    fields = {"access_token": "access-0", "refresh_token": "refresh-0", "token_url": url, "client_id": "massgend"}
    fields |= {"expires_at": None if ends_in_s is None else time.time() + ends_in_s, **more}
    path.write_text(json.dumps(fields))
    path.chmod(mode)
    return path


def ring(folder: Path) -> KeyRing:
    return KeyRing(environment={}, folder=folder, use_keyring=False)


async def token_of(keys: KeyRing) -> Secret | None:
    return (await keys.credential(keys.providers()["anthropic"])).secret


async def test_a_login_that_is_good_is_used_as_it_is(tmp_path: Path) -> None:
    async with token_endpoint() as endpoint:
        path = write_login(tmp_path, endpoint.url, ends_in_s=3600)
        keys = ring(tmp_path)
        credential = await keys.credential(keys.providers()["anthropic"])
        assert (credential.secret, credential.scheme) == (Secret("access-0"), Scheme.OAUTH)
        assert credential.where == f"the login {path}"
        assert endpoint.asked == []


async def test_before_it_ends_it_is_refreshed_once_for_all_and_written_for_its_owner_alone(tmp_path: Path) -> None:
    async with token_endpoint() as endpoint:
        path = write_login(tmp_path, endpoint.url, ends_in_s=60, account="mine")
        keys = ring(tmp_path)
        assert await asyncio.gather(*(token_of(keys) for _ in range(8))) == [Secret("access-1")] * 8
        assert endpoint.asked == [
            {"grant_type": "refresh_token", "refresh_token": "refresh-0", "client_id": "massgend"}
        ]
        stored = json.loads(path.read_text())
        assert (stored["access_token"], stored["refresh_token"], stored["account"]) == ("access-1", "refresh-1", "mine")
        assert stored["expires_at"] > time.time() + 3000
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert await token_of(ring(tmp_path)) == Secret("access-1"), "another daemon reads it"


async def test_a_refused_token_is_refreshed_once_however_many_calls_meet_it() -> None:
    async def picky(request: web.Request, _body: bytes) -> web.StreamResponse:
        good = request.headers["authorization"] == "Bearer access-1"
        return await whole(b"{}", status=200 if good else 401)(request, _body)

    async with token_endpoint() as endpoint, provider(picky) as far:
        async with world(far, environment={"ANTHROPIC_BASE_URL": far.url}) as run, run.turn() as turn:
            write_login(run.keys.path.parent, endpoint.url, ends_in_s=None)

            async def status() -> int:
                async with turn.ask(*MESSAGES) as response:
                    return response.status

            assert await asyncio.gather(*(status() for _ in range(8))) == [200] * 8
        assert len(endpoint.asked) == 1


async def test_two_daemons_on_one_login_refresh_it_once(tmp_path: Path) -> None:
    async with token_endpoint() as endpoint:
        write_login(tmp_path, endpoint.url, ends_in_s=0)
        found = await asyncio.gather(token_of(ring(tmp_path)), token_of(ring(tmp_path)))
        assert found == [Secret("access-1")] * 2
        assert len(endpoint.asked) == 1


async def test_a_refresh_whose_callers_are_gone_is_written_all_the_same(tmp_path: Path) -> None:
    async with token_endpoint() as endpoint:
        path = write_login(tmp_path, endpoint.url, ends_in_s=0)
        endpoint.hold.clear()
        keys = ring(tmp_path)
        caller = asyncio.create_task(token_of(keys))
        await endpoint.began.wait()
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        endpoint.hold.set()
        await keys.settle()
        assert json.loads(path.read_text())["refresh_token"] == "refresh-1"


async def test_a_login_that_has_ended_is_told_without_a_token_and_stays_as_it_is(tmp_path: Path) -> None:
    async with token_endpoint() as endpoint:
        path = write_login(tmp_path, endpoint.url, ends_in_s=0, refresh_token="refresh-stolen")
        before = path.read_bytes()
        with pytest.raises(KeysError, match=r"has ended \(invalid_grant\): log in again") as caught:
            await token_of(ring(tmp_path))
        assert "refresh-stolen" not in str(caught.value)
        assert path.read_bytes() == before


@pytest.mark.parametrize(("ends_in_s", "good"), [(60, True), (-1, False)])
async def test_a_token_endpoint_in_trouble_matters_only_when_the_token_has_ended(
    tmp_path: Path, ends_in_s: float, good: bool
) -> None:
    async with token_endpoint() as endpoint:
        endpoint.status = 503
        write_login(tmp_path, endpoint.url, ends_in_s=ends_in_s)
        if good:
            assert await token_of(ring(tmp_path)) == Secret("access-0")
        else:
            with pytest.raises(KeysError, match="could not be refreshed: the token endpoint answered with status 503"):
                await token_of(ring(tmp_path))
    if not good:
        with pytest.raises(KeysError, match="could not be refreshed"):
            await token_of(ring(tmp_path))


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"mode": 0o644}, "chmod 600"),
        ({"token_url": "http://elsewhere.example/token"}, "token_url: .*https://"),
        ({"refresh_token": ""}, "refresh_token"),
    ],
)
async def test_a_login_file_that_cannot_be_used_is_told(tmp_path: Path, more: dict[str, Any], why: str) -> None:
    write_login(tmp_path, "https://far.example/token", ends_in_s=0, **more)
    with pytest.raises(KeysError, match=why) as caught:
        await token_of(ring(tmp_path))
    assert "access-0" not in str(caught.value)


async def test_a_typed_key_is_tried_where_it_would_be_used(tmp_path: Path) -> None:
    (tmp_path / "keys.toml").write_text('[openai]\nbase_url = "https://proxy.example/v1"\nscheme = "bearer"\n')
    (tmp_path / "keys.toml").chmod(0o600)
    keys = KeyRing(environment={"ANTHROPIC_BASE_URL": "https://own.example"}, folder=tmp_path, use_keyring=False)
    for name, url, scheme in (
        ("anthropic", "https://own.example", Scheme.API_KEY),
        ("openai", "https://proxy.example/v1", Scheme.BEARER),
    ):
        keys.give(name, Secret("typed"))
        credential = await keys.credential(keys.providers()[name])
        assert (credential.base_url, credential.scheme) == (url, scheme)
