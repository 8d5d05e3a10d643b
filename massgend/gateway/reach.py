"""What in a request would have the provider itself reach into the internet for the agent. PURE.

Tools that the agent's own program carries out are fine; the provider's are a way out past the egress rules.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from massgend.gateway.wires import Wire

_ANTHROPIC_OWN = ("custom", "bash_", "text_editor_", "computer_", "memory_", "tool_search_")
_OPENAI_OWN = frozenset({"function", "custom", "local_shell", "apply_patch", "namespace", "tool_search"})
_GEMINI_OWN = frozenset({"functionDeclarations", "function_declarations"})
_FIELDS = {
    Wire.ANTHROPIC: ("mcp_servers", "container"),
    Wire.OPENAI: ("web_search_options", "plugins", "prompt"),
    Wire.GEMINI: (),
}
_URL_NAMES = frozenset({"url", "image_url", "file_url", "fileUri", "file_uri"})
MAX_DEPTH = 12


def reaches_out(wire: Wire, fields: dict[str, Any]) -> str | None:
    """The first such thing, named for people; None: there is none."""
    for name in _FIELDS[wire]:
        if fields.get(name):
            return f"'{name}'"
    tools = fields.get("tools")
    for tool in tools if isinstance(tools, list) else []:
        found = _provider_tool(wire, tool) if isinstance(tool, dict) else None
        if found is not None:
            return f"the tool '{found[:100]}'"
    for name in ("messages", "input", "contents", "system", "instructions"):
        for where in _urls(fields.get(name), 0):
            return f"'{where}' with a web address"
    return None


def _provider_tool(wire: Wire, tool: dict[str, Any]) -> str | None:
    if wire is Wire.GEMINI:
        return next((name for name in tool if name not in _GEMINI_OWN), None)
    kind = tool.get("type")
    if kind is None:
        return None
    if wire is Wire.ANTHROPIC:
        return None if str(kind).startswith(_ANTHROPIC_OWN) else str(kind)
    return None if kind in _OPENAI_OWN else str(kind)


def _urls(part: object, depth: int) -> Iterator[str]:
    """Content blocks that name a source by address. What a tool was called with is text, not a source."""
    if depth > MAX_DEPTH:
        yield "content nested too deeply"
    elif isinstance(part, list):
        for one in part:
            yield from _urls(one, depth + 1)
    elif isinstance(part, dict):
        for name, value in part.items():
            if name in _URL_NAMES and isinstance(value, str) and not value.startswith("data:"):
                yield name
            elif isinstance(value, dict | list) and name not in ("arguments", "args", *_tool_input(part)):
                yield from _urls(value, depth + 1)


def _tool_input(part: dict[str, Any]) -> tuple[str, ...]:
    """Names of what a tool was called with, or answered, as free JSON."""
    if part.get("type") in ("tool_use", "server_tool_use", "mcp_tool_use"):
        return ("input",)
    return ("response",) if "name" in part else ()
