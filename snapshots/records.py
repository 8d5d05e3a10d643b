"""The small file beside each snapshot: what its ref alone does not tell. Lost, it is made anew from git."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from snapshots.manifest import write_whole
from snapshots.snapshot import Snapshot, WorkspaceId


@dataclass(frozen=True, kw_only=True)
class Record:
    """`masked`: paths in the tree that no peer's CLI may load. `bare`: the repository that `commit` is in."""

    ref: str
    commit: str
    git_tree: str
    tree_id: str
    changed_files: int
    paths: tuple[str, ...]
    about: tuple[str, ...]
    masked: tuple[str, ...]
    bare: str

    def snapshot(self, workspace: WorkspaceId, tree: Path) -> Snapshot:
        return Snapshot(
            workspace=workspace,
            ref=self.ref,
            commit=self.commit,
            git_tree=self.git_tree,
            tree=tree,
            changed_files=self.changed_files,
            paths=self.paths,
            about=self.about,
        )


def save(path: Path, record: Record) -> None:
    write_whole(path, json.dumps(vars(record)).encode())


def load(path: Path) -> Record | None:
    try:
        stored = json.loads(path.read_bytes())
        for name in ("paths", "about", "masked"):
            stored[name] = tuple(stored[name])
        return Record(**stored)
    except (OSError, ValueError, KeyError, TypeError):
        return None
