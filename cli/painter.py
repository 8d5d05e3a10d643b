"""A few lines at the bottom of the terminal, painted again in place, with ordinary lines scrolling above them.

One write a frame, in a synchronised update, so nothing flickers; when the terminal got narrower meanwhile, the painted
lines were folded by it and take more rows, which is reckoned with. Not thread-safe: the screen holds the lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO

from rich.console import Console
from rich.text import Text

_BEGIN, _END = "\x1b[?2026h", "\x1b[?2026l"
_HIDE, _SHOW = "\x1b[?25l", "\x1b[?25h"
_CLEAR_LINE, _CLEAR_BELOW = "\x1b[K", "\x1b[J"


class Painter:
    """`console` knows the terminal; everything written there between `start` and `stop` must come through here."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._painted: list[int] = []
        self._width = 0
        self._hidden = False

    @property
    def width(self) -> int:
        return self._console.size.width

    @property
    def height(self) -> int:
        return self._console.size.height

    def paint(self, frame: Sequence[Text], *, above: Sequence[Text] = ()) -> None:
        """`above` scrolls away, folded by us at the terminal's width; a line of `frame` must be shorter than that."""
        width = self.width
        scrolled = [part for line in above for part in line.wrap(self._console, max(2, width - 1))]
        text = self._hide() + self._back(width)
        if width != self._width:
            # Rows that the terminal folded are still marked as one line, and would be joined when it grows again.
            text += _CLEAR_BELOW
            self._width = width
        text += "".join(self._styled(line) + _CLEAR_LINE + "\r\n" for line in [*scrolled, *frame])
        self._painted = [line.cell_len for line in frame]
        self._write(text + _CLEAR_BELOW)

    def stop(self) -> None:
        """Leave nothing of the frame, and the terminal as it was. Idempotent."""
        if self._hidden:
            self._write(self._back(self.width) + _CLEAR_BELOW + _SHOW)
        self._painted = []
        self._hidden = False

    def _hide(self) -> str:
        if self._hidden:
            return ""
        self._hidden = True
        return _HIDE

    def _back(self, width: int) -> str:
        """To the first row of what was painted last, as it stands in a terminal of this width."""
        rows = sum(max(1, -(-cells // max(1, width))) for cells in self._painted)
        rows = min(rows, self.height - 1)
        return f"\r\x1b[{rows}A" if rows else "\r"

    def _styled(self, line: Text) -> str:
        out = StringIO()
        console = Console(
            file=out,
            force_terminal=True,
            color_system=self._console.color_system or "auto",  # type: ignore[arg-type]
            no_color=self._console.no_color,
            width=10_000,
            highlight=False,
            markup=False,
            emoji=False,
        )
        console.print(line, end="", soft_wrap=True)
        return out.getvalue()

    def _write(self, text: str) -> None:
        self._console.file.write(_BEGIN + text + _END)
        self._console.file.flush()
