"""docs/cli.md and docs/configuration.md name everything that there is, and nothing else."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from cli.config import parse_config
from cli.errors import Exit
from cli.main import app, run_command
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


def test_what_status_tells_as_json_is_documented(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MASSGEND_STATE", str(tmp_path / "state"))
        run_command(["status", "--json"])
    line = CLI.split("`massgend status --json` has ")[1].split("\n\n")[0]
    assert set(json.loads(capsys.readouterr().out)) == set(re.findall(r"`(\w+)`", line))
