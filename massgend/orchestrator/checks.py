"""Checks: commands on one answer's snapshot, in a sandbox of their own (rule 8). Must not judge the results."""

from __future__ import annotations

import asyncio
import time

from massgend.agents.agent import WORKSPACE
from massgend.domain.effects import RunChecks
from massgend.domain.run import Answer, CheckResult, Run
from massgend.domain.task import CheckSpec
from massgend.orchestrator.ports import Ports, owner
from massgend.orchestrator.turn import find_snapshot, remove_for_certain, sandbox_limits, view_mount, writable_views
from sandboxes.errors import SandboxError
from sandboxes.sandbox import Sandbox, SandboxSpec
from snapshots.errors import SnapshotError

MAX_TAIL_CHARS = 4_000
_TAIL_BYTES = 4 * MAX_TAIL_CHARS


async def run_checks(ports: Ports, run: Run, effect: RunChecks) -> tuple[CheckResult, ...]:
    """The results in the task's order. What could not be run counts as not passed, and its tail says why."""
    answer = run.answer(effect.answer)
    name = f"check-{effect.step}"
    try:
        try:
            return await _in_sandbox(ports, run, effect, answer, name)
        finally:
            await ports.store.close_check(run.id, name)
    except (SandboxError, SnapshotError, OSError) as error:
        return tuple(_not_run(check, str(error)) for check in run.task.checks)


async def _in_sandbox(ports: Ports, run: Run, effect: RunChecks, answer: Answer, name: str) -> tuple[CheckResult, ...]:
    snapshot = await find_snapshot(ports, run, answer.id.agent, answer.snapshot.ref)
    view = await ports.store.open_check(snapshot, run=run.id, name=name)
    sandbox = await ports.provider.start(
        SandboxSpec(
            name=f"massgend-{run.id}-{name}",
            owner=owner(ports, run, answer.id.agent, effect.step),
            image=run.task.sandbox.image,
            uid=ports.uid,
            gid=ports.gid,
            mounts=(view_mount(view, WORKSPACE, writable=await writable_views(ports)),),
            env={"HOME": "/tmp", "MASSGEND_CHECK": "1"},  # noqa: S108 - inside the sandbox
            workdir=WORKSPACE,
            limits=sandbox_limits(run),
            runtime=run.task.sandbox.runtime,
        )
    )
    try:
        return tuple([await _run_one(sandbox, check) for check in run.task.checks])
    finally:
        await remove_for_certain(sandbox)


async def _run_one(sandbox: Sandbox, check: CheckSpec) -> CheckResult:
    began = time.monotonic()
    tail = bytearray()
    exit_code: int | None = None
    try:
        async with asyncio.timeout(check.timeout_s), sandbox.run(("bash", "-c", check.run)) as process:
            await process.close_stdin()
            async for chunk in process.output():
                tail += chunk.content
                del tail[:-_TAIL_BYTES]
            exit_code = await process.wait()
    except TimeoutError:
        tail += f"\nstopped after {check.timeout_s:g} s".encode()
    return CheckResult(
        name=check.name,
        required=check.required,
        passed=exit_code == 0,
        exit_code=exit_code,
        duration_s=round(time.monotonic() - began, 3),
        tail=bytes(tail).decode(errors="replace")[-MAX_TAIL_CHARS:],
    )


def _not_run(check: CheckSpec, why: str) -> CheckResult:
    return CheckResult(
        name=check.name,
        required=check.required,
        passed=False,
        exit_code=None,
        duration_s=0.0,
        tail=f"could not be run: {why}"[-MAX_TAIL_CHARS:],
    )
