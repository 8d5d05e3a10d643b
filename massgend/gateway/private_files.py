"""Files that only their owner may read: how keys and logins are read, and how a login is replaced."""

from __future__ import annotations

import os
import stat
from pathlib import Path

MAX_BYTES = 256 * 1024


class KeysError(Exception):
    """A key cannot be had. The message says from where and why, and never holds a key."""


def open_private(path: Path) -> int:
    """A descriptor to read from. Raises FileNotFoundError; KeysError, also when others could read or write it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise KeysError(f"{path} cannot be opened: {error.strerror}") from None
    try:
        _check(path, os.fstat(descriptor))
    except KeysError:
        os.close(descriptor)
        raise
    return descriptor


def read_private(path: Path) -> bytes:
    """The whole content. Raises KeysError, also when there is no such file."""
    try:
        with os.fdopen(open_private(path), "rb") as file:
            return file.read(MAX_BYTES)
    except FileNotFoundError:
        raise KeysError(f"{path} is not there") from None


def replace_private(path: Path, content: bytes) -> None:
    """Write a file of mode 0600 in one step: after a crash the old one or the new one is there. Raises OSError."""
    partial = path.with_name(f".{path.name}.partial")
    partial.unlink(missing_ok=True)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _check(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_BYTES:
        raise KeysError(f"{path} is not a file of keys")
    if status.st_uid != os.geteuid():
        raise KeysError(f"{path} belongs to another user: it is not used")
    if status.st_mode & 0o077:
        mode = stat.S_IMODE(status.st_mode)
        raise KeysError(f"{path} may be read by others (mode {mode:04o}): chmod 600 {path}")
