"""The installed product, driven from outside: the real command, a daemon with a state of its own, a real engine."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

COMMAND = Path(sys.executable).with_name("massgend")
CONTEXT = (
    'answers() { python3 -c "import json,os;'
    "a=json.load(open(os.environ['MASSGEND_CONTEXT_FILE']))['answers'];print($1)\"; }\n"
)
"""For agents' scripts: `answers EXPRESSION` prints a Python expression over the list `a` of answers in context."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A command that ended."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.stdout.splitlines() if line.startswith("{")]

    @property
    def result(self) -> dict[str, Any]:
        last = self.events[-1]
        assert last["type"] == "result", last
        return last

    def of_type(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["type"] == kind]


@dataclass(kw_only=True)
class Installed:
    """One user's massgend. `end` takes the daemon down and tells what is left of it in the engine."""

    state: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def env(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "DOCKER_HOST", "LANG") if name in os.environ}
        return {**kept, "MASSGEND_STATE": str(self.state), "TERM": "dumb", **self.environment}

    def command(self, *arguments: str | Path, cwd: Path | None = None, timeout_s: float = 150) -> Ended:
        done = subprocess.run(
            [COMMAND, *arguments], cwd=cwd, env=self.env, capture_output=True, text=True, timeout=timeout_s
        )
        return Ended(exit_code=done.returncode, stdout=done.stdout, stderr=done.stderr)

    def start(self, *arguments: str | Path, cwd: Path | None = None) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [COMMAND, *arguments], cwd=cwd, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def run(self, repository: Path, config: Path, *more: str, timeout_s: float = 150) -> Ended:
        return self.command("run", "--repo", repository, "--config", config, "--json", *more, timeout_s=timeout_s)

    def show(self, run_id: str) -> dict[str, Any]:
        shown: dict[str, Any] = json.loads(self.command("show", run_id, "--json").stdout)
        return shown

    def pid(self) -> int | None:
        pid: int | None = json.loads(self.command("status", "--json").stdout)["pid"]
        return pid

    def kill_daemon(self) -> None:
        """SIGKILL, and wait until the process is gone."""
        pid = self.pid()
        assert pid is not None, "no daemon runs"
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not _alive(pid), 10, "the daemon is gone")

    def in_engine(self) -> list[str]:
        """Containers and volumes of this instance; none before its daemon has ever run."""
        if not (self.state / "instance").exists():
            return []
        label = f"label=massgend.instance={(self.state / 'instance').read_text().strip()}"
        containers = subprocess.run(
            ["docker", "ps", "-aq", "--filter", label], env=self.env, capture_output=True, text=True, check=True
        )
        volumes = subprocess.run(
            ["docker", "volume", "ls", "-q", "--filter", label],
            env=self.env,
            capture_output=True,
            text=True,
            check=True,
        )
        return containers.stdout.split() + volumes.stdout.split()

    def end(self) -> None:
        with contextlib.suppress(ValueError, KeyError):
            self.command("down", timeout_s=60)


def _alive(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rsplit(")", 1)[1].split()[0] != "Z"


def wait_until(true: Callable[[], bool], timeout_s: float, what: str) -> None:
    end = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < end, f"not within {timeout_s:g} s: {what}"
        time.sleep(0.1)


def write_config(folder: Path, text: str) -> Path:
    path = folder / "run.yaml"
    path.write_text(textwrap.dedent(text))
    return path


def agent(name: str, script: str) -> str:
    """One agent of kind `command` as YAML text for a configuration."""
    return json.dumps({"name": name, "kind": "command", "run": CONTEXT + textwrap.dedent(script)})
