"""PURE: what a failure means: the program failed, the sandbox is gone, the engine said no, or there is no engine.

Fed with status codes and texts as engines really send them (tests/unit/test_sandbox_failure.py holds captured ones).
"""

from __future__ import annotations

from sandboxes.errors import EngineUnreachable, ImageMissing, SandboxError, SandboxGone, SandboxRefused

OWN_IMAGE = "massgend/sandbox"

_GONE = (
    "no such container",
    "no such exec",
    "is not running",
    "is paused",
    "is restarting",
    "is marked for removal",
    "is dead",
    "container has been stopped",
    "container not found",
    "cannot exec in a stopped",
)
_ENGINE = ("containerd.sock", "transport is closing", "connection refused", "shutting down")


def error_of(what: str, status: int | None, message: str, *, endpoint: str) -> SandboxError:
    """The error for a call to the engine that did not work; `status` is None when no HTTP answer came at all."""
    text = message.strip().rstrip(".")
    low = text.lower()
    if status is None:
        return EngineUnreachable(
            f"{what}: the Docker engine at {endpoint} does not answer ({text}): start it "
            "(systemctl start docker, or make engine where massgend set it up), or see that you may use it"
        )
    if status == 404 and "no such image" in low:
        return ImageMissing(f"{what}: {text}: build or pull it first")
    if status in (404, 409, 500) and any(sign in low for sign in _GONE):
        return SandboxGone(f"{what}: {text}")
    if status == 503 or (status == 500 and any(sign in low for sign in _ENGINE)):
        return EngineUnreachable(f"{what}: the Docker engine at {endpoint} is in trouble: {text}")
    return SandboxRefused(f"{what}: the Docker engine refused: {text}")


def is_absent(status: int | None, message: str) -> bool:
    """What we wanted to be rid of is not there, or is being removed by somebody else."""
    low = message.lower()
    return status == 404 or (status == 409 and ("already in progress" in low or "is not running" in low))


def missing_image(image: str, endpoint: str) -> str:
    how = "`make image` builds it" if image == OWN_IMAGE else f"build or pull it first (docker pull {image})"
    return f"image {image!r} is not in the Docker engine at {endpoint}: {how}"


def end_of_exec(
    what: str, *, exit_code: int | None, started: bool, sandbox_runs: bool, said: str
) -> int | SandboxError:
    """What the end of an exec's stream means; `said` is the beginning of its output.

    137 alone does not tell: the program was killed, or the whole sandbox was. An exec that never got a pid did not
    fail, it was never run, although Docker gives it an exit code.
    """
    if not started or exit_code is None:
        if not sandbox_runs:
            return SandboxGone(f"{what}: the sandbox ended before it could run")
        return SandboxRefused(
            f"{what} could not be run in the sandbox: {said.strip() or 'the engine does not say why'}"
        )
    if exit_code == 137 and not sandbox_runs:
        return SandboxGone(f"{what}: the sandbox ended while it ran")
    return exit_code
