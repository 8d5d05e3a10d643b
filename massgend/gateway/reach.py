"""What in a request would have the provider itself reach into the internet for the agent. PURE.

Tools that the agent's own program carries out are fine; the provider's are a way out past the egress rules.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from massgend.gateway.wires import Wire

_ANTHROPIC_OWN = ("custom", "bash_", "text_editor_", "computer_", "memory_", "tool_search_")
_OPENAI_OWN = frozenset({"function", "custom", "local_shell", "apply_patch", "namespace", "tool_search"})
_FIELDS = {
    Wire.ANTHROPIC: frozenset({"mcpservers", "container"}),
    Wire.OPENAI: frozenset({"websearchoptions", "searchparameters", "plugins", "prompt", "preset"}),
    Wire.GEMINI: frozenset({"cachedcontent"}),
}
_CONTENT = frozenset({"messages", "input", "contents", "system", "instructions", "systeminstruction"})
_URL_NAMES = frozenset({"url", "imageurl", "fileurl", "fileuri"})
_TOOL_JSON = {
    Wire.ANTHROPIC: {"tool_use": "input", "server_tool_use": "input", "mcp_tool_use": "input"},
    Wire.OPENAI: {"function_call": "arguments", "tool_search_call": "arguments", "local_shell_call": "action"},
    Wire.GEMINI: {"functioncall": "args", "functionresponse": "response"},
}
"""Where blocks hold what a tool was called with, or answered, as free JSON: by their `type`, for Gemini by the name
that they stand under."""
MAX_DEPTH = 12


def reaches_out(wire: Wire, fields: dict[str, Any]) -> str | None:
    """The first such thing, named for people; None: there is none. Names count in any case and spelling."""
    for name, value in fields.items():
        plain = _plain(name)
        found = None
        if plain in _FIELDS[wire] and value:
            found = f"'{name[:100]}'"
        elif plain == "tools":
            found = _provider_tools(wire, value)
        elif plain in _CONTENT:
            found = next(_sources(wire, value, None, 0), None)
        elif plain == "generatecontentrequest" and isinstance(value, dict):
            found = _nested(wire, value)
        if found is not None:
            return found
    return None


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def _nested(wire: Wire, fields: dict[str, Any]) -> str | None:
    """Gemini's count of a whole request; it holds no other."""
    return reaches_out(
        wire, {name: value for name, value in fields.items() if _plain(name) != "generatecontentrequest"}
    )


def _provider_tools(wire: Wire, tools: object) -> str | None:
    if not tools:
        return None
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        return "'tools' that are no list of objects"
    found = next((kind for tool in tools if (kind := _provider_tool(wire, tool)) is not None), None)
    return f"the tool '{found[:100]}'" if found is not None else None


def _provider_tool(wire: Wire, tool: dict[str, Any]) -> str | None:
    if wire is Wire.GEMINI:
        return next((name for name in tool if _plain(name) != "functiondeclarations"), None)
    kinds = [value for name, value in tool.items() if name.lower() == "type" and value is not None]
    for kind in map(str, kinds):
        if not (kind.startswith(_ANTHROPIC_OWN) if wire is Wire.ANTHROPIC else kind in _OPENAI_OWN):
            return kind
    if wire is Wire.OPENAI and "namespace" in kinds:
        inner = tool.get("tools")
        for one in inner if isinstance(inner, list) else []:
            named = one.get("type") if isinstance(one, dict) else None
            if named not in (None, "function", "custom"):
                return str(named)
    return None


def _sources(wire: Wire, part: object, under: str | None, depth: int) -> Iterator[str]:
    """Content blocks that name a source by address, or tools. What a tool was called with is text, not a source."""
    if depth > MAX_DEPTH:
        yield "content nested too deeply"
    elif isinstance(part, list):
        for one in part:
            yield from _sources(wire, one, under, depth + 1)
    elif isinstance(part, dict):
        block = under if wire is Wire.GEMINI else part.get("type")
        tool_json = _TOOL_JSON[wire].get(block) if isinstance(block, str) else None
        for name, value in part.items():
            plain = _plain(name)
            if plain in _URL_NAMES and isinstance(value, str) and not value.startswith("data:"):
                yield f"'{name[:100]}' with a web address"
            elif wire is Wire.OPENAI and plain == "tools":
                if (found := _provider_tools(wire, value)) is not None:
                    yield found
            elif isinstance(value, dict | list) and name != tool_json:
                yield from _sources(wire, value, plain, depth + 1)
