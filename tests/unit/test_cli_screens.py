"""What the terminal shows while a run goes on."""

from __future__ import annotations

import io
import json
import re

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from cli.board import Board
from cli.client import Event
from cli.live_lines import frame, story_line
from cli.painter import Painter
from cli.screens import JsonScreen, LiveScreen, PlainScreen
from cli.story import tell
from cli.stream import read_event
from massgend.api.schemas import Activity, RunView
from massgend.domain.facts import AnswerAccepted, UsageUpdated, VoteCast
from massgend.domain.run import UsageRecord
from tests.support.run_views import START, facts

HOSTILE = "\x1b]0;pwned\x07[bold]not bold[/bold]\x1b[2J\u202eevil\r\nmore"


def events() -> list[Event]:
    return [Event(type=kind, id=str(number), content=content) for number, (kind, content) in enumerate(facts())]


def board_after(count: int) -> Board:
    board = Board(run_id="k3m9q2", answer_limit=3)
    for event in events()[:count]:
        known = read_event(event)
        assert known is not None
        board = board.after(known)
    return board


def console(width: int = 80) -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=width, height=24, color_system="standard")


def text_of(screen: Console) -> str:
    file = screen.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def test_an_agents_row_follows_its_facts() -> None:
    states = [board_after(count).rows["ada"].state for count in range(1, 13)]
    assert states == [
        *("waiting", "waiting", "starting", "working", "saving", "answered"),
        *("answered", "answered", "starting", "voted", "done", "done"),
    ]
    assert board_after(12).rows["bob"].state == "winner"
    assert board_after(12).rows["ada"].answers == 1


def used(agent: str, cost_usd: float | None = 0.5) -> UsageUpdated:
    record = UsageRecord(calls=2, input_tokens=30_000, cache_read_tokens=4_000, output_tokens=1_500)
    return UsageUpdated(at=START + 5, agent=agent, usage=record, cost_usd=cost_usd)


def test_what_agents_have_used_stands_in_the_live_lines() -> None:
    board = board_after(4).after(used("ada")).after(used("bob", 0.25)).after(used("ada", 0.75))
    wide = [line.plain for line in frame(board, now=START + 63, width=120, height=24)]
    assert "71.0k tokens, $1.00" in wide[0]
    assert "35.5k $0.75" in wide[1]
    narrow = [line.plain for line in frame(board, now=START + 63, width=80, height=24)]
    assert "71.0k tokens, $1.00" in narrow[0]
    assert "35.5k" not in narrow[1], "what it does goes first"
    unknown = frame(board.after(used("bob", None)), now=START + 63, width=120, height=24)
    assert "71.0k tokens, cost unknown" in unknown[0].plain
    assert "tokens" not in frame(board_after(4), now=START + 63, width=120, height=24)[0].plain


def test_what_a_snapshot_left_out_is_told_with_the_answer() -> None:
    about = ("left out (a socket): a\x1b[2J\nb",)
    fact = AnswerAccepted(
        at=START + 11, agent="bob", number=2, summary="s", commit="1" * 40, changed_files=1, about=about,
        votes_voided=0, forced=False,
    )  # fmt: skip
    assert [line.text for line in tell(fact)] == ["answer 2 (1 file): s", "left out (a socket): a b"]


def test_what_an_agent_prints_late_does_not_hide_its_vote() -> None:
    late = Activity(at=START + 11, agent="ada", line="bye", changed_files=9)
    assert board_after(10).after(late).rows["ada"].doing == "for bob.1"


def test_a_new_answer_shows_that_votes_are_void() -> None:
    fact = AnswerAccepted(
        at=START + 11, agent="bob", number=2, summary="s", commit="1" * 40, changed_files=1, about=(), votes_voided=1,
        forced=False,
    )  # fmt: skip
    assert board_after(10).after(fact).rows["ada"].state == "void vote"


@pytest.mark.parametrize("width", [20, 40, 60, 80, 200])
@pytest.mark.parametrize("agents", [1, 3, 64])
def test_the_frame_is_narrower_than_the_terminal_and_lower(width: int, agents: int) -> None:
    board = Board(run_id="k3m9q2", began=START, answer_limit=3)
    for number in range(agents):
        activity = Activity(at=START, agent=f"agent-{number}", line="\u4f60\u597d " * 60, changed_files=12_345)
        board = board._row(activity.agent, state="working", since=START).after(activity)
    lines = frame(board, now=START + 4000, width=width, height=24)
    assert len(lines) <= 22
    assert max(line.cell_len for line in lines) < max(width, 21)


def test_a_frame_of_eighty_columns_says_what_each_agent_does() -> None:
    activity = Activity(at=START, agent="ada", line="writing index.html", changed_files=4)
    lines = [line.plain for line in frame(board_after(4).after(activity), now=START + 63, width=80, height=24)]
    assert lines[0].startswith("run k3m9q2  running  1:03")
    assert lines[0].endswith("Ctrl-C cancels")
    assert re.fullmatch(r"ada  working +0/3  writing index.html +4 changed +1:00", lines[1])
    assert re.fullmatch(r"bob  waiting +0/3 *", lines[2])


def test_everything_that_agents_say_is_harmless_on_the_terminal() -> None:
    screen = console()
    live = LiveScreen(screen, run_id="k3m9q2", answer_limit=3, clock=lambda: START + 20)
    for event in events():
        hostile = {
            name: HOSTILE if name in ("summary", "reason", "line", "why") else value
            for name, value in event.content.items()
        }
        live.show(Event(type=event.type, id=event.id, content=hostile))
    live.show(
        Event(type="activity", id=None, content={"at": START, "agent": "ada", "line": HOSTILE, "changed_files": 1})
    )
    live.note(HOSTILE)
    live.close()
    shown = text_of(screen)
    assert "[bold]not bold[/bold]" in shown, "the terminal's markup is not ours to read"
    assert "\x1b]" not in shown
    assert "\x1b[2J" not in shown
    assert "\u202e" not in shown


def test_the_live_screen_leaves_the_terminal_as_it_was() -> None:
    screen = console()
    live = LiveScreen(screen, run_id="k3m9q2", answer_limit=3)
    live.show(events()[0])
    live.close()
    live.close()
    shown = text_of(screen)
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h") == 1
    assert shown.count("\x1b[?2026h") == shown.count("\x1b[?2026l")
    live.show(events()[1])
    assert text_of(screen) == shown, "nothing is painted after the end"


def test_painted_lines_are_painted_over_also_when_the_terminal_folded_them() -> None:
    screen = console(width=80)
    painter = Painter(screen)
    painter.paint([Text("x" * 70), Text("short")])
    screen.size = (40, 24)  # type: ignore[assignment]
    painter.paint([Text("y")])
    assert "\r\x1b[3A" in text_of(screen), "70 columns became two rows of 40"


def test_plain_lines_tell_the_story_with_the_time_since_the_start() -> None:
    out = io.StringIO()
    screen = PlainScreen(Console(file=out, width=80, markup=False, highlight=False, soft_wrap=True))
    for event in events():
        screen.show(event)
    lines = out.getvalue().splitlines()
    assert lines[0] == " 0:00  2 agents: ada, bob"
    assert " 0:05  ada  answer 1 (2 files): plain" in lines
    assert " 0:06  ada  checks of answer 1: unit FAILED" in lines
    assert " 0:09  ada  votes for bob.1: it works" in lines
    assert lines[-1] == " 0:10  bob's answer 1 won with 2 of 2 votes."
    assert "\x1b" not in out.getvalue()


def test_json_lines_carry_every_event_and_no_raw_control_sign() -> None:
    out = io.StringIO()
    screen = JsonScreen(out)
    for event in events():
        screen.show(event)
    screen.show(Event(type="from_the_future", id="99", content={"text": HOSTILE}))
    lines = out.getvalue().splitlines()
    assert [json.loads(line)["type"] for line in lines] == [*(kind for kind, _ in facts()), "from_the_future"]
    assert "\x1b" not in out.getvalue()


def test_a_void_vote_and_a_long_summary_fit_one_line() -> None:
    vote = VoteCast(at=START, agent="ada", votes_for="bob", number=1, reason="r", valid=False)
    assert tell(vote)[0].text == "vote for bob.1 is void: a newer answer came"
    assert cell_len(story_line(tell(vote)[0], board_after(3)).plain) < 80


def test_every_fact_has_its_words() -> None:
    for event in events():
        known = read_event(event)
        assert known is not None
        assert not isinstance(known, Activity | RunView)
        for line in tell(known):
            assert line.text.strip()
            assert "\n" not in line.text
