"""Looks at a workspace before anything is written: a stat pass, git's word on what is ignored, and what differs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from snapshots import folders, ignoring, manifest, recording
from snapshots.contents import has_contents
from snapshots.layout import AgentFolder, ref_folder
from snapshots.manifest import Manifest
from snapshots.planting import Owner
from snapshots.recording import Change
from snapshots.scanning import Entry, Folder, Scan, TooManyError, entries, scan, steps
from snapshots.selection import Region, Sorted, TreeEntry, most, region_of
from snapshots.snapshot import Base, Budget, WorkspaceId


@dataclass(frozen=True, kw_only=True)
class Look:
    """What a freeze sees before it writes anything. `parent` is the newest snapshot's ref (None: the base)."""

    parent: str
    parent_ref: str | None
    scan: Scan
    taken_ns: int
    before: Manifest | None
    links: frozenset[str]
    regions: Mapping[str, Region]
    sorted: Sorted

    def unchanged(self, entry: Entry) -> bool:
        return self.before is not None and self.before.unchanged(entry)

    def is_clean(self) -> bool:
        """Certainly nothing that a snapshot records has changed; False: it may have."""
        if self.before is None or any(link not in self.regions for link in self.links):
            return False
        found = [entry for region in self.sorted.recorded.values() for entry in region]
        same_paths = self.before.recorded == {entry.path for entry in found}
        return same_paths and all(self.before.unchanged(entry) for entry in found)


def look(base: Base, workspace: WorkspaceId, folder: AgentFolder, owner: Owner, budget: Budget) -> Look:
    """One stat pass, and git's word on what is ignored. Raises OSError, GitFailed, and TooManyError for a workspace
    that is over the budget by far."""
    known = recording.snapshot_refs(base.bare, workspace.run, workspace.agent, base.commit)
    parent_ref, parent = known[-1] if known else (None, base.commit)
    before = manifest.load(folder.manifest)
    if before is not None and before.commit != parent:
        before = None
    files = recording.list_files(base.bare, parent)
    links = recording.gitlinks(files)
    taken_ns = time.time_ns()
    seen = scan(folder.workspace, submodules=frozenset(links), most=most(budget))
    regions = {"": Region(path="", commit=parent, tracked=files)}
    if links:
        saved = recording.refs_below(base.bare, ref_folder(workspace))
        there = _folders(seen.root, frozenset(links))
        for number, (path, link) in enumerate(sorted(links.items()), start=1):
            if path in there:
                before_it = saved.get(f"{parent_ref}-submodule-{number}")
                regions[path] = _submodule_region(base.bare, path, number, link, before_it)
    return Look(
        parent=parent,
        parent_ref=parent_ref,
        scan=seen,
        taken_ns=taken_ns,
        before=before,
        links=frozenset(links),
        regions=regions,
        sorted=_sort(base.bare, seen.root, regions, before, folder, owner),
    )


def differs(base: Base, workspace: WorkspaceId, folder: AgentFolder, owner: Owner) -> bool:
    """Would a freeze have anything to record? Raises OSError, GitFailed."""
    try:
        seen = look(base, workspace, folder, owner, Budget())
    except TooManyError:
        return True
    if seen.is_clean():
        return False
    if any(link not in seen.regions for link in seen.links):
        return True
    wanted: dict[str, str] = {}
    for region in seen.regions.values():
        change = change_in(seen, region, folder.workspace)
        for _, entry in change.files:
            tracked = region.tracked.get(entry.path)
            if tracked is None or tracked.mode != entry.git_mode:
                return True
            wanted[entry.path] = tracked.oid
        if change.deleted:
            return True
    return not has_contents(seen.scan.root, folder.workspace, wanted)


def change_in(seen: Look, region: Region, tree: Path) -> Change:
    """What is new, different or gone in a region, against its parent commit or the freeze before."""
    found = seen.sorted.recorded[region.path]
    present = {entry.path for entry in found}
    deleted = [
        region.relative(path)
        for path, tracked in region.tracked.items()
        if path not in present and not (tracked.mode == recording.GITLINK and (region.path or path in seen.regions))
    ]
    files = [
        (region.relative(entry.path), entry)
        for entry in found
        if not seen.unchanged(entry) or _mode(region.tracked.get(entry.path)) != entry.git_mode
    ]
    return Change(folder=tree / region.path, deleted=deleted, files=files)


def _sort(
    bare: Path, top: Folder, regions: Mapping[str, Region], before: Manifest | None, folder: AgentFolder, owner: Owner
) -> Sorted:
    same_rules = before is not None and not ignoring.rules_changed(top, before)
    recorded: dict[str, list[Entry]] = {path: [] for path in regions}
    ignored: list[Entry] = []
    asked: dict[str, list[Entry]] = {path: [] for path in regions}
    for entry in entries(top):
        region = region_of(entry.path, regions)
        if entry.path in region.tracked:
            recorded[region.path].append(entry)
        elif before is not None and same_rules and entry.path in before.entries:
            (recorded[region.path] if entry.path in before.recorded else ignored).append(entry)
        else:
            asked[region.path].append(entry)
    if any(asked.values()):
        folders.remove(folder.rules)
        ignoring.plant_rules(top, workspace=folder.workspace, target=folder.rules, owner=owner)
        for path, found in asked.items():
            rules = folder.rules / path
            rules.mkdir(parents=True, exist_ok=True)
            matched = ignoring.ignored(bare, rules, ignoring.only(path, found))
            for entry in found:
                (ignored if regions[path].relative(entry.path) in matched else recorded[path]).append(entry)
        folders.remove(folder.rules)
    return Sorted(recorded={path: tuple(found) for path, found in recorded.items()}, ignored=tuple(ignored))


def _submodule_region(bare: Path, path: str, number: int, link: str, saved: str | None) -> Region:
    linked = link if recording.has_commit(bare, link) else None
    parent = saved or linked
    files = recording.list_files(bare, parent) if parent is not None else {}
    tracked = {f"{path}/{inner}": one for inner, one in files.items()}
    return Region(path=path, commit=parent, tracked=tracked, number=number, link=linked)


def _folders(top: Folder, wanted: frozenset[str]) -> frozenset[str]:
    return frozenset(step.folder.path for step in steps(top) if step.entering and step.folder.path in wanted)


def _mode(tracked: TreeEntry | None) -> str | None:
    return None if tracked is None else tracked.mode
