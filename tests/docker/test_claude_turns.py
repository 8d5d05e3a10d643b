"""The real Claude Code in real containers, led to its end by the scripted model: decisions, reminders, restarts."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path

import pytest

from massgend.agents.agent import OutcomeKind, TurnOutcome
from massgend.agents.claude_code_options import ClaudeCodeOptions
from massgend.domain.run import NewAnswer, VoteFor
from massgend.scripted.script import SIGN
from sandboxes.docker_provider import DockerProvider
from tests.support.claude_turn import TOKEN, ClaudeBench, KeepingDesk, answer_view, context, task_with
from tests.support.sandbox_engine import make_folder, processes_in

pytestmark = [pytest.mark.anyio, pytest.mark.docker]

DECIDED = TurnOutcome(kind=OutcomeKind.DECIDED)


@pytest.fixture
def bench(folder: Path, provider: DockerProvider, instance: str) -> ClaudeBench:
    return ClaudeBench(folder=folder, provider=provider, instance=instance)


async def test_a_turn_works_in_the_workspace_and_ends_with_an_answer(bench: ClaudeBench) -> None:
    make_folder(bench.folder / "workspace").joinpath("CLAUDE.md").write_text("HOUSE RULE: use tabs.\n")
    desk = KeepingDesk()
    task = task_with("""
        if: "HOUSE RULE: use tabs."
        steps:
          - think: What is wanted?
            say: I write the page.
            call: Write
            with: {file_path: /workspace/index.html, content: "<h1>é</h1>"}
          - call: Bash
            with: {command: "cat index.html; env; id -u; ls -d /peers /var/run/docker.sock; exit 3"}
          - call: new_answer
            with: {summary: The page is there.}
          - call: Write
            with: {file_path: /workspace/late, content: "after the decision"}
        """)
    async with bench.model(), bench.sandbox() as sandbox:
        assert await bench.turn(sandbox, desk, context(task)) == DECIDED

    assert desk.choices == [NewAnswer(summary="The page is there.")]
    assert (bench.folder / "workspace" / "index.html").read_text() == "<h1>é</h1>"
    assert not (bench.folder / "workspace" / "late").exists()
    log = desk.shown.decode()
    assert f"(thinking) {SIGN} What is wanted?\n{SIGN} I write the page.\n> Write: /workspace/index.html\n" in log
    assert "> new_answer: The page is there." in log
    assert TOKEN not in log


async def test_a_refused_decision_comes_back_to_the_model_which_then_votes(bench: ClaudeBench) -> None:
    desk = KeepingDesk(refusals=["No answer is labelled 'jade'. The labels are: opal."])
    task = task_with("""
        answers: {best: "The blue page"}
        steps:
          - call: vote
            with: {label: jade, reason: a guess}
          - call: vote
            with: {label: "{{best}}", reason: "it runs"}
        """)
    async with bench.model(), bench.sandbox() as sandbox:
        outcome = await bench.turn(sandbox, desk, context(task, answer_view("opal", "The blue page.")))

    assert (outcome, desk.choices) == (DECIDED, [VoteFor(label="opal", reason="it runs")])
    assert "! No answer is labelled 'jade'" in desk.shown.decode()


async def test_an_undecided_agent_is_reminded_and_then_let_go(bench: ClaudeBench) -> None:
    desk = KeepingDesk()
    task = task_with("steps: [{say: first}, {say: second}, {say: third}, {say: never}]")
    async with bench.model(), bench.sandbox() as sandbox:
        outcome = await bench.turn(sandbox, desk, context(task, reminders_left=2))

    assert outcome == TurnOutcome(kind=OutcomeKind.UNDECIDED, reason="it ended its turn without a decision")
    assert all(f"{SIGN} {word}" in desk.shown.decode() for word in ("first", "second", "third"))
    assert "never" not in desk.shown.decode()


async def test_a_restart_interrupts_and_goes_on_in_a_new_container_with_the_news(bench: ClaudeBench) -> None:
    before, after = KeepingDesk(), KeepingDesk()
    task = task_with(
        """
        unless: "The blue page"
        steps:
          - say: I begin.
            calls:
              - {call: Bash, with: {command: "echo mine >mine; sleep 300"}}
          - say: It was not interrupted.
        """,
        """
        answers: {best: "The blue page"}
        steps:
          - call: Bash
            with: {command: "test $(cat mine) = mine && cat /run/gateway/token >/dev/null"}
          - call: vote
            with: {label: "{{best}}", reason: the news came}
        """,
    )
    async with bench.model():
        async with bench.sandbox() as sandbox:
            turn = asyncio.create_task(bench.turn(sandbox, before, context(task)))
            await before.wait_shown("> Bash: echo mine")
            await asyncio.sleep(1)
            began = time.monotonic()
            turn.cancel()
            with pytest.raises(asyncio.CancelledError):
                await turn
            assert time.monotonic() - began < 10
            assert not [line for line in processes_in(sandbox.name) if "claude" in line or "sleep 300" in line]
        seen = context("not shown again", answer_view("opal", "The blue page."), turn=2)
        async with bench.sandbox() as sandbox:
            assert await bench.turn(sandbox, after, seen) == DECIDED

    assert after.choices == [VoteFor(label="opal", reason="the news came")]
    sessions = bench.folder / "homes" / "ada" / ".claude" / "projects" / "-workspace"
    assert len(list(sessions.glob("*.jsonl"))) == 1


async def test_a_notice_reaches_the_model_in_its_running_turn(bench: ClaudeBench) -> None:
    desk = KeepingDesk()
    task = task_with("""
        steps:
          - call: Bash
            with: {command: "until [ -e go ]; do sleep 0.1; done; exit 1"}
          - say: Now I know.
            call: new_answer
            with: {summary: done}
        """)
    async with bench.model() as seen, bench.sandbox() as sandbox:
        turn = asyncio.create_task(bench.turn(sandbox, desk, context(task)))
        await desk.wait_shown("> Bash")
        desk.notices.put_nowait("This turn ends in 60 seconds.")
        await asyncio.sleep(0.2)
        make_folder(bench.folder / "workspace").joinpath("go").touch()
        assert await turn == DECIDED

    assert not any("This turn ends in 60 seconds." in body for body in seen[:1])
    assert any("This turn ends in 60 seconds." in body for body in seen[1:])


async def test_the_model_sees_both_decisions_and_no_tool_that_leaves_the_sandbox(bench: ClaudeBench) -> None:
    desk = KeepingDesk()
    task = task_with("steps: [{call: new_answer, with: {summary: x}}]")
    async with bench.model() as seen, bench.sandbox() as sandbox:
        assert await bench.turn(sandbox, desk, context(task)) == DECIDED

    (body,) = seen
    assert '"mcp__massgend__new_answer"' in body
    assert '"mcp__massgend__vote"' in body
    assert '"WebSearch"' not in body
    assert '"ToolSearch"' not in body
    assert len(body) < 80_000


@pytest.mark.parametrize("presents", [False, True])
async def test_tools_with_effects_outside_are_described_until_the_presentation(
    bench: ClaudeBench, presents: bool
) -> None:
    desk = KeepingDesk()
    task = task_with("""
        steps:
          - call: Bash
            with: {command: "deploy now 2>/dev/null; touch deployed"}
          - call: Bash
            with: {command: "touch tested"}
          - call: new_answer
            with: {summary: x}
        """)
    options = ClaudeCodeOptions(outside_effects=("Bash(deploy*)",))
    seen = replace(context(task), presentation=presents)
    async with bench.model(), bench.sandbox() as sandbox:
        assert await bench.turn(sandbox, desk, seen, options=options) == DECIDED

    workspace = bench.folder / "workspace"
    assert ((workspace / "deployed").exists(), (workspace / "tested").exists()) == (presents, True)
    assert ("Bash has effects outside the sandbox" in desk.shown.decode()) is not presents
