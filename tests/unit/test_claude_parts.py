"""The small parts of the claude-code agent: options, lines, what is shown, what a sandbox already holds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from claude_agent_sdk import (
    AssistantMessage,
    Message,
    ResultMessage,
    StreamEvent,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
)
from pydantic import ValidationError

from massgend.agents.claude_code import ClaudeCodeAgent, bundled_cli
from massgend.agents.claude_code_decisions import is_meant
from massgend.agents.claude_code_home import read_look
from massgend.agents.claude_code_options import ClaudeCodeOptions, McpServer, read_options
from massgend.agents.claude_code_show import Screen
from massgend.agents.claude_code_transport import Lines, LineTooLong
from massgend.agents.prompt import build_memory, build_news
from massgend.domain.task import AgentSpec
from tests.support.claude_turn import KeepingDesk, answer_view, context

GOLDEN = Path(__file__).parent.parent / "golden"
SESSION = "11111111-2222-4333-8444-555555555555"


def spec(given: ClaudeCodeOptions) -> AgentSpec:
    return AgentSpec(name="ada", kind="claude-code", options=given.as_options())


def test_options_survive_their_way_through_the_journal() -> None:
    given = ClaudeCodeOptions(effort="max", mcp_servers={"a": McpServer(command="x")}, outside_effects=("Bash(git*)",))

    assert read_options(spec(given)) == given
    assert read_options(AgentSpec(name="ada", kind="claude-code")) == ClaudeCodeOptions()


@pytest.mark.parametrize(
    "wrong",
    [
        {"mcp_servers": {"massgend": {"command": "x"}}},
        {"mcp_servers": {"a": {}}},
        {"mcp_servers": {"a": {"command": "x", "url": "http://y"}}},
        {"effort": "immense"},
        {"max_turns": 0},
        {"tools": ["Bash"]},
    ],
)
def test_options_that_make_no_sense_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        ClaudeCodeOptions.model_validate(wrong)


def test_the_cli_is_mounted_read_only_unless_the_images_own_is_wanted() -> None:
    (mount,) = ClaudeCodeAgent().needs(spec(ClaudeCodeOptions())).mounts

    assert (mount.source, str(mount.target), mount.read_only) == (bundled_cli(), "/usr/local/bin/claude", True)
    assert bundled_cli().is_file()
    assert ClaudeCodeAgent().needs(spec(ClaudeCodeOptions(cli="image"))).mounts == ()


@pytest.mark.parametrize(
    ("pattern", "name", "command", "meant"),
    [
        ("mcp__deploy__*", "mcp__deploy__push", "", True),
        ("mcp__deploy__*", "mcp__docs__push", "", False),
        ("Bash(git push*)", "Bash", "git push origin", True),
        ("Bash(git push*)", "Bash", "  git push", True),
        ("Bash(git push*)", "Bash", "git status", False),
        ("Bash(git push*)", "Read", "git push", False),
    ],
)
def test_tools_with_effects_outside_are_known_by_pattern(pattern: str, name: str, command: str, meant: bool) -> None:
    assert is_meant(pattern, name, {"command": command}) is meant


def test_lines_come_whole_however_they_are_cut() -> None:
    lines = Lines(limit_bytes=10)

    assert lines.feed(b"ab") == []
    assert lines.feed(b"c\nde\n\nf") == [b"abc", b"de", b""]
    assert lines.feed(b"\n") == [b"f"]


def test_a_line_beyond_the_limit_is_not_held() -> None:
    with pytest.raises(LineTooLong):
        Lines(limit_bytes=10).feed(b"x" * 11)
    with pytest.raises(LineTooLong):
        Lines(limit_bytes=10).feed(b"x" * 11 + b"\n")


def test_twenty_megabytes_in_small_pieces_are_searched_once() -> None:
    lines = Lines(limit_bytes=32 * 1024**2)
    for _ in range(20_000):
        assert lines.feed(b"x" * 1_000) == []

    assert [len(line) for line in lines.feed(b"\n")] == [20_000_000]


def test_the_newest_session_is_the_first_file_that_is_one() -> None:
    listing = f"agent-abc.jsonl\nmemory\n{SESSION}.jsonl\n22222222-2222-4333-8444-555555555555.jsonl\n"
    found = read_look(b"Use tabs.\0" + listing.encode())

    assert (found.session, found.instructions) == (SESSION, "Use tabs.")
    assert read_look(b"\0").session is None
    assert read_look(b"").session is None
    assert read_look(b"\0--resume=x.jsonl\n../../etc.jsonl\n").session is None


def event(**fields: object) -> StreamEvent:
    return StreamEvent(uuid="u", session_id="s", event=fields)


def delta(**fields: object) -> StreamEvent:
    return event(type="content_block_delta", index=0, delta=fields)


def shown(*messages: Message) -> str:
    desk = KeepingDesk()
    screen = Screen(desk)
    for message in messages:
        screen.show(message)
    return desk.shown.decode()


def test_text_is_shown_as_it_comes_thinking_marked_and_each_tool_call_in_one_line() -> None:
    call = ToolUseBlock(id="t", name="Bash", input={"command": "ls -la\npwd", "description": "look"})
    vote = ToolUseBlock(id="v", name="mcp__massgend__vote", input={"label": "opal", "reason": "it runs"})
    text = shown(
        event(type="content_block_start", index=0, content_block={"type": "thinking"}),
        delta(type="thinking_delta", thinking="so\nwell"),
        event(type="content_block_stop", index=0),
        delta(type="text_delta", text="Hello "),
        delta(type="text_delta", text="you"),
        AssistantMessage(content=[TextBlock(text="Hello you"), call], model="m"),
        UserMessage(content=[ToolResultBlock(tool_use_id="t", content="no such file\nmore", is_error=True)]),
        AssistantMessage(content=[vote], model="m", parent_tool_use_id="t"),
    )

    assert text == ("(thinking) so\n(thinking) well\nHello you\n> Bash: ls -la pwd\n! no such file\n  > vote: opal\n")


def test_a_failed_end_is_shown_and_a_good_one_is_not() -> None:
    def ended(**fields: object) -> ResultMessage:
        base = {"subtype": "success", "duration_ms": 1, "duration_api_ms": 1, "num_turns": 1, "session_id": "s"}
        return ResultMessage(**{**base, **fields})  # type: ignore[arg-type]

    assert shown(ended(is_error=True, result="API Error: 529")) == "! API Error: 529\n"
    assert shown(ended(is_error=False, result="fine")) == ""


def test_the_news_of_a_turn_is_the_golden_one_and_repeats_no_task() -> None:
    seen = context("THE TASK", answer_view("opal", "The opal page."), answer_view("birch", "Mine.", mine=True), turn=2)
    text = build_news(seen, peers_writable=True)

    assert text == (GOLDEN / "news.md").read_text()
    assert "THE TASK" not in text


def test_nothing_is_added_to_the_system_prompt_when_there_is_nothing_to_add() -> None:
    assert build_memory("\n", " ") == ""


def test_stored_options_are_json_that_people_can_read() -> None:
    assert json.loads(ClaudeCodeOptions(effort="low").as_options()["settings"])["effort"] == "low"
