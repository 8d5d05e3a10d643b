"""From a decision to the user's repository: branches, the merge, or a folder (rule 13)."""

from __future__ import annotations

from dataclasses import replace

from massgend.domain.effects import Deliver, FreezeSnapshot, PublishBranch
from massgend.domain.events import BranchPublished, SnapshotFailed, SnapshotRefused, SnapshotTaken
from massgend.domain.run import PRESENTED, Answer, Delivery, Run, SnapshotRecord
from massgend.orchestrator.ports import Ports, base_of, workspace_id
from snapshots.errors import SnapshotError
from snapshots.repository import MergeMode, MergeReport, MergeStatus
from snapshots.snapshot import Author, OverBudget, Snapshot, Unchanged

SUBJECT_CHARS = 72
UNPROVEN = "No answer passes every required check, so nothing was merged: look at it first."


async def freeze(ports: Ports, run: Run, effect: FreezeSnapshot) -> SnapshotTaken | SnapshotRefused | SnapshotFailed:
    """Carry out FreezeSnapshot; every end is a report."""
    refused = SnapshotRefused(at=ports.chance.now(), agent=effect.agent, step=effect.step, reason="")
    try:
        result = await ports.store.freeze(
            base_of(ports, run),
            workspace_id(run, effect.agent),
            name=effect.name,
            message=answer_message(run, effect.agent, effect.name, effect.summary),
            author=Author(name=effect.agent, email=f"{effect.agent}@massgend.invalid"),
            taken_at=int(ports.chance.now()),
            budget=ports.budget,
        )
    except (SnapshotError, OSError) as error:
        return SnapshotFailed(at=refused.at, agent=effect.agent, step=effect.step, reason=str(error))
    refused = replace(refused, at=ports.chance.now())
    match result:
        case Snapshot():
            return SnapshotTaken(at=refused.at, agent=effect.agent, step=effect.step, snapshot=_record(result))
        case Unchanged(against="base"):
            return replace(refused, reason="your workspace has not changed since the run began", unchanged=True)
        case Unchanged():
            return replace(refused, reason="your workspace has not changed since your last answer", unchanged=True)
        case OverBudget(reason=reason):
            return replace(refused, reason=reason)


def _record(snapshot: Snapshot) -> SnapshotRecord:
    return SnapshotRecord(
        ref=snapshot.ref,
        commit=snapshot.commit,
        git_tree=snapshot.git_tree,
        changed_files=snapshot.changed_files,
        about=snapshot.about,
    )


def answer_message(run: Run, agent: str, name: str, summary: str) -> str:
    """The commit message of a snapshot: the summary, wrapped by nothing, and our trailers as its last block."""
    trailers = f"Massgend-Run: {run.id}\nMassgend-Agent: {agent}\nMassgend-Answer: {name}\n"
    return f"{_with_subject(summary)}\n\n{trailers}"


def merge_message(run: Run, answer: Answer) -> str:
    """The merge's or squash's message: what was asked for, the winner's summary, and our trailers."""
    subject = _shorten(f"Merge {answer.id.agent}'s answer: {run.task.text}")
    name = PRESENTED if answer.id.presented else answer.id.number
    trailers = f"Massgend-Run: {run.id}\nMassgend-Agent: {answer.id.agent}\nMassgend-Answer: {name}\n"
    return f"{subject}\n\n{answer.summary.strip()}\n\n{trailers}"


def _with_subject(summary: str) -> str:
    """Git's form: one short line, an empty line, the rest. A long first line is shortened, and kept below."""
    text = summary.strip()
    first, _, rest = text.partition("\n")
    if len(first) <= SUBJECT_CHARS and (not rest or rest.startswith("\n")):
        return text
    return f"{_shorten(first)}\n\n{text}"


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SUBJECT_CHARS else line[: SUBJECT_CHARS - 1].rstrip() + "…"


async def publish(ports: Ports, run: Run, effect: PublishBranch) -> BranchPublished:
    """Carry out PublishBranch; what went wrong is told, never fatal: the work is in our own repository."""
    branch, problem = "", None
    try:
        branch = await ports.repository.publish(base_of(ports, run), agent=effect.agent, commit=effect.commit)
    except (SnapshotError, OSError) as error:
        problem = f"the branch of {effect.agent} is not in the repository: {error}"
    return BranchPublished(at=ports.chance.now(), agent=effect.agent, branch=branch, problem=problem)


async def deliver(ports: Ports, run: Run, effect: Deliver) -> Delivery:
    """The merge, or the folder of a run without a repository. A refusal is a value."""
    answer = run.answer(effect.answer)
    base = base_of(ports, run)
    task = run.task
    if task.repository is None:
        return await _deliver_folder(ports, run, answer)
    unproven = answer.fails_required and task.merge in (MergeMode.AUTO, MergeMode.SQUASH)
    report = await ports.repository.merge(
        task.repository,
        run=run.id,
        commit=answer.snapshot.commit,
        into=base.branch,
        # Without a branch at the start there is none to merge into, whatever is checked out by now.
        mode=task.merge if base.branch is not None and not unproven else MergeMode.BRANCH,
        message=merge_message(run, answer),
    )
    delivery = delivery_of(report, task.merge)
    return replace(delivery, reason=UNPROVEN) if unproven else delivery


async def _deliver_folder(ports: Ports, run: Run, answer: Answer) -> Delivery:
    target = run.task.deliver_to
    if target is None:
        return Delivery(merged=False, mode="folder", reason="No folder was named to deliver to; the work is kept.")
    try:
        where = await ports.repository.deliver_folder(base_of(ports, run), commit=answer.snapshot.commit, target=target)
    except (SnapshotError, OSError) as error:
        return Delivery(merged=False, mode="folder", reason=str(error))
    return Delivery(merged=True, mode="folder", reason=f"Written to {where}.", folder=str(where))


def delivery_of(report: MergeReport, mode: MergeMode) -> Delivery:
    return Delivery(
        merged=report.status is not MergeStatus.NOT_MERGED,
        mode=mode.value,
        reason=report.reason,
        branch=report.branch,
        before=report.before,
        after=report.after,
        conflicts=report.conflicts,
        risky=report.risky,
        stat=report.stat,
        commands=report.commands,
    )
