"""The columns of a report: a heading, and what it says beside it. PURE."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator

from rich.text import Text

from cli.text import clip, pad

MAX_WIDTH = 100
INDENT = 10


def paragraph(head: str, said: str, width: int, *, style: str = "bold") -> Iterator[Text]:
    """`Head      text`, wrapped with its lines under each other; a long head stands as the sentence's beginning."""
    if len(head) < INDENT:
        lines = textwrap.wrap(said, max(20, width - INDENT), break_long_words=False, break_on_hyphens=False) or [""]
        yield Text.assemble((pad(head, INDENT), style), lines[0])
        yield from (Text(" " * INDENT + line) for line in lines[1:])
        return
    whole = textwrap.wrap(f"{head}: {said}", width, break_long_words=False, break_on_hyphens=False)
    for number, line in enumerate(whole):
        text = Text(line)
        if number == 0:
            text.stylize(style, 0, len(head) + 1)
        yield text


def listed(head: str, items: Iterable[str], width: int, *, style: str = "") -> Iterator[Text]:
    """A line an item, clipped, under one heading."""
    for number, item in enumerate(items):
        yield Text.assemble((pad(head if number == 0 else "", INDENT), "bold"), (clip(item, width - INDENT), style))
