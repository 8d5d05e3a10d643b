"""What every provider of sandboxes promises; run over the fake and over a real Docker engine."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import anyio
import pytest

from sandboxes.docker_provider import DockerProvider
from sandboxes.errors import ImageMissing, SandboxGone, SandboxRefused
from sandboxes.fake import FakeProvider
from sandboxes.sandbox import BindMount, Chunk, OverlayMount, Sandbox, SandboxProvider, SandboxSpec, Stream
from tests.support.sandbox_engine import (
    GID,
    IMAGE,
    UID,
    bash,
    endpoint,
    make_folder,
    make_spec,
    new_instance,
    owner,
    run_to_end,
)
from tests.support.sandbox_gateway import serve_gateway

pytestmark = pytest.mark.anyio


@dataclass(frozen=True, kw_only=True)
class World:
    provider: SandboxProvider
    instance: str
    folder: Path

    def spec(self, *mounts: BindMount | OverlayMount, **changes: object) -> SandboxSpec:
        return make_spec(self.instance, self.folder, *mounts, **changes)  # type: ignore[arg-type]

    def overlay(self, target: str = "/peers/red") -> OverlayMount:
        place = self.folder / "overlay"
        folders = {name: make_folder(place / name) for name in ("lower", "upper", "work")}
        tree = folders["lower"] / "theirs.txt"
        tree.write_text("theirs")
        os.chown(tree, UID, GID)
        return OverlayMount(**folders, target=PurePosixPath(target))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short and readable by all, unlike pytest's own: it holds sockets and mount sources."""
    path = Path(tempfile.mkdtemp(prefix="mgt-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture(params=["fake", pytest.param("docker", marks=pytest.mark.docker)])
async def world(request: pytest.FixtureRequest, folder: Path) -> AsyncIterator[World]:
    instance = new_instance()
    if request.param == "fake":
        fake = FakeProvider()
        yield World(provider=fake, instance=instance, folder=folder)
        await fake.remove_ours(instance)
        return
    async with DockerProvider(endpoint(), inside=folder / "inside") as provider:
        yield World(provider=provider, instance=instance, folder=folder)
        await provider.remove_ours(instance)


@pytest.fixture
async def sandbox(world: World) -> Sandbox:
    return await world.provider.start(world.spec())


async def beats(path: Path) -> bool:
    """Whether a program still writes this file."""
    await anyio.sleep(0.3)
    file = anyio.Path(path)
    before = await file.read_text()
    await anyio.sleep(0.5)
    return await file.read_text() != before


BEATEN = "until [ -s /workspace/beat ]; do sleep 0.02; done"
BEATING = "while :; do date +%s%N > /workspace/beat; sleep 0.05; done"
DAEMONISED = f"""setsid nohup bash -c '{BEATING}' >/dev/null 2>&1 & disown -a; {BEATEN}; echo ready; sleep 600"""


async def until_ready(chunks: AsyncIterator[Chunk]) -> None:
    seen = b""
    while b"ready" not in seen:
        seen += (await anext(chunks)).content


# --- programs


async def test_a_programs_streams_and_exit_code_come_back_apart(sandbox: Sandbox) -> None:
    ended = await bash(sandbox, "echo out; echo err >&2; exit 3")
    assert (ended.code, ended.stdout, ended.stderr) == (3, "out\n", "err\n")


async def test_a_program_ended_by_a_signal_gives_128_plus_the_signal(sandbox: Sandbox) -> None:
    assert (await bash(sandbox, "kill -TERM $$")).code == 143
    assert (await bash(sandbox, "kill -KILL $$")).code == 137


async def test_a_program_that_is_not_there_gives_127_and_says_so(sandbox: Sandbox) -> None:
    ended = await run_to_end(sandbox, "no-such-program")
    assert ended.code == 127
    assert "no-such-program" in ended.stderr


async def test_a_program_starts_in_the_working_folder_with_its_environment(sandbox: Sandbox) -> None:
    ended = await bash(sandbox, 'touch here; echo "$GREETING $USER"', env={"GREETING": "hé llo"})
    assert ended.stdout == "hé llo agent\n"
    assert (await bash(sandbox, "ls /workspace")).stdout == "here\n"


async def test_a_program_reads_what_is_sent_and_then_the_end(sandbox: Sandbox) -> None:
    content = bytes(range(256)) * 4096
    received = b""
    async with sandbox.run(["cat"], grace_s=20) as process:

        async def feed() -> None:
            await process.send(content)
            await process.close_stdin()

        async with asyncio.TaskGroup() as group:
            group.create_task(feed())
            async for chunk in process.output():
                received += chunk.content
        assert await process.wait() == 0
    assert received == content


async def test_a_program_can_read_a_file_as_its_stdin_and_outlive_its_end(world: World, sandbox: Sandbox) -> None:
    (world.folder / "workspace" / "task.txt").write_text("the task")
    ended = await bash(
        sandbox, "cat; sleep 0.5; echo ' done'", stdin_path=PurePosixPath("/workspace/task.txt"), grace_s=0
    )
    assert (ended.code, ended.stdout) == (0, "the task done\n")


async def test_closing_stdin_ends_a_program_that_does_not_heed_it_after_the_grace(sandbox: Sandbox) -> None:
    async with sandbox.run(["sleep", "600"], grace_s=0.5) as process:
        begun = time.monotonic()
        await process.close_stdin()
        assert await process.wait() == 137
        assert 0.4 < time.monotonic() - begun < 6


async def test_leaving_ends_what_a_program_daemonised(world: World, sandbox: Sandbox) -> None:
    async with sandbox.run(["bash", "-c", DAEMONISED], grace_s=0.2) as process:
        await until_ready(process.output())
        assert await beats(world.folder / "workspace" / "beat")
    assert not await beats(world.folder / "workspace" / "beat")


async def test_cancelling_ends_what_a_program_daemonised(world: World, sandbox: Sandbox) -> None:
    ready = asyncio.Event()

    async def work() -> None:
        async with sandbox.run(["bash", "-c", DAEMONISED], grace_s=0.2) as process:
            await until_ready(process.output())
            ready.set()
            await asyncio.sleep(600)

    task = asyncio.create_task(work())
    await ready.wait()
    assert await beats(world.folder / "workspace" / "beat")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not await beats(world.folder / "workspace" / "beat")


async def test_an_error_in_the_context_ends_the_program_and_comes_through(world: World, sandbox: Sandbox) -> None:
    async def fail() -> None:
        async with sandbox.run(["bash", "-c", DAEMONISED], grace_s=0.2) as process:
            await until_ready(process.output())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert not await beats(world.folder / "workspace" / "beat")


async def test_what_a_program_leaves_in_the_background_ends_with_it(world: World, sandbox: Sandbox) -> None:
    ended = await bash(sandbox, f"setsid bash -c '{BEATING}' & {BEATEN}; exit 4")
    assert ended.code == 4
    assert not await beats(world.folder / "workspace" / "beat")


async def test_two_programs_run_side_by_side(sandbox: Sandbox) -> None:
    async with asyncio.TaskGroup() as group:
        first = group.create_task(
            bash(sandbox, "for i in $(seq 40); do [ -e /workspace/go ] && exit 5; sleep 0.1; done")
        )
        second = group.create_task(bash(sandbox, "touch /workspace/go; sleep 0.2"))
    assert (first.result().code, second.result().code) == (5, 0)


async def test_one_programs_end_does_not_touch_another_one(world: World, sandbox: Sandbox) -> None:
    async with sandbox.run(["bash", "-c", DAEMONISED], grace_s=0.2) as process:
        await until_ready(process.output())
        assert (await bash(sandbox, "kill -9 $$")).code == 137
        assert await beats(world.folder / "workspace" / "beat")


async def test_waiting_without_reading_throws_the_output_away(sandbox: Sandbox) -> None:
    async with sandbox.run(["bash", "-c", "head -c 5000000 /dev/zero; exit 6"]) as process:
        assert await process.wait() == 6
        assert await process.wait() == 6


async def test_waiting_after_a_reader_has_stopped_does_not_hang(sandbox: Sandbox) -> None:
    async with sandbox.run(["bash", "-c", "head -c 5000000 /dev/zero; exit 6"]) as process:
        async for _ in process.output():
            break
        with anyio.fail_after(20):
            assert await process.wait() == 6
    async with sandbox.run(["bash", "-c", "echo one; sleep 0.2; echo two; exit 7"]) as process:
        kept = process.output()
        assert (await anext(kept)).content == b"one\n"
        with anyio.fail_after(20):
            assert await process.wait() == 7
        assert (await anext(kept)).content == b"two\n"


async def test_output_of_a_slow_reader_is_whole(sandbox: Sandbox) -> None:
    size = 0
    async with sandbox.run(["bash", "-c", "head -c 3000000 /dev/zero; echo end >&2"]) as process:
        async for chunk in process.output():
            size += len(chunk.content) if chunk.stream is Stream.STDOUT else 0
            await anyio.sleep(0.001)
        assert await process.wait() == 0
    assert size == 3_000_000


# --- mounts


async def test_a_bind_mount_is_the_hosts_folder(world: World, sandbox: Sandbox) -> None:
    (world.folder / "workspace" / "in.txt").write_text("in")
    assert (await bash(sandbox, "cat /workspace/in.txt; echo out > /workspace/out.txt")).stdout == "in"
    assert (world.folder / "workspace" / "out.txt").read_text() == "out\n"


async def test_an_overlay_can_be_written_and_its_tree_never_changes(world: World) -> None:
    overlay = world.overlay()
    sandbox = await world.provider.start(world.spec(overlay))
    ended = await bash(
        sandbox, "cat /peers/red/theirs.txt; echo mine > /peers/red/theirs.txt; cat /peers/red/theirs.txt"
    )
    assert ended.stdout == "theirsmine\n"
    await sandbox.remove()
    assert (overlay.lower / "theirs.txt").read_text() == "theirs"
    assert [path.name for path in overlay.lower.iterdir()] == ["theirs.txt"]


async def test_the_upper_layer_shows_through_an_overlay(world: World) -> None:
    overlay = world.overlay()
    (overlay.upper / "added.txt").write_text("added")
    sandbox = await world.provider.start(world.spec(overlay))
    assert (await bash(sandbox, "cat /peers/red/added.txt")).stdout == "added"


async def test_a_mount_source_that_is_missing_is_refused_and_not_made(world: World) -> None:
    missing = world.folder / "missing"
    with pytest.raises(SandboxRefused):
        await world.provider.start(world.spec(BindMount(source=missing, target=PurePosixPath("/x"))))
    assert not missing.exists()
    assert await world.provider.list_ours(world.instance) == ()


# --- life and death


async def test_a_started_sandbox_runs_and_a_stopped_one_does_not(sandbox: Sandbox) -> None:
    assert (await sandbox.describe()).running
    await sandbox.stop()
    await sandbox.stop()
    state = await sandbox.describe()
    assert not state.running
    assert not state.out_of_memory
    with pytest.raises(SandboxGone):
        await run_to_end(sandbox, "true")


async def test_after_stop_nothing_writes_any_more(world: World, sandbox: Sandbox) -> None:
    async with sandbox.run(["bash", "-c", f"trap '' TERM HUP INT; {BEATING} & {BEATEN}; echo ready; wait"]) as process:
        output = process.output()
        await until_ready(output)
        assert await beats(world.folder / "workspace" / "beat")
        await sandbox.stop()
        assert not await beats(world.folder / "workspace" / "beat")
        async for _ in output:
            pass
        with pytest.raises(SandboxGone):
            await process.wait()


async def test_removing_takes_the_container_and_its_volumes_and_may_be_repeated(world: World) -> None:
    sandbox = await world.provider.start(world.spec(world.overlay()))
    assert sorted(one.kind for one in await world.provider.list_ours(world.instance)) == ["container", "volume"]
    await sandbox.remove()
    await sandbox.remove()
    assert await world.provider.list_ours(world.instance) == ()
    assert not (await sandbox.describe()).running
    with pytest.raises(SandboxGone):
        await run_to_end(sandbox, "true")


async def test_what_is_ours_is_found_and_removed_by_instance_run_and_agent(world: World) -> None:
    other = new_instance()
    for instance, run, agent in (
        (world.instance, "r1", "a"),
        (world.instance, "r1", "b"),
        (world.instance, "r2", "a"),
        (other, "r1", "a"),
    ):
        spec = make_spec(instance, world.folder)
        await world.provider.start(dataclasses.replace(spec, owner=owner(instance, run=run, agent=agent)))
    try:
        assert len(await world.provider.list_ours(world.instance)) == 3
        found = await world.provider.list_ours(world.instance, "r1")
        assert sorted(one.owner.agent for one in found) == ["a", "b"]
        assert {one.owner.run for one in found} == {"r1"}
        assert await world.provider.remove_ours(world.instance, "r1", "b") == 1
        assert await world.provider.remove_ours(world.instance) == 2
        assert await world.provider.remove_ours(world.instance) == 0
        assert len(await world.provider.list_ours(other)) == 1
    finally:
        assert await world.provider.remove_ours(other) == 1


# --- refusals and checks


async def test_a_missing_image_is_named_and_leaves_nothing(world: World) -> None:
    with pytest.raises(ImageMissing, match=r"no/such-image.*build or pull it first"):
        await world.provider.start(world.spec(image="no/such-image"))
    assert await world.provider.list_ours(world.instance) == ()


async def test_a_sandbox_as_root_is_refused(world: World) -> None:
    with pytest.raises(SandboxRefused, match="root"):
        await world.provider.start(world.spec(uid=0))
    with pytest.raises(SandboxRefused, match="root"):
        await world.provider.start(world.spec(gid=0))


async def test_a_name_in_use_is_refused_and_its_sandbox_stays(world: World) -> None:
    spec = world.spec()
    first = await world.provider.start(spec)
    with pytest.raises(SandboxRefused):
        await world.provider.start(spec)
    assert (await run_to_end(first, "true")).code == 0
    assert len(await world.provider.list_ours(world.instance)) == 1


async def test_engine_and_image_are_found_fit(world: World) -> None:
    engine = await world.provider.check_engine()
    assert (engine.problem, engine.overlay_volumes) == (None, True)
    image = await world.provider.check_image(IMAGE)
    assert image.problem is None
    assert image.image_id
    missing = await world.provider.check_image("no/such-image")
    assert missing.image_id is None
    assert missing.problem is not None
    assert "no/such-image" in missing.problem


# --- handing in


async def test_an_answer_and_a_vote_reach_the_gateway(world: World) -> None:
    gateway_folder = make_folder(world.folder / "gateway")
    spec = world.spec(BindMount(source=gateway_folder, target=PurePosixPath("/run/gateway")))
    sandbox = await world.provider.start(spec)
    async with serve_gateway(gateway_folder, token="s3cret\n") as gateway:
        gateway.reply = {"message": "Answer 1 is saved."}
        ended = await run_to_end(sandbox, "massgend-answer", "Fixed the tést")
        assert (ended.code, ended.stdout, ended.stderr) == (0, "Answer 1 is saved.\n", "")
        assert (await bash(sandbox, "printf 'two\nlines' | massgend-answer")).code == 0
        assert (await bash(sandbox, "printf dash | massgend-answer -")).code == 0
        assert (await run_to_end(sandbox, "massgend-vote", "red", "--reason", "it works")).code == 0
    assert gateway.requests == [
        ("/v1/answer", "Bearer s3cret", {"summary": "Fixed the tést"}),
        ("/v1/answer", "Bearer s3cret", {"summary": "two\nlines"}),
        ("/v1/answer", "Bearer s3cret", {"summary": "dash"}),
        ("/v1/vote", "Bearer s3cret", {"label": "red", "reason": "it works"}),
    ]


async def test_a_refused_hand_in_tells_why_and_wrong_use_or_no_gateway_exit_2(world: World) -> None:
    gateway_folder = make_folder(world.folder / "gateway")
    spec = world.spec(BindMount(source=gateway_folder, target=PurePosixPath("/run/gateway")))
    sandbox = await world.provider.start(spec)
    async with serve_gateway(gateway_folder) as gateway:
        gateway.status, gateway.reply = 409, {"title": "Refused", "detail": "your workspace has not changed"}
        ended = await run_to_end(sandbox, "massgend-answer", "again")
        assert (ended.code, ended.stdout, ended.stderr) == (1, "", "your workspace has not changed\n")
        assert (await run_to_end(sandbox, "massgend-vote", "red")).code == 2
        assert (await run_to_end(sandbox, "massgend-answer", " ")).code == 2
        task = world.folder / "workspace" / "task.txt"
        task.write_text("the task, not an answer")
        inside = "/workspace/task.txt"
        ended = await run_to_end(
            sandbox, "massgend-answer", stdin_path=PurePosixPath(inside), env={"MASSGEND_TASK_FILE": inside}
        )
        assert ended.code == 2
        assert len(gateway.requests) == 1
    ended = await run_to_end(sandbox, "massgend-answer", "too late")
    assert ended.code == 2
    assert ended.stderr.count("\n") == 1
    assert "cannot be reached" in ended.stderr
