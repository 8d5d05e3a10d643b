"""Runs a turn in a process of its own, to be killed in the middle of it: FOLDER INSTANCE, and the task on stdin."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from sandboxes.docker_provider import DockerProvider
from tests.support.claude_turn import ClaudeBench, KeepingDesk, context
from tests.support.sandbox_engine import endpoint


async def main(folder: Path, instance: str) -> None:
    desk = KeepingDesk()
    task = sys.stdin.read()
    async with DockerProvider(endpoint(), inside=folder / "inside") as provider:
        bench = ClaudeBench(folder=folder, provider=provider, instance=instance)
        async with bench.model(), bench.sandbox() as sandbox, asyncio.TaskGroup() as tasks:
            tasks.create_task(bench.turn(sandbox, desk, context(task)))
            await desk.wait_shown("> Bash", within_s=60)
            print(sandbox.name, flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
