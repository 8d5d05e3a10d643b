"""The `massgend` command: the list of commands, and the one boundary where an error becomes a sentence."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from cli.commands.daemon import doctor, down, status, up
from cli.commands.dev import dev
from cli.commands.logs import logs
from cli.commands.look import cancel, gc, ps, show
from cli.commands.merge import diff, merge
from cli.commands.run import attach, run
from cli.commands.setup import setup
from cli.errors import CliError, Exit

app = typer.Typer(
    name="massgend",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    no_args_is_help=True,
)


class _Command(TyperCommand):
    """Typer writes a required argument as {RUN}."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [piece.replace("{", "").replace("}", "") for piece in super().collect_usage_pieces(ctx)]


for _command in (run, attach, ps, show, logs, diff, merge, cancel, gc, up, down, status, setup, doctor):
    app.command(cls=_Command)(_command)
app.add_typer(dev, name="dev", hidden=True)

# Not exported by every version of typer; the base of what it exports.
_UsageError = typer.BadParameter.__mro__[1]


def _print_version(wanted: bool) -> None:
    if wanted:
        from cli.version import own_version

        print(f"massgend {own_version()}")
        raise typer.Exit


@app.callback()
def massgend(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Several sandboxed coding agents on one task; the best answer is merged."""


def main() -> None:
    """Runs the command line and exits. MASSGEND_DEBUG=1 shows where an error comes from."""
    # httpx loads a command line of its own, with a syntax highlighter: a seventh of our start. None keeps it out.
    sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]
    sys.exit(run_command(sys.argv[1:]))


def run_command(arguments: list[str]) -> int:
    """The exit code."""
    try:
        code = app(args=arguments, prog_name="massgend", standalone_mode=False)
        sys.stdout.flush()
        return int(code or 0)
    except typer.Exit as done:
        return int(done.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        return Exit.INTERRUPTED
    except BrokenPipeError:
        _forget_stdout()
        return Exit.NO_RESULT
    except Exception as error:
        if os.environ.get("MASSGEND_DEBUG"):
            raise
        return _explain(error)


def _explain(error: Exception) -> int:
    if isinstance(error, CliError):
        print(f"massgend: {error}", file=sys.stderr)
        return error.exit_code
    if isinstance(error, _UsageError):
        context = getattr(error, "ctx", None)
        path = context.command_path if context is not None else "massgend"
        said = str(getattr(error, "format_message", lambda: error)()).strip()
        if context is not None and said.startswith("Usage:"):
            print(said)
            return Exit.MISUSE
        print(f"{path}: {said[:1].lower()}{said[1:].rstrip('.')}: see {path} --help", file=sys.stderr)
        return Exit.MISUSE
    print(
        f"massgend: this should not have happened: {type(error).__name__}: {' '.join(str(error).split())[:300]} "
        "(MASSGEND_DEBUG=1 shows where)",
        file=sys.stderr,
    )
    return Exit.NO_RESULT


def _forget_stdout() -> None:
    """Whoever read our output went away; without this Python complains about it at its exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
