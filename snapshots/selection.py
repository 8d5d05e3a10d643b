"""PURE: what of a scanned workspace goes into the commit, and what else peers get to see.

Two budgets: what git would not ignore may not be more than the snapshot's (a refusal that names the largest paths);
ignored files travel to peers only, up to a budget of their own, whole folders at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from snapshots.names import shown, shown_bytes
from snapshots.scanning import Entry
from snapshots.snapshot import Budget


class TreeEntry(NamedTuple):
    """A path in a commit: its git mode and the id of its blob (or of a submodule's commit)."""

    mode: str
    oid: str


@dataclass(frozen=True, kw_only=True)
class Region:
    """The workspace proper (`path` empty), or one declared submodule: a part with rules and a history of its own.

    `commit` is the parent of what is recorded next, `tracked` the paths (from the workspace's root) that it holds.
    A submodule's parent is what the snapshot before saved of it, else the commit that its gitlink names (`link`);
    either is None when our repository does not have it.
    """

    path: str
    commit: str | None
    tracked: Mapping[str, TreeEntry]
    number: int = 0
    link: str | None = None

    def relative(self, path: str) -> str:
        return path[len(self.path) + 1 :] if self.path else path


@dataclass(frozen=True, kw_only=True)
class Sorted:
    """Each entry once: recorded in its region's commit, or ignored."""

    recorded: Mapping[str, tuple[Entry, ...]]
    ignored: tuple[Entry, ...]


@dataclass(frozen=True, kw_only=True)
class Carried:
    """What peers do not get of the ignored files: paths of files or folders, and the sentences that say so."""

    omitted: frozenset[str]
    about: tuple[str, ...]


def region_of(path: str, regions: Mapping[str, Region]) -> Region:
    """The innermost region that the path lies in."""
    if len(regions) > 1:
        end = len(path)
        while (end := path.rfind("/", 0, end)) > 0:
            if path[:end] in regions:
                return regions[path[:end]]
    return regions[""]


def over_budget(recorded: Iterable[Entry], budget: Budget) -> str | None:
    """One sentence when it is too much, naming the limit and the three largest paths; else None."""
    found = tuple(recorded)
    size = sum(entry.size for entry in found)
    advice = "Delete them, or add them to .gitignore."
    if size > budget.max_bytes:
        largest = sorted(found, key=lambda entry: entry.size, reverse=True)[:3]
        named = ", ".join(f"{shown(entry.path)} ({shown_bytes(entry.size)})" for entry in largest)
        return (
            f"The workspace holds {shown_bytes(size)} in files that git does not ignore, more than the "
            f"{shown_bytes(budget.max_bytes)} of snapshot.max_bytes; the largest: {named}. {advice}"
        )
    if len(found) > budget.max_files:
        folders = Counter(_folder(entry.path) for entry in found).most_common(3)
        named = ", ".join(f"{shown(folder)} ({count} files)" for folder, count in folders)
        return (
            f"The workspace holds {len(found)} files that git does not ignore, more than the "
            f"{budget.max_files} of snapshot.max_files; the largest: {named}. {advice}"
        )
    return None


def carry(recorded: Iterable[Entry], ignored: tuple[Entry, ...], budget: Budget) -> Carried:
    """Small folders of ignored files first; a folder that does not fit is left out whole (half of one is no use)."""
    if sum(entry.size for entry in ignored) <= budget.max_ignored_bytes and len(ignored) <= budget.max_files:
        return Carried(omitted=frozenset(), about=())
    sizes: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    roots = _ignored_roots(recorded, ignored)
    for entry in ignored:
        sizes[roots[entry.path]] += entry.size
        counts[roots[entry.path]] += 1
    room, files = budget.max_ignored_bytes, budget.max_files
    omitted: list[str] = []
    for root in sorted(sizes, key=lambda one: (sizes[one], one)):
        if sizes[root] <= room and counts[root] <= files:
            room -= sizes[root]
            files -= counts[root]
        else:
            omitted.append(root)
    largest = sorted(omitted, key=lambda one: sizes[one], reverse=True)
    named = ", ".join(f"{shown(root)} ({shown_bytes(sizes[root])})" for root in largest[:3])
    more = f" and {len(largest) - 3} more" if len(largest) > 3 else ""
    limit = f"{shown_bytes(budget.max_ignored_bytes)} or {budget.max_files} files"
    sentence = f"ignored files that peers do not see, over the budget of {limit}: {named}{more}"
    return Carried(omitted=frozenset(omitted), about=(sentence,))


def _folder(path: str) -> str:
    return path.rpartition("/")[0] or "(top level)"


def _ignored_roots(recorded: Iterable[Entry], ignored: Iterable[Entry]) -> dict[str, str]:
    """For each ignored file the topmost folder above it that holds ignored files only, or the file itself."""
    mixed = {""}
    for entry in recorded:
        folder = entry.path.rpartition("/")[0]
        while folder and folder not in mixed:
            mixed.add(folder)
            folder = folder.rpartition("/")[0]
    roots: dict[str, str] = {}
    for entry in ignored:
        root, above = entry.path, entry.path.rpartition("/")[0]
        while above not in mixed:
            root, above = above, above.rpartition("/")[0]
        roots[entry.path] = root
    return roots
