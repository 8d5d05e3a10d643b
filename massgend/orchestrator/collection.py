"""Clean-up of ended runs (`massgend gc`): what may go, why, and the disk space it frees. Never a run under way."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from massgend.domain.run import Run, Stage
from massgend.orchestrator.ports import Ports, base_of, workspace_id
from massgend.orchestrator.service import Runs
from snapshots.errors import SnapshotError

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Collectable:
    """One run on disk. `keep`: why it stays without force, one plain sentence; None: nothing would be lost."""

    run: str
    status: str
    age_s: float
    size_bytes: int
    merged: bool
    keep: str | None
    under_way: bool


async def look(runs: Runs, wanted: tuple[str, ...]) -> tuple[Collectable, ...]:
    """What there is to collect, oldest first; `wanted` complete ids, or empty for all."""
    ports = runs.ports
    usage = {one.run: one.size_bytes for one in await ports.store.usage(wanted or None)}
    found: list[Collectable] = []
    for summary in reversed(await runs.list()):
        if wanted and summary.run_id not in wanted:
            continue
        run = await runs.get(summary.run_id)
        found.append(
            Collectable(
                run=run.id,
                status=run.status.value,
                age_s=max(0.0, ports.chance.now() - (run.ended_at or run.requested_at)),
                size_bytes=usage.get(run.id, 0),
                merged=run.delivery is not None and run.delivery.merged,
                keep=await _why_keep(ports, run),
                under_way=run.stage is not Stage.DONE,
            )
        )
    return tuple(found)


async def _why_keep(ports: Ports, run: Run) -> str | None:
    """Work is safe once the user's repository holds it: then workspaces and our own copy may go."""
    if run.stage is not Stage.DONE:
        return "the run is under way"
    if run.base is None:
        return None
    try:
        there = await _branches(ports, run)
        for agent in run.agents:
            workspace, base = workspace_id(run, agent), base_of(ports, run)
            taken = await ports.store.snapshots(base, workspace)
            if taken and there.get(agent) != taken[-1].commit:
                return f"the newest answer of {agent} is not on a branch of the repository"
            if await ports.store.changed(base, workspace):
                return f"the workspace of {agent} has changes that no answer holds"
    except (SnapshotError, OSError) as error:
        return f"it cannot be told whether its work is safe: {error}"
    return None


async def _branches(ports: Ports, run: Run) -> dict[str, str]:
    if run.task.repository is None:
        return {}
    branches = await ports.repository.review_branches(run.task.repository)
    return {branch.agent: branch.commit for branch in branches if branch.run == run.id}


async def collect(runs: Runs, found: tuple[Collectable, ...], *, force: bool) -> int:
    """Delete what may go; the bytes freed. Branches in users' repositories stay."""
    ports = runs.ports
    freed = 0
    for one in found:
        if one.under_way or (one.keep is not None and not force):
            continue
        run = await runs.get(one.run)
        await ports.provider.remove_ours(ports.instance, run.id)
        freed += await ports.store.delete_run(run.id)
        await runs.forget(run.id)
        log.info("run %s is collected", run.id)
    return freed
