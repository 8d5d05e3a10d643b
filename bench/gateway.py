"""What the gateway adds to a streamed model call: to the first byte, and to each chunk. Prints a table.

    python -m bench.gateway [--uvloop] [--litellm PATH/TO/litellm] [--calls N]

A scripted server sends chunks that carry the time at which they were sent (one clock for all processes of a machine);
the client takes the time at which it has them. The server, the gateway and the client are processes of their own.
With --litellm its proxy, from a virtual environment of its own, is measured in the same way on the same server.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

TOKEN = "bench-token-0123456789abcdef"
CHUNKS = 60
EVERY_S = 0.004
STAMP = re.compile(rb'"content": ?"(\d{10,})"')
WAIT_S = 60.0


@dataclass(frozen=True, kw_only=True)
class Way:
    """A way to the scripted server: where it is spoken to, and under which path."""

    name: str
    socket: str | None
    port: int | None
    path: str


@dataclass(kw_only=True)
class Seen:
    first_ms: list[float]
    chunk_ms: list[float]


def serve_model(socket: str, port: int) -> None:
    """The scripted server: OpenAI's chat format, on a unix socket and on TCP."""

    async def chat(request: web.Request) -> web.StreamResponse:
        await request.read()
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for number in range(CHUNKS):
            if number:
                await asyncio.sleep(EVERY_S)
            delta = {"role": "assistant", "content": str(time.monotonic_ns())}
            await response.write(_event({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}))
        await response.write(_event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}))
        usage = {"prompt_tokens": 10, "completion_tokens": CHUNKS, "total_tokens": 10 + CHUNKS}
        await response.write(_event({"choices": [], "usage": usage}))
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response

    async def main() -> None:
        app = web.Application(client_max_size=64 * 1024**2)
        app.router.add_post("/chat/completions", chat)
        app.router.add_post("/v1/chat/completions", chat)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.UnixSite(runner, socket).start()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        await asyncio.Event().wait()

    asyncio.run(main())


def _event(fields: dict[str, object]) -> bytes:
    whole = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "gpt-5", **fields}
    return b"data: " + json.dumps(whole).encode() + b"\n\n"


def serve_gateway(folder: Path, upstream: str, with_uvloop: bool) -> None:
    from massgend.gateway.gateway import GatewayRules, RunGateway
    from massgend.gateway.keys import KeyRing
    from massgend.gateway.live import LiveUpstream
    from massgend.gateway.prices import load_prices
    from massgend.gateway.turn_gateway import open_gateway

    class Quiet:
        def called(self, call: object) -> None: ...

        def reached(self, request: object) -> None: ...

        def used_up(self, agent: str | None, reason: str) -> None: ...

    async def take(_choice: object) -> str | None:
        return None

    async def main() -> None:
        environment = {"OPENAI_API_KEY": "bench-key", "OPENAI_BASE_URL": f"unix://{upstream}"}
        keys = KeyRing(environment=environment, folder=folder, use_keyring=False)
        async with LiveUpstream(keys) as live:
            run = RunGateway(keys=keys, prices=load_prices(), upstream=live, rules=GatewayRules(), listener=Quiet())
            uid, gid = os.geteuid(), os.getegid()
            async with open_gateway(folder, token=TOKEN, uid=uid, gid=gid, take=take, services=run.turn("bench")):
                await asyncio.Event().wait()

    if with_uvloop:
        import uvloop

        uvloop.run(main())
    else:
        asyncio.run(main())


@contextmanager
def litellm(program: str, upstream_port: int, port: int, folder: Path) -> Iterator[None]:
    config = folder / "litellm.yaml"
    config.write_text(
        "model_list:\n- model_name: gpt-5\n  litellm_params:\n    model: openai/gpt-5\n    api_key: bench-key\n"
        f"    api_base: http://127.0.0.1:{upstream_port}/v1\n"
        "general_settings: {master_key: sk-bench-token}\nlitellm_settings: {telemetry: false}\n"
    )
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    with (folder / "litellm.log").open("wb") as log:
        process = subprocess.Popen(
            [program, "--config", str(config), "--host", "127.0.0.1", "--port", str(port)],
            stdout=log,
            stderr=log,
            env=environment,
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait(20)


async def call(way: Way, body: bytes, seen: Seen) -> None:
    """One call on a connection of its own, spoken without a library, so that only the way is measured."""
    if way.socket is not None:
        reader, writer = await asyncio.open_unix_connection(way.socket)
    else:
        reader, writer = await asyncio.open_connection("127.0.0.1", way.port)
    token = TOKEN if way.socket else "sk-bench-token"
    head = (
        f"POST {way.path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    asked = time.monotonic_ns()
    writer.write(head.encode() + body)
    found = 0
    try:
        while piece := await reader.read(65_536):
            now = time.monotonic_ns()
            for match in STAMP.finditer(piece):
                if found == 0:
                    seen.first_ms.append((now - asked) / 1e6)
                else:
                    seen.chunk_ms.append((now - int(match[1])) / 1e6)
                found += 1
    finally:
        writer.close()
    if found != CHUNKS:
        raise SystemExit(f"{way.name}: {found} of {CHUNKS} chunks came")


async def measure(ways: list[Way], calls: int, body: bytes) -> dict[str, Seen]:
    """The ways take turns, so that what else the machine does meets them all."""
    seen = {way.name: Seen(first_ms=[], chunk_ms=[]) for way in ways}
    for way in ways:
        for _ in range(3):
            await call(way, body, Seen(first_ms=[], chunk_ms=[]))
    for _ in range(calls):
        for way in ways:
            await call(way, body, seen[way.name])
    return seen


async def wait_for(way: Way, body: bytes) -> None:
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            await call(way, body, Seen(first_ms=[], chunk_ms=[]))
            return
        except (OSError, SystemExit):
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.2)


def report(seen: dict[str, Seen]) -> None:
    direct = seen["direct"]
    print(f"{'way':<10} {'first byte ms':>22} {'added':>8}   {'a chunk ms':>22} {'added':>8}")
    for name, one in seen.items():
        first, chunk = statistics.median(one.first_ms), statistics.median(one.chunk_ms)
        first_added, chunk_added = (
            first - statistics.median(direct.first_ms),
            chunk - statistics.median(direct.chunk_ms),
        )
        print(
            f"{name:<10} {first:>9.2f} (p95 {_p95(one.first_ms):>6.2f}) {first_added:>8.2f}"
            f"   {chunk:>9.3f} (p95 {_p95(one.chunk_ms):>6.3f}) {chunk_added:>8.3f}"
        )


def _p95(values: list[float]) -> float:
    return statistics.quantiles(values, n=20)[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--uvloop", action="store_true")
    parser.add_argument("--litellm", metavar="PATH")
    parser.add_argument("--calls", type=int, default=30)
    parser.add_argument("--body-kb", type=int, default=60, help="size of the request (Claude Code sends about 54 kB)")
    options = parser.parse_args()
    text = "x" * (options.body_kb * 1024)
    body = json.dumps(
        {
            "model": "gpt-5",
            "stream": True,
            "stream_options": {"include_usage": True},
            "messages": [{"role": "user", "content": text}],
        }
    ).encode()
    folder = Path(tempfile.mkdtemp(prefix="mgb-"))
    (folder / "g").mkdir()
    ports = 18_431, 18_432
    ways = [Way(name="direct", socket=f"{folder}/m.sock", port=None, path="/chat/completions")]
    ways.append(Way(name="massgend", socket=f"{folder}/g/s.sock", port=None, path="/openai/v1/chat/completions"))
    context = multiprocessing.get_context("spawn")
    model = context.Process(target=serve_model, args=(f"{folder}/m.sock", ports[0]), daemon=True)
    gateway = context.Process(
        target=serve_gateway, args=(folder / "g", f"{folder}/m.sock", options.uvloop), daemon=True
    )
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder)
        for process in (model, gateway):
            process.start()
            stack.callback(process.join, 5)
            stack.callback(process.terminate)
        if options.litellm:
            stack.enter_context(litellm(options.litellm, ports[0], ports[1], folder))
            ways.append(Way(name="litellm", socket=None, port=ports[1], path="/v1/chat/completions"))
        for way in ways:
            asyncio.run(wait_for(way, body))
        loop = "uvloop" if options.uvloop else "asyncio"
        print(
            f"{options.calls} calls of {CHUNKS} chunks, request {options.body_kb} kB, {loop}, {sys.version.split()[0]}"
        )
        report(asyncio.run(measure(ways, options.calls, body)))


if __name__ == "__main__":
    main()
