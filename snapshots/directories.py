"""The `directories` store: workspaces and snapshots as plain folders, for everywhere that bind mounts work.

The async face of this package: each call runs in a thread of its own limiter, and calls that touch one workspace
take turns; one that was started is waited for, also by who is cancelled. Contract: snapshots/snapshot.py.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar
from weakref import WeakValueDictionary

import anyio

from snapshots import disk, folders, freezing, looking, recording, records, views, workspaces
from snapshots.errors import GitFailed, SnapshotError, SnapshotFailed
from snapshots.layout import BASE_TREE, AgentFolder, Layout, ref_folder
from snapshots.names import checked_id, checked_name
from snapshots.planting import Owner
from snapshots.recording import Wording
from snapshots.records import Record
from snapshots.snapshot import (
    Author,
    Base,
    Budget,
    FreezeResult,
    OverBudget,
    Snapshot,
    Unchanged,
    Usage,
    View,
    Workspace,
    WorkspaceId,
)
from snapshots.threads import to_its_end

_Result = TypeVar("_Result")


class DirectoryStore:
    """A `SnapshotStore`. `uid`:`gid` is whom the files in sandboxes belong to: when the daemon is not root they must
    be its own. `threads`: how many calls run at once. `new_id`: a random id, `[a-z0-9-]+`."""

    def __init__(
        self,
        state: Path,
        *,
        uid: int,
        gid: int,
        threads: int = 8,
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        if os.geteuid() != 0 and uid != os.geteuid():
            raise ValueError(f"files can only be given to uid {uid} by root: run as root, or use uid {os.geteuid()}")
        self._layout = Layout(state=state)
        self._owner = Owner(uid=uid, gid=gid, change=os.geteuid() == 0 and (uid, gid) != (0, 0))
        self._new_id = new_id
        self._limiter = anyio.CapacityLimiter(threads)
        self._locks: WeakValueDictionary[WorkspaceId, anyio.Lock] = WeakValueDictionary()

    async def create_workspace(self, base: Base, workspace: WorkspaceId, branch: str) -> Workspace:
        folder = self._layout.agent(workspace)

        def create() -> None:
            if not folder.workspace.is_dir():
                workspaces.create(base, workspace, branch, folder, self._owner)

        async with self._lock(workspace):
            await self._in_thread(create, f"making the workspace of {workspace.agent}")
        return Workspace(id=workspace, path=folder.workspace, home=folder.home)

    async def freeze(
        self,
        base: Base,
        workspace: WorkspaceId,
        *,
        name: str,
        message: str,
        author: Author,
        taken_at: int,
        budget: Budget,
        refuse_unchanged: bool = True,
    ) -> FreezeResult:
        request = freezing.Freeze(
            base=base,
            workspace=workspace,
            name=checked_name(name),
            wording=Wording(message=message, author=author, taken_at=taken_at),
            budget=budget,
            refuse_unchanged=refuse_unchanged,
            folder=self._layout.agent(workspace),
            trees=self._layout.trees,
            tree_id=self._new_id(),
            owner=self._owner,
        )
        async with self._lock(workspace):
            return await self._in_thread(lambda: self._freeze(request), f"recording the workspace of {workspace.agent}")

    async def snapshots(self, base: Base, workspace: WorkspaceId) -> tuple[Snapshot, ...]:
        def read() -> tuple[Snapshot, ...]:
            known = recording.snapshot_refs(base.bare, workspace.run, workspace.agent, base.commit)
            parents = [base.commit, *(commit for _, commit in known)]
            found = (
                self._record(base.bare, workspace, ref, commit, parent)
                for (ref, commit), parent in zip(known, parents, strict=False)
            )
            return tuple(one.snapshot(workspace, self._layout.tree(one.tree_id)) for one in found)

        async with self._lock(workspace):
            return await self._in_thread(read, f"reading the snapshots of {workspace.agent}")

    async def open_view(self, snapshot: Snapshot, *, run: str, agent: str, turn: int, label: str) -> View:
        scratch = self._layout.view(run=run, agent=agent, turn=turn, label=label)
        return await self._open(snapshot, scratch, masking=True)

    async def close_views(self, run: str, agent: str, turn: int | None = None) -> None:
        scratch = self._layout.agent(WorkspaceId(run=run, agent=agent)).scratch
        await self._in_thread(
            lambda: folders.remove(scratch if turn is None else scratch / str(int(turn))),
            f"deleting the scratch of {agent}",
        )

    async def open_check(self, snapshot: Snapshot, *, run: str, name: str) -> View:
        return await self._open(snapshot, self._layout.check(run=run, name=name), masking=False)

    async def close_check(self, run: str, name: str) -> None:
        scratch = self._layout.check(run=run, name=name)
        await self._in_thread(lambda: folders.remove(scratch), f"deleting the scratch of check {name}")

    async def changed(self, base: Base, workspace: WorkspaceId) -> bool:
        folder = self._layout.agent(workspace)
        async with self._lock(workspace):
            return await self._in_thread(
                lambda: looking.differs(base, workspace, folder, self._owner),
                f"looking at the workspace of {workspace.agent}",
            )

    async def usage(self, runs: Sequence[str] | None = None) -> tuple[Usage, ...]:
        def measure() -> tuple[Usage, ...]:
            wanted = runs if runs is not None else sorted(one.name for one in self._runs())
            held = ((run, disk.measure(self._folders(run))) for run in wanted)
            return tuple(Usage(run=run, size_bytes=one.size_bytes, files=one.files) for run, one in held)

        return await self._in_thread(measure, "measuring the disk")

    async def release_trees(self, run: str) -> None:
        def release() -> None:
            for tree in (*self._trees(run), self._layout.run(run) / BASE_TREE):
                folders.remove(tree)

        await self._in_thread(release, f"releasing the trees of run {run}")

    async def delete_run(self, run: str) -> int:
        return await self._in_thread(lambda: self._delete(run), f"deleting run {run}")

    async def _open(self, snapshot: Snapshot, scratch: Path, *, masking: bool) -> View:
        def make() -> View:
            folder = self._layout.agent(snapshot.workspace)
            record = records.load(folder.record(snapshot.ref.rpartition("/")[2]))
            if record is None:
                raise SnapshotFailed(f"nothing is known of {snapshot.ref}: list the workspace's snapshots again")
            try:
                self._ensure_tree(record, snapshot.tree)
                return views.open_view(
                    snapshot.tree, scratch, masked=record.masked if masking else (), owner=self._owner
                )
            except (OSError, GitFailed) as error:
                raise SnapshotFailed(f"the view of {snapshot.ref} could not be made: {error}") from error

        async with self._lock(snapshot.workspace):
            return await self._in_thread(make, f"making a view of {snapshot.ref}")

    def _freeze(self, request: freezing.Freeze) -> FreezeResult:
        try:
            request.folder.records.mkdir(parents=True, exist_ok=True)
            workspaces.neutralise(request.base.bare)
            freezing.sweep(request.base.bare, request.workspace, request.folder, request.trees)
            for known in self._known(request):
                return known
            result = freezing.freeze(request)
        except (OSError, GitFailed) as error:
            self._sweep(request)
            raise SnapshotFailed(
                f"the workspace of {request.workspace.agent} could not be recorded as {request.name}, "
                f"it is as it was: {error}"
            ) from error
        if isinstance(result, Unchanged | OverBudget):
            return result
        return result.snapshot(request.workspace, self._layout.tree(result.tree_id))

    def _known(self, request: freezing.Freeze) -> Sequence[Snapshot]:
        commit = recording.refs_below(request.base.bare, ref_folder(request.workspace)).get(request.ref)
        if commit is None:
            return ()
        record = self._record(request.base.bare, request.workspace, request.ref, commit, f"{commit}^")
        return (record.snapshot(request.workspace, self._layout.tree(record.tree_id)),)

    def _sweep(self, request: freezing.Freeze) -> None:
        try:
            freezing.sweep(request.base.bare, request.workspace, request.folder, request.trees)
        except (OSError, GitFailed):
            return  # the first error is the one to show; the next freeze sweeps again

    def _record(self, bare: Path, workspace: WorkspaceId, ref: str, commit: str, parent: str) -> Record:
        """The snapshot's file, made anew from git when it is lost or tells of another commit."""
        path = self._layout.agent(workspace).record(ref.rpartition("/")[2])
        record = records.load(path)
        if record is not None and (record.ref, record.commit) == (ref, commit):
            return record
        record = freezing.rebuild(bare, ref, commit, parent, tree_id=self._new_id())
        path.parent.mkdir(parents=True, exist_ok=True)
        records.save(path, record)
        return record

    def _ensure_tree(self, record: Record, tree: Path) -> None:
        """A tree that was released comes back from the commit, without the ignored files."""
        if tree.is_dir():
            return
        partial = self._layout.trees / f"{record.tree_id}.partial"
        folders.remove(partial)
        partial.mkdir(parents=True)
        recording.export(Path(record.bare), record.commit, partial, partial.with_suffix(".index"))
        if self._owner.change:
            folders.give(partial, self._owner.uid, self._owner.gid)
        partial.rename(tree)

    def _delete(self, run: str) -> int:
        doomed = self._folders(run)
        freed = disk.measure(doomed).freed_bytes
        for bare in self._layout.repos.glob("*.git"):
            prefixes = (f"refs/massgend/{checked_id(run)}/", f"refs/massgend-submodules/{run}/")
            refs = [ref for prefix in prefixes for ref in recording.refs_below(bare, prefix)]
            if refs:
                recording.delete_refs(bare, refs)
                freed += self._collect_garbage(bare)
        # The run's own folder last: its records are what tells which trees are its.
        for folder in reversed(doomed):
            folders.remove(folder)
        return freed

    def _collect_garbage(self, bare: Path) -> int:
        before = disk.measure([bare]).size_bytes
        try:
            recording.collect_garbage(bare)
        except GitFailed:
            return 0  # a full disk, a huge history: the refs are gone, the next deletion tries again
        return max(0, before - disk.measure([bare]).size_bytes)

    def _folders(self, run: str) -> list[Path]:
        return [self._layout.run(run), *self._trees(run)]

    def _trees(self, run: str) -> list[Path]:
        found: list[Path] = []
        for agent in self._agents(run):
            for path in sorted(agent.records.glob("*")):
                record = records.load(path)
                tree_id = (
                    record.tree_id if record is not None else path.read_text() if path.suffix == ".pending" else ""
                )
                if tree_id:
                    found.append(self._layout.tree(tree_id.strip()))
        return found

    def _agents(self, run: str) -> list[AgentFolder]:
        root = self._layout.run(run)
        found = root.iterdir() if root.is_dir() else ()
        return [AgentFolder(root=one) for one in found if not one.name.startswith(".")]

    def _runs(self) -> list[Path]:
        return list(self._layout.runs.iterdir()) if self._layout.runs.is_dir() else []

    def _lock(self, workspace: WorkspaceId) -> anyio.Lock:
        return self._locks.setdefault(workspace, anyio.Lock())

    async def _in_thread(self, call: Callable[[], _Result], what: str) -> _Result:
        """Run a call in a thread; when the disk says no, say what it was that failed."""
        try:
            return await to_its_end(call, self._limiter)
        except OSError as error:
            raise SnapshotError(f"{what} failed: {error}") from error
