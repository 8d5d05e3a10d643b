"""After a checkout that broke in the middle (a filter of the user's that failed, a kill): put back what it wrote.

Only a file that holds just what the merge was writing, or that it took away, is put back: anything else is somebody's
work, and stays.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from snapshots.checkouts import Checkout
from snapshots.overlap import changed_paths


def is_half_written(checkout: Checkout, paths: Iterable[str], *, after: str) -> bool:
    """Is there at each of these paths just what a merge to tree `after` writes there, or takes away?"""
    written = _blobs(checkout, after)
    return all(
        recorded_as(checkout, path) == written.get(path) if os.path.lexists(checkout.root / path) else True
        for path in paths
    )


def put_back(checkout: Checkout, *, before: str, after: str) -> None:
    """The files of the working tree go back from tree `after` to `before`, which the index must still be at."""
    changed = changed_paths(checkout, before, after)
    index = checkout.git.run("diff-index", "--cached", "-z", "--name-only", before)
    staged = {os.fsdecode(path) for path in _split(index)}
    if os.path.lexists(checkout.git_dir / "index.lock") or not staged.isdisjoint(changed):
        return
    added = set(changed_paths(checkout, before, after, only="A"))
    written = _blobs(checkout, after)
    back: list[bytes] = []
    for path in changed:
        here = checkout.root / path
        if path in added and os.path.lexists(here) and recorded_as(checkout, path) == written[path]:
            here.unlink()
        elif path not in added and (not os.path.lexists(here) or recorded_as(checkout, path) == written.get(path, "")):
            back.append(os.fsencode(path) + b"\0")
    checkout.git.attempt("checkout-index", "--force", "--index", "-z", "--stdin", stdin=b"".join(back))


def recorded_as(checkout: Checkout, path: str) -> str | None:
    """The id that `git add` would give to what lies at `path`; None for what it would not take, or beyond a link."""
    here = checkout.root / path
    if any((checkout.root / parent).is_symlink() for parent in Path(path).parents):
        return None
    if here.is_symlink():
        found = checkout.git.attempt("hash-object", "--stdin", stdin=os.fsencode(os.readlink(here)))
    elif here.is_file():
        found = checkout.git.attempt("hash-object", "--", path)
    else:
        return None
    return found.stdout.decode().strip() if found.exit_code == 0 else None


def _blobs(checkout: Checkout, tree: str) -> dict[str, str]:
    entries = (os.fsdecode(entry).partition("\t") for entry in _split(checkout.git.run("ls-tree", "-r", "-z", tree)))
    return {path: about.split()[2] for about, _, path in entries}


def _split(listing: bytes) -> list[bytes]:
    return [part for part in listing.split(b"\0") if part]
