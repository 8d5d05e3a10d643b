"""A provider without an engine, for fast tests of what stands above it. It isolates NOTHING: never run an agent in it.

Programs are local processes of this user under the real supervisor, in a temporary folder per sandbox. Bind mounts are
symlinks there (read-only is not enforced); overlays are copies, so what is written in them is lost. Absolute paths of
the sandbox (mount targets, working folder, HOME) are replaced by real ones wherever they stand in argv and env; a
program that builds such a path by itself misses. Limits, uid, gid, /tmp and network are not emulated.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path, PurePosixPath

import anyio

from sandboxes.docker_spec import HOME
from sandboxes.errors import ImageMissing, SandboxError, SandboxGone, SandboxRefused
from sandboxes.sandbox import (
    BindMount,
    Chunk,
    EngineCheck,
    ImageCheck,
    OverlayMount,
    Process,
    Resource,
    Sandbox,
    SandboxSpec,
    SandboxState,
    Stream,
)
from sandboxes.see_through import Cleanups
from sandboxes.staging import inside_source

READ_BYTES = 65_536
END_WITHIN_S = 5.0
KILLED = 137
GATEWAY_SOCKET = PurePosixPath("/run/gateway/s.sock")
GATEWAY_TOKEN = PurePosixPath("/run/gateway/token")


class FakeProcess:
    def __init__(self, process: asyncio.subprocess.Process, sandbox: FakeSandbox, what: str) -> None:
        self._process = process
        self._sandbox = sandbox
        self._what = what
        self._chunks: asyncio.Queue[Chunk | None] = asyncio.Queue(maxsize=16)
        self._readers = 0
        self._reader_left = asyncio.Event()
        self._pumps = asyncio.create_task(self._pump_both())

    async def send(self, content: bytes) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        try:
            stdin.write(content)
            await stdin.drain()
        except ConnectionError as error:
            if not self._sandbox.running:
                raise SandboxGone(f"{self._what}: the sandbox ended while it ran") from error

    async def close_stdin(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    def output(self) -> AsyncIterator[Chunk]:
        self._readers += 1
        self._reader_left.clear()
        return self._read_on()

    async def _read_on(self) -> AsyncIterator[Chunk]:
        try:
            while (chunk := await self._next()) is not None:
                yield chunk
        finally:
            self._readers -= 1
            self._reader_left.set()

    async def wait(self) -> int:
        await asyncio.sleep(0)  # a reader's task that was made just before this call gets its turn first
        while self._readers and self._process.returncode is None:
            with anyio.move_on_after(0.1):
                await self._reader_left.wait()
        while not self._readers and await self._next() is not None:
            pass
        code = await self._process.wait()
        if not self._sandbox.running and code in (-signal.SIGKILL, KILLED):
            raise SandboxGone(f"{self._what}: the sandbox ended while it ran")
        return code if code >= 0 else 128 - code

    async def end(self, grace_s: float) -> None:
        await self.close_stdin()
        with anyio.move_on_after(grace_s + END_WITHIN_S):
            await self._drain()
            await self._process.wait()
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        self._pumps.cancel()
        await asyncio.wait([self._pumps])

    def kill(self) -> None:
        """SIGTERM: the supervisor ends everything at once."""
        if self._process.returncode is None:
            self._process.terminate()

    async def dead(self) -> None:
        await self._process.wait()

    async def _next(self) -> Chunk | None:
        chunk = await self._chunks.get()
        if chunk is None:
            self._chunks.put_nowait(None)  # for whoever else waits for the end
        return chunk

    async def _drain(self) -> None:
        while await self._next() is not None:
            pass

    async def _pump_both(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        async with asyncio.TaskGroup() as group:
            group.create_task(self._pump(self._process.stdout, Stream.STDOUT))
            group.create_task(self._pump(self._process.stderr, Stream.STDERR))
        await self._chunks.put(None)

    async def _pump(self, reader: asyncio.StreamReader, stream: Stream) -> None:
        while content := await reader.read(READ_BYTES):
            await self._chunks.put(Chunk(stream=stream, content=content))


class FakeSandbox:
    """`vanish` is for tests: the container dies under its owner."""

    def __init__(self, spec: SandboxSpec, folder: Path, provider: FakeProvider) -> None:
        self.spec = spec
        self.running = True
        self.out_of_memory = False
        self._folder = folder
        self._provider = provider
        self._processes: set[FakeProcess] = set()
        self._cleanups = Cleanups()
        targets = {mount.target for mount in spec.mounts} | {spec.workdir, HOME}
        words = "|".join(re.escape(str(target)) for target in sorted(targets, key=lambda t: -len(str(t))))
        # Not in the middle of a longer path, real or emulated.
        self._paths = re.compile(rf"(?<![\w./-])({words})(?![\w.-])")

    @property
    def name(self) -> str:
        return self.spec.name

    def run(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        stdin_path: PurePosixPath | None = None,
        grace_s: float = 2.0,
    ) -> AbstractAsyncContextManager[Process]:
        words = ["--grace", f"{grace_s:g}"]
        if stdin_path is not None:
            words += ["--stdin", str(self._folder / stdin_path.relative_to("/"))]
        words += ["--", *(self._real(word) for word in argv)]
        return self._running(words, env or {}, what=f"{argv[0]} in {self.name}", grace_s=grace_s)

    @asynccontextmanager
    async def _running(
        self, words: Sequence[str], env: Mapping[str, str], *, what: str, grace_s: float
    ) -> AsyncIterator[Process]:
        if not self.running:
            raise SandboxGone(f"{what}: the sandbox is not running")
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            "-S",
            str(inside_source() / "supervisor.py"),
            *words,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=self._folder / self.spec.workdir.relative_to("/"),
            env=self._environment(env),
            start_new_session=True,
        )
        running = FakeProcess(process, self, what)
        self._processes.add(running)
        try:
            yield running
        finally:
            await self._cleanups.see_through(running.end(grace_s))
            self._processes.discard(running)

    def _environment(self, env: Mapping[str, str]) -> dict[str, str]:
        given = {"HOME": str(HOME), "USER": "agent", **self.spec.env, **env}
        real = {name: self._real(text) for name, text in given.items()}
        real.setdefault("MASSGEND_SOCKET", str(self._folder / GATEWAY_SOCKET.relative_to("/")))
        real.setdefault("MASSGEND_TOKEN_FILE", str(self._folder / GATEWAY_TOKEN.relative_to("/")))
        real["PATH"] = f"{inside_source() / 'bin'}:{given.get('PATH', os.environ.get('PATH', os.defpath))}"
        return real

    def _real(self, text: str) -> str:
        return self._paths.sub(lambda found: str(self._folder) + found.group(1), text)

    async def describe(self) -> SandboxState:
        return SandboxState(
            running=self.running, exit_code=None if self.running else KILLED, out_of_memory=self.out_of_memory
        )

    def vanish(self) -> None:
        self.running = False
        for process in self._processes:
            process.kill()

    async def stop(self) -> None:
        self.vanish()
        for process in tuple(self._processes):
            await process.dead()

    async def remove(self) -> None:
        await self.stop()
        self._provider.forget(self)
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)


class FakeProvider:
    """`images` are those it has; `fail_starts` are raised by the next starts, in order; `problem` makes it unusable."""

    def __init__(
        self,
        *,
        images: Sequence[str] = ("massgend/sandbox",),
        fail_starts: Sequence[SandboxError] = (),
        problem: str | None = None,
    ) -> None:
        self.images = tuple(images)
        self.fail_starts = list(fail_starts)
        self.problem = problem
        self.started: list[SandboxSpec] = []
        self.sandboxes: dict[str, FakeSandbox] = {}

    async def check_engine(self) -> EngineCheck:
        version = None if self.problem else "fake"
        return EngineCheck(endpoint="fake:", version=version, overlay_volumes=not self.problem, problem=self.problem)

    async def check_image(self, image: str) -> ImageCheck:
        if image in self.images:
            return ImageCheck(image=image, image_id=f"fake:{image}", problem=None)
        return ImageCheck(image=image, image_id=None, problem=_missing(image))

    async def start(self, spec: SandboxSpec) -> Sandbox:
        if self.fail_starts:
            raise self.fail_starts.pop(0)
        if spec.image not in self.images:
            raise ImageMissing(_missing(spec.image))
        if spec.name in self.sandboxes:
            raise SandboxRefused(f"sandbox {spec.name}: the name is in use")
        if spec.uid <= 0 or spec.gid <= 0:
            raise SandboxRefused(f"sandbox {spec.name}: a sandbox never runs as root")
        # A short path: a unix socket's must fit 108 bytes.
        folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="mgf-"))
        try:
            await asyncio.to_thread(_lay_out, spec, folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        sandbox = FakeSandbox(spec, folder, self)
        self.started.append(spec)
        self.sandboxes[spec.name] = sandbox
        return sandbox

    def forget(self, sandbox: FakeSandbox) -> None:
        self.sandboxes.pop(sandbox.name, None)

    def _ours(self, instance: str, run: str | None, agent: str | None) -> list[FakeSandbox]:
        return [
            sandbox
            for sandbox in self.sandboxes.values()
            if sandbox.spec.owner.instance == instance
            and run in (None, sandbox.spec.owner.run)
            and agent in (None, sandbox.spec.owner.agent)
        ]

    async def list_ours(self, instance: str, run: str | None = None) -> tuple[Resource, ...]:
        found = self._ours(instance, run, None)
        containers = [Resource(kind="container", name=one.name, owner=one.spec.owner) for one in found]
        volumes = [
            Resource(kind="volume", name=f"{one.name}-{number}", owner=one.spec.owner)
            for one in found
            for number, mount in enumerate(one.spec.mounts)
            if isinstance(mount, OverlayMount)
        ]
        return (*containers, *volumes)

    async def remove_ours(self, instance: str, run: str | None = None, agent: str | None = None) -> int:
        found = self._ours(instance, run, agent)
        overlays = sum(isinstance(mount, OverlayMount) for one in found for mount in one.spec.mounts)
        for sandbox in found:
            await sandbox.remove()
        return len(found) + overlays


def _missing(image: str) -> str:
    return f"image {image!r} is not in the fake engine: build or pull it first (docker pull {image})"


def _lay_out(spec: SandboxSpec, folder: Path) -> None:
    for target in (spec.workdir, HOME):
        if target not in {mount.target for mount in spec.mounts}:
            (folder / target.relative_to("/")).mkdir(parents=True, exist_ok=True)
    for mount in sorted(spec.mounts, key=lambda mount: len(mount.target.parts)):
        place = folder / mount.target.relative_to("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(mount, BindMount):
            if not mount.source.exists():
                raise SandboxRefused(f"sandbox {spec.name}: the mount source {mount.source} does not exist")
            place.symlink_to(mount.source)
        else:
            shutil.copytree(mount.lower, place, symlinks=True)
            _apply_upper(mount.upper, place)


def _apply_upper(upper: Path, place: Path) -> None:
    """The upper layer over the copy of the lower one; a whiteout (a 0:0 character device) hides a name."""
    for path in sorted(upper.rglob("*")):
        there = place / path.relative_to(upper)
        if path.is_char_device():
            shutil.rmtree(there) if there.is_dir() else there.unlink(missing_ok=True)
        elif path.is_dir():
            there.mkdir(exist_ok=True)
        else:
            shutil.copy2(path, there, follow_symlinks=False)
