"""What the claude CLI is started with: the SDK's private functions are pinned to the argv that we rely on."""

from __future__ import annotations

import json

import claude_agent_sdk
import pytest
from claude_agent_sdk import ClaudeAgentOptions

from massgend.agents.claude_code_command import TOOLS, cli_argv, cli_environment, sdk_options
from massgend.agents.claude_code_decisions import Decisions
from massgend.agents.claude_code_options import BUNDLED, ClaudeCodeOptions, McpServer
from tests.support.claude_turn import KeepingDesk


def options(given: ClaudeCodeOptions, *, resume: str | None = None, instructions: str = "") -> ClaudeAgentOptions:
    decisions = Decisions(KeepingDesk(), reminders_left=2, outside_effects=())
    return sdk_options(
        given,
        model="claude-sonnet-4-5",
        instructions=instructions,
        resume=resume,
        server=decisions.server(),
        hooks=decisions.hooks(),
    )


def argv(given: ClaudeCodeOptions | None = None, **more: str) -> list[str]:
    return cli_argv(options(given or ClaudeCodeOptions(), **more), BUNDLED)


def value(words: list[str], flag: str) -> str:
    return words[words.index(flag) + 1]


def test_the_sdk_is_the_version_whose_private_functions_we_use() -> None:
    assert claude_agent_sdk.__version__ == "0.2.189"


def test_the_argv_is_the_one_that_we_rely_on() -> None:
    server = {"massgend": {"type": "sdk", "name": "massgend", "alwaysLoad": True}}

    assert argv() == [
        *(BUNDLED, "--output-format", "stream-json", "--verbose"),
        *("--tools", ",".join(TOOLS)),
        *("--model", "claude-sonnet-4-5"),
        *("--permission-mode", "bypassPermissions"),
        *("--mcp-config", json.dumps({"mcpServers": server})),
        "--include-partial-messages",
        "--strict-mcp-config",
        "--setting-sources=",
        *("--input-format", "stream-json"),
    ]


def test_every_option_reaches_the_cli() -> None:
    given = ClaudeCodeOptions(
        effort="high",
        max_turns=7,
        allowed_tools=("Bash", "Read"),
        disallowed_tools=("Bash(curl *)",),
        mcp_servers={
            "db": McpServer(command="db-mcp", args=("--ro",), env={"A": "b"}),
            "web": McpServer(url="https://mcp.example.org/x", headers={"X": "y"}),
        },
        append_system_prompt="Be brief.",
        setting_sources=("project",),
    )
    words = argv(given, resume="11111111-2222-4333-8444-555555555555", instructions="Use tabs.")

    assert (value(words, "--effort"), value(words, "--max-turns")) == ("high", "7")
    assert (value(words, "--tools"), value(words, "--disallowedTools")) == ("Bash,Read", "Bash(curl *)")
    servers = json.loads(value(words, "--mcp-config"))["mcpServers"]
    assert servers["db"] == {"type": "stdio", "command": "db-mcp", "args": ["--ro"], "env": {"A": "b"}}
    assert servers["web"] == {"type": "http", "url": "https://mcp.example.org/x", "headers": {"X": "y"}}
    assert value(words, "--append-system-prompt").endswith("(CLAUDE.md)\n\nUse tabs.\n\nBe brief.")
    assert "--setting-sources=project" in words
    assert "--resume=11111111-2222-4333-8444-555555555555" in words


def test_a_task_that_looks_like_a_command_of_the_cli_stays_a_task() -> None:
    assert options(ClaudeCodeOptions()).verbatim_prompts


def test_the_only_key_in_the_environment_is_the_turns_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-canary")
    monkeypatch.setenv("CLAUDE_CODE_OAUTH_TOKEN", "sk-canary")
    environment = cli_environment("the-token")

    assert "sk-canary" not in str(environment)
    assert [name for name, text in environment.items() if text == "the-token"] == ["ANTHROPIC_API_KEY"]
    assert environment["ANTHROPIC_UNIX_SOCKET"] == "/run/gateway/s.sock"
    assert environment["ANTHROPIC_BASE_URL"] == "http://gateway"
