"""Real Claude Code agents in real containers, led by the scripted model: the whole way, and what they must not see."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.e2e.conftest import git, make_repository
from tests.support.installed import Installed, wait_until, write_config

pytestmark = [pytest.mark.docker, pytest.mark.timeout(300)]

EXAMPLE = Path("examples/claude-offline/run.yaml")
CANARY = "sk-ant-canary-0123456789abcdef0123456789abcdef"
QUICK = """
```massgend-script
answers: {best: "Answers so far"}
unless: "None yet."
steps:
  - call: vote
    with: {label: "{{best}}", reason: "It is there."}
```
```massgend-script
steps:
  - say: At once.
    call: Bash
    with: {command: "date > made.txt; %s"}
  - call: new_answer
    with: {summary: "Made."}
```
"""


@pytest.fixture
def provider() -> Iterator[str]:
    """The scripted model as a provider that a key is sent to; its base URL."""
    process = subprocess.Popen([sys.executable, "-m", "massgend.scripted"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        url = next(found[0] for line in process.stdout if (found := re.search(r"http://[\d.]+:\d+", line)))
        yield url
    finally:
        process.terminate()
        process.wait(10)
        process.stdout.close()


@pytest.fixture
def keyed(provider: str) -> Iterator[Installed]:
    """A user whose environment holds a key (a canary) and a provider to send it to."""
    state = Path(tempfile.mkdtemp(prefix="mgk-"))
    product = Installed(state=state, environment={"ANTHROPIC_API_KEY": CANARY, "ANTHROPIC_BASE_URL": provider})
    yield product
    product.end()
    assert product.in_engine() == []
    shutil.rmtree(state)


def quick_config(folder: Path, command: str = "true", more: str = "") -> Path:
    agents = [
        {"name": "a", "kind": "claude-code", "model": "scripted-1", "append_system_prompt": QUICK % command},
    ]
    return write_config(folder, f"task: make it\nagents: {json.dumps(agents)}\npresentation: false\n{more}")


def test_three_claude_code_agents_answer_restart_by_resume_run_a_peers_test_vote_and_merge(
    installed: Installed, tmp_path: Path
) -> None:
    repository = make_repository(tmp_path / "site", {"README.md": "# site\n"})
    ended = installed.command(
        "run", "--repo", repository, "--config", "@examples/claude-offline", "--json", "build a page", timeout_s=280
    )

    assert ended.exit_code == 0, (ended.stdout + ended.stderr)[-2000:]
    result = ended.result
    assert (result["status"], result["winner"], result["scripted"]) == ("delivered", "bob", True)
    assert {answer["agent"] for answer in result["answers"]} == {"ada", "bob", "cyd"}
    assert "Its test passes when I run it in /peers/" in json.dumps(result["votes"])
    assert result["presentation"] is not None
    assert all(agent["usage"]["calls"] > 0 for agent in result["agents"])
    assert "<h1>" in (repository / "index.html").read_text()
    # One session an agent, however many containers it had: it was resumed.
    for agent in result["agents"]:
        sessions = list((Path(agent["workspace"]).parent / "home").rglob("projects/*/*.jsonl"))
        assert len(sessions) == 1, (agent["name"], sessions)


def test_the_key_is_nowhere_inside_nor_in_anything_that_is_kept_or_said(keyed: Installed, tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "site", {"README.md": "# site\n"})
    record = tmp_path / "record.jsonl"
    command = "env > env.txt; cat /proc/*/environ /proc/*/cmdline > procs.txt 2>/dev/null; sleep 4"
    config = quick_config(tmp_path, command)
    process = keyed.start("run", "--repo", str(repository), "--config", str(config), "--json", "--record", str(record))
    seen: list[str] = []
    while process.poll() is None:
        for container in keyed.in_engine():
            shown = subprocess.run(["docker", "inspect", container], env=keyed.env, capture_output=True, text=True)
            seen.append(shown.stdout)
        time.sleep(0.3)
    output, errors = process.communicate(timeout=60)

    assert json.loads(output.splitlines()[-1])["status"] == "delivered", errors
    assert any('"State"' in text for text in seen), "no container was looked at"
    assert CANARY not in "".join(seen) + output + errors
    files = [path for root in (keyed.state, tmp_path) for path in root.rglob("*") if path.is_file()]
    assert record in files
    assert any(path.name == "procs.txt" and path.stat().st_size > 100 for path in files)
    assert [path for path in files if CANARY.encode() in path.read_bytes()] == []


def test_a_recorded_run_is_replayed_without_a_key_or_a_provider(
    keyed: Installed, installed: Installed, tmp_path: Path
) -> None:
    config = quick_config(tmp_path)
    record = tmp_path / "record.jsonl"
    first = make_repository(tmp_path / "first", {"README.md": "# site\n"})
    recorded = keyed.run(first, config, "--record", str(record))
    again = make_repository(tmp_path / "again", {"README.md": "# site\n"})
    replayed = installed.run(again, config, "--replay", str(record))

    assert recorded.result["status"] == "delivered", recorded.stderr
    assert replayed.result["status"] == "delivered", replayed.stdout[-2000:]
    assert replayed.result["answers"][0]["summary"] == recorded.result["answers"][0]["summary"] == "Made."
    assert replayed.result["answers"][0]["label"] == recorded.result["answers"][0]["label"]


def test_a_used_up_budget_ends_the_run_with_what_is_there(keyed: Installed, tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "site", {"README.md": "# site\n"})
    config = quick_config(tmp_path, more="limits: {max_tokens: 150}\n")
    ended = keyed.run(repository, config)

    assert ended.of_type("budget_reached")[0]["agent"] is None
    assert ended.result["limit_reached"] is True
    assert ended.result["status"] == "delivered"
    assert (repository / "made.txt").exists()


def test_without_a_key_the_run_is_refused_before_anything_starts(installed: Installed, tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "site", {"README.md": "# site\n"})
    ended = installed.command("run", "--repo", repository, "--agent", "claude-code", "build it")

    assert ended.exit_code == 2
    assert "ANTHROPIC_API_KEY" in ended.stderr
    assert git(repository, "for-each-ref", "refs/heads/massgend/") == ""


def test_after_kill_9_of_the_daemon_no_process_of_the_agent_runs_within_5_s_and_the_session_goes_on(
    keyed: Installed, tmp_path: Path
) -> None:
    repository = make_repository(tmp_path / "site", {"README.md": "# site\n"})
    config = quick_config(tmp_path, "test -e once || { touch once; sleep 77; }")
    started = keyed.command("run", "--repo", repository, "--config", config, "--json", "--detach")
    run_id = json.loads(started.stdout.splitlines()[-1])["run_id"]
    workspace = Path(keyed.show(run_id)["agents"][0]["workspace"])
    wait_until(lambda: (workspace / "once").exists(), 60, "Claude Code runs its command")
    container = keyed.in_engine()[0]
    assert "claude" in processes(keyed, container)
    pid = keyed.pid()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)

    wait_until(lambda: not re.search("claude|sleep 77", processes(keyed, container)), 5, "nothing of it runs")
    assert keyed.command("up").exit_code == 0
    wait_until(lambda: keyed.show(run_id)["status"] not in ("running", "preparing"), 120, "the run has ended")
    assert keyed.show(run_id)["status"] == "delivered"


def processes(installed: Installed, container: str) -> str:
    shown = subprocess.run(
        ["docker", "top", container, "-eo", "pid,args"], env=installed.env, capture_output=True, text=True
    )
    return shown.stdout


def test_the_example_needs_no_key_and_names_no_provider() -> None:
    config = yaml.safe_load(EXAMPLE.read_text())

    assert config["scripted_model"]
    assert {agent["model"] for agent in config["agents"]} == {"scripted-1"}
