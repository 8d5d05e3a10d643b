"""The way into the internet: only listed hosts, only public addresses that were checked, each request counted."""

from __future__ import annotations

# ruff: noqa: SIM117 - a call reads better inside the world that it is made in
import asyncio
import base64
import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from massgend.gateway.egress import EgressLimits, EgressRequest, Resolve
from massgend.gateway.egress_rules import parse_egress
from massgend.gateway.gateway import GatewayRules
from massgend.gateway.turn_gateway import TurnServices
from sandboxes.staging import inside_source
from tests.support.gateway_world import KEY, TOKEN, Turn, World, provider, whole, world

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@dataclass(kw_only=True)
class Host:
    """A host of the internet, really on loopback: says back what it hears, or answers HTTP."""

    port: int
    heard: list[bytes]


@asynccontextmanager
async def host(answer: Callable[[bytes], bytes] = lambda heard: heard) -> AsyncIterator[Host]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while heard := await reader.read(65_536):
            far.heard.append(heard)
            writer.write(answer(heard))
            await writer.drain()
            if b"Connection: close" in heard:
                break
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    far = Host(port=server.sockets[0].getsockname()[1], heard=[])
    async with server:
        yield far


def resolver(*answers: tuple[str, ...]) -> Resolve:
    """Gives the answers one after the other, the last one for ever: as a rebinding name server does."""
    left = list(answers)

    async def resolve(_host: str, _port: int) -> tuple[str, ...]:
        return left.pop(0) if len(left) > 1 else left[0]

    return resolve


@asynccontextmanager
async def egress(
    *entries: str,
    open_port: int | None = None,
    resolve: Resolve | None = None,
    limits: EgressLimits | None = None,
) -> AsyncIterator[tuple[World, Turn]]:
    """`open_port`: this port of loopback passes for a public one."""

    def change(services: TurnServices) -> TurnServices:
        assert services.egress is not None
        changed = replace(services.egress, limits=limits or EgressLimits())
        if resolve is not None:
            changed = replace(changed, resolve=resolve)
        if open_port is not None:
            changed = replace(changed, is_open=lambda address, port: (address, port) == ("127.0.0.1", open_port))
        return replace(services, egress=changed)

    rules = GatewayRules(egress=parse_egress(entries))
    async with provider(whole(b"{}")) as far, world(far, rules=rules) as run, run.turn(change=change) as turn:
        yield run, turn


def basic(token: str = TOKEN) -> str:
    return "Basic " + base64.b64encode(f"massgend:{token}".encode()).decode()


async def say(turn: Turn, text: str, *, authorization: str | None = None) -> tuple[bytes, Connection]:
    """Sends a head, and gives the first line of the reply."""
    reader, writer = await asyncio.open_unix_connection(turn.socket)
    authorization = basic() if authorization is None else authorization
    writer.write(f"{text}\r\nProxy-Authorization: {authorization}\r\n\r\n".encode("latin-1"))
    async with asyncio.timeout(5):
        line = await reader.readline()
    return line, (reader, writer)


Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def told(run: World, count: int = 1) -> list[EgressRequest]:
    async with asyncio.timeout(5):
        while len(run.told.requests) < count:  # noqa: ASYNC110 - what we wait for happens in the gateway
            await asyncio.sleep(0.01)
    return run.told.requests


async def test_a_tunnel_to_a_listed_host_passes_both_ways_and_is_counted() -> None:
    async with host() as far:
        where = f"good.example:{far.port}"
        async with egress(where, open_port=far.port, resolve=resolver(("127.0.0.1",))) as (run, turn):
            line, (reader, writer) = await say(turn, f"CONNECT GOOD.example.:{far.port} HTTP/1.1\r\nHost: x")
            assert line == b"HTTP/1.1 200 Connection established\r\n"
            assert await reader.readline() == b"\r\n"
            writer.write(b"\x16\x03\x01 hello")
            assert await reader.readexactly(9) == b"\x16\x03\x01 hello"
            writer.write_eof()
            assert await reader.read() == b""
            writer.close()
            requests = await told(run)

    assert [(r.agent, r.host, r.port, r.refused, r.bytes_up, r.bytes_down) for r in requests] == [
        ("ada", "good.example", far.port, None, 9, 9)
    ]


async def test_what_a_client_sends_at_once_with_its_connect_is_not_lost() -> None:
    async with host() as far:
        async with egress(f"a.example:{far.port}", open_port=far.port, resolve=resolver(("127.0.0.1",))) as (_, turn):
            reader, writer = await asyncio.open_unix_connection(turn.socket)
            head = f"CONNECT a.example:{far.port} HTTP/1.1\r\nProxy-Authorization: {basic()}\r\n\r\n"
            for byte in head.encode():
                writer.write(bytes([byte]))
                await writer.drain()
            writer.write(b"early")
            await reader.readuntil(b"\r\n\r\n")
            assert await reader.readexactly(5) == b"early"
            writer.close()


async def test_a_plain_request_goes_on_with_its_own_host_and_without_the_token() -> None:
    reply = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi"
    async with host(lambda _: reply) as far:
        where = f"a.example:{far.port}"
        async with egress(where, open_port=far.port, resolve=resolver(("127.0.0.1",))) as (run, turn):
            line, (reader, writer) = await say(
                turn,
                f"GET http://{where}/p?q=1 HTTP/1.1\r\nHost: other.example\r\nConnection: keep-alive\r\nX-Own: 1\r\n"
                f"Proxy-Connection: keep-alive",
            )
            assert line == b"HTTP/1.1 200 OK\r\n"
            assert (await reader.read()).endswith(b"hi")
            writer.close()
            await told(run)

    assert far.heard == [
        f"GET /p?q=1 HTTP/1.1\r\nHost: a.example:{far.port}\r\nConnection: close\r\nX-Own: 1\r\n\r\n".encode()
    ]


@pytest.mark.parametrize("authorization", ["", "Basic", basic("wrong"), "Bearer wrong", basic(TOKEN + "x"), "Basic ü"])
async def test_a_proxy_request_without_the_turns_token_is_refused(authorization: str) -> None:
    async with host() as far:
        where = f"a.example:{far.port}"
        async with egress(where, open_port=far.port, resolve=resolver(("127.0.0.1",))) as (run, turn):
            line, (reader, writer) = await say(turn, f"CONNECT {where} HTTP/1.1", authorization=authorization)
            rest = await reader.read()
            writer.close()

    assert line.startswith(b"HTTP/1.1 407 ")
    assert b'Proxy-Authenticate: Basic realm="massgend"' in rest
    assert far.heard == []
    assert run.told.requests == []


@pytest.mark.parametrize(
    "target",
    [
        "evil.example:443",
        "example.com.evil.example:443",
        "notexample.com:443",
        "example.com:22",
        "example.com:8443",
        "below.example.com:443",
        "wild.example:443",
        "awild.example:443",
        "127.0.0.1:443",
        "2130706433:443",
        "0x7f000001:443",
        "localhost:443",
        "example.com@evil.example:443",
    ],
)
async def test_a_host_that_is_not_listed_is_refused_and_told(target: str) -> None:
    async with egress("example.com", "*.wild.example", resolve=resolver(("93.184.215.14",))) as (run, turn):
        line, (_, writer) = await say(turn, f"CONNECT {target} HTTP/1.1")
        writer.close()
        if "@" in target:
            assert line.startswith(b"HTTP/1.1 400 ")
            return
        requests = await told(run)

    assert line.startswith(b"HTTP/1.1 403 ")
    assert requests[0].refused is not None
    assert "is not on this run's egress list" in requests[0].refused


async def test_nothing_is_allowed_by_default() -> None:
    async with egress(resolve=resolver(("93.184.215.14",))) as (_, turn):
        for target in ("pypi.org:443", "github.com:443", "example.com:80"):
            line, (_, writer) = await say(turn, f"CONNECT {target} HTTP/1.1")
            writer.close()
            assert line.startswith(b"HTTP/1.1 403 ")


@pytest.mark.parametrize(
    "addresses",
    [
        ("127.0.0.1",),
        ("10.1.2.3",),
        ("172.31.255.255",),
        ("192.168.1.1",),
        ("169.254.169.254",),
        ("100.100.100.200",),
        ("168.63.129.16",),
        ("0.0.0.0",),
        ("224.0.0.1",),
        ("255.255.255.255",),
        ("::1",),
        ("::",),
        ("fe80::1",),
        ("fe80::1%eth0",),
        ("fc00::1",),
        ("fd00:ec2::254",),
        ("ff02::1",),
        ("::ffff:127.0.0.1",),
        ("::ffff:93.184.215.14",),
        ("64:ff9b::7f00:1",),
        ("64:ff9b::a9fe:a9fe",),
        ("64:ff9b:1::a9fe:a9fe",),
        ("2002:7f00:1::",),
        ("2002:a9fe:a9fe::1",),
        ("2001:0:1::1",),
        ("2001:db8::1",),
        ("::127.0.0.1",),
        ("not an address",),
        ("93.184.215.14", "127.0.0.1"),
        (),
    ],
)
async def test_a_listed_host_that_leads_inside_is_refused(addresses: tuple[str, ...]) -> None:
    async with egress("good.example", resolve=resolver(addresses)) as (run, turn):
        line, (_, writer) = await say(turn, "CONNECT good.example:443 HTTP/1.1")
        writer.close()
        requests = await told(run)

    assert line.startswith(b"HTTP/1.1 403 ")
    assert requests[0].refused == "good.example has an address that is not public"


async def test_a_name_that_changes_after_the_check_is_not_asked_again() -> None:
    """Rebinding: the first answer is checked and used; the second one would lead to a host inside."""
    async with host(lambda _: b"outside") as outside, host(lambda _: b"inside") as inside:
        answers = resolver(("127.0.0.1",), ("127.0.0.2",))
        async with egress(f"a.example:{outside.port}", open_port=outside.port, resolve=answers) as (_, turn):
            _, (reader, writer) = await say(turn, f"CONNECT a.example:{outside.port} HTTP/1.1")
            await reader.readline()
            writer.write(b"?")
            assert await reader.readexactly(7) == b"outside"
            writer.close()
            line, (_, writer) = await say(turn, f"CONNECT a.example:{outside.port} HTTP/1.1")
            writer.close()

    assert line.startswith(b"HTTP/1.1 403 ")
    assert inside.heard == []


async def test_localhost_resolved_by_the_system_is_refused() -> None:
    async with host() as far, egress(f"localhost.localdomain:{far.port}", f"ip6-localhost.x:{far.port}") as (_, turn):
        line, (_, writer) = await say(turn, f"CONNECT localhost.localdomain:{far.port} HTTP/1.1")
        writer.close()

    assert line[:12] in (b"HTTP/1.1 403", b"HTTP/1.1 502")
    assert far.heard == []


@pytest.mark.parametrize(
    "head",
    [
        "CONNECT example.com HTTP/1.1",
        "CONNECT example.com:0 HTTP/1.1",
        "CONNECT example.com:99999 HTTP/1.1",
        "CONNECT example.com:443: HTTP/1.1",
        "CONNECT [::1]:443 HTTP/1.1",
        "CONNECT exa\x00mple.com:443 HTTP/1.1",
        "CONNECT example.com:443 HTTP/2",
        "CONNECT  example.com:443 HTTP/1.1",
        "GET https://example.com/ HTTP/1.1",
        "GET ftp://example.com/ HTTP/1.1",
        "GET http://user@example.com/ HTTP/1.1",
        "GET http://example.com:80:80/ HTTP/1.1",
        "GET http://example.com/ HTTP/1.1\r\n folded: line",
        "GET http://example.com/ HTTP/1.1\r\nBad Name: x",
        "GET http://example.com/ HTTP/1.1\r\nX: a\nHost: evil",
        "GET http://example.com/\tx HTTP/1.1",
    ],
)
async def test_an_odd_head_is_refused(head: str) -> None:
    async with egress("example.com", resolve=resolver(("93.184.215.14",))) as (run, turn):
        line, (_, writer) = await say(turn, head)
        writer.close()

    assert line.startswith(b"HTTP/1.1 400 ")
    assert run.told.requests == []


async def test_a_head_without_end_is_refused() -> None:
    async with egress("example.com") as (_, turn):
        reader, writer = await asyncio.open_unix_connection(turn.socket)
        writer.write(b"CONNECT example.com:443 HTTP/1.1\r\nX: " + b"a" * 70_000)
        async with asyncio.timeout(5):
            assert (await reader.readline()).startswith(b"HTTP/1.1 431 ")
        writer.close()


async def test_more_tunnels_than_allowed_are_refused() -> None:
    async with host() as far:
        where = f"a.example:{far.port}"
        limits = EgressLimits(tunnels=2)
        async with egress(where, open_port=far.port, resolve=resolver(("127.0.0.1",)), limits=limits) as (_, turn):
            said = [await say(turn, f"CONNECT {where} HTTP/1.1") for _ in range(3)]
            lines = [line[9:12] for line, _ in said]
            for _, (_, writer) in said:
                writer.close()

    assert lines == [b"200", b"200", b"429"]


async def test_a_tunnel_through_which_nothing_passes_is_closed() -> None:
    async with host() as far:
        where = f"a.example:{far.port}"
        limits = EgressLimits(idle_s=0.2)
        async with egress(where, open_port=far.port, resolve=resolver(("127.0.0.1",)), limits=limits) as (_, turn):
            _, (reader, writer) = await say(turn, f"CONNECT {where} HTTP/1.1")
            async with asyncio.timeout(2):
                await reader.read()
            writer.close()


async def test_tunnels_end_with_the_turn() -> None:
    async with host() as far:
        where = f"a.example:{far.port}"
        async with egress(where, open_port=far.port, resolve=resolver(("127.0.0.1",))) as (run, turn):
            _, (reader, writer) = await say(turn, f"CONNECT {where} HTTP/1.1")
            await reader.readline()
        async with asyncio.timeout(1):
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
        writer.close()

    assert len(run.told.requests) == 1


async def test_connections_of_one_turn_are_bounded() -> None:
    async with egress() as (_, turn):
        open_ones: list[Connection] = []
        refused = 0
        for _ in range(300):
            reader, writer = await asyncio.open_unix_connection(turn.socket)
            open_ones.append((reader, writer))
        await asyncio.sleep(0.3)
        for reader, writer in open_ones:
            refused += reader.at_eof() or reader.exception() is not None
            writer.close()

    assert refused == 300 - 256


async def test_a_model_call_after_a_proxy_head_is_not_mixed_up() -> None:
    """A connection is either a proxy connection or the gateway's own: a whole address there is not served."""
    async with egress("example.com", resolve=resolver(("93.184.215.14",))) as (run, turn):
        reader, writer = await asyncio.open_unix_connection(turn.socket)
        head = f"HTTP/1.1\r\nHost: g\r\nx-api-key: {TOKEN}\r\n"
        writer.write(f"GET /v1/models {head}\r\nGET http://example.com/v1/models {head}\r\n".encode())
        writer.write(f"CONNECT example.com:443 {head}\r\n".encode())
        statuses = []
        async with asyncio.timeout(5):
            while len(statuses) < 2 and (line := await reader.readline()):
                if b"HTTP/1.1 " in line:
                    statuses.append(line[line.index(b"HTTP/1.1 ") + 9 :][:3])
        writer.close()

    assert statuses == [b"200", b"404"]
    assert run.told.requests == []


FORWARDER = str(inside_source() / "forwarder.py")
ASK = """
import os, urllib.request, json
print(os.environ["NO_PROXY"], os.environ["https_proxy"] == os.environ["HTTP_PROXY"])
print(urllib.request.urlopen("http://a.example:%d/x").read().decode())
request = urllib.request.Request(
    "http://127.0.0.1:%%s/v1/models" %% os.environ["MASSGEND_PORT"],
    headers={"x-api-key": open(os.environ["MASSGEND_TOKEN_FILE"]).read()},
)
print(urllib.request.urlopen(request).read().decode())
raise SystemExit(7)
"""


async def test_a_program_that_knows_only_tcp_and_proxy_variables_gets_out() -> None:
    reply = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi"
    async with host(lambda _: reply) as far:
        where = f"a.example:{far.port}"
        async with egress(where, open_port=far.port, resolve=resolver(("127.0.0.1",))) as (run, turn):
            code, output = await run_forwarded(turn, sys.executable, "-c", ASK % far.port)

    assert output.decode().split("\n")[:3] == ["localhost,127.0.0.1,::1,gateway True", "hi", "{}"]
    assert code == 7
    assert run.told.requests[0].refused is None
    assert KEY.encode() not in output


async def test_the_forwarder_carries_much_in_both_directions_unchanged() -> None:
    async with host() as far:
        where = f"a.example:{far.port}"
        async with egress(where, open_port=far.port, resolve=resolver(("127.0.0.1",))) as (run, turn):
            script = f"""
import base64, os, socket, threading
token = open(os.environ["MASSGEND_TOKEN_FILE"]).read()
s = socket.create_connection(("127.0.0.1", int(os.environ["MASSGEND_PORT"])))
auth = base64.b64encode(("massgend:" + token).encode()).decode()
s.sendall(("CONNECT {where} HTTP/1.1\\r\\nProxy-Authorization: Basic " + auth + "\\r\\n\\r\\n").encode())
file = s.makefile("rb")
while file.readline() != b"\\r\\n": pass
content = os.urandom(5_000_000)
def send():
    s.sendall(content)
    s.shutdown(socket.SHUT_WR)
threading.Thread(target=send).start()
print(file.read() == content)
"""
            code, output = await run_forwarded(turn, sys.executable, "-c", script)

    assert (code, output) == (0, b"True\n")
    assert run.told.requests[0].bytes_down == 5_000_000


@pytest.mark.parametrize(("program", "code"), [(["no-such-program"], 127), (["sh", "-c", "kill -9 $$"], 137)])
async def test_the_forwarder_ends_as_its_program_ends(program: list[str], code: int) -> None:
    async with egress() as (_, turn):
        assert (await run_forwarded(turn, *program))[0] == code


async def run_forwarded(turn: Turn, *program: str) -> tuple[int | None, bytes]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        FORWARDER,
        "--port",
        "0",
        "--",
        *program,
        env={
            "PATH": os.environ["PATH"],
            "MASSGEND_SOCKET": turn.socket,
            "MASSGEND_TOKEN_FILE": str(Path(turn.folder) / "token"),
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        output, _ = await process.communicate()
    return process.returncode, output


async def test_a_name_server_that_does_not_answer_holds_up_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its agent has four threads that wait; the daemon's own threads and the other agents' look-ups go on."""
    asked, answer, real = [], threading.Event(), socket.getaddrinfo

    def hanging(host: Any, *arguments: Any, **options: Any) -> Any:
        if isinstance(host, str) and host.endswith(".example"):
            asked.append(host)
            if host.startswith("hangs"):
                answer.wait(60)
            raise socket.gaierror(socket.EAI_NONAME, "no such host")
        return real(host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", hanging)
    try:
        async with egress("*.names.example") as (run, turn), run.turn("bob") as other:
            ways = [asyncio.create_task(send(turn, f"hangs{number}.names.example")) for number in range(12)]
            async with asyncio.timeout(30):
                while len(asked) < EgressLimits().look_ups:
                    await asyncio.to_thread(time.sleep, 0.01)
                line, (_, writer) = await say(other, "CONNECT quick.names.example:443 HTTP/1.1")
                writer.close()
            assert line.startswith(b"HTTP/1.1 502"), "it was looked up, and there is no such host"
            assert len([name for name in asked if name.startswith("hangs")]) == EgressLimits().look_ups
            for way in ways:
                (await way).close()
    finally:
        answer.set()


async def send(turn: Turn, host: str) -> asyncio.StreamWriter:
    """A request whose reply nobody waits for."""
    _, writer = await asyncio.open_unix_connection(turn.socket)
    writer.write(f"CONNECT {host}:443 HTTP/1.1\r\nProxy-Authorization: {basic()}\r\n\r\n".encode())
    await writer.drain()
    return writer
