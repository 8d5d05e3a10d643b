"""Delivering the work of a run without a repository: a folder with the files of a commit, byte for byte."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path

from snapshots import folders
from snapshots.contents import has_contents
from snapshots.errors import RepositoryRefused
from snapshots.git import Git
from snapshots.names import checked_id
from snapshots.recording import GITLINK, list_files
from snapshots.scanning import entries, scan
from snapshots.snapshot import Base
from snapshots.texts import is_readable, readable


def check_target(target: Path) -> str | None:
    """One sentence on why a folder cannot be delivered to `target`, or None. Only looks."""
    target = Path(os.path.abspath(target))
    try:
        problem = _problem(target)
    except OSError as error:
        problem = f"{target} cannot be made here ({error.strerror}): name another folder."
    return None if problem is None else readable(problem)


def deliver_folder(base: Base, *, commit: str, target: Path) -> Path:
    """Write the files of `commit` to `target`, which must not exist, be empty, or hold just them; whole or not at all.

    They belong to the owner of the folder above. Links are written as links and never followed. A call that was killed
    is finished by the next one, which takes away what it left beside the target.
    """
    target = Path(os.path.abspath(target))
    problem = check_target(target)
    if problem is not None and not _holds_just(target, base, commit):
        raise RepositoryRefused(problem)
    _sweep(target.parent, base.run)
    return target if problem is not None else _write(base, commit, target)


def _problem(target: Path) -> str | None:
    above = target.parent
    if not is_readable(str(target)):
        return f"The path {target} is not UTF-8: name another folder."
    if not _is_there(above):
        return f"{above} does not exist: make it first."
    if not above.is_dir():
        return f"{above} is not a folder: name another place."
    target_is_there = _is_there(target)
    if target_is_there and (target.is_symlink() or not target.is_dir() or any(target.iterdir())):
        return f"{target} exists and is not an empty folder: name another one."
    if target_is_there and os.path.ismount(target):
        return f"{target} is a mounted folder: name one below it."
    if not os.access(above, os.W_OK | os.X_OK):
        return f"This user may not write in {above}: name another place."
    return None


def _is_there(target: Path) -> bool:
    """Unlike `lexists`, raises OSError where that cannot be known."""
    try:
        target.lstat()
    except FileNotFoundError:
        return False
    return True


def _holds_just(target: Path, base: Base, commit: str) -> bool:
    """Did an earlier call write `target`, and is everything in it still as it was written?"""
    wanted = {path: one for path, one in list_files(base.bare, commit).items() if one.mode != GITLINK}
    try:
        if target.is_symlink() or not target.is_dir():
            return False
        seen = scan(target)
        found = {entry.path: entry.git_mode for entry in entries(seen.root)}
        if seen.left_out or found != {path: one.mode for path, one in wanted.items()}:
            return False
        return has_contents(seen.root, target, {path: one.oid for path, one in wanted.items()})
    except OSError:
        return False


def _sweep(above: Path, run: str) -> None:
    ours = re.compile(rf"\.massgend-{checked_id(run)}-[a-z0-9_]{{8}}")
    for path in above.iterdir():
        if ours.fullmatch(path.name) and path.is_dir() and not path.is_symlink():
            folders.remove(path)


def _write(base: Base, commit: str, target: Path) -> Path:
    beside = Path(tempfile.mkdtemp(prefix=f".massgend-{base.run}-", dir=target.parent))
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
