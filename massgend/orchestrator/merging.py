"""`massgend merge`: bring one agent's answer into a branch, from the refs in the user's repository alone."""

from __future__ import annotations

from pathlib import Path

from massgend.domain.run import WINNER, Delivery
from massgend.orchestrator.delivery import delivery_of, merge_message
from massgend.orchestrator.service import RunNotFound, Runs
from snapshots.errors import SnapshotError
from snapshots.repository import MergeMode


class MergeRefused(Exception):
    """It cannot be asked for like this; the message says what to do."""


async def merge_answer(
    runs: Runs, *, repository: Path, run_id: str, agent: str | None, into: str | None, mode: MergeMode
) -> Delivery:
    """Works also for runs that this daemon knows nothing of. Raises MergeRefused; a refused merge is a value."""
    wanted = agent or WINNER
    try:
        branches = [
            branch
            for branch in await runs.ports.repository.review_branches(repository)
            if branch.run.startswith(run_id) and branch.agent == wanted
        ]
        if not branches:
            raise MergeRefused(f"{repository} has no branch massgend/{run_id}/{wanted}: `git branch -l 'massgend/*'`.")
        if len(branches) > 1:
            raise MergeRefused(f"'{run_id}' is ambiguous: it could be {', '.join(b.run for b in branches)}.")
        branch = branches[0]
        report = await runs.ports.repository.merge(
            repository,
            run=branch.run,
            commit=branch.commit,
            into=into,
            mode=mode,
            named_by_user=into is not None,
            message=await _message(runs, branch.run, branch.agent),
        )
    except SnapshotError as error:
        raise MergeRefused(str(error)) from error
    return delivery_of(report, mode)


async def _message(runs: Runs, run_id: str, agent: str) -> str:
    """The run's own words while the daemon knows them, else what the branch says."""
    plain = f"Merge massgend/{run_id}/{agent}\n\nMassgend-Run: {run_id}\nMassgend-Agent: {agent}\n"
    try:
        run = await runs.get(await runs.find(run_id))
    except RunNotFound:
        return plain
    if agent == WINNER:
        return merge_message(run, run.answer(run.result)) if run.result is not None else plain
    presented = run.presented.answer if run.presented is not None else None
    known = run.answers if presented is None else (*run.answers, presented)
    answers = [answer for answer in known if answer.id.agent == agent]
    return merge_message(run, answers[-1]) if answers else plain
