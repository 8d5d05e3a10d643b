"""`massgend dev ...`: what developers of agents and of massgend need. Not for everyday use."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

dev = typer.Typer(help="For developers: the scripted model.", no_args_is_help=True, rich_markup_mode=None)


@dev.callback()
def _group() -> None:
    """For developers: the scripted model."""


@dev.command()
def model(
    socket: Annotated[Path | None, typer.Option(metavar="PATH", help="Listen on this unix socket.")] = None,
    port: Annotated[int, typer.Option(metavar="N", help="Listen on 127.0.0.1 (0: any free port).")] = 0,
) -> None:
    """Serve the scripted model until Ctrl-C: no real model is ever asked.

    \b
    Example:
      massgend dev model --port 8100
    """
    import subprocess
    import sys

    where = ["--socket", str(socket)] if socket is not None else ["--port", str(port)]
    raise typer.Exit(subprocess.call([sys.executable, "-m", "massgend.scripted", *where]))
