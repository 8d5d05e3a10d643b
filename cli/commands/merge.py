"""`massgend diff` and `massgend merge`: from the branches in the repository alone, also of runs the daemon forgot."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from cli.client import Client
    from massgend.api.schemas import MergeView, RunView

RunId = Annotated[str, typer.Argument(metavar="RUN", help="The run's id, or a unique beginning of it.")]
Repo = Annotated[Path | None, typer.Option(metavar="PATH", help="Default: the repository of the current folder.")]


def diff(
    run_id: RunId,
    agent: Annotated[str | None, typer.Argument(metavar="AGENT", help="Default: the winner.")] = None,
    other: Annotated[str | None, typer.Argument(metavar="AGENT2", help="Compare AGENT with this one.")] = None,
    repo: Repo = None,
    stat: Annotated[bool, typer.Option("--stat", help="Only which files, and how much.")] = False,
) -> None:
    """Show what an agent changed, or how two agents' work differs.

    \b
    Examples:
      massgend diff 3f2a              what the winner changed since the start
      massgend diff 3f2a ada --stat
      massgend diff 3f2a ada bob      from ada's work to bob's
      massgend diff 3f2a ada > ada.patch
    """
    from cli.diff import show_diff
    from cli.git import Git, base_of, chosen_repository, find_agent, find_run

    git = Git(chosen_repository(repo))
    run = find_run(git, run_id)
    branch = find_agent(run, agent)
    if other is None:
        known = _base_as_the_daemon_knows(run.run_id)
        show_diff(git, base_of(git, run.run_id, branch, known=known), f"refs/heads/{branch}", stat=stat)
    else:
        show_diff(git, f"refs/heads/{branch}", f"refs/heads/{find_agent(run, other)}", stat=stat)


def merge(
    run_id: RunId,
    agent: Annotated[str | None, typer.Argument(metavar="AGENT", help="Default: the winner.")] = None,
    into: Annotated[str | None, typer.Option(metavar="BRANCH", help="Default: the branch that is checked out.")] = None,
    mode: Annotated[str, typer.Option(metavar="MODE", help="auto or squash.")] = "auto",
    repo: Repo = None,
    yes: Annotated[bool, typer.Option("--yes", help="Also an answer that fails a check.")] = False,
    json: Annotated[bool, typer.Option("--json", help="What came of it as JSON.")] = False,
) -> None:
    """Merge an agent's work into your branch, if that is safe.

    Uncommitted work of yours is never touched. An answer that fails a required
    check is merged only when you say so: on a terminal you are asked. Exit code
    4: nothing was merged, and the commands to do it by hand are printed.

    \b
    Examples:
      massgend merge 3f2a
      massgend merge 3f2a bob --into main --mode squash
    """
    from cli.errors import Misuse
    from cli.git import Git, chosen_repository, find_agent, find_run
    from cli.session import opened
    from massgend.api.schemas import MergeRequest
    from snapshots.repository import MergeMode

    if mode not in list(MergeMode):
        raise Misuse(f"--mode {mode}: choose auto or squash")
    git = Git(chosen_repository(repo))
    run = find_run(git, run_id)
    name = find_agent(run, agent).rsplit("/", 1)[1]
    request = MergeRequest(
        repository=git.folder,
        run_id=run.run_id,
        agent=None if name == "winner" else name,
        into=into,
        mode=MergeMode(mode),
    )
    with opened() as client:
        if not yes:
            _doubts(client, run.run_id, name, may_ask=not json)
        merged = client.merge(request)
    if json:
        print(merged.model_dump_json())
    else:
        _print(merged)
    raise typer.Exit(_exit_code(merged))


def _doubts(client: Client, run_id: str, name: str, *, may_ask: bool) -> None:
    """The user's word for what fails a required check, as far as the daemon knows the run. Raises Misuse, Exit."""
    import sys

    from cli.errors import Exit, Misuse, Refused
    from cli.next_steps import failed_checks, newest_answer
    from cli.notes import say
    from massgend.domain.run import WINNER

    try:
        view = client.run(run_id)
    except Refused:
        return
    agent = view.winner if name == WINNER else name
    newest = newest_answer(view, agent or "")
    if agent is None or newest is None:
        say(f"Note: {name} has handed in no answer; its branch holds unfinished work.")
        return
    number = view.winner_answer if name == WINNER and view.winner_answer is not None else newest.number
    failed = failed_checks(view, agent, number)
    if not failed:
        return
    doubt = f"{agent}'s answer {number} fails the check{'s' if len(failed) > 1 else ''} {', '.join(failed)}"
    if not (may_ask and sys.stdin.isatty() and sys.stdout.isatty()):
        raise Misuse(f"{doubt}: --yes merges it all the same")
    if not typer.confirm(f"{doubt}. Merge it all the same?", default=False):
        print("Nothing was merged.")
        raise typer.Exit(Exit.NO_RESULT)


def ask_and_merge(client: Client, view: RunView) -> None:
    """The user's word, then the merge; ends the command when it could not be done."""
    from cli.diff import show_diff
    from cli.git import Git, base_of
    from massgend.api.schemas import MergeRequest
    from snapshots.repository import MergeMode

    if view.repository is None or view.winner is None:
        return
    git = Git(view.repository)
    branch = view.branches.get("winner", view.branches.get(view.winner, ""))
    base = base_of(git, view.run_id, branch, known=view.base_commit)
    show_diff(git, base, f"refs/heads/{branch}", stat=True, page=False)
    into = view.base_branch or "the branch that is checked out"
    while True:
        word = typer.prompt(f"Merge it into {into}? [y]es, [d]iff, [n]o", default="n").strip().lower()
        if word in ("d", "diff"):
            show_diff(git, base, f"refs/heads/{branch}", stat=False)
        elif word in ("y", "yes"):
            break
        elif word in ("n", "no"):
            return
    request = MergeRequest(
        repository=view.repository,
        run_id=view.run_id,
        agent=view.winner,
        into=view.base_branch,
        mode=MergeMode.AUTO,
    )
    merged = client.merge(request)
    _print(merged)
    raise typer.Exit(_exit_code(merged))


def _print(merged: MergeView) -> None:
    from cli.report import merge_report
    from cli.screens import print_lines, terminal

    console = terminal()
    print_lines(merge_report(merged, width=console.width), console)


def _exit_code(merged: MergeView) -> int:
    from cli.errors import Exit

    asked = merged.mode in ("auto", "squash")
    return Exit.DONE if merged.merged or not asked else Exit.NOT_MERGED


def _base_as_the_daemon_knows(run_id: str) -> str | None:
    """Only when it runs: a diff starts nothing."""
    from cli.daemon import connect
    from cli.errors import CliError

    with connect() as client:
        try:
            return client.run(run_id).base_commit
        except CliError:
            return None
