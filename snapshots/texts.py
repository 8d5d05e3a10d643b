"""PURE: names are bytes, results are texts. Every text that leaves this package is valid UTF-8, so that a journal, an
API and a terminal can take it; what is needed exactly (a ref, a path to open) stays as Python has it, with surrogates.
"""

from __future__ import annotations

import re
from dataclasses import fields

_SURROGATE = re.compile("[\ud800-\udfff]")


def readable(text: str) -> str:
    """The text with `\\xNN` in place of each byte that is not UTF-8 (`surrogateescape` has them as surrogates)."""
    return text if text.isascii() else _SURROGATE.sub(_escaped, text)


def is_readable(text: str) -> bool:
    return _SURROGATE.search(text) is None


def settle(result: object) -> None:
    """For `__post_init__` of a frozen dataclass: its texts, and tuples of texts, become readable."""
    for field in fields(result):  # type: ignore[arg-type] # every caller is a dataclass
        held = getattr(result, field.name)
        if isinstance(held, str):
            object.__setattr__(result, field.name, readable(held))
        elif isinstance(held, tuple) and all(isinstance(one, str) for one in held):
            object.__setattr__(result, field.name, tuple(map(readable, held)))


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else f"\\u{code:04x}"
