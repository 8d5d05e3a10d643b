"""Text for a terminal: made harmless, clipped, and numbers in people's units. PURE."""

from __future__ import annotations

import re
import unicodedata

# CSI, OSC, DCS and the like up to their end, then any other two-byte escape.
_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b[ -/]*[0-~]"
)
_MAX_MARKS = 3
"""Combining marks in a row; more of them climb over the lines above."""


def clean(text: str) -> str:
    """One line without terminal escapes, control, format (bidi, invisible) and unassigned characters."""
    return " ".join("".join(_harmless(text)).split())


def clean_line(text: str) -> str:
    """The same, but with its spaces as they stand (code, diffs, logs); tabs become spaces."""
    return "".join(_harmless(text.expandtabs(4)))


def first_line(text: str) -> str:
    """The first line that says something, cleaned."""
    return next((line for line in map(clean, text.splitlines()) if line), "")


def _harmless(text: str) -> list[str]:
    kept: list[str] = []
    marks = 0
    for sign in _ESCAPES.sub("", text):
        category = unicodedata.category(sign)
        marks = marks + 1 if category in ("Mn", "Me") else 0
        if sign.isspace():
            kept.append(" ")
        elif category[0] != "C" and marks <= _MAX_MARKS:
            kept.append(sign)
    return kept


def clip(text: str, cells: int) -> str:
    """At most so many columns of the terminal; what is cut off shows as an ellipsis."""
    from rich.cells import cell_len, set_cell_size

    if cells <= 0:
        return ""
    if cell_len(text) <= cells:
        return text
    return set_cell_size(text, cells - 1).rstrip() + "…"


def pad(text: str, cells: int) -> str:
    """Exactly so many columns."""
    from rich.cells import cell_len

    clipped = clip(text, cells)
    return clipped + " " * (cells - cell_len(clipped))


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def shown_duration(seconds: float) -> str:
    """`0:07`, `12:34`, `1:02:03`."""
    whole = max(0, int(seconds))
    hours, rest = divmod(whole, 3600)
    minutes, left = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"


def shown_age(seconds: float) -> str:
    """`40 s`, `12 min`, `3 h`, `5 d`."""
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{max(0, int(seconds))} s"


def shown_size(size: int) -> str:
    amount = float(size)
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GiB"


def shown_tokens(count: int) -> str:
    """`950`, `12.2k`, `3.4M`."""
    if count < 1000:
        return str(count)
    return f"{count / 1000:.1f}k" if count < 999_950 else f"{count / 1_000_000:.1f}M"


def shown_cost(usd: float | None) -> str:
    """None: a call had no known price."""
    if usd is None:
        return "cost unknown"
    return "<$0.01" if 0 < usd < 0.01 else f"${usd:.2f}"
