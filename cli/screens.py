"""Three ways to show a run as it goes on: live lines on a terminal, plain lines elsewhere, JSON for programs."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol, TextIO

from rich.console import Console
from rich.text import Text

from cli.board import Board
from cli.client import Event
from cli.live_lines import frame, story_line
from cli.notes import say
from cli.painter import Painter
from cli.story import tell
from cli.stream import read_event
from cli.text import clean, clip
from massgend.api.schemas import Activity, RunView

FRAME_S = 0.25
PLAIN_WIDTH = 200


class Screen(Protocol):
    """`show` each event; `note` what is not of the run; `close` before anything else is printed. Idempotent close."""

    def show(self, event: Event) -> None: ...
    def note(self, text: str) -> None: ...
    def close(self) -> None: ...


def terminal(*, stderr: bool = False) -> Console:
    """Rich without its readings of markup, emoji codes and numbers in texts that are not ours."""
    return Console(stderr=stderr, markup=False, highlight=False, emoji=False, soft_wrap=True)


def print_lines(lines: list[Text], console: Console) -> None:
    for line in lines:
        console.print(line)


def is_live(console: Console) -> bool:
    return console.is_terminal and not console.is_dumb_terminal and "NO_COLOR" not in os.environ


class JsonScreen:
    """One JSON object a line: every event with its type; the last is the result."""

    def __init__(self, out: TextIO, *, note: Callable[[str], None] = say) -> None:
        self._out = out
        self.note = note

    def show(self, event: Event) -> None:
        content = {"type": event.type, **event.content}
        print(json.dumps(content, ensure_ascii=True, separators=(",", ":")), file=self._out, flush=True)

    def close(self) -> None:
        self._out.flush()


class PlainScreen:
    """What happened, a line a fact, with the time since the start."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._board = Board(run_id="")

    def show(self, event: Event) -> None:
        known = read_event(event)
        if known is None or isinstance(known, Activity | RunView):
            return
        self._board = self._board.after(known)
        for line in tell(known):
            self._console.print(clip(story_line(line, self._board).plain, PLAIN_WIDTH))
        self._console.file.flush()

    def note(self, text: str) -> None:
        say(text)

    def close(self) -> None:
        self._console.file.flush()


class LiveScreen:
    """A line an agent, painted again four times a second by a thread of its own; facts scroll above."""

    def __init__(
        self, console: Console, *, run_id: str, answer_limit: int | None, clock: Callable[[], float] = time.time
    ) -> None:
        self._clock = clock
        self._painter = Painter(console)
        self._board = Board(run_id=run_id, answer_limit=answer_limit)
        self._lock = threading.RLock()
        self._closed = threading.Event()
        self._ticker = threading.Thread(target=self._tick, daemon=True, name="screen")
        self._ticker.start()

    def show(self, event: Event) -> None:
        known = read_event(event)
        if known is None or isinstance(known, RunView):
            return
        with self._lock:
            self._board = self._board.after(known)
            if not isinstance(known, Activity):
                width = self._painter.width - 1
                self._paint([_clipped(story_line(line, self._board), width) for line in tell(known)])

    def note(self, text: str) -> None:
        with self._lock:
            self._paint([Text(clean(text), style="yellow")])

    def close(self) -> None:
        """Idempotent; the terminal, if it is still there, is as before."""
        self._closed.set()
        with self._lock, suppress(OSError):
            self._painter.stop()

    def _tick(self) -> None:
        while not self._closed.wait(FRAME_S):
            with self._lock:
                if not self._closed.is_set():
                    self._paint([])

    def _paint(self, above: list[Text]) -> None:
        if self._closed.is_set():
            return
        size = (self._painter.width, self._painter.height)
        try:
            self._painter.paint(frame(self._board, now=self._clock(), width=size[0], height=size[1]), above=above)
        except OSError:
            # The terminal went away; the run goes on without it.
            self._closed.set()


def _clipped(line: Text, cells: int) -> Text:
    shown = line.copy()
    shown.truncate(cells, overflow="ellipsis")
    return shown
