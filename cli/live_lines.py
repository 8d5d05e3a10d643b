"""The lines of the live view, laid out for a width. PURE."""

from __future__ import annotations

from rich.text import Text

from cli.board import AT_WORK, AgentRow, Board
from cli.story import Line, Tone
from cli.text import clip, pad, shown_cost, shown_duration, shown_tokens

STATE_CELLS = 9
MAX_NAME_CELLS = 14
USED_CELLS = 14
WIDE = 100
"""From here on there is room for what each agent has used; the heading always has the sum."""

_COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red")
_TONES = {Tone.PLAIN: "", Tone.QUIET: "dim", Tone.GOOD: "green", Tone.CAREFUL: "yellow", Tone.BAD: "red"}
_STATES = {
    "working": "green",
    "saving": "green",
    "winner": "bold green",
    "voted": "cyan",
    "answered": "cyan",
    "retrying": "yellow",
    "refused": "yellow",
    "stopping": "yellow",
    "void vote": "yellow",
    "out": "red",
}


def story_line(line: Line, board: Board) -> Text:
    """` 0:07  ada  answer 1 (2 files): a first page`."""
    since = line.at - board.began if board.began is not None else 0.0
    text = Text(f"{shown_duration(since):>5}  ", style="dim")
    if line.agent is not None:
        text.append(pad(line.agent, _name_cells(board)) + "  ", style=_colour(board, line.agent))
    text.append(line.text, style=_TONES[line.tone] or "none")
    return text


def frame(board: Board, *, now: float, width: int, height: int) -> list[Text]:
    """A heading and a line an agent; when the terminal is too low, the ones at work go first."""
    cells = max(20, width - 1)
    rows = list(board.rows.values())
    room = max(1, height - 4)
    hidden = 0
    if len(rows) > room:
        chosen = {row.name for row in sorted(rows, key=lambda row: row.state not in AT_WORK)[: room - 1]}
        hidden = len(rows) - len(chosen)
        rows = [row for row in rows if row.name in chosen]
    lines = [_heading(board, now, cells), *(_row(board, row, now, cells) for row in rows)]
    if hidden:
        lines.append(Text(clip(f"      and {hidden} more", cells), style="dim"))
    return lines


def _heading(board: Board, now: float, cells: int) -> Text:
    elapsed = shown_duration(now - board.began) if board.began is not None else "0:00"
    scripted = "  scripted agents" if board.scripted else ""
    used = f"  {shown_tokens(board.used.tokens)} tokens, {shown_cost(board.used.cost_usd)}" if board.used else ""
    left = f"run {board.run_id}  {board.state}  {elapsed}{scripted}{used}"
    right = "Ctrl-C cancels" if board.state in ("preparing", "running") else ""
    gap = cells - len(left) - len(right)
    text = Text(clip(left, cells), style="bold")
    if gap >= 2:
        text.append(" " * gap + right, style="not bold dim")
    return text


def _row(board: Board, row: AgentRow, now: float, cells: int) -> Text:
    """`name  state  answers  last action ...  files  elapsed`; the last action takes what is left."""
    limit = f"/{board.answer_limit}" if board.answer_limit is not None else ""
    answers = f"{row.answers}{limit}"
    files = f"{row.changed_files} changed" if row.changed_files else ""
    elapsed = shown_duration(now - row.since) if row.since is not None else ""
    used = f"  {_used(row):>{USED_CELLS}}" if board.used is not None and cells >= WIDE else ""
    right = f"{used}  {files:>11}  {elapsed:>6}"
    text = Text()
    text.append(pad(row.name, _name_cells(board)), style=_colour(board, row.name))
    text.append("  " + pad(row.state, STATE_CELLS), style=_STATES.get(row.state, "dim"))
    text.append(f"  {answers:>5}  ")
    left = text.cell_len
    room = cells - left - len(right)
    if room < 8:
        text.append(clip(row.doing, cells - left), style="dim")
    else:
        text.append(pad(row.doing, room), style="none" if row.state in AT_WORK else "dim")
        text.append(right, style="dim")
    text.truncate(cells)
    return text


def _used(row: AgentRow) -> str:
    if row.used is None:
        return ""
    cost = "" if row.used.cost_usd is None else f" {shown_cost(row.used.cost_usd)}"
    return f"{shown_tokens(row.used.tokens)}{cost}"


def _name_cells(board: Board) -> int:
    return min(MAX_NAME_CELLS, max((len(name) for name in board.rows), default=4))


def _colour(board: Board, name: str) -> str:
    names = list(board.rows)
    return _COLOURS[names.index(name) % len(_COLOURS)] if name in board.rows else "none"
