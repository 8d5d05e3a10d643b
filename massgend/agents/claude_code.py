"""Agents of kind `claude-code`: the real CLI in the sandbox, without a key or a network, led by the SDK from here.

Its session lies in the agent's HOME: a later turn, also of another daemon, goes on with it in a new container.
This module does not import the SDK: a daemon without such agents should not pay for it.
"""

from __future__ import annotations

import asyncio
import importlib.util
import time
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from types import ModuleType

from massgend.agents.agent import AgentTurn, Desk, SandboxNeeds, TurnOutcome
from massgend.agents.claude_code_options import BUNDLED, Patience, read_options
from massgend.domain.task import AgentSpec
from sandboxes.sandbox import BindMount, Sandbox


def bundled_cli() -> Path:
    """The CLI that came with the SDK. It may be missing where the wheel has none for the platform."""
    spec = importlib.util.find_spec("claude_agent_sdk")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("claude-agent-sdk is not installed: install massgend again")
    return Path(spec.origin).parent / "_bundled" / "claude"


class ClaudeCodeAgent:
    """`binary`: the CLI that is mounted into sandboxes (None: the SDK's); `now`: seconds since the epoch."""

    def __init__(
        self,
        *,
        binary: Path | None = None,
        patience: Patience | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._binary = binary
        self._patience = patience or Patience()
        self._now = now

    def needs(self, spec: AgentSpec) -> SandboxNeeds:
        """The CLI, unless the image's own is wanted."""
        if read_options(spec).cli == "image":
            return SandboxNeeds()
        binary = self._binary or bundled_cli()
        return SandboxNeeds(mounts=(BindMount(source=binary, target=PurePosixPath(BUNDLED), read_only=True),))

    async def take_turn(self, turn: AgentTurn, sandbox: Sandbox, desk: Desk) -> TurnOutcome:
        led = await asyncio.to_thread(_load)
        outcome: TurnOutcome = await led.take_turn(turn, sandbox, desk, patience=self._patience, now=self._now)
        return outcome


def _load() -> ModuleType:
    from massgend.agents import claude_code_turn

    return claude_code_turn
