"""A `directories` store with a base in it, for tests, and the short words they use."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import anyio

from snapshots.directories import DirectoryStore
from snapshots.git import Git
from snapshots.snapshot import Author, Base, Budget, FreezeResult, Snapshot, View, Workspace, WorkspaceId

ADA = WorkspaceId(run="r1", agent="ada")
BOB = WorkspaceId(run="r1", agent="bob")
AUTHOR = Author(name="Ada", email="ada@massgend.invalid")
UID = os.geteuid()
GID = os.getegid()


def import_base(state: Path, repository: Path | None, *, run: str = "r1") -> Base:
    """The commit of HEAD in a bare repository below `state`, the way the daemon has it."""
    bare = state / "repos" / "repo.git"
    if not bare.exists():
        bare.parent.mkdir(parents=True, exist_ok=True)
        Git.ours(None).run("init", "-q", "--bare", "--template=", bare)
    ours = Git.ours(bare)
    if repository is None:
        tree = ours.text("hash-object", "-t", "tree", "-w", "/dev/null")
        who = {f"GIT_{role}_{what}": "x" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        commit = ours.text("commit-tree", tree, "-m", "empty base", environment=who)
    else:
        users = Git.users(repository)
        commit = users.text("rev-parse", "HEAD")
        users.pipe(
            "pack-objects", "--revs", "--stdout", "-q", into=ours, then=("index-pack", "--stdin"),
            stdin=commit.encode() + b"\n",
        )  # fmt: skip
        shallow = repository / ".git" / "shallow"
        if shallow.exists():
            (bare / "shallow").write_bytes(shallow.read_bytes())
    ours.run("update-ref", f"refs/massgend/{run}/base", commit)
    return Base(run=run, repository=repository, bare=bare, commit=commit, source_commit=commit, branch="main")


@dataclass(frozen=True, kw_only=True)
class Stand:
    """A store, a base, and Ada's workspace. The store is real; every call runs on an event loop of its own."""

    state: Path
    store: DirectoryStore
    base: Base
    workspace: Workspace

    @property
    def path(self) -> Path:
        return self.workspace.path

    def call(self, function: Callable[..., object]) -> object:
        return anyio.run(function)

    def freeze(self, name: str = "1", *, agent: WorkspaceId = ADA, **options: object) -> FreezeResult:
        async def go() -> FreezeResult:
            return await self.store.freeze(
                self.base,
                agent,
                name=name,
                message=str(options.pop("message", f"answer {name}\n\nMassgend-Run: r1\n")),
                author=AUTHOR,
                taken_at=1_700_000_000,
                budget=Budget(**options.pop("budget", {})),  # type: ignore[arg-type]
                refuse_unchanged=bool(options.pop("refuse_unchanged", True)),
            )

        return anyio.run(go)

    def frozen(self, name: str = "1", **options: object) -> Snapshot:
        result = self.freeze(name, **options)
        if not isinstance(result, Snapshot):
            raise AssertionError(f"no snapshot was taken: {result}")
        return result

    def snapshots(self, agent: WorkspaceId = ADA) -> tuple[Snapshot, ...]:
        return anyio.run(self.store.snapshots, self.base, agent)

    def changed(self, agent: WorkspaceId = ADA) -> bool:
        return anyio.run(self.store.changed, self.base, agent)

    def view(self, snapshot: Snapshot, *, turn: int = 1, label: str = "peer", agent: str = "bob") -> View:
        async def go() -> View:
            return await self.store.open_view(snapshot, run="r1", agent=agent, turn=turn, label=label)

        return anyio.run(go)

    def delete_run(self, run: str = "r1") -> int:
        return anyio.run(self.store.delete_run, run)

    def restarted(self) -> Stand:
        """The same folders under a store that remembers nothing."""
        return replace(self, store=DirectoryStore(self.state, uid=UID, gid=GID))

    def git(self, *arguments: str | Path) -> bytes:
        """Git on our bare repository."""
        return Git.ours(self.base.bare).run(*arguments)

    def commit_files(self, commit: str) -> dict[bytes, tuple[str, bytes]]:
        """Path -> (mode, content) of every file in a commit."""
        found: dict[bytes, tuple[str, bytes]] = {}
        for line in self.git("ls-tree", "-r", "-z", commit).split(b"\0")[:-1]:
            about, _, path = line.partition(b"\t")
            mode, kind, oid = about.decode().split()
            found[path] = (mode, b"" if kind == "commit" else self.git("cat-file", "blob", oid))
        return found

    def agent_git(self, *arguments: str) -> str:
        """What the agent's own git says in its workspace."""
        result = subprocess.run(
            ["git", *arguments],
            cwd=self.path,
            capture_output=True,
            check=True,
            env={"PATH": os.environ["PATH"], "HOME": "/nonexistent"},
        )
        return os.fsdecode(result.stdout).strip()


def stand(folder: Path, repository: Path | None = None) -> Stand:
    """A store under `folder` with Ada's workspace at the commit of `repository` (None: an empty base)."""
    state = folder / "state"
    state.mkdir(mode=0o700)
    store = DirectoryStore(state, uid=UID, gid=GID)
    base = import_base(state, repository)
    workspace = anyio.run(store.create_workspace, base, ADA, "massgend/ada")
    return Stand(state=state, store=store, base=base, workspace=workspace)


def content_of(
    folder: Path, *, ignoring: frozenset[bytes] = frozenset({b".git"})
) -> dict[bytes, tuple[str, int, bytes]]:
    """Path -> (kind, permissions, content or link target) of all below a folder, but entries so named."""
    found: dict[bytes, tuple[str, int, bytes]] = {}
    pending = [os.fsencode(folder)]
    while pending:
        here = pending.pop()
        for entry in os.scandir(here):
            path = os.path.relpath(entry.path, os.fsencode(folder))
            if entry.name in ignoring:
                continue
            mode = entry.stat(follow_symlinks=False).st_mode & 0o777
            if entry.is_symlink():
                found[path] = ("link", 0, os.readlink(entry.path))
            elif entry.is_dir():
                found[path] = ("folder", mode, b"")
                pending.append(entry.path)
            elif entry.is_file():
                with open(entry.path, "rb") as file:
                    found[path] = ("file", mode, file.read())
            else:
                found[path] = ("other", mode, b"")
    return found
