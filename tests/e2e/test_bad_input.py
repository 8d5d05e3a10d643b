"""Each mistake: exit code 2, one plain sentence with what to do, nothing made, nothing left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.conftest import git
from tests.support.installed import Installed, write_config

pytestmark = pytest.mark.docker

GOOD = "task: t\nagents: [{name: a, kind: command, run: 'true'}]\n"

MISTAKES = {
    "unknown kind": (GOOD.replace("command", "wizard"), ["wizard", "command"]),
    "no agents": ("task: t\nagents: []\n", ["agent"]),
    "no task": (GOOD.replace("task: t\n", ""), ["task"]),
    "broken yaml": ("task: t\nagents: [\n", ["run.yaml:3", "YAML"]),
    "unknown key": (GOOD + "colour: red\n", ["run.yaml:3", "colour"]),
    "unknown key of a check": (GOOD + "checks:\n  - {name: c, run: x, cmd: y}\n", ["run.yaml:4", "cmd"]),
    "negative limit": (GOOD + "limits: {answers: -1}\n", ["run.yaml:3", "answers"]),
    "a limit that is no number": (GOOD + "limits: {run_s: soon}\n", ["run.yaml:3", "run_s"]),
    "a size that is none": (GOOD + "sandbox: {memory: much}\n", ["run.yaml:3", "512m"]),
    "same name twice": (
        "task: t\nagents: [{name: a, kind: command, run: x}, {name: A, kind: command, run: y}]\n",
        ["twice"],
    ),
    "name with slash": (GOOD.replace("name: a", "name: ../a"), ["../a", "name"]),
    "reserved name": (GOOD.replace("name: a", "name: winner"), ["winner"]),
    "unknown merge mode": (GOOD + "merge: yes-please\n", ["run.yaml:3", "squash"]),
    "no such image": (GOOD + "sandbox: {image: 'no.such/image:0'}\n", ["no.such/image:0", "docker pull"]),
    "no such runtime": (GOOD + "sandbox: {runtime: no-such-runtime}\n", ["no-such-runtime"]),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_in_a_plain_sentence_and_makes_nothing(
    installed: Installed, repository: Path, tmp_path: Path, mistake: str
) -> None:
    text, said = MISTAKES[mistake]
    ended = installed.command("run", "--repo", repository, "--config", write_config(tmp_path, text))
    lines = [line for line in (ended.stdout + ended.stderr).splitlines() if line.strip()]

    assert ended.exit_code == 2, ended.stdout
    assert len(lines) <= 4, lines
    assert "Traceback" not in ended.stderr
    for word in said:
        assert word in ended.stderr, f"{word!r} is not in {ended.stderr!r}"
    assert git(repository, "for-each-ref", "refs/heads/massgend/") == ""
    assert installed.in_engine() == []
    assert installed.command("ps").stdout.count("\n") <= 2


def test_a_missing_repository_is_told(installed: Installed, tmp_path: Path) -> None:
    ended = installed.command("run", "--repo", "/nonexistent/repo", "--config", write_config(tmp_path, GOOD))

    assert ended.exit_code == 2
    assert "/nonexistent/repo" in ended.stderr


def test_a_missing_engine_is_told_with_exit_code_2(tmp_path: Path, repository: Path) -> None:
    alone = Installed(state=tmp_path / "state", environment={"DOCKER_HOST": "unix:///nonexistent/docker.sock"})
    try:
        ended = alone.command("run", "--repo", repository, "--config", write_config(tmp_path, GOOD))
    finally:
        alone.end()

    assert ended.exit_code == 2
    assert "/nonexistent/docker.sock" in ended.stderr
    assert len(ended.stderr.strip().splitlines()) <= 2


def test_a_run_that_is_not_there_is_told(installed: Installed) -> None:
    for command in ("show", "logs", "cancel", "attach"):
        ended = installed.command(command, "nosuchrun")
        assert ended.exit_code == 2, command
        assert "nosuchrun" in ended.stderr


def test_a_folder_that_cannot_be_delivered_to_is_told_before_anything_starts(
    installed: Installed, tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine\n")
    config = write_config(tmp_path, GOOD)
    ended = installed.command("run", "--config", config, "--output", tmp_path / "out", cwd=tmp_path)

    assert ended.exit_code == 2
    assert "out" in ended.stderr
    assert (tmp_path / "out" / "mine.txt").read_text() == "mine\n"
