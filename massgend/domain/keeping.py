"""What is saved by force at the end: unfinished work for the branches, or answers when there is none (rule 9). PURE."""

from __future__ import annotations

from massgend.domain.answers import accept
from massgend.domain.draft import Draft
from massgend.domain.effects import FreezeSnapshot
from massgend.domain.events import SnapshotFailed, SnapshotRefused, SnapshotTaken
from massgend.domain.facts import WorkKept
from massgend.domain.run import Run, Stage

FORCED_SUMMARY = "Unfinished: recorded from the workspace when the run ended."


def freeze_all(draft: Draft, names: tuple[str, ...]) -> None:
    for agent in names:
        step = draft.new_step()
        draft.change(keeping={**draft.run.keeping, agent: step})
        draft.do(keeping_of(draft.run, agent, step))


def keeping_of(run: Run, agent: str, step: int) -> FreezeSnapshot:
    """The effect that saves an agent's workspace as it stands."""
    unfinished = "unfinished" if run.presented is None else "unfinished-presentation"
    name = "1" if run.stage is Stage.FORCING else unfinished
    return FreezeSnapshot(step=step, agent=agent, name=name, summary=FORCED_SUMMARY)


def kept_or_forced(draft: Draft, event: SnapshotTaken | SnapshotRefused | SnapshotFailed) -> None:
    """A snapshot that was taken (or not) by force; `settle` goes on when it was the last."""
    run = draft.run
    if run.keeping.get(event.agent) != event.step:
        return
    draft.change(keeping={name: step for name, step in run.keeping.items() if name != event.agent})
    match event:
        case SnapshotTaken() if run.stage is Stage.FORCING:
            accept(draft, event, FORCED_SUMMARY, forced=True)
        case SnapshotTaken():
            draft.change_agent(event.agent, unfinished=False)
            draft.tell(
                WorkKept(
                    at=event.at,
                    agent=event.agent,
                    commit=event.snapshot.commit,
                    changed_files=event.snapshot.changed_files,
                )
            )
            draft.publish(event.agent, event.snapshot.commit)
        case SnapshotRefused(unchanged=True):
            draft.change_agent(event.agent, unfinished=False)
        case SnapshotRefused() | SnapshotFailed():
            trouble = f"{event.agent}: its unfinished work stays in its workspace: {event.reason}"
            draft.change(trouble=(*run.trouble, trouble))
            draft.change_agent(event.agent, unfinished=False, unsaved=True)
