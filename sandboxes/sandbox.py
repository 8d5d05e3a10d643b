"""The sandbox noun: what a hardened container promises, and the protocol every provider keeps.

Values and protocols only: no I/O, no Docker. The contract suite is tests/contracts/test_sandboxes.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Protocol


@dataclass(frozen=True, kw_only=True)
class Owner:
    """Whose a resource is; written as labels on every container and volume.

    A resource is ours only when all its labels say so (`instance` is random per state folder), so two daemons
    on one engine never touch each other's.
    """

    instance: str
    run: str
    agent: str
    generation: int

    def labels(self) -> dict[str, str]:
        return {
            "massgend.instance": self.instance,
            "massgend.run": self.run,
            "massgend.agent": self.agent,
            "massgend.generation": str(self.generation),
        }


@dataclass(frozen=True, kw_only=True)
class BindMount:
    """A host path inside the sandbox. `source` is a path of ours, never derived from workspace content."""

    source: Path
    target: PurePosixPath
    read_only: bool = False


@dataclass(frozen=True, kw_only=True)
class OverlayMount:
    """An immutable tree under a private scratch: readable, runnable, writable, and the tree never changes.

    `lower` is the tree; `upper` (which may hold whiteouts of names to hide) and `work` are folders of ours on one
    file system, made and deleted by the caller.
    """

    lower: Path
    upper: Path
    work: Path
    target: PurePosixPath
    read_only: bool = False


Mount = BindMount | OverlayMount


@dataclass(frozen=True, kw_only=True)
class Limits:
    memory_bytes: int = 2 * 1024**3
    cpus: float = 1.0
    pids: int = 512
    tmp_bytes: int = 1024**3


@dataclass(frozen=True, kw_only=True)
class SandboxSpec:
    """Everything a sandbox is made from. Network is always `none`; there is no field to open it."""

    name: str
    owner: Owner
    image: str
    uid: int
    gid: int
    mounts: tuple[Mount, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    workdir: PurePosixPath = PurePosixPath("/workspace")  # noqa: RUF009 - immutable
    limits: Limits = Limits()
    runtime: str | None = None


class Stream(StrEnum):
    STDOUT = "stdout"
    STDERR = "stderr"


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """Some bytes of one output stream, as they came (not split into lines)."""

    stream: Stream
    content: bytes


class Process(Protocol):
    """A program running inside a sandbox, under the supervisor that kills its descendants when we go away."""

    async def send(self, content: bytes) -> None:
        """Write to the program's stdin. Raises SandboxGone when the sandbox is no more."""

    async def close_stdin(self) -> None:
        """Half-close: the program reads EOF; after the grace given at start all its descendants are killed."""

    def output(self) -> AsyncIterator[Chunk]:
        """Chunks of both streams in the order they came, until the program ended. To be iterated once."""

    async def wait(self) -> int:
        """Exit code, 128 + signal for a signal (137: killed, often out of memory: ask `Sandbox.describe`)."""


@dataclass(frozen=True, kw_only=True)
class SandboxState:
    running: bool
    exit_code: int | None
    out_of_memory: bool


class Sandbox(Protocol):
    """One started container. Owned by whoever called `SandboxProvider.start`: that caller removes it."""

    @property
    def name(self) -> str: ...

    def run(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        stdin_path: PurePosixPath | None = None,
        grace_s: float = 2.0,
    ) -> AbstractAsyncContextManager[Process]:
        """Start `argv` in the sandbox; leaving the context ends it and every process it started, also when cancelled.

        `stdin_path`: the program reads this file (inside) as its stdin; otherwise its stdin is `Process.send`.
        """

    async def describe(self) -> SandboxState:
        """What the engine says now."""

    async def stop(self) -> None:
        """After this returns nothing inside can run or write any more. Idempotent, no grace: within a few seconds."""

    async def remove(self) -> None:
        """Stop, and take away the container and its volumes. Idempotent; what is already gone is fine."""


@dataclass(frozen=True, kw_only=True)
class Resource:
    """A container or volume of ours that exists in the engine. `volume` is its name for a volume without container."""

    kind: str
    name: str
    owner: Owner


@dataclass(frozen=True, kw_only=True)
class ImageCheck:
    """What a look at an image found. `problem` is one plain sentence with what to do, or None: it can be used."""

    image: str
    image_id: str | None
    problem: str | None


@dataclass(frozen=True, kw_only=True)
class EngineCheck:
    """What a look at the engine found. `problem` as in ImageCheck. `runtimes`: what `SandboxSpec.runtime` may name."""

    endpoint: str
    version: str | None
    overlay_volumes: bool
    problem: str | None
    runtimes: tuple[str, ...] = ()


class SandboxProvider(Protocol):
    """A place where sandboxes can be had. Every call is bounded in time; one slow call never delays another."""

    async def check_engine(self) -> EngineCheck:
        """Is the engine there, and can it keep the promises? Never raises for a missing engine."""

    async def check_image(self, image: str) -> ImageCheck:
        """Is the image there, and has it what a sandbox needs (python3 >= 3.8, bash)? Never pulls."""

    async def start(self, spec: SandboxSpec) -> Sandbox:
        """Create and start. When this raises (or is cancelled), nothing of the sandbox is left in the engine.

        Raises ImageMissing, SandboxRefused (the engine said no: why), EngineUnreachable.
        """

    async def list_ours(self, instance: str, run: str | None = None) -> tuple[Resource, ...]:
        """Containers and volumes whose labels prove that they belong to this instance (and run)."""

    async def remove_ours(self, instance: str, run: str | None = None, agent: str | None = None) -> int:
        """Remove them all, running or not; the number removed. Used for recovery and gc."""
