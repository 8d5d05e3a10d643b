"""The daemon's bare repositories, one per repository of a user's: made here, locked here, never shown to a container.

All that a run recorded lies in refs under `refs/massgend/<run>/`, so that it can be read back after a crash.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from snapshots.git import Git

NAME = "massgend"
EMAIL = "massgend@localhost"
# The highest level of attributes there is: what is in a tree cannot change the bytes that go in or out. (An unset
# working-tree-encoding would be an error, so it is unspecified.)
_BYTES_AS_THEY_ARE = "* -text !eol -filter -ident !working-tree-encoding\n"


def repository_id(common_dir: Path, object_format: str) -> str:
    """One id for all working trees of a repository; another one when it was made again with other hashes."""
    key = os.fsencode(os.path.realpath(common_dir)) + b"\0" + object_format.encode()
    return hashlib.sha256(key).hexdigest()[:32]


@contextmanager
def opened(bare: Path, object_format: str) -> Iterator[Git]:
    """The bare repository, made when missing. Guards its making and its imports against a second daemon or run."""
    bare.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (bare.parent / f"{bare.name}.lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        git = Git.ours(bare)
        if not (bare / "info" / "attributes").exists():
            Git.ours(None).run("init", "--quiet", "--bare", "--template=", f"--object-format={object_format}", bare)
            git.run("config", "gc.auto", "0")
            (bare / "info").mkdir(exist_ok=True)
            (bare / "info" / "attributes").write_text(_BYTES_AS_THEY_ARE)
        yield git


def identity(name: str, email: str, date: str) -> dict[str, str]:
    """The environment that makes a commit somebody's. `date`: `<seconds> <zone>`."""
    return {
        f"GIT_{role}_{what}": value
        for role in ("AUTHOR", "COMMITTER")
        for what, value in (("NAME", name), ("EMAIL", email), ("DATE", date))
    }
