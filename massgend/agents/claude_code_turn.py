"""One turn of a `claude-code` agent: go on with its session if there is one, else begin. Imports the SDK (1-2 s)."""

from __future__ import annotations

from collections.abc import Callable

from massgend.agents.agent import AgentTurn, Desk, TurnOutcome
from massgend.agents.claude_code_command import IMAGES_OWN, sdk_options
from massgend.agents.claude_code_decisions import Decisions
from massgend.agents.claude_code_home import Found, look_inside
from massgend.agents.claude_code_options import BUNDLED, Patience, read_options
from massgend.agents.claude_code_talk import CannotResume, Talk
from massgend.agents.prompt import DecideWith, build_news, build_prompt
from massgend.gateway.turn_gateway import TOKEN_NAME
from sandboxes.sandbox import Sandbox


async def take_turn(
    turn: AgentTurn, sandbox: Sandbox, desk: Desk, *, patience: Patience, now: Callable[[], float]
) -> TurnOutcome:
    found = await look_inside(sandbox)
    try:
        return await _talk(turn, sandbox, desk, found, patience=patience, now=now)
    except CannotResume:
        anew = Found(session=None, instructions=found.instructions)
        return await _talk(turn, sandbox, desk, anew, patience=patience, now=now)


async def _talk(
    turn: AgentTurn, sandbox: Sandbox, desk: Desk, found: Found, *, patience: Patience, now: Callable[[], float]
) -> TurnOutcome:
    given = read_options(turn.spec)
    decisions = Decisions(
        desk,
        reminders_left=turn.context.reminders_left,
        outside_effects=() if turn.context.presentation else given.outside_effects,
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
    prompt = build(turn.context, peers_writable=turn.peers_writable, decide_with=DecideWith.TOOLS)
    cli = BUNDLED if given.cli == "bundled" else IMAGES_OWN
    token = (turn.gateway / TOKEN_NAME).read_text().strip()
    talk = Talk(sandbox, desk, decisions, patience=patience, now=now, command=turn.command)
    return await talk.hold(options, prompt, token=token, cli=cli)
