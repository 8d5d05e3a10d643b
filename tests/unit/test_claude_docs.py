"""docs/claude-code.md and docs/scripted-model.md name everything that can be said, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

from massgend.agents.claude_code_home import MAX_INSTRUCTIONS_BYTES
from massgend.agents.claude_code_options import ClaudeCodeOptions, Patience
from massgend.agents.claude_code_transport import MAX_LINE_BYTES
from massgend.scripted.script import Fault, Script, Step, read_script

DOCS = Path(__file__).resolve().parents[2] / "docs"
CLAUDE = (DOCS / "claude-code.md").read_text()
SCRIPTED = (DOCS / "scripted-model.md").read_text()


def first_cells(text: str, head: str) -> list[str]:
    """The names in the first column of the table whose head begins so."""
    table = text.split(f"| {head} |", 1)[1].split("\n\n", 1)[0].splitlines()[2:]
    return [name for line in table for name in re.findall(r"`([^`]+)`", line.split("|")[1])]


def names(model: type[Script] | type[Step]) -> set[str]:
    return {field.alias or name for name, field in model.model_fields.items()}


def test_every_option_of_a_claude_code_agent_is_documented() -> None:
    assert first_cells(CLAUDE, "Key") == ["name", "kind", "model", *ClaudeCodeOptions.model_fields]


def test_every_limit_in_the_documentation_is_the_real_one() -> None:
    assert f"sends nothing for {Patience().silence_s:g} s" in CLAUDE
    assert f"does not start within {Patience().start_s:g} s" in CLAUDE
    assert f"more than {MAX_LINE_BYTES // 1024**2} MiB" in CLAUDE
    assert f"first {MAX_INSTRUCTIONS_BYTES // 1024} KiB" in CLAUDE


def test_every_word_of_a_script_is_documented() -> None:
    assert set(first_cells(SCRIPTED, "Of a script")) == names(Script)
    assert set(first_cells(SCRIPTED, "Of a step")) == names(Step)
    assert all(f"`{fault}`" in SCRIPTED for fault in Fault)


def test_the_documented_script_can_be_read() -> None:
    block = re.search(r"```massgend-script\n(.*?)```", SCRIPTED, flags=re.DOTALL)
    assert block is not None
    assert len(read_script(block[1]).steps) == 2
