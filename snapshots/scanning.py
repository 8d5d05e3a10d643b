"""One stat pass over a workspace: what is in it, without opening a single file.

Everything below is hostile: links are not followed, and pipes, sockets, devices, `.git` and what cannot be named are
left out and told about.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from snapshots.folders import position
from snapshots.names import LONGEST_PATH_BYTES, refused_as_link, refused_by_git, shown


class Entry(NamedTuple):
    """A file or a symbolic link, as the stat pass saw it. `path` is relative, with `/`."""

    path: str
    name: str
    mode: int
    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int

    @property
    def is_link(self) -> bool:
        return stat.S_ISLNK(self.mode)

    @property
    def git_mode(self) -> str:
        if self.is_link:
            return "120000"
        return "100755" if self.mode & 0o100 else "100644"


@dataclass(kw_only=True)
class Folder:
    """A folder and what it holds. Filled by `scan`, read-only afterwards."""

    path: str
    name: str
    mode: int
    mtime_ns: int
    entries: list[Entry] = field(default_factory=list)
    folders: list[Folder] = field(default_factory=list)


class Why(StrEnum):
    NESTED_GIT = "a nested repository's history"
    NAME = "names that git refuses"
    SPECIAL = "a pipe, socket or device"
    TOO_DEEP = "a path too long to be named"
    UNREADABLE = "not readable"


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    path: str
    why: Why


@dataclass(frozen=True, kw_only=True)
class Scan:
    root: Folder
    left_out: tuple[LeftOut, ...]


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step of the way through a scan: into a folder, or (`entering` false) out of it again."""

    folder: Folder
    entering: bool


@dataclass(frozen=True, kw_only=True)
class Most:
    """How much a scan looks at before it gives up: folders, and things of any kind."""

    folders: int
    things: int


class TooManyError(Exception):
    """There is more below the root than the scan looks at. `top`: what it had seen by then."""

    def __init__(self, top: Folder, most: int, what: str) -> None:
        self.top, self.most, self.what = top, most, what
        super().__init__(f"more than {most} {what}")


def scan(root: Path, *, submodules: frozenset[str] = frozenset(), most: Most | None = None) -> Scan:
    """Look at everything below `root`. In `submodules` (paths) a `.git` is expected, elsewhere it is told about.
    Raises OSError, and TooManyError as soon as there is more than `most`."""
    left_out: list[LeftOut] = []
    folders = things = 0
    with position(root) as here:
        found = os.fstat(here.fd)
        top = Folder(path="", name="", mode=stat.S_IMODE(found.st_mode), mtime_ns=found.st_mtime_ns)
        expected = submodules | {""}
        for step in steps(top):
            if not step.entering:
                if step.folder is not top:
                    here.up()
                continue
            if step.folder is not top:
                here.down(step.folder.name)
            room = None if most is None else most.things - things
            things += _fill(step.folder, here.fd, left_out, room, silent=step.folder.path in expected)
            folders += len(step.folder.folders)
            if most is not None and folders > most.folders:
                raise TooManyError(top, most.folders, "folders")
            if most is not None and things > most.things:
                raise TooManyError(top, most.things, "files and folders")
    return Scan(root=top, left_out=tuple(left_out))


def steps(top: Folder) -> Iterator[Step]:
    """Through the folders depth first, without recursion; a folder may be filled while the walk enters it."""
    yield Step(folder=top, entering=True)
    ways = [(top, iter(top.folders))]
    while ways:
        folder, rest = ways[-1]
        below = next(rest, None)
        if below is None:
            ways.pop()
            yield Step(folder=folder, entering=False)
        else:
            yield Step(folder=below, entering=True)
            ways.append((below, iter(below.folders)))


def entries(top: Folder) -> Iterator[Entry]:
    for step in steps(top):
        if step.entering:
            yield from step.folder.entries


def sentences(left_out: tuple[LeftOut, ...]) -> tuple[str, ...]:
    """One sentence for each reason, with at most three examples."""
    told: list[str] = []
    for why in Why:
        paths = [shown(one.path) for one in left_out if one.why is why]
        if paths:
            more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
            told.append(f"left out ({why}): {', '.join(paths[:3])}{more}")
    return tuple(told)


def _fill(folder: Folder, fd: int, left_out: list[LeftOut], room: int | None, *, silent: bool) -> int:
    """How many things there are in it; one more than `room` stands for any number more."""
    prefix = f"{folder.path}/" if folder.path else ""
    prefix_bytes = len(os.fsencode(prefix))
    with os.scandir(fd) as found:
        items = list(found if room is None else islice(found, room + 1))
        for item in sorted(items, key=lambda one: one.name):
            path = prefix + item.name
            status = item.stat(follow_symlinks=False)
            why = _why_not(item.name, status, fd, prefix_bytes)
            if why is Why.NESTED_GIT and silent and item.name == ".git":
                continue
            if why is not None:
                left_out.append(LeftOut(path=path, why=why))
            elif stat.S_ISDIR(status.st_mode):
                mode = stat.S_IMODE(status.st_mode)
                folder.folders.append(Folder(path=path, name=item.name, mode=mode, mtime_ns=status.st_mtime_ns))
            else:
                folder.entries.append(
                    Entry(
                        path,
                        item.name,
                        status.st_mode,
                        status.st_dev,
                        status.st_ino,
                        status.st_size,
                        status.st_mtime_ns,
                        status.st_ctime_ns,
                    )
                )
    return len(items)


def _why_not(name: str, status: os.stat_result, fd: int, prefix_bytes: int) -> Why | None:
    kind = stat.S_IFMT(status.st_mode)
    if refused_by_git(name):
        return Why.NESTED_GIT if name.lower() == ".git" else Why.NAME
    if kind == stat.S_IFLNK:
        return Why.NAME if refused_as_link(name) else None
    if kind not in (stat.S_IFREG, stat.S_IFDIR):
        return Why.SPECIAL
    # A name is at most 255 bytes: most paths need not be measured.
    if prefix_bytes > LONGEST_PATH_BYTES - 255 and prefix_bytes + len(os.fsencode(name)) > LONGEST_PATH_BYTES:
        return Why.TOO_DEEP
    # Root may read all; an ordinary daemon shares the agent's uid and can be locked out by a mode.
    need = 0o500 if kind == stat.S_IFDIR else 0o400
    if status.st_mode & need != need and not os.access(name, need >> 6, dir_fd=fd, effective_ids=True):
        return Why.UNREADABLE
    return None
