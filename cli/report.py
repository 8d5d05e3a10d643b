"""How a run ended, for people: the answers, the votes and why, what was used, branches, the merge. PURE."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from cli.layout import INDENT, MAX_WIDTH, listed, paragraph
from cli.next_steps import merge_commands
from cli.text import clean, clean_line, clip, first_line, pad, plural, shown_age
from cli.usage import usage_report
from massgend.api.schemas import AnswerView, MergeView, RunView
from massgend.domain.run import Status

MAX_STAT_LINES = 8
MAX_ABOUT_LINES = 6

_HEADS = {
    Status.PREPARING: ("Being prepared", "bold"),
    Status.RUNNING: ("Running", "bold"),
    Status.DELIVERED: ("Delivered", "bold green"),
    Status.DECIDED: ("Decided, not merged", "bold yellow"),
    Status.NO_RESULT: ("No result", "bold red"),
    Status.CANCELLED: ("Cancelled", "bold yellow"),
    Status.FAILED: ("Failed", "bold red"),
}


def report(view: RunView, *, width: int) -> list[Text]:
    """How it ended. What to type next is `next_steps`."""
    width = min(width, MAX_WIDTH)
    return [
        *_head(view, width),
        *_answers(view, width),
        *_about(view, width),
        *_votes(view, width),
        *_evidence(view, width),
        *usage_report(view.agents, width),
        *_branches(view, width),
        *_changes(view, width),
        *_warnings(view, width),
    ]


def agents_report(view: RunView, *, width: int, now: float) -> list[Text]:
    """`massgend show`: the task, and where each agent stands."""
    width = min(width, MAX_WIDTH)
    lines = [*paragraph("Run", f"{view.run_id}, asked for {shown_age(now - view.requested_at)} ago", width)]
    lines += paragraph("Task", clip(first_line(view.task), 3 * (width - INDENT)), width)
    for number, agent in enumerate(view.agents):
        kind = agent.kind + (f":{agent.model}" if agent.model else "")
        said = f"{agent.name} ({kind})  {agent.phase}, turn {agent.turn}, {plural(agent.answers, 'answer')}"
        if agent.last_failure:
            said += f", failed: {first_line(agent.last_failure)}"
        head = pad("Agents" if number == 0 else "", INDENT)
        lines.append(Text.assemble((head, "bold"), clip(said, width - INDENT)))
    return lines


def _head(view: RunView, width: int) -> Iterator[Text]:
    word, style = _HEADS[view.status]
    if view.scripted:
        word += " (scripted agents)"
    said = view.merge.reason if view.status is Status.DELIVERED and view.merge else view.reason
    yield Text()
    yield from paragraph(word, clean(said), width, style=style)
    if view.status is not Status.RUNNING and view.merge is not None and clean(said) != clean(view.reason):
        yield from paragraph("Why", clean(view.reason), width)
    elif view.status is Status.DECIDED and view.merge is not None:
        yield from paragraph("Merge", clean(view.merge.reason), width)
    if view.presentation is not None and clean(view.presentation) not in clean(view.reason):
        yield from paragraph("Last turn", clean(view.presentation), width)


def _newest(view: RunView) -> list[AnswerView]:
    """Each agent's newest answer and the winner, in the order of the tally where there is one."""
    listed = {(line.agent, line.number): line for line in view.tally}
    answers = {(one.agent, one.number): one for one in view.answers}
    newest = {one.agent: one for one in view.answers}
    wanted = [answers[key] for key in listed if key in answers] or list(newest.values())
    votes = {key: line.votes for key, line in listed.items()}
    won = (view.winner, view.winner_answer)
    return sorted(wanted, key=lambda one: ((one.agent, one.number) != won, -votes.get((one.agent, one.number), 0)))


def _answers(view: RunView, width: int) -> Iterator[Text]:
    shown = _newest(view)
    if not shown:
        return
    votes = {(line.agent, line.number): line.votes for line in view.tally}
    names = max(6, *(len(f"{one.agent}.{one.number}") for one in shown))
    checks = max(6, *(len(_checks(view, one)) for one in shown)) if view.checks else 0
    yield Text()
    heads = f"  {pad('answer', names)}  votes" + (f"  {pad('checks', checks)}" if checks else "") + "  files  summary"
    yield Text(clip(heads, width), style="dim")
    for one in shown:
        won = (one.agent, one.number) == (view.winner, view.winner_answer)
        row = f"{'*' if won else ' '} {pad(f'{one.agent}.{one.number}', names)}  "
        row += f"{votes.get((one.agent, one.number), 0):>5}  "
        row += f"{pad(_checks(view, one), checks)}  " if checks else ""
        row += f"{one.changed_files:>5}  {first_line(one.summary)}"
        yield Text(clip(row, width), style="bold" if won else "")


def _about(view: RunView, width: int) -> Iterator[Text]:
    """What the snapshots of the listed answers lack."""
    said = [f"{one.agent}.{one.number}: {clean(about)}" for one in _newest(view) for about in one.about]
    shown = said if len(said) <= MAX_ABOUT_LINES else [*said[: MAX_ABOUT_LINES - 1], f"and {len(said) - 5} more"]
    yield from listed("About", shown, width, style="dim")


def _checks(view: RunView, answer: AnswerView) -> str:
    results = [one for one in view.checks if (one.agent, one.number) == (answer.agent, answer.number)]
    if len(results) > 2:
        passed = sum(one.passed for one in results)
        return f"{passed} of {len(results)} passed"
    return ", ".join(f"{one.name} {'passed' if one.passed else 'FAILED'}" for one in results) or "-"


def _votes(view: RunView, width: int) -> Iterator[Text]:
    counted = [vote for vote in view.votes if vote.valid]
    if not counted:
        return
    yield Text()
    names = max(len(vote.voter) for vote in counted)
    for number, vote in enumerate(counted):
        head = pad("Votes" if number == 0 else "", INDENT)
        said = f"{pad(vote.voter, names)} -> {vote.agent}.{vote.number}  {first_line(vote.reason)}"
        yield Text.assemble((head, "bold"), clip(said, width - INDENT))
    void = len(view.votes) - len(counted)
    if void:
        yield Text(f"{' ' * INDENT}{void} more {'was' if void == 1 else 'were'} void: newer answers came", style="dim")


def _evidence(view: RunView, width: int) -> Iterator[Text]:
    """The end of what a failed check of a listed answer said."""
    listed = {(one.agent, one.number) for one in _newest(view)}
    for check in view.checks:
        if check.passed or (check.agent, check.number) not in listed:
            continue
        said = [line for line in map(clean_line, check.tail.splitlines()) if line.strip()][-2:]
        what = f"{check.agent}.{check.number} fails {check.name}" + (f": {said.pop().strip()}" if said else "")
        yield Text.assemble((pad("Check", INDENT), "bold red"), clip(what, width - INDENT))


def _branches(view: RunView, width: int) -> Iterator[Text]:
    names = sorted(set(view.branches.values()), key=lambda name: (name.endswith("/winner"), name))
    if not names:
        return
    yield Text()
    yield from paragraph("Branches", " ".join(map(clean, names)), width)


def _changes(view: RunView, width: int) -> Iterator[Text]:
    merge = view.merge
    if merge is None or not merge.merged:
        return
    if merge.folder:
        yield Text.assemble((pad("Folder", INDENT), "bold"), clean(merge.folder))
    lines = [clean_line(line).rstrip() for line in merge.stat]
    shown = lines if len(lines) <= MAX_STAT_LINES else [*lines[: MAX_STAT_LINES - 2], " ...", lines[-1]]
    for number, line in enumerate(shown):
        head = pad("Changed" if number == 0 else "", INDENT)
        yield Text.assemble((head, "bold"), clip(line.strip(), width - INDENT))


def _warnings(view: RunView, width: int) -> Iterator[Text]:
    if view.merge is not None:
        yield from _risky(view.merge, width)
    for agent in view.agents:
        if agent.last_failure and view.status in (Status.FAILED, Status.NO_RESULT):
            yield from paragraph("Failure", f"{agent.name}: {first_line(agent.last_failure)}", width, style="bold red")
    for trouble in view.trouble:
        yield from paragraph("Trouble", clean(trouble), width, style="bold red")
    for warning in view.warnings:
        yield from paragraph("Note", clean(warning), width, style="bold yellow")


def _risky(merge: MergeView, width: int) -> Iterator[Text]:
    if not merge.risky:
        return
    brings = "brought" if merge.merged else "would bring"
    files = ", ".join(clean(path) for path in merge.risky[:6]) + (" ..." if len(merge.risky) > 6 else "")
    said = f"it {brings} files that can run code on your side; look at them first: {files}"
    yield from paragraph("Careful", said, width, style="bold yellow")


def merge_report(merge: MergeView, *, width: int) -> list[Text]:
    """What came of `massgend merge`."""
    lines = list(paragraph("Merged" if merge.merged else "Not merged", clean(merge.reason), min(width, MAX_WIDTH)))
    if merge.conflicts:
        paths = ", ".join(clean(path) for path in merge.conflicts[:8]) + (" ..." if len(merge.conflicts) > 8 else "")
        lines += paragraph("Conflicts", paths, width)
    stat = (clean_line(one).strip() for one in merge.stat[-MAX_STAT_LINES:])
    lines += [Text(" " * INDENT + clip(one, width - INDENT)) for one in stat]
    lines += _risky(merge, min(width, MAX_WIDTH))
    lines += merge_commands(merge)
    return lines
