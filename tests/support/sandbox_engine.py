"""What tests of sandboxes share: the engine's address, specs, and running a program to its end. Plain functions."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import docker

from sandboxes.sandbox import BindMount, Mount, Owner, Sandbox, SandboxSpec, Stream

IMAGE = "massgend/sandbox"
# Whoever runs the tests owns the folders; root hands them to the user that most images have.
UID = os.getuid() or 1000
GID = os.getgid() or 1000


@dataclass(frozen=True, kw_only=True)
class Ended:
    code: int
    stdout: str
    stderr: str


def endpoint() -> str:
    return os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")


def new_instance() -> str:
    return "test" + secrets.token_hex(5)


def owner(instance: str, *, run: str = "run1", agent: str = "ada", generation: int = 1) -> Owner:
    return Owner(instance=instance, run=run, agent=agent, generation=generation)


def make_folder(path: Path) -> Path:
    """A folder, with its missing parents, that the sandbox's user may write."""
    path.mkdir(parents=True, exist_ok=True)
    os.chown(path, UID, GID)
    return path


def make_spec(
    instance: str, tmp_path: Path, *mounts: Mount, name: str = "", image: str = IMAGE, **changes: object
) -> SandboxSpec:
    """A spec with a workspace at tmp_path/workspace, and the mounts given."""
    workspace = BindMount(source=make_folder(tmp_path / "workspace"), target=PurePosixPath("/workspace"))
    fields: dict[str, object] = {
        "name": name or f"massgend-{instance}-{secrets.token_hex(4)}",
        "owner": owner(instance),
        "image": image,
        "uid": UID,
        "gid": GID,
        "mounts": (workspace, *mounts),
        **changes,
    }
    return SandboxSpec(**fields)  # type: ignore[arg-type]


async def run_to_end(sandbox: Sandbox, *argv: str, **options: object) -> Ended:
    content = {Stream.STDOUT: b"", Stream.STDERR: b""}
    async with sandbox.run(argv, **options) as process:  # type: ignore[arg-type]
        async for chunk in process.output():
            content[chunk.stream] += chunk.content
        code = await process.wait()
    return Ended(
        code=code,
        stdout=content[Stream.STDOUT].decode("utf-8", "replace"),
        stderr=content[Stream.STDERR].decode("utf-8", "replace"),
    )


async def bash(sandbox: Sandbox, script: str, **options: object) -> Ended:
    return await run_to_end(sandbox, "bash", "-c", script, **options)


def left_over(label: str) -> list[str]:
    """Names of all containers and volumes that carry `label`, asked of the engine without our own code."""
    client = docker.DockerClient(base_url=endpoint())
    try:
        containers = client.containers.list(all=True, filters={"label": label}, ignore_removed=True)
        return [
            *(str(one.name) for one in containers),
            *(one.name for one in client.volumes.list(filters={"label": label})),
        ]
    finally:
        client.close()


def processes_in(container: str) -> list[str]:
    """Command lines of all processes in a container, from the engine's side."""
    client = docker.APIClient(base_url=endpoint())
    try:
        top = client.top(container, ps_args="-eo pid,args")
        return [row[-1] for row in top["Processes"]]
    finally:
        client.close()
