"""Freezes a workspace: looks, decides what is in, plants the immutable tree, records the commit, makes the ref.

In that order, so that a crash at any point leaves a workspace as it was and no ref; the next freeze sweeps up.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from snapshots import folders, manifest, recording, records
from snapshots.layout import AgentFolder, ref_folder
from snapshots.looking import Look, change_in, look
from snapshots.names import masked_paths, shown
from snapshots.planting import Owner, plant
from snapshots.recording import Wording
from snapshots.records import Record
from snapshots.scanning import Folder, TooManyError, entries, sentences
from snapshots.selection import Carried, carry, folders_that_count, over_budget, too_many
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
    """What a declared submodule holds, as a commit. `news`: it differs from the snapshot before. `kept`: it differs
    from what the gitlink names, so that a ref must keep it."""

    path: str
    ref: str
    commit: str
    news: bool
    kept: bool

    @property
    def sentence(self) -> str:
        return f"changes inside the submodule {shown(self.path)} are not in the commit, they are saved as {self.ref}"


def freeze(request: Freeze) -> Record | Unchanged | OverBudget:
    """Raises OSError, GitFailed; then no ref was made, and `sweep` removes what is left over."""
    try:
        seen = look(request.base, request.workspace, request.folder, request.owner, request.budget)
    except TooManyError as error:
        return OverBudget(reason=too_many(error, request.budget))
    unchanged = Unchanged(against=seen.parent_ref or "base")
    if request.refuse_unchanged and seen.is_clean():
        return unchanged
    recorded = [entry for found in seen.sorted.recorded.values() for entry in found]
    ignored = {entry.path for entry in seen.sorted.ignored}
    reason = over_budget(recorded, folders_that_count(seen.scan.root, ignored), request.budget)
    if reason is not None:
        return OverBudget(reason=reason)
    carried = carry(seen.scan.root, seen.sorted.ignored, request.budget)
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
    previous = None
    if seen.before is not None:
        tree_before = seen.before.tree
        previous = request.folder.base_tree if tree_before is None else request.trees / tree_before
    plant(
        seen.scan.root,
        workspace=request.folder.workspace,
        target=tree,
        previous=previous,
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
        change=change_in(seen, seen.regions[""], tree),
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
        about=(*sentences(seen.scan.left_out), *carried.about, *(one.sentence for one in inner if one.kept)),
        masked=masked_paths(_carried_paths(seen.scan.root, carried.omitted)),
        bare=str(bare),
    )


def _record_submodules(request: Freeze, seen: Look, tree: Path) -> tuple[SavedSubmodule, ...]:
    """Commits with the files of each submodule that something was changed in. No ref is made yet."""
    bare = request.base.bare
    saved: list[SavedSubmodule] = []
    for path, region in seen.regions.items():
        if not path or (region.commit is None and not seen.sorted.recorded[path]):
            continue
        commit = recording.record(
            bare,
            parent=region.commit,
            wording=request.wording,
            change=change_in(seen, region, tree),
            scratch_ref=f"refs/massgend-incoming/{request.tree_id}",
        )
        content = recording.tree_of(bare, commit)
        news = region.commit is None or content != recording.tree_of(bare, region.commit)
        if news or region.commit != region.link:
            kept = region.link is None or content != recording.tree_of(bare, region.link)
            ref = f"{request.ref}-submodule-{region.number}"
            saved.append(SavedSubmodule(path=path, ref=ref, commit=commit, news=news, kept=kept))
    return tuple(saved)


def _finish(request: Freeze, seen: Look, record: Record, inner: tuple[SavedSubmodule, ...]) -> None:
    """The snapshot's ref comes last: once it is there, all that it needs is there."""
    ignored = frozenset(entry.path for entry in seen.sorted.ignored)
    after = manifest.of(record.commit, request.tree_id, seen.taken_ns, entries(seen.scan.root), ignored)
    records.save(request.folder.record(request.name), record)
    manifest.save(request.folder.manifest, after)
    for one in (one for one in inner if one.kept):
        recording.set_ref(request.base.bare, one.ref, one.commit)
    recording.create_ref(request.base.bare, record.ref, record.commit)
    request.folder.pending(request.name).unlink()


def _carried_paths(top: Folder, omitted: frozenset[str]) -> Iterable[str]:
    """The files in a planted tree: of a folder that was left out whole, none."""
    if not omitted:
        return (entry.path for entry in entries(top))
    inside = tuple(f"{path}/" for path in omitted)
    return (entry.path for entry in entries(top) if entry.path not in omitted and not entry.path.startswith(inside))


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
