"""What the last freeze saw of a workspace: a cache that makes the next one cheap. Git and the disk stay the truth.

Size and mtime can be forged by whoever owns a file, ctime cannot: a file is unchanged when device, inode, size, mtime
and ctime all are what they were, and that ctime was old when it was read.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from snapshots.scanning import Entry

_FINE_GRAIN_NS = 50_000_000
_COARSE_GRAIN_NS = 2_000_000_000
_SECOND_NS = 1_000_000_000


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """`commit` recorded the files in `recorded`; `tree` is the folder under `trees/` that holds all of `entries`.
    None: a fresh workspace; the run's base tree holds the same, if there is one."""

    commit: str
    tree: str | None
    taken_ns: int
    entries: Mapping[str, Entry]
    recorded: frozenset[str]

    def unchanged(self, entry: Entry) -> bool:
        return self.entries.get(entry.path) == entry and entry.ctime_ns < old_before_ns(entry.ctime_ns, self.taken_ns)


def old_before_ns(ctime_ns: int, now_ns: int) -> int:
    """A change made at `now_ns` or later gets another ctime than a file whose ctime is before the time given back.

    A file system that counts in whole seconds cannot tell two changes within one apart.
    """
    return now_ns - (_COARSE_GRAIN_NS if ctime_ns % _SECOND_NS == 0 else _FINE_GRAIN_NS)


def save(path: Path, manifest: Manifest) -> None:
    """Replace the file in one step. Raises OSError."""
    write_whole(
        path,
        json.dumps(
            {
                "commit": manifest.commit,
                "tree": manifest.tree,
                "taken_ns": manifest.taken_ns,
                "entries": list(manifest.entries.values()),
                "ignored": [name for name in manifest.entries if name not in manifest.recorded],
            },
            separators=(",", ":"),
        ).encode(),
    )


def load(path: Path) -> Manifest | None:
    """None when there is none, or it cannot be read: everything then counts as changed."""
    try:
        stored = json.loads(path.read_bytes())
        entries = {fields[0]: Entry(*fields) for fields in stored["entries"]}
        return Manifest(
            commit=stored["commit"],
            tree=stored["tree"],
            taken_ns=stored["taken_ns"],
            entries=entries,
            recorded=frozenset(entries.keys() - set(stored["ignored"])),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def of(commit: str, tree: str | None, taken_ns: int, found: Iterable[Entry], ignored: frozenset[str]) -> Manifest:
    entries = {entry.path: entry for entry in found}
    return Manifest(
        commit=commit,
        tree=tree,
        taken_ns=taken_ns,
        entries=entries,
        recorded=frozenset(entries.keys() - ignored),
    )


def write_whole(path: Path, content: bytes) -> None:
    """Write a small file so that a crash leaves the old one or the new one, also when two write it. Raises OSError."""
    partial = path.with_name(f"{path.name}.{uuid.uuid4().hex}.partial")
    try:
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
