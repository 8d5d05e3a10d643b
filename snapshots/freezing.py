"""Freezes a workspace: looks, decides what is in, plants the immutable tree, records the commit, makes the ref.

In that order, so that a crash at any point leaves a workspace as it was and no ref; the next freeze sweeps up.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from snapshots import folders, ignoring, manifest, recording, records
from snapshots.contents import has_contents
from snapshots.layout import AgentFolder, ref_folder
from snapshots.manifest import Manifest
from snapshots.names import masked_paths, shown
from snapshots.planting import Owner, plant
from snapshots.recording import Change, Wording
from snapshots.records import Record
from snapshots.scanning import Entry, Folder, Scan, entries, scan, sentences, steps
from snapshots.selection import Carried, Region, Sorted, TreeEntry, carry, over_budget, region_of
from snapshots.snapshot import Base, Budget, OverBudget, Unchanged, WorkspaceId


@dataclass(frozen=True, kw_only=True)
class Freeze:
    """One request to freeze, with all that it needs. `tree_id`: a fresh random id."""

    base: Base
    workspace: WorkspaceId
    name: str
    wording: Wording
    budget: Budget
    refuse_unchanged: bool
    folder: AgentFolder
    trees: Path
    tree_id: str
    owner: Owner

    @property
    def ref(self) -> str:
        return ref_folder(self.workspace) + self.name


@dataclass(frozen=True, kw_only=True)
class SavedSubmodule:
    """What differs inside a declared submodule, as a commit. `news`: it also differs from the snapshot before."""

    path: str
    ref: str
    commit: str
    news: bool

    @property
    def sentence(self) -> str:
        return f"changes inside the submodule {shown(self.path)} are not in the commit, they are saved as {self.ref}"


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


def look(base: Base, workspace: WorkspaceId, folder: AgentFolder, owner: Owner) -> Look:
    """One stat pass, and git's word on what is ignored. Raises OSError, GitFailed."""
    known = recording.snapshot_refs(base.bare, workspace.run, workspace.agent, base.commit)
    parent_ref, parent = known[-1] if known else (None, base.commit)
    before = manifest.load(folder.manifest)
    if before is not None and before.commit != parent:
        before = None
    files = recording.list_files(base.bare, parent)
    links = recording.gitlinks(files)
    taken_ns = time.time_ns()
    seen = scan(folder.workspace, submodules=frozenset(links))
    regions = {"": Region(path="", commit=parent, tracked=files)}
    for path in _folders(seen.root, frozenset(links)):
        regions[path] = _submodule_region(base.bare, path, links[path])
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


def freeze(request: Freeze) -> Record | Unchanged | OverBudget:
    """Raises OSError, GitFailed; then no ref was made, and `sweep` removes what is left over."""
    seen = look(request.base, request.workspace, request.folder, request.owner)
    unchanged = Unchanged(against=seen.parent_ref or "base")
    if request.refuse_unchanged and seen.is_clean():
        return unchanged
    recorded = [entry for found in seen.sorted.recorded.values() for entry in found]
    reason = over_budget(recorded, request.budget)
    if reason is not None:
        return OverBudget(reason=reason)
    carried = carry(recorded, seen.sorted.ignored, request.budget)
    tree = _plant(request, seen, carried)
    inner = _record_submodules(request, seen, tree)
    record = _record(request, seen, carried, tree, inner)
    same = record.git_tree == recording.tree_of(request.base.bare, seen.parent) and not any(one.news for one in inner)
    if request.refuse_unchanged and same:
        sweep(request.base.bare, request.workspace, request.folder, request.trees)
        return unchanged
    _finish(request, seen, record, inner)
    return record


def sweep(bare: Path, workspace: WorkspaceId, folder: AgentFolder, trees: Path) -> None:
    """Remove what a freeze that did not come to its end left behind. Raises OSError, GitFailed."""
    folders.remove(folder.rules)
    left_over = list(folder.records.glob("*.pending"))
    refs = recording.refs_below(bare, ref_folder(workspace)) if left_over else {}
    for pending in left_over:
        tree_id = pending.read_text().strip()
        if tree_id and ref_folder(workspace) + pending.stem not in refs:
            folders.remove(trees / tree_id)
        pending.unlink()


def _plant(request: Freeze, seen: Look, carried: Carried) -> Path:
    tree = request.trees / request.tree_id
    request.trees.mkdir(mode=0o700, exist_ok=True)
    manifest.write_whole(request.folder.pending(request.name), request.tree_id.encode())
    previous = seen.before.tree if seen.before is not None else None
    plant(
        seen.scan.root,
        workspace=request.folder.workspace,
        target=tree,
        previous=None if previous is None else request.trees / previous,
        unchanged=seen.unchanged,
        omitted=carried.omitted,
        owner=request.owner,
    )
    return tree


def _record(request: Freeze, seen: Look, carried: Carried, tree: Path, inner: tuple[SavedSubmodule, ...]) -> Record:
    bare = request.base.bare
    commit = recording.record(
        bare,
        parent=seen.parent,
        wording=request.wording,
        change=_change(seen, seen.regions[""], tree),
        scratch_ref=f"refs/massgend-incoming/{request.tree_id}",
    )
    paths = recording.changed_paths(bare, seen.parent, commit)
    return Record(
        ref=request.ref,
        commit=commit,
        git_tree=recording.tree_of(bare, commit),
        tree_id=request.tree_id,
        changed_files=len(paths),
        paths=paths[: recording.MOST_PATHS],
        about=(*sentences(seen.scan.left_out), *carried.about, *(one.sentence for one in inner)),
        masked=masked_paths(_carried_paths(seen.scan.root, carried.omitted)),
        bare=str(bare),
    )


def _record_submodules(request: Freeze, seen: Look, tree: Path) -> tuple[SavedSubmodule, ...]:
    """Commits with the files of each submodule that differs from its recorded commit. No ref is made yet."""
    bare = request.base.bare
    known = recording.refs_below(bare, ref_folder(request.workspace))
    saved: list[SavedSubmodule] = []
    for number, region in enumerate((one for path, one in sorted(seen.regions.items()) if path), start=1):
        before = known.get(f"{seen.parent_ref}-submodule-{number}", region.commit)
        files = [(region.relative(entry.path), entry) for entry in seen.sorted.recorded[region.path]]
        if before is None and not files:
            continue
        change = _change(seen, region, tree)
        commit = recording.record(
            bare,
            parent=region.commit,
            wording=request.wording,
            change=Change(folder=change.folder, deleted=change.deleted, files=files),
            scratch_ref=f"refs/massgend-incoming/{request.tree_id}",
        )
        content = recording.tree_of(bare, commit)
        news = before is None or content != recording.tree_of(bare, before)
        if news or region.commit is None or content != recording.tree_of(bare, region.commit):
            ref = f"{request.ref}-submodule-{number}"
            saved.append(SavedSubmodule(path=region.path, ref=ref, commit=commit, news=news))
    return tuple(saved)


def _finish(request: Freeze, seen: Look, record: Record, inner: tuple[SavedSubmodule, ...]) -> None:
    """The snapshot's ref comes last: once it is there, all that it needs is there."""
    ignored = frozenset(entry.path for entry in seen.sorted.ignored)
    after = manifest.of(record.commit, request.tree_id, seen.taken_ns, entries(seen.scan.root), ignored)
    records.save(request.folder.record(request.name), record)
    manifest.save(request.folder.manifest, after)
    for one in inner:
        recording.set_ref(request.base.bare, one.ref, one.commit)
    recording.create_ref(request.base.bare, record.ref, record.commit)
    request.folder.pending(request.name).unlink()


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


def _change(seen: Look, region: Region, tree: Path) -> Change:
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


def _mode(tracked: TreeEntry | None) -> str | None:
    return None if tracked is None else tracked.mode


def _submodule_region(bare: Path, path: str, commit: str) -> Region:
    if not recording.has_commit(bare, commit):
        return Region(path=path, commit=None, tracked={})
    files = recording.list_files(bare, commit)
    return Region(path=path, commit=commit, tracked={f"{path}/{inner}": one for inner, one in files.items()})


def _carried_paths(top: Folder, omitted: frozenset[str]) -> Iterable[str]:
    """The files in a planted tree: of a folder that was left out whole, none."""
    if not omitted:
        return (entry.path for entry in entries(top))
    inside = tuple(f"{path}/" for path in omitted)
    return (entry.path for entry in entries(top) if entry.path not in omitted and not entry.path.startswith(inside))


def _folders(top: Folder, wanted: frozenset[str]) -> Iterable[str]:
    if wanted:
        yield from (step.folder.path for step in steps(top) if step.entering and step.folder.path in wanted)


def differs(base: Base, workspace: WorkspaceId, folder: AgentFolder, owner: Owner) -> bool:
    """Would a freeze have anything to record? Raises OSError, GitFailed."""
    seen = look(base, workspace, folder, owner)
    if seen.is_clean():
        return False
    if any(link not in seen.regions for link in seen.links):
        return True
    wanted: dict[str, str] = {}
    for region in seen.regions.values():
        change = _change(seen, region, folder.workspace)
        for _, entry in change.files:
            tracked = region.tracked.get(entry.path)
            if tracked is None or tracked.mode != entry.git_mode:
                return True
            wanted[entry.path] = tracked.oid
        if change.deleted:
            return True
    return not has_contents(seen.scan.root, folder.workspace, wanted)


def rebuild(bare: Path, ref: str, commit: str, parent: str, *, tree_id: str) -> Record:
    """What git alone knows of a snapshot. Raises GitFailed."""
    paths = recording.changed_paths(bare, parent, commit)
    return Record(
        ref=ref,
        commit=commit,
        git_tree=recording.tree_of(bare, commit),
        tree_id=tree_id,
        changed_files=len(paths),
        paths=paths[: recording.MOST_PATHS],
        about=(),
        masked=masked_paths(recording.list_files(bare, commit)),
        bare=str(bare),
    )
