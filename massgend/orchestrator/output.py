"""An agent's output: a bounded log on disk, and its last line for people. Never blocks, never grows without bound."""

from __future__ import annotations

import os
import re
import time
import unicodedata
from pathlib import Path
from typing import BinaryIO

from massgend.orchestrator.feed import Feed
from sandboxes.sandbox import Chunk

MAX_LOG_BYTES = 8 * 1024**2
"""Of one half: when it is full it becomes `.1` and a new one begins, so that the tail is always kept."""

MAX_LINE_CHARS = 200
SHOW_EVERY_S = 0.1
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")


def plain_line(text: str) -> str:
    """One line without terminal escapes, control and direction-changing characters, at most MAX_LINE_CHARS."""
    text = _ESCAPES.sub("", text)
    kept = (sign if unicodedata.category(sign)[0] != "C" else " " for sign in text)
    return " ".join("".join(kept).split())[:MAX_LINE_CHARS]


class OutputLog:
    """Open for one turn; appends to what earlier turns wrote."""

    def __init__(self, path: Path, feed: Feed, agent: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._path = path
        self._feed = feed
        self._agent = agent
        self._file: BinaryIO = path.open("ab", buffering=0)
        self._tail = b""
        self._shown_at = 0.0

    def close(self) -> None:
        self._show(self._tail)
        self._file.close()

    def note(self, text: str) -> None:
        """A line of ours between the agent's."""
        self._write(f"-- massgend: {text}\n".encode())

    def take(self, chunk: Chunk) -> None:
        self._write(chunk.content)
        *lines, self._tail = (self._tail + chunk.content)[-4_096:].split(b"\n")
        if lines and time.monotonic() - self._shown_at >= SHOW_EVERY_S:
            self._show(lines[-1])

    def _show(self, line: bytes) -> None:
        text = plain_line(line.decode(errors="replace"))
        if text:
            self._shown_at = time.monotonic()
            self._feed.show(self._agent, at=time.time(), line=text)

    def _write(self, content: bytes) -> None:
        if self._file.tell() + len(content) > MAX_LOG_BYTES:
            self._file.close()
            _note_rotation(self._path)
            os.replace(self._path, _first_half(self._path))
            self._file = self._path.open("ab", buffering=0)
        self._file.write(content[-MAX_LOG_BYTES:])


def read_tail(path: Path, tail_bytes: int) -> tuple[bytes, int]:
    """The last `tail_bytes` of a log across its two halves, and the bytes that were ever written to it."""
    parts: list[bytes] = []
    left = tail_bytes
    written = _rotated_bytes(path)
    for half in (path, _first_half(path)):
        if not half.exists():
            continue
        with half.open("rb") as file:
            length = file.seek(0, os.SEEK_END)
            file.seek(max(0, length - left))
            parts.insert(0, file.read(left) if left else b"")
        written += length if half is path else 0
        left -= len(parts[0])
    return b"".join(parts), written


def _first_half(path: Path) -> Path:
    return path.with_name(path.name + ".1")


def _rotated_bytes(path: Path) -> int:
    """How many bytes were written before the half that is open now began."""
    count = path.with_name(path.name + ".rotated")
    return int(count.read_text()) if count.exists() else 0


def _note_rotation(path: Path) -> None:
    count = path.with_name(path.name + ".rotated")
    count.write_text(str(_rotated_bytes(path) + path.stat().st_size))
