"""What to type next, by how a run ended: commands to copy, unclipped, each with a word on what it does. PURE."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.text import Text

from cli.layout import INDENT
from cli.text import clean, pad
from massgend.api.schemas import AnswerView, MergeView, RunView
from massgend.domain.run import WINNER, Status


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where the user stands: the folder, and the repository around it."""

    folder: Path
    repository: Path | None

    def name_of(self, repository: Path) -> str:
        """What to type for a repository, short; empty for the one around."""
        if repository == self.repository:
            return ""
        below = repository.is_relative_to(self.folder)
        return shlex.quote(str(repository.relative_to(self.folder) if below else repository))


@dataclass(frozen=True, kw_only=True)
class Step:
    """`weighs`: the note is shown also where it does not fit the line."""

    command: str
    note: str
    weighs: bool = False


def failed_checks(view: RunView, agent: str, number: int) -> tuple[str, ...]:
    """The required checks that an answer fails."""
    of_it = (check for check in view.checks if (check.agent, check.number) == (agent, number))
    return tuple(check.name for check in of_it if check.required and not check.passed)


def newest_answer(view: RunView, agent: str) -> AnswerView | None:
    return next((one for one in reversed(view.answers) if one.agent == agent), None)


def next_steps(view: RunView, *, width: int, place: Place) -> Iterator[Text]:
    steps = list(_steps(view, place))
    if steps or (view.merge is not None and view.merge.commands):
        yield Text()
    for number, step in enumerate(steps):
        head = pad("Next" if number == 0 else "", INDENT)
        note = f"  # {step.note}"
        fits = step.weighs or INDENT + len(step.command) + len(note) <= width
        yield Text.assemble((head, "bold"), (step.command, "cyan"), (note if fits else "", "dim"))
    if view.merge is not None:
        yield from merge_commands(view.merge)


def merge_commands(merge: MergeView) -> Iterator[Text]:
    """To undo a merge, or to do it by hand."""
    head = "Undo" if merge.merged else "By hand"
    for number, command in enumerate(merge.commands):
        yield Text.assemble((pad(head if number == 0 else "", INDENT), "bold"), (clean(command), "cyan"))


def _steps(view: RunView, place: Place) -> Iterator[Step]:
    run = view.run_id
    if view.status in (Status.PREPARING, Status.RUNNING):
        yield Step(command=f"massgend attach {run}", note="follow it")
        return
    if view.repository is None or not view.branches:
        if view.agents and view.status is not Status.DELIVERED:
            yield Step(command=f"massgend logs {run} {view.agents[0].name}", note="what it said")
        return
    path = place.name_of(view.repository)
    option = f" --repo {path}" if path else ""
    if view.winner is not None:
        yield from _winner(view, view.winner, option)
    other = _best_other(view)
    if other is not None:
        yield Step(command=f"massgend diff {run} {other}{option}", note=f"what {other} changed")
        git = f"git -C {path}" if path else "git"
        yield Step(command=f"{git} switch {clean(view.branches[other])}", note=f"try {other}'s work")
        yield from _take_other(view, other, option)


def _winner(view: RunView, winner: str, option: str) -> Iterator[Step]:
    named = view.run_id if WINNER in view.branches else f"{view.run_id} {winner}"
    if view.merge is not None and not view.merge.merged and view.merge.mode not in ("auto", "squash"):
        failed = failed_checks(view, winner, view.winner_answer or 0)
        note = "take it" + (f": FAILED {', '.join(failed)}" if failed else "")
        yield Step(command=f"massgend merge {named}{option}", note=note, weighs=bool(failed))
    yield Step(command=f"massgend diff {named}{option}", note="what it changed")


def _best_other(view: RunView) -> str | None:
    """Whose work is the best to look at next: an answer before unfinished work, one that passes its checks first."""
    names = [agent for agent in view.branches if agent not in (WINNER, view.winner)]
    votes = {(line.agent, line.number): line.votes for line in view.tally}

    def rank(agent: str) -> tuple[bool, bool, int]:
        answer = newest_answer(view, agent)
        if answer is None:
            return (True, True, 0)
        failed = failed_checks(view, agent, answer.number)
        return (False, bool(failed), -votes.get((agent, answer.number), 0))

    return min(names, key=rank, default=None)


def _take_other(view: RunView, other: str, option: str) -> Iterator[Step]:
    """Only an answer is offered; unfinished work is there to be looked at."""
    answer = newest_answer(view, other)
    if answer is None:
        return
    failed = failed_checks(view, other, answer.number)
    merged = view.merge is not None and view.merge.merged
    notes = [*(["undo first"] if merged else []), *([f"FAILED {', '.join(failed)}"] if failed else [])]
    note = f"take {other}'s" + (" instead" if view.winner else "") + (f": {'; '.join(notes)}" if notes else "")
    yield Step(command=f"massgend merge {view.run_id} {other}{option}", note=note, weighs=bool(failed))
