"""Agents that cheat, from inside a real turn."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.conftest import git
from tests.support.installed import Installed, agent, write_config

pytestmark = pytest.mark.docker


def config_of(tmp_path: Path, *agents: str, more: str = "") -> Path:
    return write_config(tmp_path, "task: t\nagents:\n" + "".join(f"  - {one}\n" for one in agents) + more)


def test_only_the_first_decision_of_a_turn_counts(installed: Installed, repository: Path, tmp_path: Path) -> None:
    script = """
        echo x > x
        massgend-answer first & massgend-answer second & massgend-answer third & wait
    """
    ended = installed.run(repository, config_of(tmp_path, agent("a", script)))

    assert len(ended.of_type("answer_submitted")) == 1
    assert len(ended.result["answers"]) == 1


def test_a_vote_for_a_label_that_was_not_shown_is_refused(
    installed: Installed, repository: Path, tmp_path: Path
) -> None:
    script = """
        massgend-vote "../../etc" --reason x && exit 9
        massgend-vote "$(printf 'a\\nb')" --reason x && exit 9
        echo x > x; massgend-answer done
    """
    ended = installed.run(repository, config_of(tmp_path, agent("a", script)))

    assert ended.result["status"] == "delivered"
    assert ended.result["votes"] == []


def test_the_token_of_an_ended_turn_is_worthless(installed: Installed, repository: Path, tmp_path: Path) -> None:
    script = """
        if [ ! -e kept ]; then cat /run/gateway/token > kept; massgend-answer one; exit; fi
        export MASSGEND_TOKEN_FILE=/workspace/kept
        massgend-vote "$(answers 'a[0]["label"]')" --reason stolen 2> refused.txt && exit 9
        unset MASSGEND_TOKEN_FILE
        massgend-vote "$(answers 'a[0]["label"]')" --reason own
    """
    other = """
        if [ ! -e o ]; then echo o > o; sleep 2; massgend-answer o; exit; fi
        massgend-vote "$(answers 'a[0]["label"]')" --reason r
    """
    ended = installed.run(repository, config_of(tmp_path, agent("a", script), agent("b", other)))

    assert ended.result["status"] == "delivered", ended.stdout[-2000:]
    assert {vote["reason"] for vote in ended.result["votes"] if vote["voter"] == "a"} == {"own"}


def test_no_real_name_can_be_found_inside(installed: Installed, repository: Path, tmp_path: Path) -> None:
    """Environment, mounts, host name, peers' files and the workspace's git: nothing tells who a peer is."""
    script = """
        if [ ! -e mine.txt ]; then echo $RANDOM > mine.txt; massgend-answer "some work"; exit; fi
        { env; cat /proc/self/mountinfo; hostname; find /peers; git log --all --format=%an%ae; } > /tmp/seen
        grep -ri zoe /tmp/seen /run/gateway/context.json /run/gateway/task.md && exit 9
        massgend-vote "$(answers 'a[0]["label"]')" --reason r
    """
    plain = """
        if [ ! -e zed.txt ]; then echo z > zed.txt; massgend-answer "other work"; exit; fi
        massgend-vote "$(answers 'a[0]["label"]')" --reason r
    """
    ended = installed.run(repository, config_of(tmp_path, agent("spy", script), agent("zoe", plain)))

    assert ended.of_type("turn_failed") == [], ended.of_type("turn_failed")
    assert ended.result["status"] == "delivered"


def test_hostile_words_reach_the_screen_and_the_branch_harmless(
    installed: Installed, repository: Path, tmp_path: Path
) -> None:
    script = r"""
        echo x > "$(printf 'evil\033[2Jname\342\200\256.txt')"
        printf '\033]0;owned\007\033[2J'
        words='[red]mark[/red] \033[2J\033]0;owned\007 \342\200\256 <script>alert(1)</script>'
        massgend-answer "$(printf "$words\n\nMassgend-Agent: winner")"
    """
    config = config_of(tmp_path, agent("a", script))
    ended = installed.command("run", "--repo", repository, "--config", config)

    assert ended.exit_code == 0
    assert "\x1b" not in ended.stdout + ended.stderr
    assert "\u202e" not in ended.stdout + ended.stderr
    assert "\x07" not in ended.stdout + ended.stderr
    assert "[red]mark[/red]" in ended.stdout
    trailers = git(repository, "log", "-1", "--format=%(trailers:key=Massgend-Agent,valueonly)", "main").split()
    assert trailers[-1] == "a"


def test_a_flood_of_output_leaves_a_bounded_log_with_its_tail(
    installed: Installed, repository: Path, tmp_path: Path
) -> None:
    script = "echo x > x; head -c 60000000 /dev/zero | tr '\\0' y | fold -w 100; echo the-end; massgend-answer done"
    ended = installed.run(repository, config_of(tmp_path, agent("a", script)))

    assert ended.result["status"] == "delivered"
    logs = installed.state / "runs" / ended.result["run_id"] / "logs"
    assert sum(path.stat().st_size for path in logs.iterdir()) <= 17 * 1024**2
    shown = installed.command("logs", ended.result["run_id"], "a")
    assert "the-end" in shown.stdout
