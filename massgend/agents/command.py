"""Agents of kind `command`: any program, run as a bash script in /workspace.

The prompt comes on stdin and in $MASSGEND_TASK_FILE, the context as JSON in $MASSGEND_CONTEXT_FILE, later news in
$MASSGEND_NOTICE_FILE; decisions go out through massgend-answer and massgend-vote. Must not know docker or git.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from pathlib import Path

from massgend.agents.agent import GATEWAY, AgentTurn, Desk, OutcomeKind, TurnOutcome
from massgend.agents.prompt import DecideWith, build_prompt, peer_path
from massgend.domain.context import AnswerView, TurnContext
from massgend.domain.run import CheckResult
from sandboxes.sandbox import Process, Sandbox, Stream

TASK_FILE = "task.md"
CONTEXT_FILE = "context.json"
NOTICE_FILE = "notice.md"
SCRIPT_FILE = "agent.sh"
LINGER_S = 0.5
"""How long a program may go on after its decision was taken, so that it can end by itself."""

END_GRACE_S = 0.1
"""A program that is interrupted was told before (rule 6), and one that has decided has had LINGER_S."""

REMINDER = (
    "You ended without a decision. Call massgend-answer SUMMARY to submit your workspace, "
    "or massgend-vote LABEL --reason TEXT to vote."
)


class CommandAgent:
    """Runs the agent's script until it has decided; an undecided end is answered with reminders (rule 3)."""

    async def take_turn(self, turn: AgentTurn, sandbox: Sandbox, desk: Desk) -> TurnOutcome:
        write_inside(turn.gateway / SCRIPT_FILE, turn.spec.options["run"])
        write_inside(turn.gateway / CONTEXT_FILE, context_json(turn.context))
        write_inside(turn.gateway / NOTICE_FILE, "")
        for reminder in range(turn.context.reminders_left + 1):
            text = build_prompt(
                turn.context,
                peers_writable=turn.peers_writable,
                reminder=REMINDER if reminder else None,
                decide_with=DecideWith.COMMANDS,
            )
            write_inside(turn.gateway / TASK_FILE, text)
            outcome = await self._run_once(turn, sandbox, desk, reminder)
            if outcome.kind is not OutcomeKind.UNDECIDED:
                return outcome
        return TurnOutcome(
            kind=OutcomeKind.UNDECIDED, reason="its program ended without calling massgend-answer or massgend-vote"
        )

    async def _run_once(self, turn: AgentTurn, sandbox: Sandbox, desk: Desk, reminder: int) -> TurnOutcome:
        env = {
            "MASSGEND_TASK_FILE": str(GATEWAY / TASK_FILE),
            "MASSGEND_CONTEXT_FILE": str(GATEWAY / CONTEXT_FILE),
            "MASSGEND_NOTICE_FILE": str(GATEWAY / NOTICE_FILE),
            "MASSGEND_REMINDER": str(reminder),
        }
        argv = turn.command(("bash", str(GATEWAY / SCRIPT_FILE)))
        async with sandbox.run(argv, env=env, stdin_path=GATEWAY / TASK_FILE, grace_s=END_GRACE_S) as process:
            exit_code, last_error = await _follow(process, turn, desk)
        if desk.decided:
            return TurnOutcome(kind=OutcomeKind.DECIDED)
        if exit_code in (0, None):
            return TurnOutcome(kind=OutcomeKind.UNDECIDED)
        state = await sandbox.describe()
        if state.out_of_memory:
            return TurnOutcome(kind=OutcomeKind.FAILED, reason="its program ran out of memory (sandbox.memory)")
        why = f": {last_error}" if last_error else ""
        return TurnOutcome(kind=OutcomeKind.FAILED, reason=f"its program ended with exit code {exit_code}{why}")


async def _follow(process: Process, turn: AgentTurn, desk: Desk) -> tuple[int | None, str]:
    """The program's exit code (None: it was left running after its decision) and its last line on stderr."""
    last_error = b""

    async def drain() -> int:
        nonlocal last_error
        async for chunk in process.output():
            desk.show(chunk)
            if chunk.stream is Stream.STDERR:
                last_error = (last_error + chunk.content)[-2_000:]
        return await process.wait()

    async def tell() -> None:
        while True:
            text = await desk.next_notice()
            write_inside(turn.gateway / NOTICE_FILE, text + "\n")

    async with asyncio.TaskGroup() as tasks:
        draining = tasks.create_task(drain())
        telling = tasks.create_task(tell())
        deciding = tasks.create_task(desk.wait_decided())
        await asyncio.wait({draining, deciding}, return_when=asyncio.FIRST_COMPLETED)
        if not draining.done():
            await asyncio.wait({draining}, timeout=LINGER_S)
        exit_code = draining.result() if draining.done() else None
        for task in (draining, telling, deciding):
            task.cancel()
    lines = last_error.decode(errors="replace").strip().splitlines()
    return exit_code, lines[-1][:500] if lines else ""


def context_json(context: TurnContext) -> str:
    """The context as programs read it from $MASSGEND_CONTEXT_FILE."""
    return json.dumps(
        {
            "task": context.task,
            "you": context.you,
            "turn": context.turn,
            "answers": [_answer(view) for view in context.answers],
            "answers_left": context.answers_left,
            "seconds_left": int(context.seconds_left),
            "may_vote": context.may_vote,
            "presentation": context.presentation,
            "planning": context.planning,
            "votes": [{"voter": one.voter, "label": one.label, "reason": one.reason} for one in context.votes_cast],
            "notice": context.notice,
        },
        ensure_ascii=False,
        indent=1,
    )


def _answer(view: AnswerView) -> dict[str, object]:
    shown: dict[str, object] = {
        "label": view.label,
        "summary": view.summary,
        "mine": view.mine,
        "path": str(peer_path(view.label)),
        "checks": [_check(check) for check in view.checks],
    }
    if view.agent is not None:
        shown["agent"] = view.agent
    if view.votes is not None:
        shown["votes"] = view.votes
    return shown


def _check(check: CheckResult) -> dict[str, object]:
    return asdict(check)


def write_inside(path: Path, text: str) -> None:
    """Write a file of ours that the sandbox reads; replaced at once, so that it is never seen half."""
    new = path.with_name(f".{path.name}.new")
    new.write_text(text, encoding="utf-8", errors="surrogateescape")
    new.chmod(0o644)
    new.replace(path)
