"""A process that holds a program in a sandbox until a test kills it: argv is container, endpoint, script."""

from __future__ import annotations

import asyncio
import sys

from sandboxes.docker_engine import DockerEngine
from sandboxes.docker_sandbox import DockerSandbox
from sandboxes.see_through import Cleanups
from tests.support.sandbox_engine import GID, UID


async def hold(container: str, endpoint: str, script: str) -> None:
    engine = DockerEngine(endpoint, threads=2, call_timeout_s=20)
    sandbox = DockerSandbox(
        engine, Cleanups(), name=container, container=container, user=f"{UID}:{GID}", start_label="massgend.start=none"
    )
    async with sandbox.run(["bash", "-c", script], grace_s=0.5) as process:
        async for chunk in process.output():
            sys.stdout.buffer.write(chunk.content)
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    asyncio.run(hold(*sys.argv[1:]))
