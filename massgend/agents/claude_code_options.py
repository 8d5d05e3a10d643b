"""What may be said of a `claude-code` agent, and how it travels in AgentSpec.options. Must not import the SDK."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from massgend.domain.task import AgentSpec

SETTINGS = "settings"
"""The key of AgentSpec.options that holds ClaudeCodeOptions as JSON."""

OWN_SERVER = "massgend"
BUNDLED = "/usr/local/bin/claude"
"""Where the CLI is mounted, unless the image's own runs."""


class McpServer(BaseModel):
    """An MCP server of the user's: a program in the container, or a URL that the egress list allows."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    command: str | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = Field(default_factory=dict)
    url: str | None = None
    headers: Mapping[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if (self.command is None) == (self.url is None):
            raise ValueError("an MCP server has either a command or a url")
        return self


class ClaudeCodeOptions(BaseModel):
    """Options of one agent of kind claude-code."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    max_turns: int | None = Field(default=None, ge=1, description="Model calls in one turn of the agent.")
    allowed_tools: tuple[str, ...] | None = Field(default=None, description="Built-in tools; None: massgend's list.")
    disallowed_tools: tuple[str, ...] = ()
    mcp_servers: Mapping[str, McpServer] = Field(default_factory=dict)
    append_system_prompt: str = Field(default="", max_length=50_000)
    setting_sources: tuple[Literal["user", "project", "local"], ...] = Field(
        default=(), description="Settings files that Claude Code reads by itself; its CLAUDE.md is read in any case."
    )
    outside_effects: tuple[str, ...] = Field(
        default=(),
        description="Tools, such as mcp__deploy__* or Bash(git push*), that only the winner's final turn may use.",
    )
    cli: Literal["bundled", "image"] = Field(
        default="bundled", description="Whose claude runs: massgend's or the image's."
    )

    @model_validator(mode="after")
    def _own_name(self) -> Self:
        if OWN_SERVER in self.mcp_servers:
            raise ValueError(f"the MCP server '{OWN_SERVER}' is massgend's own: choose another name")
        return self

    def as_options(self) -> dict[str, str]:
        """As AgentSpec.options."""
        return {SETTINGS: ClaudeCodeOptions(**{name: getattr(self, name) for name in _FIELDS}).model_dump_json()}


_FIELDS = tuple(ClaudeCodeOptions.model_fields)


def read_options(spec: AgentSpec) -> ClaudeCodeOptions:
    """The options that `as_options` wrote; defaults when there are none."""
    return ClaudeCodeOptions.model_validate_json(spec.options.get(SETTINGS, "{}"))


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long is waited. `silence_s`: for the model, while no tool runs; `linger_s`: for the end after a decision.

    `start_s` is shorter than the SDK's own 60 s, so that ours is the one that speaks.
    """

    start_s: float = 55.0
    silence_s: float = 300.0
    linger_s: float = 3.0
