"""scripts/engine starts a real engine of its own beside the one of the tests, with folders of its own, and stops it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import docker
import pytest

from tests.support.scripts import SCRIPTS, engine, run

DOCKERD = shutil.which("dockerd", path=os.environ.get("PATH", "") + ":/usr/sbin")
BRIDGE = Path("/sys/class/net/docker0")

pytestmark = [
    pytest.mark.docker,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may start an engine"),
    pytest.mark.skipif(DOCKERD is None, reason="the engine in use is not installed on this machine"),
]


@dataclass(frozen=True, kw_only=True)
class Own:
    folder: Path

    @property
    def environment(self) -> dict[str, str | None]:
        return {
            "MASSGEND_ENGINE_RUN": str(self.folder),
            "MASSGEND_ENGINE_DATA": str(self.folder / "engine"),
            "DOCKER_HOST": None,
        }

    @property
    def pid(self) -> int:
        return int((self.folder / "docker.pid").read_text())

    def start(self, dockerd: str | Path) -> subprocess.CompletedProcess[str]:
        """As `ensure` does when no other engine answers, whatever answers on this machine."""
        script = (
            f"import runpy\n"
            f"script = runpy.run_path({str(SCRIPTS / 'engine')!r})\n"
            f"try: print(script['start_own']({str(dockerd)!r}))\n"
            f"except script['NoEngineError'] as error: raise SystemExit(str(error))\n"
        )
        return run(sys.executable, "-W", "ignore", "-c", script, **self.environment)

    def stop(self) -> subprocess.CompletedProcess[str]:
        return engine("stop", **self.environment)

    def answers(self) -> bool:
        client = docker.DockerClient(base_url=f"unix://{self.folder}/docker.sock", timeout=10)
        try:
            return bool(client.ping())
        finally:
            client.close()

    def mounts(self) -> list[str]:
        return [line for line in Path("/proc/mounts").read_text().splitlines() if str(self.folder) in line]


def runs(pid: int) -> bool:
    """Whether a process does anything still; one that its parent has not taken note of has no arguments left."""
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    except OSError:
        return False


@pytest.fixture
def own() -> Iterator[Own]:
    with tempfile.TemporaryDirectory(prefix="mgs-") as folder:
        tested = Own(folder=Path(folder))
        yield tested
        assert tested.stop().returncode == 0
        assert tested.mounts() == []


def test_an_engine_of_its_own_answers_and_is_gone_after_stop(own: Own) -> None:
    assert DOCKERD is not None
    had_bridge = BRIDGE.exists()
    started = own.start(DOCKERD)
    assert (started.returncode, started.stdout) == (0, f"unix://{own.folder}/docker.sock\n"), started.stderr
    assert own.answers()
    pid = own.pid
    assert own.stop().returncode == 0
    assert not runs(pid)
    assert not list(own.folder.glob("docker.*"))
    assert BRIDGE.exists() == had_bridge, "the network of another engine is not ours to remove"


def test_an_engine_that_was_killed_is_started_again(own: Own) -> None:
    assert DOCKERD is not None
    assert own.start(DOCKERD).returncode == 0
    killed = own.pid
    os.kill(killed, signal.SIGKILL)
    again = own.start(DOCKERD)
    assert again.returncode == 0, again.stderr
    assert own.pid != killed
    assert own.answers()


def test_a_second_start_uses_the_engine_that_runs(own: Own) -> None:
    assert DOCKERD is not None
    assert own.start(DOCKERD).returncode == 0
    first = own.pid
    assert own.start(DOCKERD).returncode == 0
    assert own.pid == first


def test_an_engine_that_does_not_start_shows_the_end_of_its_log(own: Own) -> None:
    broken = own.folder / "dockerd"
    broken.write_text("#!/bin/sh\necho 'no such storage' >&2\nexit 1\n")
    broken.chmod(0o755)
    done = own.start(broken)
    assert done.returncode == 1
    assert "no such storage" in done.stderr
    assert f"all of it in {own.folder}/engine/engine.log" in done.stderr
