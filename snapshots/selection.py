"""PURE: what of a scanned workspace goes into the commit, and what else peers get to see.

Two budgets: what git would not ignore may not be more than the snapshot's (a refusal that names the largest paths);
ignored files travel to peers only, up to a budget of their own, whole folders at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from snapshots.names import shown, shown_bytes
from snapshots.scanning import Entry, Folder, Most, TooManyError, steps
from snapshots.snapshot import Budget

_IGNORED_TIMES = 3
_TOP = "(top level)"


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


def most(budget: Budget) -> Most:
    """What a scan need not look beyond: ignored files may be many more than the others, but not any number."""
    return Most(folders=budget.max_files, things=budget.max_files * _IGNORED_TIMES)


def too_many(error: TooManyError, budget: Budget) -> str:
    """The sentence for a workspace that was not looked through to its end."""
    found = Counter[str]()
    for folder in _folders(error.top):
        found[folder.path.partition("/")[0] or _TOP] += len(folder.folders) + len(folder.entries)
    named = ", ".join(f"{shown(folder)} ({count} seen)" for folder, count in found.most_common(3))
    return (
        f"The workspace holds more than {error.most} {error.what}, ignored ones too, and snapshot.max_files is "
        f"{budget.max_files}; the largest: {named}. Delete them."
    )


def over_budget(recorded: Iterable[Entry], folders: Collection[str], budget: Budget) -> str | None:
    """One sentence when it is too much, naming the limit and the three largest paths; else None. `folders`: those
    that count too, because nothing in them, or not all, is ignored."""
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
    if len(found) + len(folders) > budget.max_files:
        files, below = Counter(_above(entry.path) for entry in found), Counter(map(_above, folders))
        named = ", ".join(
            f"{shown(one)} ({_amount(files[one], below[one])})" for one, _ in (files + below).most_common(3)
        )
        return (
            f"The workspace holds {_amount(len(found), len(folders))} that git does not ignore, more than the "
            f"{budget.max_files} of snapshot.max_files; the largest: {named}. {advice}"
        )
    return None


def folders_that_count(top: Folder, ignored: Collection[str]) -> list[str]:
    """The folders of a scan, but those in which there are ignored files (paths) and no others."""
    roots = _ignored_roots(top, ignored)
    return [folder.path for folder in _folders(top) if folder.path and folder.path not in roots]


def carry(top: Folder, ignored: tuple[Entry, ...], budget: Budget) -> Carried:
    """Small folders of ignored files first; a folder that does not fit is left out whole (half of one is no use)."""
    paths = {entry.path for entry in ignored}
    roots = _ignored_roots(top, paths)
    if sum(entry.size for entry in ignored) <= budget.max_ignored_bytes and len(paths) + len(roots) <= budget.max_files:
        return Carried(omitted=frozenset(), about=())
    sizes: Counter[str] = Counter()
    counts: Counter[str] = Counter(roots.values())
    for entry in ignored:
        root = roots.get(entry.path.rpartition("/")[0], entry.path)
        sizes[root] += entry.size
        counts[root] += 1
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


def _above(path: str) -> str:
    return path.rpartition("/")[0] or _TOP


def _amount(files: int, folders: int) -> str:
    parts = (f"{files} files" if files else "", f"{folders} folders" if folders else "")
    return " and ".join(filter(None, parts))


def _folders(top: Folder) -> Iterator[Folder]:
    return (step.folder for step in steps(top) if step.entering)


def _ignored_roots(top: Folder, ignored: Collection[str]) -> dict[str, str]:
    """For each folder with ignored files and no others, and each one below it, the topmost such folder."""
    mixed, holding = set[int](), set[int]()
    for step in steps(top):
        if not step.entering:
            for entry in step.folder.entries:
                (holding if entry.path in ignored else mixed).add(id(step.folder))
            for below in step.folder.folders:
                for kind in (mixed, holding):
                    if id(below) in kind:
                        kind.add(id(step.folder))
    roots: dict[str, str] = {}
    for folder in _folders(top):
        for below in folder.folders:
            only_ignored = id(below) in holding and id(below) not in mixed
            root = roots.get(folder.path) or (below.path if only_ignored else None)
            if root is not None:
                roots[below.path] = root
    return roots
