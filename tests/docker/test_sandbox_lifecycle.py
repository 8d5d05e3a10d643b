"""Starts, ends, cancellations and crashes of sandboxes on a real engine: nothing is left, hangs or leaks."""

from __future__ import annotations

import asyncio
import os
import random
import resource
import sys
import threading
import time
from pathlib import Path, PurePosixPath

import anyio
import docker
import pytest

from sandboxes.docker_provider import DockerProvider
from sandboxes.errors import EngineUnreachable, SandboxGone, SandboxRefused
from sandboxes.sandbox import Limits, OverlayMount, Sandbox
from tests.support.sandbox_engine import (
    bash,
    endpoint,
    left_over,
    make_folder,
    make_spec,
    processes_in,
    run_to_end,
)
from tests.support.sandbox_proxy import troubled_engine

pytestmark = [pytest.mark.anyio, pytest.mark.docker]

DAEMONISING = """
(setsid nohup bash -c 'sleep 601 & sleep 602' >/dev/null 2>&1 &)
python3 -c '
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.close(0); os.close(1); os.close(2); time.sleep(603)
    os._exit(0)
'
trap "" TERM HUP INT PIPE
sleep 0.3; echo ready; sleep 604; while :; do sleep 605; done
"""


def agents_processes(container: str) -> list[str]:
    return [line for line in processes_in(container) if " 60" in line or "supervisor.py" in line]


async def until_idle(container: str, *, within_s: float) -> list[str]:
    """What still runs beside PID 1 and its child when the time is over, or as soon as nothing does."""
    for _ in range(int(within_s / 0.1)):
        if not agents_processes(container):
            break
        await anyio.sleep(0.1)
    return agents_processes(container)


def overlay(folder: Path) -> OverlayMount:
    folders = {name: make_folder(folder / name) for name in ("lower", "upper", "work")}
    return OverlayMount(**folders, target=PurePosixPath("/peers/red"))


# --- start


async def test_a_start_cancelled_at_any_moment_leaves_nothing(
    provider: DockerProvider, instance: str, folder: Path
) -> None:
    moments = random.Random(7)
    mount = overlay(folder)
    outcomes = set()
    for _ in range(25):
        task = asyncio.create_task(provider.start(make_spec(instance, folder, mount)))
        await anyio.sleep(moments.uniform(0, 0.3))
        task.cancel()
        try:
            await (await task).remove()
            outcomes.add("started")
        except asyncio.CancelledError:
            outcomes.add("cancelled")
        assert left_over(f"massgend.instance={instance}") == []
    assert "cancelled" in outcomes


async def test_a_start_cancelled_by_a_scope_or_twice_leaves_nothing(
    provider: DockerProvider, instance: str, folder: Path
) -> None:
    mount = overlay(folder)
    for timeout_s in (0.01, 0.03, 0.06, 0.1, 0.15):
        with anyio.move_on_after(timeout_s) as scope:
            started = await provider.start(make_spec(instance, folder, mount))
        if not scope.cancelled_caught:  # a quick engine was faster than the scope
            await started.remove()
        assert left_over(f"massgend.instance={instance}") == []
        task = asyncio.create_task(provider.start(make_spec(instance, folder, mount)))
        await anyio.sleep(min(timeout_s, 0.05))
        task.cancel()
        await anyio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await provider.aclose()
    assert left_over(f"massgend.instance={instance}") == []


async def test_one_hung_call_delays_no_other_and_a_late_container_is_removed(instance: str, folder: Path) -> None:
    async with (
        troubled_engine(endpoint(), folder / "d.sock") as engine,
        DockerProvider(engine.endpoint, inside=folder / "inside", threads=4, call_timeout_s=1.5) as provider,
    ):
        engine.holds = lambda line: "/containers/create" in line and "hung" in line
        hung = asyncio.create_task(provider.start(make_spec(instance, folder, name=f"massgend-{instance}-hung")))
        await engine.held.wait()
        begun = time.monotonic()
        other = await provider.start(make_spec(instance, folder))
        assert time.monotonic() - begun < 1.4
        await other.remove()
        with pytest.raises(EngineUnreachable):
            await hung
        engine.release.set()  # the engine makes it after all, when nobody waits for it any more
        end_by = time.monotonic() + 8
        while left_over(f"massgend.instance={instance}") or time.monotonic() < end_by - 6:
            assert time.monotonic() < end_by, "the late container is still there"
            await anyio.sleep(0.2)


async def test_a_hung_engine_is_told_within_the_timeout(instance: str, folder: Path) -> None:
    async with troubled_engine(endpoint(), folder / "d.sock") as engine:
        engine.holds = lambda line: True
        async with DockerProvider(engine.endpoint, inside=folder / "inside", call_timeout_s=1) as provider:
            begun = time.monotonic()
            check = await provider.check_engine()
            assert check.problem is not None
            assert "does not answer" in check.problem
            with pytest.raises(EngineUnreachable):
                await provider.list_ours(instance)
            assert time.monotonic() - begun < 8
        engine.release.set()


async def test_a_limit_that_the_engine_warns_it_cannot_keep_is_a_refusal(instance: str, folder: Path) -> None:
    async with (
        troubled_engine(endpoint(), folder / "d.sock") as engine,
        DockerProvider(engine.endpoint, inside=folder / "inside") as provider,
    ):
        engine.rewrite = add_warning
        with pytest.raises(SandboxRefused, match="PIDs limit discarded"):
            await provider.start(make_spec(instance, folder, overlay(folder)))
    assert left_over(f"massgend.instance={instance}") == []


def add_warning(content: bytes) -> bytes:
    """The real engine's answer to a creation, with a warning in it."""
    warning = b'"Warnings":["Your kernel does not support PIDs limit capabilities. PIDs limit discarded."]'
    head, end, body = content.partition(b"\r\n\r\n")
    if b'"Warnings":[]' not in body:
        return content
    changed = body.replace(b'"Warnings":[]', warning)
    return head.replace(b"Content-Length: %d" % len(body), b"Content-Length: %d" % len(changed)) + end + changed


async def test_no_engine_is_one_sentence(folder: Path, instance: str) -> None:
    async with DockerProvider(f"unix://{folder}/none.sock", inside=folder / "inside") as provider:
        check = await provider.check_engine()
        assert check.version is None
        assert check.problem is not None
        assert "start it" in check.problem
        with pytest.raises(EngineUnreachable):
            await provider.start(make_spec(instance, folder))


async def test_an_endpoint_that_is_no_unix_socket_is_told(folder: Path, instance: str) -> None:
    async with DockerProvider("tcp://127.0.0.1:2375", inside=folder / "inside") as provider:
        check = await provider.check_engine()
        assert check.problem is not None
        assert "not a unix socket" in check.problem
        with pytest.raises(EngineUnreachable):
            await provider.start(make_spec(instance, folder))


async def test_a_volume_goes_although_its_container_is_gone_already(
    provider: DockerProvider, instance: str, folder: Path
) -> None:
    sandbox = await provider.start(make_spec(instance, folder, overlay(folder)))
    client = docker.APIClient(base_url=endpoint())
    client.remove_container(sandbox.name, force=True)
    client.close()
    assert [one.kind for one in await provider.list_ours(instance)] == ["volume"]
    await sandbox.remove()
    assert left_over(f"massgend.instance={instance}") == []


# --- ends


@pytest.mark.parametrize("how", [9, 15])
async def test_everything_ends_when_the_host_side_is_killed(
    provider: DockerProvider, instance: str, folder: Path, how: int
) -> None:
    sandbox = await provider.start(make_spec(instance, folder))
    holder = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.support.sandbox_holder", sandbox.name, endpoint(), DAEMONISING,
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert holder.stdout is not None
    assert await holder.stdout.readline() == b"ready\n"
    before = agents_processes(sandbox.name)
    assert {number for number in ("601", "602", "603", "604") if any(number in line for line in before)} == {
        "601", "602", "603", "604",
    }  # fmt: skip
    holder.send_signal(how)
    await holder.wait()
    assert await until_idle(sandbox.name, within_s=5) == []
    assert (await run_to_end(sandbox, "true")).code == 0
    holder._transport.close()  # type: ignore[attr-defined]  # asyncio offers no other way


async def test_a_program_that_kills_its_supervisor_ends_all_the_same(sandbox: Sandbox) -> None:
    ended = await bash(sandbox, "(setsid sleep 601 &); (setsid sleep 602 &); kill -9 $PPID; sleep 603")
    assert ended.code == 137
    assert await until_idle(sandbox.name, within_s=0) == []
    assert (await sandbox.describe()).running


async def test_a_program_that_stops_its_supervisor_costs_it_the_sandbox(sandbox: Sandbox) -> None:
    begun = time.monotonic()
    async with sandbox.run(["bash", "-c", "kill -STOP $PPID; sleep 601"], grace_s=0.2):
        await anyio.sleep(0.5)
    assert time.monotonic() - begun < 9
    assert not (await sandbox.describe()).running


async def test_signals_do_not_bring_the_supervisor_down(sandbox: Sandbox) -> None:
    script = (
        "for s in USR1 USR2 ALRM QUIT SEGV ABRT PIPE VTALRM PROF TSTP TTIN TTOU IO XCPU 34 64; do kill -$s $PPID; done"
    )
    assert (await bash(sandbox, f"{script}; sleep 0.2; exit 7")).code == 7


async def test_a_program_cannot_trace_its_supervisor(sandbox: Sandbox) -> None:
    assert (await bash(sandbox, "cat /proc/$PPID/environ")).code != 0
    assert (await bash(sandbox, "ls /proc/$PPID/fd")).code != 0


async def test_a_container_killed_from_outside_is_gone_and_not_an_exit_code(sandbox: Sandbox) -> None:
    client = docker.APIClient(base_url=endpoint())
    try:
        async with sandbox.run(["sleep", "600"]) as process:
            client.kill(sandbox.name)
            with pytest.raises(SandboxGone):
                await process.wait()
        with pytest.raises(SandboxGone):
            await process.send(b"x" * 1000)
    finally:
        client.close()


async def test_leaving_is_quick_when_the_container_is_removed_meanwhile(sandbox: Sandbox) -> None:
    async with sandbox.run(["sleep", "600"], grace_s=30):
        await sandbox.remove()
        begun = time.monotonic()
    assert time.monotonic() - begun < 3


async def test_a_run_cancelled_while_it_starts_leaves_no_program(sandbox: Sandbox) -> None:
    moments = random.Random(11)

    async def work() -> None:
        async with sandbox.run(["sleep", "601"], grace_s=0.1):
            await anyio.sleep(60)

    for _ in range(12):
        task = asyncio.create_task(work())
        await anyio.sleep(moments.uniform(0, 0.15))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await until_idle(sandbox.name, within_s=0) == []


async def test_a_fork_bomb_is_ended_by_its_supervisor(provider: DockerProvider, instance: str, folder: Path) -> None:
    sandbox = await provider.start(make_spec(instance, folder, limits=Limits(pids=300)))
    bomb = "bomb() { bomb & bomb & wait; sleep 600; }; bomb"
    async with sandbox.run(["bash", "-c", f"({bomb}) >/dev/null 2>&1 & sleep 600"], grace_s=0.2):
        await anyio.sleep(2)
        assert len(processes_in(sandbox.name)) > 100
        begun = time.monotonic()
    assert time.monotonic() - begun < 6
    assert (await sandbox.describe()).running
    assert len(processes_in(sandbox.name)) == 2


# --- leaks


async def test_a_gigabyte_of_output_does_not_grow_our_memory(sandbox: Sandbox) -> None:
    size = 0
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    async with sandbox.run(["head", "-c", "1000000000", "/dev/zero"]) as process:
        async for chunk in process.output():
            size += len(chunk.content)
        assert await process.wait() == 0
    assert size == 1_000_000_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < 40_000


async def test_output_that_nobody_reads_stops_the_program_and_not_us(sandbox: Sandbox) -> None:
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    async with sandbox.run(["bash", "-c", "yes"], grace_s=0.1) as process:
        await anext(process.output())
        await anyio.sleep(1.5)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < 20_000


async def test_fifty_lives_leave_no_descriptor_thread_container_or_volume(
    provider: DockerProvider, instance: str, folder: Path
) -> None:
    mount = overlay(folder)

    async def live() -> None:
        sandbox = await provider.start(make_spec(instance, folder, mount))
        assert (await run_to_end(sandbox, "true")).code == 0
        await sandbox.remove()

    for _ in range(5):
        await live()
    descriptors, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    for _ in range(50):
        await live()
    assert len(os.listdir("/proc/self/fd")) <= descriptors
    assert threading.active_count() <= threads
    assert left_over(f"massgend.instance={instance}") == []
    assert len(asyncio.all_tasks()) < 5
