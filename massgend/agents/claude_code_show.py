"""What Claude Code does, as lines for its agent's log: text as it is written, thinking marked, a line a tool call."""

from __future__ import annotations

import json
from typing import Any

from claude_agent_sdk import (
    AssistantMessage,
    Message,
    ResultMessage,
    StreamEvent,
    SystemMessage,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
)

from massgend.agents.agent import Desk
from sandboxes.sandbox import Chunk, Stream

MAX_CALL_CHARS = 160
THINKING = "(thinking) "


class Screen:
    """Of one turn. Never blocks."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._in_line = False

    def show(self, message: Message) -> None:
        match message:
            case StreamEvent(parent_tool_use_id=None):
                self._stream(message.event)
            case AssistantMessage():
                for block in message.content:
                    if isinstance(block, ToolUseBlock):
                        inner = "  " if message.parent_tool_use_id else ""
                        self._line(f"{inner}> {call_line(block.name, block.input)}")
            case UserMessage(content=list() as blocks):
                for one in blocks:
                    if isinstance(one, ToolResultBlock) and one.is_error:
                        self._line(f"! {_first_line(one.content)}")
            case SystemMessage(subtype="api_retry"):
                self._line(f"! the model API is asked again: {message.data.get('error', '')}")
            case ResultMessage(is_error=True):
                self._line(f"! {_first_line(message.result or message.subtype)}")
            case _:
                pass

    def _stream(self, event: dict[str, Any]) -> None:
        match event:
            case {"type": "content_block_start", "content_block": {"type": "thinking"}}:
                self._line(THINKING, end="")
            case {"type": "content_block_delta", "delta": {"type": "text_delta", "text": str(text)}}:
                self._write(text)
            case {"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": str(text)}}:
                self._write(text.replace("\n", f"\n{THINKING}"))
            case {"type": "content_block_stop"}:
                self._line("", end="")
            case _:
                pass

    def _line(self, text: str, end: str = "\n") -> None:
        """A line of its own, also when another one is still open."""
        self._write(("\n" if self._in_line else "") + text + end)

    def _write(self, text: str) -> None:
        if text:
            self._in_line = not text.endswith("\n")
            self._desk.show(Chunk(stream=Stream.STDOUT, content=text.encode(errors="replace")))


def call_line(name: str, given: dict[str, Any]) -> str:
    """A tool call in one line: its name and what says most about it. PURE."""
    short = name.removeprefix("mcp__massgend__")
    for key in ("command", "file_path", "pattern", "summary", "label", "description"):
        if isinstance(given.get(key), str):
            return f"{short}: {' '.join(given[key].split())}"[:MAX_CALL_CHARS]
    return f"{short}: {json.dumps(given, ensure_ascii=False)}"[:MAX_CALL_CHARS]


def _first_line(content: object) -> str:
    if isinstance(content, list):
        content = next((one.get("text") for one in content if isinstance(one, dict)), "")
    return str(content).strip().partition("\n")[0][:MAX_CALL_CHARS]
