"""How runs end when something stands in the way: interrupts, limits, failures, conflicts. Work is never lost."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from tests.e2e.conftest import git, make_repository
from tests.support.installed import Installed, agent, wait_until, write_config

pytestmark = pytest.mark.docker


def config_of(tmp_path: Path, *agents: str, more: str = "") -> Path:
    lines = "".join(f"  - {one}\n" for one in agents)
    return write_config(tmp_path, f"task: t\nagents:\n{lines}{more}")


WORKING = "echo half > half.txt; echo ready; sleep 100"
QUICK = "test -e done.txt && sleep 100; echo done > done.txt; massgend-answer 'done early'"


def started(process: subprocess.Popen[str], marker: str) -> str:
    """Read events until one holds `marker`; the run's id."""
    assert process.stdout is not None
    for line in process.stdout:
        if marker in line:
            run_id: str = json.loads(line)["run"]
            return run_id
    raise AssertionError(f"the run ended before {marker}")


def test_one_ctrl_c_cancels_and_keeps_the_work_on_branches(
    installed: Installed, repository: Path, tmp_path: Path
) -> None:
    config = config_of(tmp_path, agent("quick", QUICK), agent("slow", WORKING))
    process = installed.start("run", "--repo", str(repository), "--config", str(config), "--json")
    run_id = started(process, '"answer_accepted"')
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)

    assert process.returncode == 130, errors
    assert json.loads(output.splitlines()[-1])["status"] == "cancelled"
    assert git(repository, "show", f"massgend/{run_id}/quick:done.txt") == "done"
    assert git(repository, "show", f"massgend/{run_id}/slow:half.txt") == "half"
    assert installed.in_engine() == []
    assert git(repository, "status", "--porcelain") == ""


def test_a_second_ctrl_c_leaves_at_once_and_the_daemon_ends_the_run(
    installed: Installed, repository: Path, tmp_path: Path
) -> None:
    process = installed.start(
        "run", "--repo", str(repository), "--config", str(config_of(tmp_path, agent("slow", WORKING))), "--json"
    )
    run_id = started(process, '"turn_began"')
    process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    before = time.monotonic()
    process.communicate(timeout=20)

    assert process.returncode == 130
    assert time.monotonic() - before < 2
    wait_until(lambda: installed.show(run_id)["status"] == "cancelled", 30, "the run is cancelled")
    assert installed.in_engine() == []


def test_a_terminal_that_goes_away_does_not_end_the_run(installed: Installed, repository: Path, tmp_path: Path) -> None:
    script = "sleep 3; echo x > x; massgend-answer x"
    process = installed.start(
        "run", "--repo", str(repository), "--config", str(config_of(tmp_path, agent("a", script))), "--json"
    )
    run_id = started(process, '"turn_began"')
    process.send_signal(signal.SIGHUP)
    process.communicate(timeout=20)

    wait_until(lambda: installed.show(run_id)["status"] == "delivered", 60, "the run is delivered")
    assert (repository / "x").exists()


def test_the_daemon_is_killed_in_mid_run_and_up_goes_on(installed: Installed, repository: Path, tmp_path: Path) -> None:
    fast = """
        if [ ! -e f ]; then echo f > f; massgend-answer first; exit; fi
        massgend-vote "$(answers 'a[0]["label"]')" --reason r
    """
    slow = """
        if [ ! -e s ]; then sleep 5; echo s > s; massgend-answer second; exit; fi
        massgend-vote "$(answers 'a[0]["label"]')" --reason r
    """
    config = config_of(tmp_path, agent("fast", fast), agent("slow", slow))
    started_run = installed.command("run", "--repo", repository, "--config", config, "--json", "--detach")
    run_id = json.loads(started_run.stdout.splitlines()[-1])["run_id"]
    wait_until(lambda: len(installed.show(run_id)["answers"]) == 1, 60, "the first answer is accepted")
    first = installed.show(run_id)["answers"][0]["commit"]
    installed.kill_daemon()
    assert installed.command("up").exit_code == 0

    wait_until(lambda: installed.show(run_id)["status"] not in ("running", "preparing"), 90, "the run has ended")
    shown = installed.show(run_id)
    assert shown["status"] == "delivered"
    assert shown["answers"][0]["commit"] == first
    assert git(repository, "show", f"massgend/{run_id}/slow:s") == "s"
    assert installed.in_engine() == []


def test_down_leaves_the_run_to_the_next_up(installed: Installed, repository: Path, tmp_path: Path) -> None:
    script = "test -e x && { massgend-answer x; exit; }; echo x > x; sleep 100"
    started_run = installed.command(
        "run", "--repo", repository, "--config", config_of(tmp_path, agent("a", script)), "--json", "--detach"
    )
    run_id = json.loads(started_run.stdout.splitlines()[-1])["run_id"]
    workspace = Path(installed.show(run_id)["agents"][0]["workspace"])
    wait_until(lambda: (workspace / "x").exists(), 60, "the agent works")
    assert installed.command("down").exit_code == 0
    assert installed.in_engine() == []
    assert installed.command("up").exit_code == 0

    wait_until(lambda: installed.show(run_id)["status"] == "delivered", 60, "the run is delivered")


def test_at_the_time_limit_the_workspace_as_it_stands_is_delivered(
    installed: Installed, repository: Path, tmp_path: Path
) -> None:
    config = config_of(tmp_path, agent("slow", WORKING), more="limits: {run_s: 4}\n")
    ended = installed.run(repository, config)

    assert ended.result["status"] == "delivered"
    assert ended.result["decided_by"] == "forced_at_limit"
    assert ended.result["limit_reached"] is True
    assert (repository / "half.txt").read_text() == "half\n"


def test_at_the_time_limit_with_nothing_changed_there_is_no_result(
    installed: Installed, repository: Path, tmp_path: Path
) -> None:
    ended = installed.run(repository, config_of(tmp_path, agent("idle", "sleep 100"), more="limits: {run_s: 3}\n"))

    assert ended.exit_code == 3
    assert ended.result["status"] == "no_result"
    assert git(repository, "for-each-ref", "refs/heads/massgend/") == ""


def test_an_agent_that_keeps_failing_is_out_and_the_others_decide(
    installed: Installed, repository: Path, tmp_path: Path
) -> None:
    good = """
        if [ ! -e g ]; then echo g > g; massgend-answer good; exit; fi
        massgend-vote "$(answers 'a[0]["label"]')" --reason r
    """
    config = config_of(
        tmp_path,
        agent("bad", "echo half > half.txt; echo 'no such luck' >&2; exit 7"),
        agent("good", good),
        more="limits: {backoff_s: 0.1}\n",
    )
    ended = installed.run(repository, config)

    assert ended.result["winner"] == "good"
    failures = [event for event in ended.of_type("turn_failed") if event["agent"] == "bad"]
    assert len(failures) == 3
    assert "exit code 7: no such luck" in failures[0]["reason"]
    branch = ended.result["branches"]["bad"]
    assert git(repository, "show", f"{branch}:half.txt") == "half"


def test_when_all_fail_and_nothing_changed_the_result_says_why(
    installed: Installed, repository: Path, tmp_path: Path
) -> None:
    config = config_of(tmp_path, agent("bad", "echo oh no >&2; exit 7"), more="limits: {backoff_s: 0}\n")
    ended = installed.run(repository, config)

    assert ended.exit_code == 1
    assert ended.result["status"] == "no_result"
    assert "oh no" in ended.result["reason"]


def test_an_agent_that_forgets_to_decide_is_reminded_in_the_same_turn(
    installed: Installed, repository: Path, tmp_path: Path
) -> None:
    script = 'echo x > x; [ "$MASSGEND_REMINDER" = 0 ] || massgend-answer "reminded $MASSGEND_REMINDER"'
    ended = installed.run(repository, config_of(tmp_path, agent("a", script)))

    assert ended.result["answers"][0]["summary"] == "reminded 1"
    assert len(ended.of_type("turn_began")) == 1


def test_an_unchanged_answer_is_refused_with_the_reason_and_costs_a_reminder(
    installed: Installed, repository: Path, tmp_path: Path
) -> None:
    ended = installed.run(
        repository, config_of(tmp_path, agent("a", "massgend-answer nothing"), more="limits: {backoff_s: 0}\n")
    )

    assert ended.result["status"] == "no_result"
    assert "has not changed" in ended.of_type("answer_refused")[0]["reason"]


def test_a_memory_hog_is_told_apart_from_a_failed_program(
    installed: Installed, repository: Path, tmp_path: Path
) -> None:
    more = "limits: {backoff_s: 0, max_failures: 1}\nsandbox: {memory: 128m}\n"
    script = "python3 -c 'x = bytearray(500_000_000)'; echo done"
    ended = installed.run(repository, config_of(tmp_path, agent("hog", f"set -e; {script}"), more=more))

    assert "memory" in ended.result["reason"]


def test_a_conflicting_merge_touches_nothing_and_says_what_to_type(
    installed: Installed, repository: Path, tmp_path: Path
) -> None:
    config = config_of(tmp_path, agent("a", "sleep 2; echo agent > README.md; massgend-answer a"))
    process = installed.start("run", "--repo", str(repository), "--config", str(config), "--json")
    run_id = started(process, '"turn_began"')
    (repository / "README.md").write_text("user\n")
    git(repository, "commit", "-q", "-am", "meanwhile")
    head = git(repository, "rev-parse", "HEAD")
    output, _ = process.communicate(timeout=60)
    result = json.loads(output.splitlines()[-1])

    assert process.returncode == 4
    assert result["status"] == "decided"
    assert result["merge"]["conflicts"] == ["README.md"]
    assert git(repository, "rev-parse", "HEAD") == head
    assert git(repository, "status", "--porcelain") == ""
    assert any("massgend/" + run_id in command for command in result["merge"]["commands"])


def test_uncommitted_work_of_the_user_is_never_touched(installed: Installed, repository: Path, tmp_path: Path) -> None:
    (repository / "README.md").write_text("# my draft\n")
    (repository / "notes.txt").write_text("mine\n")
    config = config_of(tmp_path, agent("a", "echo agent > README.md; echo n > notes.txt; massgend-answer a"))
    ended = installed.run(repository, config)

    assert ended.exit_code == 4
    assert (repository / "README.md").read_text() == "# my draft\n"
    assert (repository / "notes.txt").read_text() == "mine\n"


def test_uncommitted_work_comes_along_when_asked(installed: Installed, repository: Path, tmp_path: Path) -> None:
    (repository / "draft.txt").write_text("draft\n")
    config = config_of(tmp_path, agent("a", "cat draft.txt > copy.txt; massgend-answer a"))
    ended = installed.run(repository, config, "--include-dirty")

    branch = ended.result["branches"]["a"]
    assert git(repository, "show", f"{branch}:copy.txt") == "draft"
    assert (repository / "draft.txt").read_text() == "draft\n"


def test_without_a_repository_a_folder_is_delivered(installed: Installed, tmp_path: Path) -> None:
    config = config_of(tmp_path, agent("a", "mkdir d; echo x > d/x; massgend-answer a"))
    target = tmp_path / "out"
    ended = installed.command("run", "--config", config, "--output", target, "--json", cwd=tmp_path)

    assert ended.exit_code == 0, ended.stderr
    assert (target / "d" / "x").read_text() == "x\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_an_answer_whose_snapshot_fails_on_a_full_disk_is_not_accepted_and_the_work_is_still_there(
    tmp_path: Path,
) -> None:
    state = Path(tempfile.mkdtemp(prefix="mge-"))
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m,mode=0700", "tmpfs", state], check=True)
    installed = Installed(state=state, environment={"MASSGEND_MIN_FREE_MB": "0"})
    try:
        repository = make_repository(tmp_path / "big", {"a": "1\n"})
        script = "test -e big.bin || head -c 40000000 /dev/urandom > big.bin; massgend-answer big"
        config = config_of(tmp_path, agent("a", script), more="limits: {backoff_s: 0.1}\n")
        ended = installed.run(repository, config)

        assert ended.exit_code == 1, ended.stdout[-2000:]
        assert ended.of_type("answer_accepted") == []
        assert ended.result["answers"] == []
        assert "could not be saved" in ended.result["reason"]
        assert "No space left" in ended.result["reason"]
        kept = Path(ended.result["agents"][0]["workspace"]) / "big.bin"
        assert kept.stat().st_size == 40_000_000
        assert len(hashlib.sha256(kept.read_bytes()).hexdigest()) == 64
        assert installed.in_engine() == []
    finally:
        installed.end()
        subprocess.run(["umount", "--lazy", state], check=True)
        shutil.rmtree(state)
