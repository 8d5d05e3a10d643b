"""Every end of a talk with Claude Code is told in bounded time, with its reason; a double plays the CLI."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path, PurePosixPath

import pytest

from massgend.agents.agent import AgentTurn, OutcomeKind, TurnOutcome
from massgend.agents.claude_code import ClaudeCodeAgent
from massgend.agents.claude_code_options import Patience
from massgend.domain.task import AgentSpec
from sandboxes.errors import SandboxGone
from sandboxes.fake import FakeProvider, FakeSandbox
from sandboxes.sandbox import BindMount
from tests.support import claude_double
from tests.support.claude_turn import KeepingDesk, context
from tests.support.sandbox_engine import make_folder, make_spec

pytestmark = pytest.mark.anyio

SPEC = AgentSpec(name="ada", kind="claude-code")
PATIENCE = {
    "never starts": Patience(start_s=1.5),
    "says nothing more": Patience(start_s=30, silence_s=0.5, linger_s=0.3),
    "runs a tool for a second": Patience(start_s=30, silence_s=0.5, linger_s=0.3),
}
"""Short where the wait itself is the subject; long elsewhere, so that a busy machine changes nothing."""

SESSION = "11111111-2222-4333-8444-555555555555"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[FakeSandbox]:
    folder = tmp_path / "cli"
    folder.mkdir()
    shutil.copy(claude_double.__file__, folder / "claude")
    (folder / "claude").chmod(0o755)
    (tmp_path / "gateway").mkdir()
    (tmp_path / "gateway" / "token").write_text("t")
    mount = BindMount(source=folder, target=PurePosixPath("/usr/local/bin"), read_only=True)
    home = BindMount(source=make_folder(tmp_path / "home"), target=PurePosixPath("/home/agent"))
    started = await FakeProvider().start(make_spec("i", tmp_path, mount, home))
    assert isinstance(started, FakeSandbox)
    yield started
    await started.remove()


async def play(sandbox: FakeSandbox, tmp_path: Path, part: str, desk: KeepingDesk | None = None) -> TurnOutcome:
    (tmp_path / "cli" / "part").write_text(part)
    agent = ClaudeCodeAgent(patience=PATIENCE.get(part, Patience(start_s=30, silence_s=30, linger_s=0.3)))
    turn = AgentTurn(spec=SPEC, context=context("t"), gateway=tmp_path / "gateway", peers_writable=True)
    return await agent.take_turn(turn, sandbox, desk or KeepingDesk())


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        ("never starts", "Claude Code did not start within 1.5 s"),
        ("refuses to initialise", "the talk with Claude Code broke: no such mode"),
        ("says nothing more", "the model sent nothing for 0.5 s"),
        ("ends without a result", "Claude Code ended in the middle of its turn"),
        ("ends with an error", "Claude Code ended with exit code 3: no space left on device"),
        ("is killed", "Claude Code was killed"),
        ("sends a line of 20 MB", "the talk with Claude Code broke: the CLI sent a line of more than 16 MiB"),
        ("tells an API error as a success", "the model API answered 529: API Error: 529 overloaded"),
    ],
)
async def test_a_failure_is_told_in_time_with_its_reason(
    sandbox: FakeSandbox, tmp_path: Path, part: str, reason: str
) -> None:
    began = time.monotonic()
    outcome = await play(sandbox, tmp_path, part)

    assert outcome == TurnOutcome(kind=OutcomeKind.FAILED, reason=reason)
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("part", ["sends garbage", "sends an unknown message"])
async def test_what_is_no_message_fails_the_turn(sandbox: FakeSandbox, tmp_path: Path, part: str) -> None:
    outcome = await play(sandbox, tmp_path, part)

    assert outcome.kind is OutcomeKind.FAILED
    assert outcome.reason.startswith("the talk with Claude Code broke: ")


async def test_out_of_memory_is_told_apart_from_a_kill(sandbox: FakeSandbox, tmp_path: Path) -> None:
    sandbox.out_of_memory = True

    outcome = await play(sandbox, tmp_path, "is killed")

    assert outcome.reason == "Claude Code ran out of memory (sandbox.memory)"


async def test_a_wait_that_the_provider_asked_for_is_passed_on(sandbox: FakeSandbox, tmp_path: Path) -> None:
    assert (await play(sandbox, tmp_path, "is told to wait")).retry_after_s == 42


async def test_a_tool_may_run_longer_than_the_model_may_be_silent(sandbox: FakeSandbox, tmp_path: Path) -> None:
    outcome = await play(sandbox, tmp_path, "runs a tool for a second")

    assert outcome == TurnOutcome(kind=OutcomeKind.UNDECIDED, reason="it ended its turn without a decision")


async def test_stray_output_does_not_disturb(sandbox: FakeSandbox, tmp_path: Path) -> None:
    assert (await play(sandbox, tmp_path, "mixes in other output")).kind is OutcomeKind.UNDECIDED


async def test_used_up_steps_leave_the_turn_undecided(sandbox: FakeSandbox, tmp_path: Path) -> None:
    outcome = await play(sandbox, tmp_path, "uses up its steps")

    assert outcome == TurnOutcome(kind=OutcomeKind.UNDECIDED, reason="it used all 5 steps (max_turns)")


async def test_a_sandbox_that_goes_away_is_the_callers_to_know(sandbox: FakeSandbox, tmp_path: Path) -> None:
    desk = KeepingDesk()
    turn = asyncio.create_task(play(sandbox, tmp_path, "runs a tool for ten seconds", desk))
    await desk.wait_shown("> Bash")
    sandbox.vanish()

    with pytest.raises(SandboxGone):
        await turn


async def test_a_decision_taken_elsewhere_ends_the_talk_soon(sandbox: FakeSandbox, tmp_path: Path) -> None:
    desk = KeepingDesk()
    turn = asyncio.create_task(play(sandbox, tmp_path, "runs a tool for ten seconds", desk))
    await desk.wait_shown("> Bash")
    desk.taken.set()

    assert (await turn).kind is OutcomeKind.DECIDED


async def test_a_session_that_is_refused_is_replaced_by_a_new_one(sandbox: FakeSandbox, tmp_path: Path) -> None:
    sessions = tmp_path / "home" / ".claude" / "projects" / "-workspace"
    sessions.mkdir(parents=True)
    (sessions / f"{SESSION}.jsonl").write_text("{}")

    assert (await play(sandbox, tmp_path, "refuses the session")).kind is OutcomeKind.UNDECIDED


async def test_a_cancelled_turn_ends_the_cli_at_once(sandbox: FakeSandbox, tmp_path: Path) -> None:
    desk = KeepingDesk()
    turn = asyncio.create_task(play(sandbox, tmp_path, "runs a tool for ten seconds", desk))
    await desk.wait_shown("> Bash")
    began = time.monotonic()
    turn.cancel()

    with pytest.raises(asyncio.CancelledError):
        await turn
    assert time.monotonic() - began < 6
