"""The gateway as a real sandbox sees it: models and listed hosts through one socket, nothing else, and no key."""

from __future__ import annotations

# ruff: noqa: SIM117 - a call reads better inside the world that it is made in
import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path, PurePosixPath

import pytest

from massgend.gateway.egress_rules import parse_egress
from massgend.gateway.gateway import GatewayRules
from massgend.gateway.turn_gateway import TurnServices
from sandboxes.docker_provider import DockerProvider
from sandboxes.sandbox import BindMount, Sandbox
from tests.support.gateway_world import KEY, Turn, World, provider, whole, world
from tests.support.sandbox_engine import UID, bash, endpoint, make_spec, run_to_end

pytestmark = [pytest.mark.anyio, pytest.mark.docker]

GATEWAY = PurePosixPath("/run/gateway")
INSIDE = {"MASSGEND_SOCKET": f"{GATEWAY}/s.sock", "MASSGEND_TOKEN_FILE": f"{GATEWAY}/token"}
ONLINE = ("python3", "-I", "/opt/massgend/forwarder.py", "--")
ASK = """
import http.client, socket, sys, json
class Connection(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(sys.argv[1])
connection = Connection("gateway")
token = open(sys.argv[2]).read() if len(sys.argv) < 4 else sys.argv[3]
connection.request("POST", "/v1/messages", json.dumps({"model": "claude-opus-4-5"}), {"x-api-key": token})
reply = connection.getresponse()
print(reply.status, reply.read().decode())
"""


@asynccontextmanager
async def inside(run: World, turn: Turn, boxes: DockerProvider, instance: str, folder: Path) -> AsyncIterator[Sandbox]:
    mount = BindMount(source=turn.folder, target=GATEWAY, read_only=True)
    box = await boxes.start(make_spec(instance, folder, mount, env=INSIDE))
    try:
        yield box
    finally:
        await box.remove()


async def ask(box: Sandbox, *more: str) -> str:
    ended = await run_to_end(box, "python3", "-c", ASK, f"{GATEWAY}/s.sock", f"{GATEWAY}/token", *more)
    return ended.stdout + ended.stderr[-500:]


async def test_a_model_is_reached_and_the_key_is_nowhere_inside(
    provider_of_boxes: DockerProvider, instance: str, folder: Path
) -> None:
    async with provider(whole(b'{"type": "message"}')) as far, world(far) as run, run.turn(uid=UID) as turn:
        async with inside(run, turn, provider_of_boxes, instance, folder) as box:
            assert await ask(box) == '200 {"type": "message"}\n'
            # Searched out here: a search inside would itself carry what it searches for.
            seen = await bash(
                box,
                "cat /proc/*/environ /proc/*/cmdline; find /run /tmp /home /workspace /etc /opt /var -type f "
                "-size -2000k -exec cat {} +",
            )
            inspected = docker("inspect", box.name)

    assert turn.token in seen.stdout, "the search finds what is there"
    assert KEY[-12:] not in seen.stdout
    assert KEY[-12:] not in inspected
    assert turn.token not in inspected
    assert far.asked[0].headers["x-api-key"] == KEY


async def test_other_tokens_and_ended_turns_are_refused_and_other_sockets_are_not_there(
    provider_of_boxes: DockerProvider, instance: str, folder: Path
) -> None:
    async with provider(whole(b"{}")) as far, world(far) as run:
        async with run.turn("bob", token="b" * 40, uid=UID) as other, run.turn(uid=UID) as turn:
            async with inside(run, turn, provider_of_boxes, instance, folder) as box:
                assert (await ask(box, "b" * 40)).startswith("401 ")
                assert (await ask(box, KEY)).startswith("401 ")
                found = await bash(box, "find / -xdev -type s 2>/dev/null; find /run -type s; ls /run/gateway")
                assert sorted(set(found.stdout.split())) == ["/run/gateway/s.sock", "s.sock", "token"]
                assert str(other.folder) not in found.stdout
                written = await bash(box, "rm /run/gateway/s.sock; echo x > /run/gateway/x")
                assert written.code != 0
    assert far.asked == []


async def test_an_ended_turns_socket_answers_nothing_any_more(
    provider_of_boxes: DockerProvider, instance: str, folder: Path
) -> None:
    async with provider(whole(b"{}")) as far, world(far) as run:
        async with run.turn(uid=UID) as turn:
            box = await provider_of_boxes.start(
                make_spec(instance, folder, BindMount(source=turn.folder, target=GATEWAY, read_only=True), env=INSIDE)
            )
            assert (await ask(box)).startswith("200 ")
        assert "200" not in await ask(box, turn.token)
        await box.remove()
    assert len(far.asked) == 1


async def test_listed_hosts_are_reached_through_the_forwarder_and_nothing_else_is(
    provider_of_boxes: DockerProvider, instance: str, folder: Path
) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]

    async def resolve(_host: str, _port: int) -> tuple[str, ...]:
        return ("127.0.0.1",)

    def change(services: TurnServices) -> TurnServices:
        assert services.egress is not None
        opened = replace(services.egress, resolve=resolve, is_open=lambda _, asked: asked == port)
        return replace(services, egress=opened)

    fetch = "import urllib.request, sys; print(urllib.request.urlopen(sys.argv[1], timeout=10).read().decode())"
    rules = GatewayRules(egress=parse_egress([f"good.example:{port}", "inside.example"]))
    async with server, provider(whole(b"{}")) as far, world(far, rules=rules) as run:
        async with run.turn(uid=UID, change=change) as turn:
            async with inside(run, turn, provider_of_boxes, instance, folder) as box:
                good = await run_to_end(box, *ONLINE, "python3", "-c", fetch, f"http://good.example:{port}/")
                bad = [
                    await run_to_end(box, *ONLINE, "python3", "-c", fetch, url)
                    for url in ("http://evil.example/", "http://inside.example/", "https://good.example/")
                ]
                without = await run_to_end(box, "python3", "-c", fetch, f"http://127.0.0.1:{port}/")

    assert good.stdout == "hello\n", good.stderr
    assert all(one.code != 0 and "403" in one.stderr for one in bad), [one.stderr[-300:] for one in bad]
    assert "refused" in without.stderr
    assert [(one.host, one.refused is None) for one in run.told.requests] == [
        ("good.example", True),
        ("evil.example", False),
        ("inside.example", False),
        ("good.example", False),
    ]


async def test_the_forwarder_ends_with_its_sandbox_and_leaves_no_process(
    provider_of_boxes: DockerProvider, instance: str, folder: Path
) -> None:
    async with provider(whole(b"{}")) as far, world(far) as run, run.turn(uid=UID) as turn:
        async with inside(run, turn, provider_of_boxes, instance, folder) as box:
            async with box.run((*ONLINE, "sleep", "1000")):
                await asyncio.sleep(0.5)
            left = await bash(box, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    assert "forwarder" not in left.stdout
    assert "sleep 1000" not in left.stdout


@pytest.fixture
def provider_of_boxes(provider: DockerProvider) -> DockerProvider:
    """The name `provider` is the model's here."""
    return provider


def docker(*words: str) -> str:
    ended = subprocess.run(["docker", *words], env={"DOCKER_HOST": endpoint()}, capture_output=True, check=True)
    said: Mapping[str, object] = json.loads(ended.stdout)[0]
    return json.dumps(said)
