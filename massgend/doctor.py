"""`massgend doctor`: looks at everything a run needs and says in plain words what is missing."""

from __future__ import annotations

import os
import re
import shutil
import sys

from massgend.api.schemas import DoctorLine
from massgend.orchestrator.ports import Ports
from snapshots.errors import GitFailed
from snapshots.git import Git

MIN_GIT = (2, 38)
LOW_DISK_BYTES = 2 * 1024**3


async def examine(ports: Ports, image: str) -> tuple[DoctorLine, ...]:
    """Every check, also after one has failed. Read-only; takes up to a few seconds."""
    return (_python(), _git(), _state(ports), _disk(ports), *await _engine(ports, image))


def _python() -> DoctorLine:
    return DoctorLine(name="python", ok=True, detail=f"{sys.version.split()[0]} at {sys.executable}")


def _git() -> DoctorLine:
    try:
        text = Git.ours(None).text("version")
    except (GitFailed, OSError) as error:
        return DoctorLine(name="git", ok=False, detail=str(error), advice="Install git 2.38 or newer.")
    numbers = tuple(int(part) for part in re.findall(r"\d+", text)[:2])
    advice = "" if numbers >= MIN_GIT else "Merging needs git 2.38 or newer."
    return DoctorLine(name="git", ok=not advice, detail=text, advice=advice)


def _state(ports: Ports) -> DoctorLine:
    mode = ports.state.stat().st_mode & 0o777
    ok = mode & 0o077 == 0 and os.access(ports.state, os.W_OK)
    advice = "" if ok else f"chmod 700 {ports.state}"
    return DoctorLine(name="state", ok=ok, detail=f"{ports.state} (mode {mode:o})", advice=advice)


def _disk(ports: Ports) -> DoctorLine:
    free = shutil.disk_usage(ports.state).free
    ok = free >= LOW_DISK_BYTES
    advice = "" if ok else "Free some space: `massgend gc` lists what ended runs hold."
    return DoctorLine(name="disk", ok=ok, detail=f"{free / 1024**3:.1f} GiB free at {ports.state}", advice=advice)


async def _engine(ports: Ports, image: str) -> tuple[DoctorLine, ...]:
    engine = await ports.provider.check_engine()
    if engine.problem is not None:
        return (DoctorLine(name="engine", ok=False, detail=engine.endpoint, advice=engine.problem),)
    found = DoctorLine(name="engine", ok=True, detail=f"Docker {engine.version} at {engine.endpoint}")
    views = "a private scratch over each peer's answer" if engine.overlay_volumes else "peers' answers are read-only"
    overlay = DoctorLine(name="overlay", ok=engine.overlay_volumes, detail=views)
    checked = await ports.provider.check_image(image)
    sandbox = DoctorLine(
        name="image", ok=checked.problem is None, detail=checked.image_id or image, advice=checked.problem or ""
    )
    return found, overlay, sandbox
