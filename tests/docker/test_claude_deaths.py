"""Whatever dies or goes wrong under the real Claude Code: its turn ends in bounded time, with a reason, and alone."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

import docker
import pytest

from massgend.agents.agent import OutcomeKind
from massgend.agents.claude_code_options import Patience
from sandboxes.docker_provider import DockerProvider
from sandboxes.errors import SandboxGone
from sandboxes.sandbox import Limits
from tests.support.claude_turn import ClaudeBench, KeepingDesk, context, task_with
from tests.support.sandbox_engine import bash, endpoint, processes_in

pytestmark = [pytest.mark.anyio, pytest.mark.docker]

ROOT = Path(__file__).parent.parent.parent
WORKING = task_with("steps: [{call: Bash, with: {command: 'sleep 301 & sleep 302'}}]")
SHORT = Patience(silence_s=3)


@pytest.fixture
def bench(folder: Path, provider: DockerProvider, instance: str) -> ClaudeBench:
    return ClaudeBench(folder=folder, provider=provider, instance=instance)


def agents_processes(container: str) -> list[str]:
    return [line for line in processes_in(container) if "claude" in line or "sleep 30" in line]


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        ("{error: 401, message: no such key}", "the model API answered 401: "),
        ("{error: 529, message: too busy}", "the model API answered 529: "),
        ("{error: 400, message: the budget is used up}", "the model API answered 400: "),
        ("{fault: garbage}", "API Error: "),
        ("{say: some words, fault: cut midway}", "API Error: "),
        ("{fault: hang}", "the model sent nothing for 3 s"),
        ("{say: some words, fault: hang midway}", "the model sent nothing for 3 s"),
        ("{say: x, big_bytes: 20000000}", "the talk with Claude Code broke: the CLI sent a line of more than 16 MiB"),
    ],
)
async def test_a_model_that_fails_fails_the_turn_with_its_reason(bench: ClaudeBench, step: str, reason: str) -> None:
    desk = KeepingDesk()
    async with bench.model(), bench.sandbox() as sandbox:
        async with asyncio.timeout(60):
            outcome = await bench.turn(sandbox, desk, context(task_with(f"steps: [{step}]")), patience=SHORT)
        assert not agents_processes(sandbox.name)

    assert outcome.kind is OutcomeKind.FAILED
    assert outcome.reason.startswith(reason), outcome.reason


async def test_the_providers_wait_is_passed_on(bench: ClaudeBench) -> None:
    task = task_with("steps: [{error: 429, retry_after_s: 2, message: slow down}]")
    async with bench.model(), bench.sandbox() as sandbox:
        outcome = await bench.turn(sandbox, KeepingDesk(), context(task))

    assert outcome.reason.startswith("the model API answered 429: ")
    assert outcome.retry_after_s == pytest.approx(2, abs=0.5)


async def test_a_killed_cli_fails_the_turn(bench: ClaudeBench) -> None:
    desk = KeepingDesk()
    async with bench.model(), bench.sandbox() as sandbox:
        turn = asyncio.create_task(bench.turn(sandbox, desk, context(WORKING)))
        await desk.wait_shown("> Bash")
        await bash(sandbox, "pkill -KILL -x claude")
        async with asyncio.timeout(15):
            outcome = await turn
        assert not agents_processes(sandbox.name)

    assert (outcome.kind, outcome.reason) == (OutcomeKind.FAILED, "Claude Code was killed")


async def test_a_killed_container_is_told_as_such(bench: ClaudeBench) -> None:
    desk = KeepingDesk()
    async with bench.model(), bench.sandbox() as sandbox:
        turn = asyncio.create_task(bench.turn(sandbox, desk, context(WORKING)))
        await desk.wait_shown("> Bash")
        client = docker.DockerClient(base_url=endpoint())
        try:
            client.containers.get(sandbox.name).kill()
        finally:
            client.close()
        with pytest.raises(SandboxGone):
            async with asyncio.timeout(15):
                await turn


async def test_too_little_memory_is_named(bench: ClaudeBench) -> None:
    async with bench.model(), bench.sandbox(limits=Limits(memory_bytes=96 * 1024**2)) as sandbox:
        async with asyncio.timeout(90):
            outcome = await bench.turn(sandbox, KeepingDesk(), context(WORKING))

    assert outcome.reason == "Claude Code ran out of memory (sandbox.memory)"


async def test_when_the_daemon_is_killed_nothing_of_the_agent_runs_five_seconds_later(
    bench: ClaudeBench, instance: str
) -> None:
    environment = {"PATH": os.environ["PATH"], "DOCKER_HOST": endpoint(), "HOME": str(bench.folder)}
    holder = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.support.claude_holder", str(bench.folder), instance),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
        env=environment,
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    holder.stdin.write(WORKING.encode())
    holder.stdin.close()
    name = (await holder.stdout.readline()).decode().strip()
    await asyncio.sleep(0.5)
    assert agents_processes(name)
    holder.kill()
    await holder.wait()
    end_by = time.monotonic() + 5
    left = agents_processes(name)
    for _ in range(50):
        if not left or time.monotonic() > end_by:
            break
        await asyncio.sleep(0.1)
        left = agents_processes(name)

    assert left == []
