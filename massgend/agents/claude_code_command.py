"""How the claude CLI is started: the SDK's options, its argv and its environment.

The argv comes from two private functions of the SDK, so its version is pinned; tests/unit/test_claude_command.py holds
what we rely on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import claude_agent_sdk
from claude_agent_sdk import ClaudeAgentOptions, HookMatcher
from claude_agent_sdk._internal.transport.subprocess_cli import SubprocessCLITransport
from claude_agent_sdk.types import HookEvent, McpServerConfig, _configure_can_use_tool

from massgend.agents.agent import GATEWAY, HOME
from massgend.agents.claude_code_options import OWN_SERVER, ClaudeCodeOptions, McpServer
from massgend.agents.prompt import build_memory

IMAGES_OWN = "claude"
BASE_URL = "http://gateway"
CLI_RETRIES = 2
"""The gateway waits and tries again for all agents of a key; the CLI only for a connection that broke."""

TOOLS = (
    *("Bash", "Read", "Write", "Edit", "Glob", "Grep", "NotebookEdit"),
    *("Task", "TaskCreate", "TaskGet", "TaskList", "TaskStop", "TaskUpdate"),
)
"""What acts in the sandbox. Not WebSearch: the provider would run it, past the egress list."""


def sdk_options(
    options: ClaudeCodeOptions,
    *,
    model: str | None,
    instructions: str,
    resume: str | None,
    server: McpServerConfig,
    hooks: dict[HookEvent, list[HookMatcher]],
) -> ClaudeAgentOptions:
    """`instructions`: the repository's CLAUDE.md; `server`: our decisions; `resume`: the session to go on with."""
    preset: Any = {"type": "preset", "preset": "claude_code"}
    if memory := build_memory(instructions, options.append_system_prompt):
        preset["append"] = memory
    return ClaudeAgentOptions(
        tools=list(TOOLS if options.allowed_tools is None else options.allowed_tools),
        disallowed_tools=list(options.disallowed_tools),
        system_prompt=preset,
        mcp_servers={OWN_SERVER: _always_there(server), **_servers(options.mcp_servers)},
        strict_mcp_config=True,
        setting_sources=list(options.setting_sources),
        permission_mode="bypassPermissions",
        model=model,
        effort=options.effort,
        max_turns=options.max_turns,
        resume=resume,
        hooks=hooks,
        include_partial_messages=True,
        verbatim_prompts=True,
    )


def cli_argv(options: ClaudeAgentOptions, cli: str) -> list[str]:
    """The argv that the SDK would start its own process with."""
    configured = replace(_configure_can_use_tool(options), cli_path=cli)
    return SubprocessCLITransport(prompt=_nothing(), options=configured)._build_command()


async def _nothing() -> Any:
    return
    yield


def cli_environment(token: str) -> Mapping[str, str]:
    """The turn's token is the only key that the CLI gets, the turn's socket its only way out."""
    return {
        "HOME": str(HOME),
        "CLAUDE_CONFIG_DIR": str(HOME / ".claude"),
        "ANTHROPIC_UNIX_SOCKET": str(GATEWAY / "s.sock"),
        "ANTHROPIC_BASE_URL": BASE_URL,
        "ANTHROPIC_API_KEY": token,
        "CLAUDE_CODE_MAX_RETRIES": str(CLI_RETRIES),
        "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1",
        "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
        "CLAUDE_CODE_DISABLE_LEGACY_MODEL_REMAP": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK": "1",
        "CLAUDE_CODE_ENTRYPOINT": "sdk-py",
        "CLAUDE_AGENT_SDK_VERSION": claude_agent_sdk.__version__,
        "CLAUDE_CODE_SDK_READS_SESSION_STATE": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "DISABLE_TELEMETRY": "1",
    }


def _always_there(server: McpServerConfig) -> McpServerConfig:
    """Never hidden behind the search for tools: a model that does not see `vote` cannot vote."""
    kept: Any = {**server, "alwaysLoad": True}
    return kept  # type: ignore[no-any-return]


def _servers(servers: Mapping[str, McpServer]) -> dict[str, McpServerConfig]:
    found: dict[str, McpServerConfig] = {}
    for name, one in servers.items():
        if one.command is not None:
            found[name] = {"type": "stdio", "command": one.command, "args": list(one.args), "env": dict(one.env)}
        elif one.url is not None:
            found[name] = {"type": "http", "url": one.url, "headers": dict(one.headers)}
    return found
