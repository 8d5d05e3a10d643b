"""A run that started with `--include-dirty` brings the user's uncommitted changes back as its first commit.

When the working tree still holds just those changes, the branch and the index can move to that commit without a file
being written: what was uncommitted is committed then, and the merge goes on from there. Anything else is an overlap.
"""

from __future__ import annotations

import os

from snapshots.branches import set_refs
from snapshots.checkouts import Checkout, dirty_paths
from snapshots.overlap import changed_paths
from snapshots.put_back import recorded_as

_BASE = "uncommitted changes"


def uncommitted_base(checkout: Checkout, *, run: str, before: str, commit: str) -> str | None:
    """The commit of ours that holds the checkout's changes of the start, when it is the next one after `before`."""
    listing = checkout.git.text("rev-list", "--first-parent", "--ancestry-path", f"{before}..{commit}").split()
    if not listing:
        return None
    trailers = "--format=%P%x00%(trailers:key=Massgend-Run,valueonly)%x00%(trailers:key=Massgend-Base,valueonly)"
    shown = os.fsdecode(checkout.git.run("show", "--no-patch", "--no-notes", trailers, listing[-1]))
    parents, of_run, base = (part.strip() for part in shown.split("\0"))
    return listing[-1] if (parents, of_run, base) == (before, run, _BASE) else None


def holds_exactly(checkout: Checkout, *, before: str, changes: str) -> bool:
    """Is each path that `changes` altered in the working tree as recorded there, and staged so or not at all?"""
    dirty = dirty_paths(checkout, untracked=True)
    changed = changed_paths(checkout, before, changes)
    entries = _entries(checkout, changes)
    staged_from_before, staged_from_changes = (_staged_apart(checkout, tree) for tree in (before, changes))
    for path in changed:
        wanted = entries.get(path)
        if path not in dirty or (path in staged_from_before and path in staged_from_changes):
            return False
        here = checkout.root / path
        if wanted is None:
            if os.path.lexists(here):
                return False
        elif wanted != (_mode(checkout, path), recorded_as(checkout, path)):
            return False
    return True


def adopt(checkout: Checkout, *, branch: str, before: str, changes: str) -> None:
    """Index and branch move from `before` to `changes`; no file is written. Ask `holds_exactly` first."""
    changed = set(changed_paths(checkout, before, changes))
    entries = _entries(checkout, changes)
    lines = b"".join(
        os.fsencode(
            f"{entries[path][0]} {entries[path][1]}\t{path}" if path in entries else f"0 {'0' * len(changes)}\t{path}"
        )
        + b"\0"
        for path in sorted(changed)
    )
    checkout.git.run("update-index", "-z", "--index-info", stdin=lines)
    set_refs(checkout, f"update refs/heads/{branch} {changes} {before}\n", why="massgend: your uncommitted changes")


def _entries(checkout: Checkout, tree: str) -> dict[str, tuple[str, str]]:
    listing = checkout.git.run("ls-tree", "-r", "-z", tree).split(b"\0")
    parts = (os.fsdecode(entry).partition("\t") for entry in listing if entry)
    return {path: (about.split()[0], about.split()[2]) for about, _, path in parts}


def _staged_apart(checkout: Checkout, tree: str) -> set[str]:
    listing = checkout.git.run("diff-index", "--cached", "-z", "--name-only", "--no-renames", tree)
    return {os.fsdecode(path) for path in listing.split(b"\0") if path}


def _mode(checkout: Checkout, path: str) -> str:
    here = checkout.root / path
    if here.is_symlink():
        return "120000"
    return "100755" if here.is_file() and here.stat().st_mode & 0o100 else "100644"
