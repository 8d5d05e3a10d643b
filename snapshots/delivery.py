"""Delivering the work of a run without a repository: a folder with the files of a commit, byte for byte."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from snapshots.errors import RepositoryRefused
from snapshots.git import Git
from snapshots.snapshot import Base


def deliver_folder(base: Base, *, commit: str, target: Path) -> Path:
    """Write the files of `commit` to `target`, which must not exist or be empty; whole or not at all.

    They belong to the owner of the folder above. Links are written as links and never followed.
    """
    target = Path(os.path.abspath(target))
    if os.path.lexists(target) and (target.is_symlink() or not target.is_dir() or any(target.iterdir())):
        raise RepositoryRefused(f"{target} exists and is not an empty folder: name another one.")
    if not target.parent.is_dir():
        raise RepositoryRefused(f"{target.parent} is not a folder: make it first.")
    beside = Path(tempfile.mkdtemp(prefix=".massgend-", dir=target.parent))
    try:
        files = beside / "files"
        files.mkdir(mode=0o755)
        index = {"GIT_INDEX_FILE": str(beside / "index")}
        git = Git.ours(base.bare, work_tree=files)
        git.run("read-tree", commit, environment=index)
        git.run("checkout-index", "--all", "--force", environment=index)
        _give(files, like=target.parent)
        files.rename(target)
    finally:
        shutil.rmtree(beside)
    return target


def _give(folder: Path, *, like: Path) -> None:
    owner = like.stat()
    if os.geteuid() != 0 or owner.st_uid == 0:
        return
    for place, _, names, handle in os.fwalk(folder, follow_symlinks=False):
        del place
        os.fchown(handle, owner.st_uid, owner.st_gid)
        for name in names:
            os.chown(name, owner.st_uid, owner.st_gid, dir_fd=handle, follow_symlinks=False)
