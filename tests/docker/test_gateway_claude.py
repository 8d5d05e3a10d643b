"""The real Claude Code in a real sandbox, through the gateway, to the scripted model: nothing it sends is refused."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from massgend.agents.agent import OutcomeKind
from massgend.domain.run import NewAnswer
from massgend.gateway.gateway import GatewayRules
from massgend.gateway.meter import Budget
from massgend.gateway.model_proxy import Ended
from massgend.gateway.recording import Recorder, load_replay
from massgend.scripted.server import serve
from sandboxes.docker_provider import DockerProvider
from tests.support.claude_turn import ClaudeBench, KeepingDesk, context, task_with
from tests.support.gateway_world import KEY, Provider, World, whole, world
from tests.support.sandbox_engine import UID, bash, endpoint, make_folder

pytestmark = [pytest.mark.anyio, pytest.mark.docker]

ANSWERS = task_with(
    """
    steps:
    - call: Bash
      with: {command: "echo hello > made.txt; env | sort > env.txt", description: work}
      usage: {in: 1000, out: 50}
    - call: new_answer
      with: {summary: made a file}
      usage: {in: 2000, out: 60}
    """
)


@dataclass(kw_only=True)
class Bench(ClaudeBench):
    """Its gateway is the real one."""

    place: Path

    @property
    def gateway(self) -> Path:
        return self.place


async def take(
    run: World, folder: Path, provider: DockerProvider, instance: str, desk: KeepingDesk, task: str
) -> tuple[OutcomeKind, str, str]:
    """One turn of the agent: its end and reason, and all that could hold a key inside and in the engine."""
    async with run.turn(uid=UID) as turn:
        bench = Bench(folder=folder, provider=provider, instance=instance, place=turn.folder)
        async with bench.sandbox() as sandbox:
            outcome = await bench.turn(sandbox, desk, context(task, reminders_left=0))
            inside = await bash(sandbox, "find /home /workspace /tmp /run -type f -exec cat {} + ; cat /proc/*/environ")
            inspected = await asyncio.to_thread(inspect, sandbox.name)
    return outcome.kind, outcome.reason, inside.stdout + inspected


def inspect(container: str) -> str:
    words = ["docker", "inspect", container]
    return subprocess.run(words, env={"DOCKER_HOST": endpoint()}, capture_output=True, check=True, text=True).stdout


async def test_claude_code_works_through_the_gateway_and_never_sees_the_key(
    folder: Path, provider: DockerProvider, instance: str
) -> None:
    desk = KeepingDesk()
    async with serve(folder / "model.sock"):
        far = Provider(url=f"unix://{folder}/model.sock", answer=whole(b""))
        async with world(far) as run:
            kind, reason, everything = await take(run, folder, provider, instance, desk, ANSWERS)

    assert kind is OutcomeKind.DECIDED, reason
    assert desk.choices == [NewAnswer(summary="made a file")]
    assert KEY not in everything
    assert KEY.encode() not in desk.shown
    assert {call.ended for call in run.told.calls} <= {Ended.COMPLETE, Ended.CLIENT_GONE}
    assert [call.problem for call in run.told.calls if call.problem] == []
    assert run.run.ledger.agent("ada").spent.usage.output_tokens >= 110


async def test_claude_code_is_told_when_the_budget_is_spent(
    folder: Path, provider: DockerProvider, instance: str
) -> None:
    desk = KeepingDesk()
    async with serve(folder / "model.sock"):
        far = Provider(url=f"unix://{folder}/model.sock", answer=whole(b""))
        async with world(far, rules=GatewayRules(budget=Budget(max_tokens=900))) as run:
            kind, reason, _ = await take(run, folder, provider, instance, desk, ANSWERS)

    assert kind is OutcomeKind.FAILED
    assert "the budget of this run is spent" in reason
    assert len(run.told.used) == 1


async def test_a_recorded_turn_of_claude_code_is_replayed_without_a_model(
    folder: Path, provider: DockerProvider, instance: str
) -> None:
    record = folder / "r.jsonl"
    first, second = KeepingDesk(), KeepingDesk()
    async with serve(folder / "model.sock"):
        far = Provider(url=f"unix://{folder}/model.sock", answer=whole(b""))
        async with recorded(far, record) as run:
            await take(run, make_folder(folder / "first"), provider, instance, first, ANSWERS)
    nowhere = Provider(url=f"unix://{folder}/nobody.sock", answer=whole(b""))
    async with world(nowhere, wrap=lambda _: load_replay(record, pace=0), environment={}) as run:
        kind, reason, _ = await take(run, make_folder(folder / "second"), provider, instance, second, ANSWERS)

    assert kind is OutcomeKind.DECIDED, reason
    assert second.choices == first.choices == [NewAnswer(summary="made a file")]
    assert KEY not in record.read_text()


@asynccontextmanager
async def recorded(far: Provider, record: Path) -> AsyncIterator[World]:
    with ExitStack() as stack:
        async with world(far, wrap=lambda live: stack.enter_context(Recorder(live, record))) as run:
            yield run
