"""Flags, the file and the defaults make one request; mistakes are found before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.errors import Misuse
from cli.example_runs import list_examples, unpack
from cli.request import RunFlags, plan_run
from tests.support import git_repos

YAML = """
task: from the file
agents: [{name: ada, kind: command, run: 'true'}]
limits: {answers: 5, turns: 7}
merge: none
"""


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return git_repos.plain(tmp_path / "repo").path


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    return folder


def test_flags_go_before_the_file_and_the_file_before_defaults(repo: Path) -> None:
    (repo / "massgend.yaml").write_text(YAML)
    request = plan_run(RunFlags(task="mine", answers=2, merge="squash", image="img"), folder=repo).request
    assert request.task == "mine"
    assert (request.limits.answers, request.limits.turns, request.limits.run_s) == (2, 7, 7200)
    assert (request.merge, request.sandbox.image) == ("squash", "img")
    assert [agent.name for agent in request.agents] == ["ada"]
    assert request.repository == repo
    assert not request.scripted


def test_agents_and_checks_of_the_command_line_replace_the_files(repo: Path) -> None:
    (repo / "massgend.yaml").write_text(YAML)
    flags = RunFlags(agents=("command:./a.sh x:y", "command:echo"), checks=("pytest -q",))
    request = plan_run(flags, folder=repo).request
    assert [(agent.name, agent.run) for agent in request.agents] == [("a1", "./a.sh x:y"), ("a2", "echo")]
    assert [(check.name, check.run, check.required) for check in request.checks] == [("check1", "pytest -q", True)]


def test_the_repository_is_that_of_the_current_folder(repo: Path) -> None:
    assert plan_run(RunFlags(task="t", agents=("command:x",)), folder=repo / "src").request.repository == repo


def test_outside_a_repository_a_folder_is_delivered(outside: Path) -> None:
    flags = RunFlags(task="t", agents=("command:x",))
    request = plan_run(flags, folder=outside).request
    assert (request.repository, request.deliver_to) == (None, outside / "massgend-result")
    (outside / "massgend-result").mkdir()
    assert plan_run(flags, folder=outside).request.deliver_to == outside / "massgend-result-2"
    named = plan_run(RunFlags(task="t", agents=("command:x",), output=Path("site")), folder=outside).request
    assert named.deliver_to == outside / "site"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (RunFlags(task="t"), "no agents: "),
        (RunFlags(agents=("command:x",)), "no task: "),
        (RunFlags(task="  ", agents=("command:x",)), "no task: "),
        (RunFlags(task="t", agents=("wizard:x",)),
         "--agent wizard:x: unknown kind 'wizard'; kinds: command, claude-code"),
        (RunFlags(task="t", agents=("command",)), "--agent command: needs the script to run"),
        (RunFlags(task="t", agents=("command:x",), answers=-1), "--answers: must be at least 1, not -1"),
        (RunFlags(task="t", agents=("command:x",), turns=0), "--turns: must be at least 1, not 0"),
        (RunFlags(task="t", agents=("command:x",), run_s=-5), "--run-seconds: must be more than 0, not -5"),
        (RunFlags(task="t", agents=("command:x",), turn_s=float("inf")), "--turn-seconds: must be a number"),
        (RunFlags(task="t", agents=("command:x",), image=""), "--image: must not be empty"),
        (RunFlags(task="t", agents=("command:x",), checks=("",)), "--check : must not be empty"),
        (RunFlags(task="t", agents=("command:x",), merge="maybe"), "--merge maybe: choose one of auto, branch"),
        (RunFlags(task="t", agents=("command:x",), output=Path("x")), "--output is for runs without a repository"),
        (RunFlags(config="@examples/none"), "there is no example @examples/none; examples: @examples/bugfix"),
        (RunFlags(config="none.yaml"), "none.yaml: there is no such configuration file"),
        (RunFlags(repo=Path("/nonexistent/repo")), "/nonexistent/repo: there is no such folder"),
    ],
)  # fmt: skip
def test_a_mistake_on_the_command_line_is_one_sentence(repo: Path, flags: RunFlags, said: str) -> None:
    with pytest.raises(Misuse) as caught:
        plan_run(flags, folder=repo)
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", sorted(list_examples()))
def test_an_example_starts_from_a_new_repository_with_one_commit(outside: Path, name: str) -> None:
    plan = plan_run(RunFlags(config=f"@examples/{name}"), folder=outside)
    assert plan.request.scripted
    assert plan.example is not None
    first, second = unpack(plan.example, into=outside), unpack(plan.example, into=outside)
    assert first == outside / f"massgend-example-{name}"
    assert second.parent != outside, "what is there already is left alone"
    made = git_repos.Repository(path=first)
    assert made.git("rev-list", "--count", "main") == "1"
    assert made.git("status", "--porcelain") == ""


def test_an_example_runs_on_the_users_repository_when_one_is_named(outside: Path, repo: Path) -> None:
    plan = plan_run(RunFlags(config="@examples/bugfix", repo=repo), folder=outside)
    assert plan.example is None
    assert plan.request.repository == repo
    assert plan.request.scripted
