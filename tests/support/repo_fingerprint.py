"""What a user would notice: every file of a repository but its objects, so that a test can say what may change."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path


def fingerprint(root: Path) -> dict[str, str]:
    """Path below `root` -> kind, mode and hash; the working tree and all of `.git` without `.git/objects`."""
    found: dict[str, str] = {}
    for folder, folders, files in os.walk(root):
        if Path(folder) == root / ".git" and "objects" in folders:
            folders.remove("objects")
        for name in (*files, *(name for name in folders if os.path.islink(os.path.join(folder, name)))):
            path = Path(folder) / name
            status = path.lstat()
            content = os.fsencode(os.readlink(path)) if stat.S_ISLNK(status.st_mode) else path.read_bytes()
            owner = f"{status.st_uid}:{status.st_gid}"
            shown = str(path.relative_to(root))
            found[shown] = f"{status.st_mode:o} {owner} {hashlib.sha256(content).hexdigest()}"
    return found


def differing(before: dict[str, str], after: dict[str, str]) -> set[str]:
    """Paths that came, went or changed."""
    return {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
