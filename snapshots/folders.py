"""Moving through folders that hostile programs filled: by open folders, never by paths, never through a link.

A `Position` holds one open folder at any depth, so that depth costs neither recursion nor file descriptors.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Position:
    """An open folder at or below a root. Goes down by name and up again; close it (or use `position`)."""

    def __init__(self, root: Path) -> None:
        self.fd = os.open(root, _FOLDER)
        self._above: list[tuple[int, int]] = []

    @property
    def depth(self) -> int:
        return len(self._above)

    def down(self, name: str, *, force: bool = False) -> None:
        """Enter a folder in this one. A link, or anything else than a folder, raises OSError. `force`: give
        ourselves the right to read and empty it first."""
        here = os.fstat(self.fd)
        below = _open_by_force(name, self.fd) if force else os.open(name, _FOLDER, dir_fd=self.fd)
        os.close(self.fd)
        self.fd = below
        self._above.append((here.st_dev, here.st_ino))

    def up(self) -> None:
        """Back to the folder that `down` came from; anything else in its place raises OSError."""
        expected = self._above.pop()
        above = os.open("..", _FOLDER, dir_fd=self.fd)
        os.close(self.fd)
        self.fd = above
        found = os.fstat(above)
        if (found.st_dev, found.st_ino) != expected:
            raise OSError(errno.ESTALE, "a folder was moved while it was being read")

    def close(self) -> None:
        os.close(self.fd)


class Trail:
    """Follows the same way in another tree as far as that has it; `fd` is None where it has not."""

    def __init__(self, root: Path | None) -> None:
        self._position: Position | None = None
        self._lost = 0
        if root is not None:
            try:
                self._position = Position(root)
            except FileNotFoundError:
                self._position = None

    @property
    def fd(self) -> int | None:
        return self._position.fd if self._position is not None and self._lost == 0 else None

    def down(self, name: str) -> None:
        if self._position is None or self._lost:
            self._lost += 1
            return
        try:
            self._position.down(name)
        except OSError:
            self._lost = 1

    def up(self) -> None:
        if self._lost:
            self._lost -= 1
        elif self._position is not None:
            self._position.up()

    def close(self) -> None:
        if self._position is not None:
            self._position.close()


@contextmanager
def position(root: Path) -> Iterator[Position]:
    here = Position(root)
    try:
        yield here
    finally:
        here.close()


@contextmanager
def trail(root: Path | None) -> Iterator[Trail]:
    here = Trail(root)
    try:
        yield here
    finally:
        here.close()


def remove(path: Path) -> None:
    """Delete a file or a whole folder, whatever its depth, names and modes. Links are deleted, never followed, and
    a mounted folder is an error. Missing: nothing to do. Raises OSError."""
    try:
        above = Position(path.parent)
    except FileNotFoundError:
        return
    try:
        device = os.fstat(above.fd).st_dev
        levels = [[path.name]]
        names: list[str] = []
        while levels:
            if not levels[-1]:
                levels.pop()
                if names:
                    above.up()
                    os.rmdir(names.pop(), dir_fd=above.fd)
                continue
            name = levels[-1].pop()
            if _remove_one(name, above.fd):
                continue
            above.down(name, force=True)
            names.append(name)
            if os.fstat(above.fd).st_dev != device:
                raise OSError(errno.EXDEV, "a mounted folder is in the way", str(path))
            with os.scandir(above.fd) as entries:
                levels.append([entry.name for entry in entries])
    finally:
        above.close()


def give(path: Path, uid: int, gid: int) -> None:
    """Make a folder and all in it belong to `uid`:`gid`; links themselves, never what they point to. OSError."""
    os.chown(path, uid, gid, follow_symlinks=False)
    with position(path) as here:
        levels = [_give_entries(here.fd, uid, gid)]
        while levels:
            if levels[-1]:
                here.down(levels[-1].pop())
                levels.append(_give_entries(here.fd, uid, gid))
            else:
                levels.pop()
                if levels:
                    here.up()


def _give_entries(fd: int, uid: int, gid: int) -> list[str]:
    folders: list[str] = []
    with os.scandir(fd) as entries:
        for entry in entries:
            os.chown(entry.name, uid, gid, dir_fd=fd, follow_symlinks=False)
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
    return folders


def _remove_one(name: str, fd: int) -> bool:
    """Delete a file, a link or an empty folder; False: it is a folder with something in it."""
    try:
        found = os.stat(name, dir_fd=fd, follow_symlinks=False)
    except FileNotFoundError:
        return True
    if not stat.S_ISDIR(found.st_mode):
        os.unlink(name, dir_fd=fd)
        return True
    try:
        # An empty folder goes whoever owns it: an overlay's `work/work` belongs to root and lets nobody in.
        os.rmdir(name, dir_fd=fd)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            return False
        raise
    return True


def _open_by_force(name: str, fd: int) -> int:
    handle = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
    try:
        if os.fstat(handle).st_mode & 0o700 != 0o700:
            # By way of /proc: a chmod by name would follow a link that took the folder's place.
            os.chmod(f"/proc/self/fd/{handle}", 0o700)
    finally:
        os.close(handle)
    return os.open(name, _FOLDER, dir_fd=fd)
