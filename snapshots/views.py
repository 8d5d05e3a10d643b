"""The private writable layer over a snapshot's tree: two empty folders for an overlay, and marks for what is masked."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from snapshots.folders import Position, position, remove
from snapshots.planting import Owner
from snapshots.snapshot import View


def open_view(tree: Path, scratch: Path, *, masked: Iterable[str], owner: Owner) -> View:
    """Make `scratch` anew over `tree`, with a whiteout for each masked path. Raises OSError."""
    remove(scratch)
    scratch.mkdir(parents=True)
    view = View(lower=tree, upper=scratch / "upper", work=scratch / "work")
    for folder in (view.upper, view.work):
        folder.mkdir(mode=0o700)
        if owner.change:
            os.chown(folder, owner.uid, owner.gid)
    with position(tree) as lower, position(view.upper) as upper:
        status = os.fstat(lower.fd)
        for path in masked:
            if not _exists(path, lower.fd):
                continue  # a tree made anew from its commit has no ignored files
            _mask(path, lower, upper, owner)
    os.chmod(view.upper, stat.S_IMODE(status.st_mode))
    os.utime(view.upper, ns=(status.st_mtime_ns, status.st_mtime_ns))
    return view


def _mask(path: str, lower: Position, upper: Position, owner: Owner) -> None:
    """An overlay reads a 0:0 character device as "not there"; folders on the way look like those they cover."""
    *above, name = path.split("/")
    statuses: list[os.stat_result] = []
    for folder in above:
        lower.down(folder)
        statuses.append(os.fstat(lower.fd))
        if not _exists(folder, upper.fd):
            os.mkdir(folder, mode=0o700, dir_fd=upper.fd)
            if owner.change:
                os.chown(folder, owner.uid, owner.gid, dir_fd=upper.fd, follow_symlinks=False)
        upper.down(folder, force=True)
    os.mknod(name, stat.S_IFCHR | 0o600, os.makedev(0, 0), dir_fd=upper.fd)
    for folder, status in zip(reversed(above), reversed(statuses), strict=True):
        lower.up()
        upper.up()
        os.chmod(folder, stat.S_IMODE(status.st_mode), dir_fd=upper.fd)
        os.utime(folder, ns=(status.st_mtime_ns, status.st_mtime_ns), dir_fd=upper.fd)


def _exists(name: str, fd: int) -> bool:
    try:
        os.stat(name, dir_fd=fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
