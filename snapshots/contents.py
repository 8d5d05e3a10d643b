"""Compares files of a workspace with blobs of a commit, by git's own ids, without git and without a copy."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from snapshots.folders import position
from snapshots.scanning import Entry, Folder, steps

_CHUNK_BYTES = 1 << 20


def has_contents(top: Folder, workspace: Path, wanted: Mapping[str, str]) -> bool:
    """Do all the files named in `wanted` hold the blob named there? `top` is a scan of `workspace`. Raises OSError."""
    with position(workspace) as here:
        for step in steps(top):
            if not step.entering:
                if step.folder.path:
                    here.up()
                continue
            if step.folder.path:
                here.down(step.folder.name)
            for entry in step.folder.entries:
                if entry.path in wanted and _blob_id(entry, here.fd) != wanted[entry.path]:
                    return False
    return True


def _blob_id(entry: Entry, fd: int) -> str:
    if entry.is_link:
        target = os.fsencode(os.readlink(entry.name, dir_fd=fd))
        return _sha1(len(target), target).hexdigest()
    opened = os.open(entry.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=fd)
    with open(opened, "rb", buffering=0) as file:
        status = os.fstat(opened)
        if not stat.S_ISREG(status.st_mode):
            return ""
        digest = _sha1(status.st_size, b"")
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
        return digest.hexdigest()


def _sha1(size: int, start: bytes) -> hashlib._Hash:
    return hashlib.sha1(b"blob %d\0" % size + start, usedforsecurity=False)
