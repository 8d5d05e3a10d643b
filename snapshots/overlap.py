"""What of the user's work a merge would touch: edited files that it changes, unknown files where it adds some."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from snapshots.checkouts import Checkout, dirty_paths


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """`edited`: tracked paths; `in_the_way`: pairs of an untracked or ignored path and a free name beside it."""

    edited: tuple[str, ...]
    in_the_way: tuple[tuple[str, str], ...]

    def __bool__(self) -> bool:
        return bool(self.edited or self.in_the_way)


def changed_paths(checkout: Checkout, before: str, after: str, *, only: str = "") -> list[str]:
    """Paths that differ between two trees, real names. `only`: letters of `git diff --diff-filter`."""
    chosen = (f"--diff-filter={only}",) if only else ()
    listing = checkout.git.run("diff-tree", "-r", "-z", "--name-only", "--no-renames", *chosen, before, after)
    return [os.fsdecode(path) for path in listing.split(b"\0") if path]


def overlap(checkout: Checkout, *, before: str, after: str, settled: Collection[str] = ()) -> Overlap:
    """What stands between the checkout (at tree or commit `before`) and `after`.

    A path that is staged just as the merge brings it is not in its way: so a merge that was broken off goes on.
    Edits of `settled` paths do not count: they are about to be committed.
    """
    changed = set(changed_paths(checkout, before, after))
    edited = {path: state for path, state in dirty_paths(checkout, untracked=False).items() if path not in settled}
    dirty = {path: state for path, state in edited.items() if _touches(path, changed)}
    if dirty:
        index = checkout.git.run("diff-index", "--cached", "-z", "--name-only", "--no-renames", after)
        other = {os.fsdecode(path) for path in index.split(b"\0") if path}
        dirty = {path: state for path, state in dirty.items() if state[1] != " " or path in other}
    tracked = {os.fsdecode(path) for path in checkout.git.run("ls-files", "-z").split(b"\0") if path}
    blocking: dict[str, str] = {}
    for path in changed_paths(checkout, before, after, only="A"):
        blocker = _untracked_at(checkout.root, path, tracked)
        if blocker is not None and blocker not in blocking:
            blocking[blocker] = _free_name(checkout.root, blocker)
    return Overlap(edited=tuple(sorted(dirty)), in_the_way=tuple(sorted(blocking.items())))


def _touches(path: str, changed: Iterable[str]) -> bool:
    """The path itself, or a file where the merge needs a folder, or the other way round."""
    if path in changed:
        return True
    return any(other.startswith(f"{path}/") or path.startswith(f"{other}/") for other in changed)


def _untracked_at(root: Path, path: str, tracked: set[str]) -> str | None:
    """The first thing on the way to `path` that git does not know and would have to take away: a file or a link
    where a folder comes, or anything but an empty folder at `path` itself."""
    parts = path.split("/")
    for depth in range(1, len(parts) + 1):
        step = "/".join(parts[:depth])
        here = root / step
        if not os.path.lexists(here) or step in tracked:
            return None
        if here.is_symlink() or not here.is_dir():
            return step
    below = path + "/"
    return path if any(here.iterdir()) and not any(known.startswith(below) for known in tracked) else None


def _free_name(root: Path, path: str) -> str:
    number = 1
    while os.path.lexists(root / (name := f"{path}.mine{'' if number == 1 else number}")):
        number += 1
    return name
