"""How much real disk folders hold: blocks, not lengths, and a file with several names once."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from snapshots.folders import Position, position


@dataclass(frozen=True, kw_only=True)
class Held:
    """`freed_bytes`: what deleting all of these folders would free; files that have other names elsewhere stay."""

    size_bytes: int
    files: int
    freed_bytes: int


@dataclass(kw_only=True)
class _Inode:
    size: int
    links: int
    seen: int = 0


def measure(folders: Iterable[Path]) -> Held:
    """Folders that do not exist hold nothing; one that is being changed meanwhile is measured roughly. OSError."""
    inodes: dict[tuple[int, int], _Inode] = {}
    folder_bytes = 0
    for folder in folders:
        if folder.is_dir() and not folder.is_symlink():
            folder_bytes += _measure_one(folder, inodes)
    return Held(
        size_bytes=folder_bytes + sum(inode.size for inode in inodes.values()),
        files=len(inodes),
        freed_bytes=folder_bytes + sum(one.size for one in inodes.values() if one.seen >= one.links),
    )


def _measure_one(folder: Path, inodes: dict[tuple[int, int], _Inode]) -> int:
    folder_bytes = os.stat(folder, follow_symlinks=False).st_blocks * 512
    with position(folder) as here:
        levels: list[list[str]] = [[]]
        folder_bytes += _count(here.fd, inodes, levels[-1])
        while levels:
            if levels[-1]:
                try:
                    here.down(levels[-1].pop())
                except OSError:
                    continue  # gone meanwhile, or an overlay's work folder: root's, and empty
                levels.append([])
                folder_bytes += _count(here.fd, inodes, levels[-1])
            else:
                levels.pop()
                if levels and not _up(here):
                    break
    return folder_bytes


def _up(here: Position) -> bool:
    """False: the folder was moved away while we were in it."""
    try:
        here.up()
    except OSError as error:
        if error.errno not in (errno.ESTALE, errno.ENOENT):
            raise
        return False
    return True


def _count(fd: int, inodes: dict[tuple[int, int], _Inode], below: list[str]) -> int:
    folder_bytes = 0
    with os.scandir(fd) as found:
        for entry in found:
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            if entry.is_dir(follow_symlinks=False):
                folder_bytes += status.st_blocks * 512
                below.append(entry.name)
            else:
                inode = inodes.setdefault(
                    (status.st_dev, status.st_ino), _Inode(size=status.st_blocks * 512, links=status.st_nlink)
                )
                inode.seen += 1
    return folder_bytes
