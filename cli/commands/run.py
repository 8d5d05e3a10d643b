"""`massgend run` and `massgend attach`: start a run or join one, show it, and say how it ended."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from cli.client import Client
    from cli.follow import Interrupts
    from cli.request import Plan
    from massgend.api.schemas import Created, RunView

Config = Annotated[
    str | None,
    typer.Option("--config", metavar="FILE|@examples/NAME", help="Default: massgend.yaml of the repository."),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object a line; the last is the result.")]


def run(
    task: Annotated[str | None, typer.Argument(metavar="TASK", help="What is to be done.")] = None,
    repo: Annotated[
        Path | None, typer.Option(metavar="PATH", help="The repository. Default: that of the current folder.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Without a repository: the folder to deliver to.")
    ] = None,
    config: Config = None,
    agent: Annotated[
        list[str] | None,
        typer.Option(metavar="KIND[:MODEL]", help="An agent; repeat it. 'command:SCRIPT' runs a script."),
    ] = None,
    check: Annotated[
        list[str] | None, typer.Option(metavar="CMD", help="A command that each answer must pass; repeat it.")
    ] = None,
    merge: Annotated[
        str | None, typer.Option(metavar="MODE", help="auto (default), branch, ask, squash or none.")
    ] = None,
    image: Annotated[str | None, typer.Option(metavar="NAME", help="The sandboxes' Docker image.")] = None,
    answers: Annotated[int | None, typer.Option(metavar="N", help="Answers an agent may submit (3).")] = None,
    turns: Annotated[int | None, typer.Option(metavar="N", help="Turns an agent may take (12).")] = None,
    turn_seconds: Annotated[float | None, typer.Option(metavar="S", help="Time limit of a turn (1800).")] = None,
    run_seconds: Annotated[float | None, typer.Option(metavar="S", help="Time limit of the run (7200).")] = None,
    include_dirty: Annotated[bool, typer.Option("--include-dirty", help="Take uncommitted changes along.")] = False,
    max_cost: Annotated[float | None, typer.Option(metavar="USD", help="What the run may cost.")] = None,
    record: Annotated[Path | None, typer.Option(metavar="FILE", help="Keep the model traffic, without keys.")] = None,
    replay: Annotated[Path | None, typer.Option(metavar="FILE", help="Answer from a record, no network.")] = None,
    json: Json = False,
    detach: Annotated[bool, typer.Option("--detach", help="Start it, print its id, and return.")] = False,
) -> None:
    """Let agents work on one task, and merge the answer they agree on.

    \b
    Examples:
      massgend run --config @examples/website
      massgend run "fix the failing test" --check "pytest -q" \\
          --agent claude-code --agent claude-code
      massgend run "speed up the parser" --agent "command:./a.sh" \\
          --agent "command:./b.sh" --merge ask
      massgend run --config team.yaml --json --detach

    Flags go before the file, the file before defaults; --agent and --check
    replace the file's lists. Ctrl-C once cancels and keeps the work, twice
    leaves at once. When the terminal goes away the run goes on: massgend attach.

    \b
    Exit codes:
      0  delivered, or decided when no merge was asked for (branch, ask, none)
      1  no result, failed, or cancelled elsewhere
      2  wrong use or configuration: no engine, image, repository; nothing started
      3  a limit was reached with no result
      4  decided, but the merge could not be done: the commands are printed
      130  interrupted with Ctrl-C
    """
    from cli.request import RunFlags, plan_run

    flags = RunFlags(
        task=task,
        repo=repo,
        output=output,
        config=config,
        agents=tuple(agent or ()),
        checks=tuple(check or ()),
        merge=merge,
        image=image,
        answers=answers,
        turns=turns,
        turn_s=turn_seconds,
        run_s=run_seconds,
        include_dirty=include_dirty,
        max_cost=max_cost,
        record=record,
        replay=replay,
    )
    _start(plan_run(flags, folder=Path.cwd()), json=json, detach=detach)


def attach(
    run_id: Annotated[str, typer.Argument(metavar="RUN", help="The run's id, or a unique beginning of it.")],
    json: Json = False,
) -> None:
    """Follow a run from its beginning, as `run` does; Ctrl-C cancels it.

    \b
    Examples:
      massgend attach 3f2a
      massgend attach 3f2a --json | jq .type
    """
    from cli.daemon import connect
    from cli.follow import Interrupts
    from cli.session import opened

    with opened() as client, Interrupts(connect) as interrupts:
        view = client.run(run_id)
        _show(client, view.run_id, interrupts, json=json, answer_limit=view.limits.answers)


def _start(plan: Plan, *, json: bool, detach: bool) -> None:
    from cli.daemon import connect
    from cli.follow import Interrupts
    from cli.notes import say
    from cli.session import offer_environment, opened

    with opened() as client, Interrupts(connect) as interrupts:
        if plan.request.repository is None:
            where = plan.request.deliver_to
            say(f"No git repository here: the run begins from an empty folder, and its result goes to {where}")
        if plan.needs_keys:
            offer_environment(client)
        try:
            created = _create(client, plan)
        except KeyboardInterrupt:
            say("massgend had not answered yet, so the run may have started all the same: massgend ps")
            raise
        for warning in created.warnings:
            say(f"Note: {warning}")
        if detach:
            _leave_it(created, interrupts, json=json)
        else:
            _show(client, created.run_id, interrupts, json=json, answer_limit=plan.request.limits.answers)


def _leave_it(created: Created, interrupts: Interrupts, *, json: bool) -> None:
    """Its id alone on standard output. Ctrl-C that came before it had one cancels it all the same."""
    from cli.errors import Exit
    from cli.notes import say

    interrupts.watch(created.run_id, say)
    print(created.model_dump_json() if json else created.run_id, flush=True)
    if interrupts.asked:
        interrupts.wait()
        raise typer.Exit(Exit.INTERRUPTED)
    if not json:
        say(f"Run {created.run_id} goes on by itself: massgend attach {created.run_id}")


def _create(client: Client, plan: Plan) -> Created:
    """A repository that we made for an example goes again when the run is refused."""
    import shutil

    from cli.errors import CliError
    from cli.example_runs import unpack
    from cli.notes import say

    if plan.example is None:
        return client.create(plan.request)
    folder = unpack(plan.example, into=Path.cwd())
    try:
        created = client.create(plan.request.model_copy(update={"repository": folder.resolve()}))
    except CliError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    say(f"The example's repository: {folder}")
    return created


def _show(client: Client, run_id: str, interrupts: Interrupts, *, json: bool, answer_limit: int | None) -> None:
    """Ends the command with the run's exit code."""
    import sys

    from cli.follow import exit_code, follow
    from cli.notes import say
    from cli.screens import JsonScreen, LiveScreen, PlainScreen, Screen, is_live, print_lines, terminal

    console = terminal()
    screen: Screen
    if json:
        screen = JsonScreen(sys.stdout)
    elif is_live(console):
        screen = LiveScreen(console, run_id=run_id, answer_limit=answer_limit)
    else:
        screen = PlainScreen(console)
    interrupts.watch(run_id, screen.note)
    try:
        view = follow(client, run_id, screen)
    except KeyboardInterrupt:
        say(f"Run {run_id} is being cancelled without you: massgend show {run_id}")
        raise
    if json:
        raise typer.Exit(exit_code(view, interrupted=interrupts.asked))
    from cli.next_steps import next_steps
    from cli.report import report
    from cli.session import user_place

    # From here on Ctrl-C is about a question, not about the run that has ended.
    interrupts.release()
    print_lines(report(view, width=console.width), console)
    steps = list(next_steps(view, width=console.width, place=user_place()))
    try:
        _ask(client, view)
    except typer.Abort:
        print_lines(steps, console)
        raise
    print_lines(steps, console)
    raise typer.Exit(exit_code(view, interrupted=interrupts.asked))


def _ask(client: Client, view: RunView) -> None:
    """`--merge ask` on a terminal: the diff on request, then the user's word; else the commands stand there already."""
    import sys

    from massgend.domain.run import Status

    waits = view.status is Status.DECIDED and view.merge is not None and view.merge.mode == "ask"
    if not waits or view.repository is None or view.winner is None:
        return
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return
    from cli.commands.merge import ask_and_merge

    ask_and_merge(client, view)
