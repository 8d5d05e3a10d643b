"""Puts the files that every sandbox gets read-only where the engine can mount them: readable by all, made in one move.

The package itself may lie where neither the engine nor a sandbox's uid may read (a venv below a 0700 folder).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from pathlib import Path

from sandboxes.docker_spec import StagedFiles, group_lines, passwd_lines


def inside_source() -> Path:
    """The package's folder of files that go inside: the supervisor and the two clients."""
    return Path(__file__).parent / "inside"


def stage(folder: Path, *, uid: int, gid: int) -> StagedFiles:
    """Copies to `folder` (ours, made if missing) under names that tell the content; what is there already is used."""
    source = inside_source()
    files = {
        path.relative_to(source).as_posix(): path.read_bytes()
        for path in sorted(source.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
    accounts = {"passwd": passwd_lines(uid, gid).encode(), "group": group_lines(gid).encode()}
    account_folder = _placed(folder, f"accounts-{uid}-{gid}", accounts)
    return StagedFiles(
        inside=_placed(folder, "inside", files),
        passwd=account_folder / "passwd",
        group=account_folder / "group",
    )


def _placed(folder: Path, prefix: str, files: dict[str, bytes]) -> Path:
    digest = hashlib.sha256()
    for name, content in sorted(files.items()):
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    final = folder / f"{prefix}-{digest.hexdigest()[:16]}"
    if final.is_dir():
        return final
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    making = Path(tempfile.mkdtemp(prefix=".making-", dir=folder))
    try:
        making.chmod(0o755)
        for name, content in files.items():
            _write(making / name, content, executable=name.startswith("bin/"))
        _move(making, final)
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return final


def _write(path: Path, content: bytes, *, executable: bool) -> None:
    path.parent.mkdir(exist_ok=True)
    path.parent.chmod(0o755)
    path.write_bytes(content)
    path.chmod(0o755 if executable else 0o644)


def _move(making: Path, final: Path) -> None:
    try:
        os.rename(making, final)
    except OSError:
        if not final.is_dir():  # else another process of ours was faster, with the same content
            raise
