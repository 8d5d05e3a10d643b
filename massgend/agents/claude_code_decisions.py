"""The two decisions as tools that the model sees, and the hooks that hold its turn until one is taken.

News for a running turn goes along with the result of its next tool. As a message of its own it would outlive an
interrupt, and cost one more call to the model.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

from claude_agent_sdk import HookMatcher, create_sdk_mcp_server, tool
from claude_agent_sdk.types import HookContext, HookEvent, HookInput, HookJSONOutput, McpServerConfig

from massgend.agents.agent import Desk
from massgend.agents.claude_code_options import OWN_SERVER
from massgend.agents.prompt import DECISION_TOOLS, OUTSIDE_EFFECTS, TOOL_REMINDER
from massgend.domain.run import Choice, NewAnswer, VoteFor


class Decisions:
    """One turn's. `outside_effects`: tools that are described, not executed, in this turn (rule 14)."""

    def __init__(self, desk: Desk, *, reminders_left: int, outside_effects: tuple[str, ...]) -> None:
        self._desk = desk
        self._reminders_left = reminders_left
        self._outside_effects = outside_effects
        self._news: list[str] = []

    def tell(self, text: str) -> None:
        """The model reads `text` with the next result of a tool."""
        self._news.append(text)

    def server(self) -> McpServerConfig:
        @tool("new_answer", DECISION_TOOLS["new_answer"], _schema(summary="What you did and how you checked it."))
        async def new_answer(given: dict[str, Any]) -> dict[str, Any]:
            return await self._take(NewAnswer(summary=str(given["summary"])))

        @tool("vote", DECISION_TOOLS["vote"], _schema(label="Label of the answer.", reason="Why it is the best."))
        async def vote(given: dict[str, Any]) -> dict[str, Any]:
            return await self._take(VoteFor(label=str(given["label"]), reason=str(given["reason"])))

        return create_sdk_mcp_server(OWN_SERVER, tools=[new_answer, vote])

    def hooks(self) -> dict[HookEvent, list[HookMatcher]]:
        hooks: dict[HookEvent, list[HookMatcher]] = {
            "Stop": [HookMatcher(hooks=[self._hold])],
            "PostToolUse": [HookMatcher(hooks=[self._after_tool])],
            "PostToolUseFailure": [HookMatcher(hooks=[self._after_tool])],
        }
        if self._outside_effects:
            hooks["PreToolUse"] = [HookMatcher(hooks=[self._keep_inside], on_failure="block")]
        return hooks

    async def _take(self, choice: Choice) -> dict[str, Any]:
        refusal = await self._desk.hand_in(choice)
        text = "Received. Your turn ends now." if refusal is None else refusal
        return {"content": [{"type": "text", "text": text}], "is_error": refusal is not None}

    async def _hold(self, given: HookInput, tool_use_id: str | None, context: HookContext) -> HookJSONOutput:
        if self._desk.decided or self._reminders_left <= 0:
            return {}
        self._reminders_left -= 1
        return {"decision": "block", "reason": "\n".join([*self._take_news(), TOOL_REMINDER])}

    async def _after_tool(self, given: HookInput, tool_use_id: str | None, context: HookContext) -> HookJSONOutput:
        if self._desk.decided:
            return {"continue_": False, "stopReason": "The decision was taken."}
        if not (news := self._take_news()):
            return {}
        text = "\n".join(news)
        if given["hook_event_name"] == "PostToolUse":
            return {"hookSpecificOutput": {"hookEventName": "PostToolUse", "additionalContext": text}}
        return {"hookSpecificOutput": {"hookEventName": "PostToolUseFailure", "additionalContext": text}}

    def _take_news(self) -> list[str]:
        news, self._news = self._news, []
        return news

    async def _keep_inside(self, given: HookInput, tool_use_id: str | None, context: HookContext) -> HookJSONOutput:
        if given["hook_event_name"] != "PreToolUse":
            return {}
        name = given["tool_name"]
        if not any(is_meant(pattern, name, given["tool_input"]) for pattern in self._outside_effects):
            return {}
        return {
            "hookSpecificOutput": {
                "hookEventName": "PreToolUse",
                "permissionDecision": "deny",
                "permissionDecisionReason": OUTSIDE_EFFECTS.format(tool=name),
            }
        }


def is_meant(pattern: str, name: str, given: dict[str, Any]) -> bool:
    """`mcp__deploy__*` names tools; `Bash(git push*)` commands of the tool Bash. PURE."""
    tool_pattern, opened, rest = pattern.partition("(")
    if not fnmatchcase(name, tool_pattern):
        return False
    return not opened or fnmatchcase(str(given.get("command", "")).strip(), rest.removesuffix(")"))


def _schema(**texts: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {name: {"type": "string", "description": text} for name, text in texts.items()},
        "required": list(texts),
        "additionalProperties": False,
    }
