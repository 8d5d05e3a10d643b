"""docs/cli.md and docs/configuration.md name everything that there is, and nothing else."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from cli.config import parse_config
from cli.errors import Exit
from cli.example_runs import list_examples
from cli.main import app, run_command
from cli.request import RunFlags, plan_run
from massgend.api.schemas import (
    KINDS,
    CheckConfig,
    ClaudeCodeAgent,
    CommandAgent,
    DiscloseConfig,
    LimitsConfig,
    ModelsConfig,
    RunConfig,
    SandboxConfig,
)
from massgend.gateway.egress_rules import PRESETS
from snapshots.repository import MergeMode

DOCS = Path(__file__).resolve().parents[2] / "docs"
README = (DOCS.parent / "README.md").read_text()
CLI = (DOCS / "cli.md").read_text()
CONFIGURATION = (DOCS / "configuration.md").read_text()
COMMANDS = [
    *(command.callback.__name__ for command in app.registered_commands if command.callback is not None),
    *(group.name for group in app.registered_groups if group.name is not None),
]


def rows(text: str, heading: str) -> dict[str, list[str]]:
    """The table under a heading: first cell without its backquotes -> the other cells."""
    section = re.split(r"^#{2,3} ", text.split(f" {heading}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    return {row[0].strip("`"): row[1:] for row in cells[2:]}


def test_every_command_is_documented() -> None:
    documented = re.findall(r"^\| `massgend (\w+)", CLI, flags=re.MULTILINE)
    assert sorted(documented) == sorted(COMMANDS)


def test_every_option_of_run_is_documented(capsys: pytest.CaptureFixture[str]) -> None:
    run_command(["run", "--help"])
    options = set(re.findall(r"^  (--[a-z-]+)", capsys.readouterr().out, flags=re.MULTILINE)) - {"--help"}
    table = CLI.split("The options of `run`:")[1].split("Flags go before")[0]
    assert set(re.findall(r"--[a-z][a-z-]+", table)) == options


def test_every_exit_code_is_documented() -> None:
    assert sorted(map(int, rows(CLI, "Exit codes"))) == sorted(map(int, Exit))


@pytest.mark.parametrize(
    ("heading", "model"),
    [
        ("Keys", RunConfig),
        ("`agents`", CommandAgent),
        ("`checks`", CheckConfig),
        ("`limits`", LimitsConfig),
        ("`sandbox`", SandboxConfig),
        ("`disclose`", DiscloseConfig),
        ("`models`", ModelsConfig),
        ("`agents` of kind `claude-code`", ClaudeCodeAgent),
    ],
)
def test_every_key_is_documented_with_its_default(heading: str, model: type[BaseModel]) -> None:
    table = rows(CONFIGURATION, heading)
    assert sorted(table) == sorted(model.model_fields)
    for name, field in model.model_fields.items():
        default: Any = field.default
        if isinstance(default, bool | int | float) and name != "memory":
            written = table[name][0].strip("`")
            assert written == str(default).lower() or float(written) == default, name


def test_every_merge_mode_is_documented() -> None:
    assert sorted(rows(CONFIGURATION, "`merge`")) == sorted(MergeMode)


def test_every_documented_configuration_is_valid() -> None:
    examples = re.findall(r"```yaml\n(.*?)```", CONFIGURATION, flags=re.DOTALL)
    configurations = [parse_config(example, name="docs") for example in examples]
    assert {agent.kind for one in configurations for agent in one.agents} == set(KINDS)


def test_every_preset_of_hosts_is_documented() -> None:
    section = CONFIGURATION.split("### `egress`")[1].split("\n### ")[0]
    assert all(f"`{preset}`" in section for preset in PRESETS)


def readme_block(beginning: str) -> str:
    """The block of commands in the README that begins so."""
    blocks: list[str] = re.findall(r"^```\n(.*?)^```", README, flags=re.DOTALL | re.MULTILINE)
    return next(block for block in blocks if block.startswith(beginning))


def test_the_readmes_repository_is_made_by_its_commands_and_its_run_can_be_planned(tmp_path: Path) -> None:
    *commands, last = readme_block("mkdir calc").splitlines()
    assert last == "massgend run"
    subprocess.run(
        ["bash", "-euc", "\n".join(commands)], cwd=tmp_path, check=True, env={"PATH": os.environ["PATH"], "HOME": "/x"}
    )
    made = tmp_path / "calc"
    assert not subprocess.run(["git", "status", "--short"], cwd=made, check=True, capture_output=True).stdout
    subprocess.run(["bash", "-n", "agent.sh"], cwd=made, check=True)
    plan = plan_run(RunFlags(), folder=made)
    assert [agent.name for agent in plan.request.agents] == ["ada", "bob"]
    assert plan.request.repository == made


def test_the_readmes_claude_code_run_can_be_planned(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    export, command = readme_block("export ANTHROPIC_API_KEY").splitlines()
    assert export == "export ANTHROPIC_API_KEY=..."
    words = shlex.split(command)
    assert words[:2] == ["massgend", "run"]
    pairs = list(zip(words[3::2], words[4::2], strict=True))
    flags = RunFlags(
        task=words[2],
        agents=tuple(value for option, value in pairs if option == "--agent"),
        checks=tuple(value for option, value in pairs if option == "--check"),
    )
    assert {option for option, _ in pairs} == {"--agent", "--check"}
    plan = plan_run(flags, folder=tmp_path)
    assert [agent.kind for agent in plan.request.agents] == ["claude-code"] * 3
    assert plan.needs_keys


def test_the_exit_codes_in_the_readme_are_those_of_the_command() -> None:
    assert sorted(map(int, rows(README, "Exit codes of `massgend run`"))) == sorted(map(int, Exit))


def test_every_example_that_is_named_exists() -> None:
    named = set(re.findall(r"@examples/([a-z-]+)", README + CLI))
    assert named == set(list_examples())


def test_what_status_tells_as_json_is_documented(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MASSGEND_STATE", str(tmp_path / "state"))
        run_command(["status", "--json"])
    line = CLI.split("`massgend status --json` has ")[1].split("\n\n")[0]
    assert set(json.loads(capsys.readouterr().out)) == set(re.findall(r"`(\w+)`", line))
