"""`massgend ps`, `show`, `cancel`, `gc`: runs as the daemon knows them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from massgend.api.schemas import GcView

NEWEST = 20

RunId = Annotated[str, typer.Argument(metavar="RUN", help="The run's id, or a unique beginning of it.")]
Json = Annotated[bool, typer.Option("--json", help="As JSON.")]


def ps(
    all: Annotated[bool, typer.Option("--all", "-a", help=f"Not only the newest {NEWEST}.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """List the runs, the newest first.

    \b
    Examples:
      massgend ps
      massgend ps --json | jq -r 'select(.status == "running").run_id'
    """
    from cli.screens import terminal
    from cli.session import opened
    from cli.text import clip, first_line, pad, shown_age

    with opened() as client:
        runs = sorted(client.runs(), key=lambda line: -line.requested_at)
    hidden = 0 if all else max(0, len(runs) - NEWEST)
    runs = runs[: len(runs) - hidden]
    if json:
        for line in runs:
            print(line.model_dump_json())
        return
    if not runs:
        print("No runs yet: massgend run --config @examples/website")
        return
    width = terminal().width
    ids = max(3, *(len(line.run_id) for line in runs))
    print(clip(f"{pad('RUN', ids)}  {pad('STATUS', 9)}  {pad('AGE', 6)}  {pad('WINNER', 8)}  TASK", width))
    for line in runs:
        age = pad(shown_age(time.time() - line.requested_at), 6)
        row = f"{line.run_id}  {pad(line.status, 9)}  {age}  {pad(line.winner or '-', 8)}  {first_line(line.task)}"
        print(clip(row, width))
    if hidden:
        print(f"and {hidden} older: massgend ps --all")


def show(run_id: RunId, json: Json = False) -> None:
    """Show a run as it stands, or how it ended.

    \b
    Examples:
      massgend show 3f2a
      massgend show 3f2a --json | jq .tally
    """
    from cli.next_steps import next_steps
    from cli.report import agents_report, report
    from cli.screens import print_lines, terminal
    from cli.session import opened, user_place

    with opened() as client:
        view = client.run(run_id)
    if json:
        print(view.model_dump_json())
        return
    console = terminal()
    width = console.width
    print_lines(agents_report(view, width=width, now=time.time()), console)
    print_lines(report(view, width=width), console)
    print_lines(list(next_steps(view, width=width, place=user_place())), console)


def cancel(run_id: RunId) -> None:
    """Cancel a run: its work so far is kept on its branches.

    \b
    Example:
      massgend cancel 3f2a
    """
    from cli.session import opened

    with opened() as client:
        line = client.cancel(run_id)
    if line.ended_at is not None:
        print(f"Run {line.run_id} has ended already ({line.status}): massgend show {line.run_id}")
    else:
        print(f"Run {line.run_id} is being cancelled; its work is kept: massgend show {line.run_id}")


def gc(
    runs: Annotated[list[str] | None, typer.Argument(metavar="RUN", help="Default: all that ended.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Delete without asking.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be deleted.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Also work that no branch holds.")] = False,
    json: Json = False,
) -> None:
    """Free the disk of ended runs: they are forgotten; branches stay.

    Goes: the run's workspaces, snapshots and logs, and its record: ps, show and
    logs no longer know it; diff and merge still do, from its branches. Stays:
    every branch, what was merged, and work that no branch holds (--force).

    Shows what it would delete, and asks on a terminal; elsewhere nothing is
    deleted without --yes.

    \b
    Examples:
      massgend gc
      massgend gc --yes
      massgend gc --force 3f2a
    """
    from cli.errors import Misuse
    from cli.session import opened
    from massgend.api.schemas import GcRequest

    if yes and dry_run:
        raise Misuse("--yes and --dry-run exclude each other: choose one")
    wanted = GcRequest(dry_run=not yes, force=force, run_ids=tuple(runs or ()))
    with opened() as client:
        found = client.gc(wanted)
        _print(found, json=json)
        if yes or dry_run or json or not any(line.action == "delete" for line in found.lines):
            return
        if _confirmed():
            _print(client.gc(wanted.model_copy(update={"dry_run": False})), json=False)


def _confirmed() -> bool:
    import sys

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        print("Nothing was deleted: --yes deletes it.")
        return False
    return bool(typer.confirm("Delete them?", default=False))


def _print(found: GcView, *, json: bool) -> None:
    from cli.text import clean, plural, shown_age, shown_size

    if json:
        print(found.model_dump_json())
        return
    for line in found.lines:
        word = line.action if found.dry_run else {"delete": "deleted", "keep": "kept"}[line.action]
        merged = "merged" if line.merged else "not merged"
        about = f"{line.status}, {merged}, {shown_age(line.age_s)} old, {shown_size(line.size_bytes)}"
        print(f"{word:<8}{line.run_id}  {about}")
        if line.why:
            print(f"        {clean(line.why)}")
    if not found.lines:
        print("No ended runs.")
        return
    going = [line for line in found.lines if line.action == "delete"]
    size = sum(line.size_bytes for line in going) if found.dry_run else found.freed_bytes
    print(f"{plural(len(going), 'run')}, {shown_size(size)} {'would be freed' if found.dry_run else 'freed'}.")
