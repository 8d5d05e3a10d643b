"""`make bench`: what massgend adds to bare containers, on this machine, as medians and ratios to a floor.

1. From `massgend run` on a warm daemon to the first process of the last of three agents,
   against three parallel `docker run --rm IMAGE true`.
2. From the last vote to the merged branch, and to the run's end.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RUNS = 7
IMAGE = "massgend/sandbox"
MASSGEND = Path(sys.executable).with_name("massgend")
SCRIPT = """
    if [ ! -e {name} ]; then date +%s.%N > {name}; massgend-answer {name}; exit; fi
    massgend-vote "$(python3 -c "$FIRST_LABEL")" --reason first
"""
FIRST_LABEL = """export FIRST_LABEL='
import json, os
print(json.load(open(os.environ["MASSGEND_CONTEXT_FILE"]))["answers"][0]["label"])'
"""


def main() -> None:
    state = Path(tempfile.mkdtemp(prefix="mgb-"))
    environment = {**os.environ, "MASSGEND_STATE": str(state)}
    try:
        subprocess.run([MASSGEND, "up"], env=environment, check=True, capture_output=True)
        rows = [_one(state, environment, number) for number in range(RUNS)]
    finally:
        subprocess.run([MASSGEND, "down"], env=environment, capture_output=True, check=False)
        shutil.rmtree(state)
    floors, starts, merges, ends = zip(*rows, strict=True)
    floor = statistics.median(floors)
    print(f"median of {RUNS} runs; spread is (max - min) / 2\n")
    print(f"{'':58} {'seconds':>8} {'spread':>7} {'x floor':>8}")
    _row("floor: three parallel `docker run --rm IMAGE true`", floors, floor)
    _row("`massgend run` to the third agent's first process", starts, floor)
    _row("last vote to merged branch", merges, floor)
    _row("last vote to the run's end", ends, floor)


def _row(name: str, seconds: tuple[float, ...], floor: float) -> None:
    median = statistics.median(seconds)
    print(f"{name:58} {median:8.3f} {(max(seconds) - min(seconds)) / 2:7.3f} {median / floor:8.2f}")


def _one(state: Path, environment: dict[str, str], number: int) -> tuple[float, float, float, float]:
    floor = _three_containers()
    repository = state / f"repository-{number}"
    repository.mkdir()
    for argv in (
        ["init", "-q", "-b", "main"],
        ["-c", "user.name=b", "-c", "user.email=b@example.org", "commit", "-q", "--allow-empty", "-m", "start"],
    ):
        subprocess.run(["git", *argv], cwd=repository, check=True)
    names = ("ada", "bob", "cyd")
    agents = [{"name": name, "kind": "command", "run": FIRST_LABEL + SCRIPT.format(name=name)} for name in names]
    config = state / "run.yaml"
    config.write_text(json.dumps({"task": "bench", "agents": agents}))
    began = time.time()
    done = subprocess.run(
        [MASSGEND, "run", "--repo", repository, "--config", config, "--json"],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    events = [json.loads(line) for line in done.stdout.splitlines()]
    branches = events[-1]["branches"]
    first = [_first_process(repository, branches[name], name) for name in names]
    last_vote = max(event["at"] for event in events if event["type"] == "vote_cast")
    at = {event["type"]: event["at"] for event in events if "at" in event}
    return floor, max(first) - began, at["run_delivered"] - last_vote, at["run_ended"] - last_vote


def _three_containers() -> float:
    began = time.perf_counter()
    processes = [subprocess.Popen(["docker", "run", "--rm", "--network", "none", IMAGE, "true"]) for _ in range(3)]
    for process in processes:
        if process.wait() != 0:
            raise SystemExit("docker run failed")
    return time.perf_counter() - began


def _first_process(repository: Path, branch: str, name: str) -> float:
    shown = subprocess.run(
        ["git", "show", f"{branch}:{name}"], cwd=repository, check=True, capture_output=True, text=True
    )
    return float(shown.stdout)


if __name__ == "__main__":
    main()
