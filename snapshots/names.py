"""PURE: names. Which ids of ours are well formed, which file names git refuses, which ones peers must not load."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from snapshots.texts import readable

LONGEST_PATH_BYTES = 3_900
"""Longer paths cannot be named to the kernel in one piece (PATH_MAX is 4,096, and mounts add to them)."""

_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,99}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_SUBMODULE_REF = re.compile(r"-submodule-\d+$")
_HFS_IGNORES = re.compile("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")
_DOT_GIT = re.compile(r"(\.git|git~1)[ .]*(:.*)?", re.IGNORECASE | re.DOTALL)
_DOT_GITMODULES = re.compile(r"(\.gitmodules|gitmod~[1-4]|gi7eba~\d)[ .]*(:.*)?", re.IGNORECASE | re.DOTALL)
_INSTRUCTION = re.compile(
    r"(?:^|/)(?:claude\.md|claude\.local\.md|agents\.md|gemini\.md|qwen\.md|\.mcp\.json|opencode\.json"
    r"|\.claude|\.gemini|\.codex|\.cursor|\.opencode|\.qwen)(?=/|\Z)",
    re.IGNORECASE,
)
_PLAIN_BYTES = frozenset(range(0x20, 0x7F)) - frozenset(b'"\\')


def checked_id(text: str) -> str:
    """An id of a run or an agent: it becomes part of a path and of a ref. Raises ValueError."""
    if not _ID.fullmatch(text):
        raise ValueError(f"{text!r} is not an id: lower-case letters, digits and dashes, at most 100")
    return text


def checked_name(text: str) -> str:
    """A label, or the name of a snapshot or check: part of a path and of a ref. Raises ValueError."""
    if not _NAME.fullmatch(text) or ".." in text or text.endswith((".", ".lock")) or _SUBMODULE_REF.search(text):
        raise ValueError(f"{text!r} is not a name: letters, digits, dots, dashes and underscores, at most 100")
    return text


def is_submodule_ref(ref: str) -> bool:
    """Is it the ref of what a snapshot saved from inside a submodule (`<snapshot>-submodule-<n>`)?"""
    return _SUBMODULE_REF.search(ref) is not None


def refused_by_git(name: str) -> bool:
    """Would git refuse this file name because some system reads it as `.git` (case, HFS+, NTFS)?"""
    if name.isascii() and name[:1] not in ".gG" and "\\" not in name:
        return False  # nearly every name there is
    if _DOT_GIT.fullmatch(_HFS_IGNORES.sub("", name)):
        return True
    return "\\" in name and any(_DOT_GIT.fullmatch(part) for part in name.split("\\"))


def refused_as_link(name: str) -> bool:
    """Git refuses a symbolic link in place of `.gitmodules`."""
    return _DOT_GITMODULES.fullmatch(_HFS_IGNORES.sub("", name)) is not None


def masked_paths(paths: Iterable[str]) -> tuple[str, ...]:
    """The files and folders among and above `paths` that some agent's CLI loads on its own, as instructions or
    settings: the outermost of each."""
    found = (_INSTRUCTION.search(path) for path in paths)
    return tuple(sorted({match.string[: match.end()] for match in found if match}))


def quoted(path: str) -> bytes:
    """The path as git's C-quoted string, for any bytes (`git help fast-import`, <path>)."""
    return b'"' + b"".join(_quoted_byte(byte) for byte in os.fsencode(path)) + b'"'


def _quoted_byte(byte: int) -> bytes:
    return bytes((byte,)) if byte in _PLAIN_BYTES else b"\\%03o" % byte


def shown(path: str) -> str:
    """A path for a sentence that people read: no line breaks, no control characters, no surrogates."""
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in readable(path))


def shown_bytes(size: int) -> str:
    amount = float(size)
    for unit in ("bytes", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.0f} bytes" if unit == "bytes" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GiB"
