"""Agents of kind `claude-code`: the real CLI in the sandbox, without a key or a network, led by the SDK from here.

Its session lies in the agent's HOME: a later turn, also of another daemon, goes on with it in a new container.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from massgend.agents.agent import AgentTurn, Desk, SandboxNeeds, TurnOutcome
from massgend.agents.claude_code_command import BUNDLED, IMAGES_OWN, bundled_cli, sdk_options
from massgend.agents.claude_code_decisions import Decisions
from massgend.agents.claude_code_home import Found, look_inside
from massgend.agents.claude_code_options import read_options
from massgend.agents.claude_code_talk import CannotResume, Patience, Talk
from massgend.agents.prompt import build_news, build_prompt
from massgend.domain.task import AgentSpec
from massgend.gateway.turn_gateway import TOKEN_NAME
from sandboxes.sandbox import BindMount, Sandbox


class ClaudeCodeAgent:
    """`binary`: the CLI that is mounted into sandboxes; `now`: seconds since the epoch."""

    def __init__(
        self,
        *,
        binary: Path | None = None,
        patience: Patience | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._binary = binary or bundled_cli()
        self._patience = patience or Patience()
        self._now = now

    def needs(self, spec: AgentSpec) -> SandboxNeeds:
        """The CLI, unless the image's own is wanted."""
        if read_options(spec).cli == "image":
            return SandboxNeeds()
        return SandboxNeeds(mounts=(BindMount(source=self._binary, target=PurePosixPath(BUNDLED), read_only=True),))

    async def take_turn(self, turn: AgentTurn, sandbox: Sandbox, desk: Desk) -> TurnOutcome:
        found = await look_inside(sandbox)
        try:
            return await self._talk(turn, sandbox, desk, found)
        except CannotResume:
            return await self._talk(turn, sandbox, desk, Found(session=None, instructions=found.instructions))

    async def _talk(self, turn: AgentTurn, sandbox: Sandbox, desk: Desk, found: Found) -> TurnOutcome:
        given = read_options(turn.spec)
        presentation = bool(getattr(turn.context, "presentation", False))
        decisions = Decisions(
            desk,
            reminders_left=turn.context.reminders_left,
            outside_effects=() if presentation else given.outside_effects,
        )
        options = sdk_options(
            given,
            model=turn.spec.model,
            instructions="" if "project" in given.setting_sources else found.instructions,
            resume=found.session,
            server=decisions.server(),
            hooks=decisions.hooks(),
        )
        build = build_prompt if found.session is None else build_news
        prompt = build(turn.context, peers_writable=turn.peers_writable)
        cli = BUNDLED if given.cli == "bundled" else IMAGES_OWN
        token = (turn.gateway / TOKEN_NAME).read_text().strip()
        talk = Talk(sandbox, desk, decisions, patience=self._patience, now=self._now)
        return await talk.hold(options, prompt, token=token, cli=cli)
