"""What the orchestrator acts through: protocols and values, put together in `massgend.daemon`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from massgend.agents.agent import Agent
from massgend.domain.run import Run
from massgend.journal import Journal
from massgend.orchestrator.feed import Feeds
from massgend.orchestrator.models import Models
from sandboxes.sandbox import Owner, SandboxProvider
from snapshots.repository import UserRepository
from snapshots.snapshot import Base, Budget, SnapshotStore, WorkspaceId


@dataclass(frozen=True, kw_only=True)
class Chance:
    """Time, randomness and ids, so that tests can choose them."""

    now: Callable[[], float]
    new_run_id: Callable[[], str]
    new_token: Callable[[], str]
    new_labels: Callable[[int], tuple[str, ...]]


@dataclass(frozen=True, kw_only=True)
class Ports:
    """`uid`/`gid` own everything inside sandboxes. `instance`: random per state folder.

    `min_free_bytes`: with less free disk than this no turn starts, and those that run are ended.
    """

    provider: SandboxProvider
    store: SnapshotStore
    repository: UserRepository
    agents: Mapping[str, Agent]
    models: Models
    journal: Journal
    feeds: Feeds
    chance: Chance
    instance: str
    state: Path
    sockets: Path
    uid: int
    gid: int
    min_free_bytes: int
    budget: Budget = field(default_factory=Budget)


def owner(ports: Ports, run: Run, agent: str, generation: int) -> Owner:
    return Owner(instance=ports.instance, run=run.id, agent=agent, generation=generation)


def workspace_id(run: Run, agent: str) -> WorkspaceId:
    """Workspaces are named by the anonymous label: no real name can be read off a path inside."""
    return WorkspaceId(run=run.id, agent=run.agents[agent].label)


def base_of(ports: Ports, run: Run) -> Base:
    """The store's base of a prepared run. Raises ValueError before `Prepared`."""
    if run.base is None:
        raise ValueError(f"run {run.id} is not prepared")
    return Base(
        run=run.id,
        repository=run.task.repository,
        bare=Path(run.base.bare),
        commit=run.base.commit,
        source_commit=run.base.source_commit,
        branch=run.base.branch,
        warnings=run.base.warnings,
    )


def log_path(ports: Ports, run_id: str, label: str) -> Path:
    """The bounded log of everything an agent's programs printed."""
    return ports.state / "runs" / run_id / "logs" / f"{label}.log"
