"""Tries an engine and images out before anything depends on them, and says what is wrong in one sentence."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import anyio
from anyio import to_thread

from sandboxes.docker_engine import UNIX, DockerEngine
from sandboxes.docker_spec import Creation, Image, creation
from sandboxes.errors import ImageMissing, SandboxError, SandboxGone, SandboxRefused
from sandboxes.removal import take_away
from sandboxes.sandbox import EngineCheck, ImageCheck, Limits, Mount, OverlayMount, Owner, SandboxSpec
from sandboxes.see_through import Cleanups
from sandboxes.staging import stage

OLDEST_API = (1, 41)
PROBE_WITHIN_S = 30.0
GOOD_FOR_S = 30.0
PROBE_TARGET = PurePosixPath("/massgend-probe")
PROBE_FILE = "the-tree-is-visible"
PROBE_LIMITS = Limits(memory_bytes=256 * 1024**2, pids=64, tmp_bytes=1024**2)
NEEDS = {1: "python3 >= 3.8", 2: "bash", 4: "git"}
NEEDS_SCRIPT = """missing=0
python3 -I -c 'import sys, ctypes, select; sys.exit(sys.version_info < (3, 8))' || missing=$((missing + 1))
bash -c : || missing=$((missing + 2))
git --version || missing=$((missing + 4))
exit $missing"""


class Probe:
    """Remembers what it found of an image for as long as the daemon lives."""

    def __init__(self, engine: DockerEngine, folder: Path, cleanups: Cleanups, new_id: Callable[[], str]) -> None:
        self._engine = engine
        self._folder = folder
        self._cleanups = cleanups
        self._new_id = new_id
        self._one_at_a_time = asyncio.Lock()
        self._problems: dict[str, str | None] = {}
        self._good: EngineCheck | None = None
        self._good_since = 0.0
        # Ours even after a crash: another daemon has another folder.
        self._label = "massgend.probe=" + hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]

    async def check_engine(self) -> EngineCheck:
        """A good result is good for a while: every turn asks, and trying an overlay out costs a container."""
        if self._good is None or time.monotonic() - self._good_since > GOOD_FOR_S:
            found = await self._look_at_engine()
            self._good = found if found.problem is None and found.overlay_volumes else None
            self._good_since = time.monotonic()
            return found
        return self._good

    async def _look_at_engine(self) -> EngineCheck:
        endpoint = self._engine.endpoint
        if not endpoint.startswith(UNIX):
            return _unusable(
                endpoint, f"{endpoint} is not a unix socket: only unix:///path/to/docker.sock works, set DOCKER_HOST"
            )
        try:
            facts = await self._engine.facts()
            problem = _engine_problem(endpoint, facts.api_version, facts.security, facts.missing_limits)
            overlays = problem is None and await self._overlays_work()
        except SandboxError as error:
            return _unusable(endpoint, str(error))
        return EngineCheck(
            endpoint=endpoint,
            version=facts.version,
            overlay_volumes=overlays,
            problem=problem,
            runtimes=facts.runtimes,
        )

    async def check_image(self, image: str) -> ImageCheck:
        """Raises EngineUnreachable."""
        try:
            found = await self._engine.image(image)
        except ImageMissing as error:
            return ImageCheck(image=image, image_id=None, problem=str(error))
        async with self._one_at_a_time:
            if found.image_id not in self._problems:
                self._problems[found.image_id] = await self._image_problem(image, found)
        return ImageCheck(image=image, image_id=found.image_id, problem=self._problems[found.image_id])

    async def _image_problem(self, name: str, image: Image) -> str | None:
        wanted = await self._creation(image, argv=["/bin/sh", "-c", NEEDS_SCRIPT])
        try:
            with anyio.fail_after(PROBE_WITHIN_S):
                made = await self._engine.create(wanted)
                await self._engine.start(made.container_id)
                code = await self._engine.wait(made.container_id)
        except TimeoutError:
            return f"image {name!r}: asking for python3, bash and git took over {PROBE_WITHIN_S:g} s: use another image"
        except (SandboxRefused, SandboxGone) as error:
            return f"image {name!r} cannot run as a sandbox: {error}"
        finally:
            await self._clean_up()
        if code == 0:
            return None
        missing = [need for bit, need in NEEDS.items() if code & bit] if code <= sum(NEEDS) else ["a working /bin/sh"]
        return f"image {name!r} lacks {' and '.join(missing)}: install it in the image, or use massgend/sandbox"

    async def _overlays_work(self) -> bool:
        """Have the engine mount a tiny overlay, in a container that never runs. False also when it has no image yet."""
        image_id = await self._engine.any_image()
        if image_id is None:
            return False
        async with self._one_at_a_time:
            folder = await to_thread.run_sync(self._make_overlay_folder)
            try:
                wanted = await self._creation(
                    Image(image_id=image_id, path="/", volumes=()),
                    argv=["never-run"],
                    mounts=(
                        OverlayMount(
                            lower=folder / "lower", upper=folder / "upper", work=folder / "work", target=PROBE_TARGET
                        ),
                    ),
                )
                made = await self._engine.create(wanted)
                return PROBE_FILE.encode() in await self._engine.read_folder(made.container_id, str(PROBE_TARGET))
            except (SandboxRefused, SandboxGone):
                return False
            finally:
                await self._clean_up()
                await to_thread.run_sync(lambda: shutil.rmtree(folder, ignore_errors=True))

    def _make_overlay_folder(self) -> Path:
        self._folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=".probe-", dir=self._folder))
        for name in ("lower", "upper", "work"):
            (folder / name).mkdir()
        (folder / "lower" / PROBE_FILE).touch()
        return folder

    async def _creation(self, image: Image, *, argv: list[str], mounts: tuple[Mount, ...] = ()) -> Creation:
        uid = os.getuid() or 1000
        staged = await to_thread.run_sync(lambda: stage(self._folder, uid=uid, gid=uid))
        start_id = self._new_id()
        spec = SandboxSpec(
            name=f"massgend-probe-{start_id}",
            owner=Owner(instance="probe", run="probe", agent="probe", generation=0),
            image=image.image_id,
            uid=uid,
            gid=uid,
            mounts=mounts,
            workdir=PurePosixPath("/"),
            limits=PROBE_LIMITS,
        )
        name, _, of_folder = self._label.partition("=")
        socket = self._engine.socket
        return creation(spec, image, staged, start_id=start_id, socket=socket, argv=argv, labels={name: of_folder})

    async def _clean_up(self) -> None:
        await self._cleanups.see_through(take_away(self._engine, [self._label]))


def _unusable(endpoint: str, problem: str) -> EngineCheck:
    return EngineCheck(endpoint=endpoint, version=None, overlay_volumes=False, problem=problem)


def _engine_problem(
    endpoint: str, api_version: str, security: tuple[str, ...], missing_limits: tuple[str, ...]
) -> str | None:
    """PURE: what keeps this engine from keeping the promises of a sandbox."""
    if tuple(int(part) for part in api_version.split(".")) < OLDEST_API:
        return f"the Docker engine at {endpoint} is too old (API {api_version}): Docker 20.10 or later is needed"
    seccomp = [option for option in security if option.startswith("name=seccomp")]
    if not seccomp or any("profile=unconfined" in option for option in seccomp):
        return f"the Docker engine at {endpoint} runs without its default seccomp profile: enable it"
    if missing_limits:
        return f"the Docker engine at {endpoint} cannot limit {' and '.join(missing_limits)}: enable the cgroups for it"
    return None
