"""PURE: where everything lies below the state folder. Names with a dot cannot collide with ids of runs and agents."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from snapshots.names import checked_id, checked_name
from snapshots.snapshot import WorkspaceId

BASE_TREE = ".base"


@dataclass(frozen=True, kw_only=True)
class AgentFolder:
    """The folders and files of one agent in one run."""

    root: Path

    @property
    def workspace(self) -> Path:
        return self.root / "workspace"

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def scratch(self) -> Path:
        return self.root / "scratch"

    @property
    def manifest(self) -> Path:
        return self.root / "manifest.json"

    @property
    def records(self) -> Path:
        return self.root / "snapshots"

    @property
    def partial(self) -> Path:
        """Where a workspace is made before it takes its name."""
        return self.root / "workspace.partial"

    @property
    def base_tree(self) -> Path:
        """What all workspaces of the run start with, for first snapshots to share; not there for a single agent."""
        return self.root.parent / BASE_TREE

    @property
    def rules(self) -> Path:
        return self.root / "rules.partial"

    def record(self, name: str) -> Path:
        return self.records / f"{name}.json"

    def pending(self, name: str) -> Path:
        """Names the tree that a freeze is making; it is there only until the freeze is done."""
        return self.records / f"{name}.pending"


@dataclass(frozen=True, kw_only=True)
class Layout:
    state: Path

    @property
    def repos(self) -> Path:
        return self.state / "repos"

    @property
    def runs(self) -> Path:
        return self.state / "runs"

    @property
    def trees(self) -> Path:
        return self.state / "trees"

    def run(self, run: str) -> Path:
        return self.runs / checked_id(run)

    def agent(self, workspace: WorkspaceId) -> AgentFolder:
        return AgentFolder(root=self.run(workspace.run) / checked_id(workspace.agent))

    def tree(self, tree_id: str) -> Path:
        return self.trees / checked_id(tree_id)

    def view(self, *, run: str, agent: str, turn: int, label: str) -> Path:
        return self.agent(WorkspaceId(run=run, agent=agent)).scratch / str(int(turn)) / checked_name(label)

    def check(self, *, run: str, name: str) -> Path:
        return self.run(run) / ".checks" / checked_name(name)


def ref_folder(workspace: WorkspaceId) -> str:
    return f"refs/massgend/{checked_id(workspace.run)}/{checked_id(workspace.agent)}/"
