"""The configuration file: what is wrong is said in one sentence with the line and the key."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.config import MAX_BYTES, known_keys, load_config, parse_config, schema_text
from cli.errors import Exit, Misuse

AGENTS = "task: t\nagents:\n  - {name: ada, kind: command, run: 'true'}\n"
ROOT = Path(__file__).resolve().parents[2]


def complaint(text: str) -> str:
    with pytest.raises(Misuse) as caught:
        parse_config(text, name="run.yaml")
    assert caught.value.exit_code == Exit.MISUSE
    return str(caught.value)


def test_a_full_configuration_is_read_with_its_units() -> None:
    config = parse_config(
        AGENTS + "checks: [{name: unit, run: pytest -q, required: false, timeout_s: 30}]\n"
        "limits: {answers: 5, run_s: 60}\nsandbox: {memory: 2g, cpus: 1.5}\nmerge: squash\n",
        name="run.yaml",
    )
    assert config.agents[0].run == "true"
    assert config.checks[0].timeout_s == 30
    assert config.limits.answers == 5
    assert config.limits.turns == 12
    assert config.sandbox.memory == 2 * 1024**3
    assert config.merge == "squash"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (AGENTS + "colour: red\n", "run.yaml:4: colour: unknown key 'colour'; known keys: task, agents, checks"),
        (AGENTS.replace("run:", "colour: x, run:"),
         "run.yaml:3: agents[0].colour: unknown key 'colour'; known keys: name"),
        (AGENTS + "limits:\n  anwsers: 3\n",
         "run.yaml:5: limits.anwsers: unknown key 'anwsers' (did you mean 'answers'?"),
        (AGENTS.replace("command", "wizard"),
         "run.yaml:3: agents[0].kind: unknown kind 'wizard'; kinds: command, claude-code"),
        (AGENTS.replace("kind: command, ", ""), "run.yaml:3: agents[0].kind: missing: write 'kind: ...'"),
        (AGENTS.replace("ada", "../ada"), "run.yaml:3: agents[0].name: '../ada' is not a name"),
        (AGENTS + "  - {name: Ada, kind: command, run: x}\n", "run.yaml:2: agents: the name 'Ada' is used twice"),
        (AGENTS + "limits: {answers: -1}\n", "run.yaml:4: limits.answers: must be at least 1, not -1"),
        (AGENTS + "limits: {turns: 1.5}\n", "run.yaml:4: limits.turns: must be a whole number, not '1.5'"),
        (AGENTS + "limits: {run_s: .inf}\n", "run.yaml:4: limits.run_s: must be a number, not 'inf'"),
        (AGENTS + "limits: 3\n", "run.yaml:4: limits: must be keys and values"),
        (AGENTS + "sandbox: {memory: lots}\n", "run.yaml:4: sandbox.memory: 'lots' is not a size"),
        (AGENTS + "sandbox: {memory: 1k}\n", "run.yaml:4: sandbox.memory: must be at least 64.0 MiB, not 1k"),
        (AGENTS + "merge: maybe\n", "run.yaml:4: merge: 'maybe' is not possible; choose 'auto'"),
        ("task: 5\n", "run.yaml:1: task: must be text: put it in quotes"),
        ("agents: {}\n", "run.yaml:1: agents: must be a list"),
        (AGENTS + "task: again\n", "run.yaml:4: task: the key 'task' stands there twice"),
        ("- a\n", "run.yaml:1: the configuration must be keys and values"),
        ("", "run.yaml: the configuration is empty"),
        ("# only a comment\n", "run.yaml: the configuration is empty"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_line_and_key(text: str, said: str) -> None:
    assert complaint(text).startswith(said)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("task: t\nagents: [\n", "run.yaml:3:1: not valid YAML: "),
        ("a: b: c\n", "run.yaml:1:5: not valid YAML: "),
        ("task: t\n\tagents: x\n", "run.yaml:2:1: not valid YAML: "),
        ("task: 'open\n", "run.yaml:2:1: not valid YAML: "),
        ("a: 1\n---\nb: 2\n", "run.yaml:2:1: not valid YAML: "),
        ("task: \x07\n", "run.yaml:1: a character that YAML does not allow"),
        ("a: *nowhere\n", "run.yaml:1:4: not valid YAML: "),
    ],
)
def test_malformed_yaml_is_named_with_line_and_column(text: str, where: str) -> None:
    assert complaint(text).startswith(where)


@pytest.mark.parametrize("text", ["a: &a [*a]\n", "a: &a {b: *a}\n", "[" * 300 + "]" * 300, "{a: " * 1500])
def test_endless_nesting_is_refused(text: str) -> None:
    assert "\n" not in complaint(text)


def test_an_expansion_bomb_is_refused_at_once() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    assert "too many values" in complaint("\n".join(lines))


def test_python_tags_make_nothing() -> None:
    assert complaint("task: !!python/object/apply:os.getcwd []\n").startswith("run.yaml:1: task")


def test_at_most_three_mistakes_are_told() -> None:
    lines = complaint(AGENTS + "limits: {answers: 0, turns: 0, turn_s: 0, run_s: 0, max_failures: 0}\n").splitlines()
    assert len(lines) == 4
    assert lines[3] == "and 2 more"


def test_no_mistake_is_told_in_the_words_of_the_library() -> None:
    said = complaint(AGENTS + "limits: {answers: []}\nallow_self_vote: perhaps\nchecks: [{name: 1, run: {}}]\n")
    assert "pydantic" not in said
    assert "Input should" not in said


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"task: \xff\n", ":1: not UTF-8 text"),
        (b"task: t\0\n", ": a binary file"),
        (b"#" * (MAX_BYTES + 1), ": larger than 1 MiB"),
    ],
)
def test_a_file_that_is_no_configuration_is_refused(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "run.yaml"
    path.write_bytes(content)
    with pytest.raises(Misuse, match=r"run\.yaml") as caught:
        load_config(path)
    assert said in str(caught.value)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="there is no such configuration file"):
        load_config(tmp_path / "none.yaml")
    with pytest.raises(Misuse, match="cannot be read: Is a directory"):
        load_config(tmp_path)


def test_known_keys_follow_the_models() -> None:
    assert {"name", "kind", "run"} <= set(known_keys(("agents", 0)))
    assert "image" in known_keys(("sandbox",))


def test_the_published_schema_is_current() -> None:
    published = (ROOT / "docs/schema/run.schema.json").read_text()
    assert published == schema_text(), "run scripts/write_schema"
    assert json.loads(published)["additionalProperties"] is False
