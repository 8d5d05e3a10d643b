"""Plants a snapshot's immutable tree: unchanged files are links into the tree before, the others copies.

The new folder shares no file with the workspace, so nothing an agent does later can reach it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from snapshots.folders import Position, Trail, position, trail
from snapshots.scanning import Entry, Folder, steps

_FICLONE = 0x40049409
_CHUNK_BYTES = 1 << 20
_PERMISSIONS = 0o777  # set-user-id, set-group-id and sticky bits do not travel


class StillChangingError(OSError):
    """A file is not what the stat pass saw: something is writing to the workspace."""


@dataclass(frozen=True, kw_only=True)
class Owner:
    """Whose the planted files become; `change` is false when they are ours already."""

    uid: int
    gid: int
    change: bool


def plant(
    top: Folder,
    *,
    workspace: Path,
    target: Path,
    previous: Path | None,
    unchanged: Callable[[Entry], bool],
    omitted: frozenset[str],
    owner: Owner,
) -> None:
    """Make `target` (must not exist) hold what the scan `top` of `workspace` found, less the paths in `omitted`.

    `previous` is the tree of the freeze before; files that are `unchanged` are linked from there if they can be.
    Raises OSError, and leaves what was made so far.
    """
    target.mkdir(mode=0o700)
    with position(workspace) as source, position(target) as new, trail(previous) as old:
        skipped: set[int] = set()
        for step in steps(top):
            folder = step.folder
            if folder.path in omitted or skipped:
                (skipped.add if step.entering else skipped.discard)(id(folder))
                continue
            if step.entering:
                _enter(folder, source, new, old)
                for entry in folder.entries:
                    if entry.path not in omitted and not (unchanged(entry) and _link(entry, old, new)):
                        _copy(entry, source.fd, new.fd, owner)
            elif folder.path:
                for way in (source, new, old):
                    way.up()
                _finish(folder, folder.name, new.fd, owner)
    _finish(top, str(target), None, owner)


def _enter(folder: Folder, source: Position, new: Position, old: Trail) -> None:
    if folder.path:
        os.mkdir(folder.name, mode=0o700, dir_fd=new.fd)
        for way in (source, new, old):
            way.down(folder.name)


def _finish(folder: Folder, name: str, fd: int | None, owner: Owner) -> None:
    """Modes and times last: a read-only folder could not be filled, and filling it would change its time."""
    if owner.change:
        os.chown(name, owner.uid, owner.gid, dir_fd=fd, follow_symlinks=False)
    os.chmod(name, folder.mode & _PERMISSIONS, dir_fd=fd)
    os.utime(name, ns=(folder.mtime_ns, folder.mtime_ns), dir_fd=fd, follow_symlinks=False)


def _link(entry: Entry, old: Trail, new: Position) -> bool:
    if old.fd is None:
        return False
    try:
        os.link(entry.name, entry.name, src_dir_fd=old.fd, dst_dir_fd=new.fd, follow_symlinks=False)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            raise
        return False  # too many links, or the tree before did not carry it: a copy will do
    return True


def _copy(entry: Entry, source: int, new: int, owner: Owner) -> None:
    if not entry.is_link:
        _copy_file(entry, source, new, owner)
        return
    os.symlink(os.readlink(entry.name, dir_fd=source), entry.name, dir_fd=new)
    if owner.change:
        os.chown(entry.name, owner.uid, owner.gid, dir_fd=new, follow_symlinks=False)
    os.utime(entry.name, ns=(entry.mtime_ns, entry.mtime_ns), dir_fd=new, follow_symlinks=False)


def _copy_file(entry: Entry, source: int, new: int, owner: Owner) -> None:
    # O_NONBLOCK: should a pipe have taken the file's place, opening it must not wait for a writer.
    reading = os.open(entry.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=source)
    try:
        _must_be(entry, os.fstat(reading))
        writing = os.open(entry.name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=new)
        try:
            _copy_bytes(reading, writing, entry.size)
            if owner.change:
                os.fchown(writing, owner.uid, owner.gid)
            os.fchmod(writing, stat.S_IMODE(entry.mode) & _PERMISSIONS)
            os.utime(writing, ns=(entry.mtime_ns, entry.mtime_ns))
        finally:
            os.close(writing)
        _must_be(entry, os.fstat(reading))
    finally:
        os.close(reading)


def _must_be(entry: Entry, found: os.stat_result) -> None:
    seen = (entry.mode, entry.device, entry.inode, entry.size, entry.ctime_ns)
    if (found.st_mode, found.st_dev, found.st_ino, found.st_size, found.st_ctime_ns) != seen:
        raise StillChangingError(errno.ESTALE, "changed while it was being read", entry.path)


def _copy_bytes(reading: int, writing: int, size: int) -> None:
    if size > _CHUNK_BYTES:
        try:
            fcntl.ioctl(writing, _FICLONE, reading)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
                raise
        else:
            return
        try:
            while os.copy_file_range(reading, writing, _CHUNK_BYTES * 64):
                pass
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
                raise
        else:
            return
    while size > 0 and (chunk := os.read(reading, _CHUNK_BYTES)):
        size -= len(chunk)
        rest = memoryview(chunk)
        while rest:
            rest = rest[os.write(writing, rest) :]
