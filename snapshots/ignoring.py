"""Asks git which files its ignore rules cover, without letting it near the workspace.

Git sees a folder of ours that holds copies of the `.gitignore` files and nothing else: no `.git`, no attributes, no
links, no files of the agent's to read.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from snapshots.errors import GitFailed
from snapshots.git import Git
from snapshots.manifest import Manifest
from snapshots.planting import Owner, plant
from snapshots.scanning import Entry, Folder, entries, steps

RULES = ".gitignore"
_LARGEST_RULES_BYTES = 1 << 20


def rules_changed(top: Folder, manifest: Manifest) -> bool:
    now = [entry for entry in entries(top) if entry.name == RULES]
    before = sum(path == RULES or path.endswith("/" + RULES) for path in manifest.entries)
    return before != len(now) or not all(manifest.unchanged(entry) for entry in now)


def plant_rules(top: Folder, *, workspace: Path, target: Path, owner: Owner) -> None:
    """Copy the `.gitignore` files of a scanned workspace to `target`. Links and absurdly large ones are not rules
    (git too ignores those that are links). Raises OSError."""
    plant(
        _rules_only(top),
        workspace=workspace,
        target=target,
        previous=None,
        unchanged=lambda entry: False,
        omitted=frozenset(),
        owner=owner,
    )


def ignored(bare: Path, rules: Path, paths: Iterable[str]) -> frozenset[str]:
    """Those of `paths` (relative to the folder `rules`) that git would ignore if they were untracked. GitFailed."""
    # "./" first: a name that starts with a colon would be read as pathspec magic.
    asked = b"".join(b"./" + path.encode("utf-8", "surrogateescape") + b"\0" for path in paths)
    if not asked:
        return frozenset()
    command = ("check-ignore", "--no-index", "-z", "--stdin")
    answer = Git.ours(bare, work_tree=rules).attempt(*command, stdin=asked)
    if answer.exit_code not in (0, 1):
        raise GitFailed(("git", *command), answer.exit_code, answer.stderr)
    told = answer.stdout.decode("utf-8", "surrogateescape").split("\0")
    return frozenset(path.removeprefix("./") for path in told if path)


def _rules_only(top: Folder) -> Folder:
    """The same folders with nothing but rules in them, and no folder that leads to none."""
    kept: dict[str, Folder] = {}
    for step in steps(top):
        folder = step.folder
        if step.entering:
            rules = [
                entry
                for entry in folder.entries
                if entry.name == RULES and not entry.is_link and entry.size <= _LARGEST_RULES_BYTES
            ]
            kept[folder.path] = Folder(
                path=folder.path, name=folder.name, mode=0o755, mtime_ns=folder.mtime_ns, entries=rules
            )
        else:
            copy = kept.pop(folder.path) if folder.path else kept[""]
            if folder.path and (copy.entries or copy.folders):
                kept[folder.path.rpartition("/")[0]].folders.append(copy)
    return kept[""]


def only(region: str, found: Iterable[Entry]) -> Iterable[str]:
    """The paths of the entries, from the root of their region on."""
    start = len(region) + 1 if region else 0
    return (entry.path[start:] for entry in found)
