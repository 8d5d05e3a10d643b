"""The Docker engine's calls that we use, made awaitable: the only module that imports the Docker SDK.

The SDK blocks, so every call runs in a thread behind a limiter, with a timeout. Errors leave here as SandboxError.
Knows nothing of specs and hardening (docker_spec) or of what a sandbox is (docker_sandbox).
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import anyio
import docker
import docker.errors
import requests
from anyio import to_thread

from sandboxes import failure
from sandboxes.docker_spec import DEFAULT_PATH, Creation, Image
from sandboxes.errors import EngineUnreachable, ImageMissing, SandboxGone
from sandboxes.sandbox import SandboxState

T = TypeVar("T")
UNIX = "unix://"
# The thread's own timeout (the SDK's) comes first; ours is for a call that even so does not come back.
SLACK_S = 2.0


@dataclass(frozen=True, kw_only=True)
class Created:
    container_id: str
    warnings: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ExecState:
    running: bool
    started: bool
    exit_code: int | None


@dataclass(frozen=True, kw_only=True)
class Found:
    """A container or volume as listed: `id` is what to remove it by."""

    kind: str
    id: str
    name: str
    labels: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class EngineFacts:
    version: str
    api_version: str
    security: tuple[str, ...]
    missing_limits: tuple[str, ...]
    runtimes: tuple[str, ...]


class DockerEngine:
    """One engine on a unix socket. Nothing is connected before the first call; `aclose` lets go of all connections."""

    def __init__(self, endpoint: str, *, threads: int, call_timeout_s: float) -> None:
        self.endpoint = endpoint
        self.socket = Path(endpoint.removeprefix(UNIX))
        self._threads = threads
        self._timeout_s = call_timeout_s
        self._limiter = anyio.CapacityLimiter(threads)
        self._client: docker.APIClient | None = None
        self._connecting = threading.Lock()

    async def aclose(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    async def _call(self, what: str, call: Callable[[docker.APIClient], T]) -> T:
        """Cancelling abandons the thread, which ends by the SDK's timeout; callers who made something reconcile."""
        try:
            with anyio.fail_after(self._timeout_s + SLACK_S):
                return await to_thread.run_sync(
                    lambda: self._blocking(what, call), abandon_on_cancel=True, limiter=self._limiter
                )
        except TimeoutError as error:
            raise EngineUnreachable(
                f"{what}: the Docker engine at {self.endpoint} did not answer within {self._timeout_s:g} s"
            ) from error

    def _blocking(self, what: str, call: Callable[[docker.APIClient], T]) -> T:
        try:
            return call(self._connected())
        except docker.errors.APIError as error:
            raise failure.error_of(
                what, error.status_code, str(error.explanation or error), endpoint=self.endpoint
            ) from error
        except (docker.errors.DockerException, requests.exceptions.RequestException, OSError) as error:
            raise failure.error_of(what, None, _first_cause(error), endpoint=self.endpoint) from error

    def _connected(self) -> docker.APIClient:
        with self._connecting:
            if self._client is None:
                if not self.endpoint.startswith(UNIX):
                    raise OSError(0, "only unix:// endpoints are supported")
                # The SDK leaks the sockets of its attempts when nobody listens.
                with socket.socket(socket.AF_UNIX) as attempt:
                    attempt.settimeout(self._timeout_s)
                    attempt.connect(str(self.socket))
                self._client = docker.APIClient(
                    base_url=self.endpoint,
                    version="auto",
                    timeout=self._timeout_s,  # type: ignore[arg-type]  # requests takes fractions
                    max_pool_size=self._threads,
                )
            return self._client

    async def api_version(self) -> str:
        return await self._call("ask for the API's version", lambda client: str(client.api_version))

    async def facts(self) -> EngineFacts:
        def ask(client: docker.APIClient) -> EngineFacts:
            version: dict[str, Any] = client.version()
            info: dict[str, Any] = client.info()
            limits = {"MemoryLimit": "memory", "PidsLimit": "pids", "CpuCfsQuota": "CPU"}
            return EngineFacts(
                version=str(version["Version"]),
                api_version=str(version["ApiVersion"]),
                security=tuple(info.get("SecurityOptions") or ()),
                missing_limits=tuple(name for field, name in limits.items() if info.get(field) is False),
                runtimes=tuple(sorted(info.get("Runtimes") or ())),
            )

        return await self._call("ask for the engine's version", ask)

    async def image(self, name: str) -> Image:
        """Raises ImageMissing."""

        def ask(client: docker.APIClient) -> Image:
            try:
                found: dict[str, Any] = client.inspect_image(name)  # type: ignore[no-untyped-call]
            except docker.errors.NotFound as error:
                raise ImageMissing(failure.missing_image(name, self.endpoint)) from error
            config = found.get("Config") or {}
            env = dict(entry.partition("=")[::2] for entry in config.get("Env") or ())
            return Image(
                image_id=str(found["Id"]),
                path=env.get("PATH", DEFAULT_PATH),
                volumes=tuple(sorted(config.get("Volumes") or ())),
            )

        return await self._call(f"look for image {name!r}", ask)

    async def any_image(self) -> str | None:
        images: list[dict[str, Any]] = await self._call("list images", lambda client: client.images())
        return str(images[0]["Id"]) if images else None

    async def create(self, creation: Creation) -> Created:
        def ask(client: docker.APIClient) -> Created:
            made: dict[str, Any] = client.create_container_from_config(  # type: ignore[no-untyped-call]
                dict(creation.body), creation.name
            )
            return Created(container_id=str(made["Id"]), warnings=tuple(made.get("Warnings") or ()))

        return await self._call(f"create sandbox {creation.name}", ask)

    async def start(self, container: str) -> None:
        await self._call(f"start sandbox {container[:12]}", lambda client: client.start(container))

    async def wait(self, container: str) -> int:
        def ask(client: docker.APIClient) -> int:
            return int(client.wait(container)["StatusCode"])

        return await self._call(f"wait for sandbox {container[:12]}", ask)

    async def state(self, container: str) -> SandboxState:
        """A container that is no more is not running, with no exit code."""

        def ask(client: docker.APIClient) -> SandboxState:
            state: dict[str, Any] = client.inspect_container(container)["State"]
            running = bool(state["Running"])
            return SandboxState(
                running=running,
                exit_code=None if running else int(state["ExitCode"]),
                out_of_memory=bool(state["OOMKilled"]),
            )

        try:
            return await self._call(f"inspect sandbox {container[:12]}", ask)
        except SandboxGone:
            return SandboxState(running=False, exit_code=None, out_of_memory=False)

    async def kill(self, container: str) -> None:
        """SIGKILL. For this signal the engine answers only when all is dead. Fine if it is already."""
        await self._call(
            f"stop sandbox {container[:12]}", lambda client: _unless_absent(lambda: client.kill(container))
        )

    async def remove_container(self, container: str) -> bool:
        """Kill and remove, with anonymous volumes. False: it was not there."""

        def ask(client: docker.APIClient) -> bool:
            return _unless_absent(lambda: client.remove_container(container, v=True, force=True))

        return await self._call(f"remove sandbox {container[:12]}", ask)

    async def remove_volume(self, name: str) -> bool:
        def ask(client: docker.APIClient) -> bool:
            return _unless_absent(lambda: client.remove_volume(name))

        return await self._call(f"remove volume {name}", ask)

    async def find(self, labels: Sequence[str]) -> tuple[Found, ...]:
        """Containers, then volumes, that carry all of `labels` (each `name` or `name=value`)."""

        def ask(client: docker.APIClient) -> tuple[Found, ...]:
            filters = {"label": list(labels)}
            containers: list[dict[str, Any]] = client.containers(all=True, filters=filters)
            volumes: list[dict[str, Any]] = client.volumes(filters=filters).get("Volumes") or []
            return (
                *(
                    # A container that is being removed may have lost its names already.
                    Found(kind="container", id=c["Id"], name=(c["Names"] or ["/" + c["Id"]])[0][1:], labels=c["Labels"])
                    for c in containers
                ),
                *(Found(kind="volume", id=v["Name"], name=v["Name"], labels=v["Labels"] or {}) for v in volumes),
            )

        return await self._call("list what is ours", ask)

    async def create_exec(
        self, container: str, argv: Sequence[str], *, user: str, env: Sequence[str], what: str
    ) -> str:
        def ask(client: docker.APIClient) -> str:
            made: dict[str, Any] = client.exec_create(
                container, list(argv), stdin=True, stdout=True, stderr=True, user=user, environment=list(env)
            )
            return str(made["Id"])

        return await self._call(what, ask)

    async def exec_state(self, exec_id: str) -> ExecState:
        def ask(client: docker.APIClient) -> ExecState:
            found = client.exec_inspect(exec_id)
            code = found["ExitCode"]
            return ExecState(
                running=bool(found["Running"]),
                started=bool(found["Pid"]),
                exit_code=None if code is None else int(code),
            )

        return await self._call("ask how a program ended", ask)

    async def read_folder(self, container: str, folder: str) -> bytes:
        """The folder as a tar, at most its first 64 kB; its mounts are made for it, also when nothing runs."""

        def ask(client: docker.APIClient) -> bytes:
            stream, _ = client.get_archive(container, folder)
            try:
                return next(iter(stream), b"")[:65_536]
            finally:
                stream.close()

        return await self._call(f"read {folder} of {container}", ask)


def _unless_absent(call: Callable[[], object]) -> bool:
    try:
        call()
    except docker.errors.APIError as error:
        if failure.is_absent(error.status_code, str(error.explanation or error)):
            return False
        raise
    return True


def _first_cause(error: BaseException) -> str:
    """`requests` wraps the one useful sentence several times; an OSError in the chain has it."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    return str(error)
