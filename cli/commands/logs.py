"""`massgend logs`: what agents wrote, cleaned on a terminal, as it is elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from cli.client import Client

FIRST_TAIL_BYTES = 64 * 1024
NEXT_TAIL_BYTES = 1024 * 1024
PAUSE_S = 0.5


def logs(
    run_id: Annotated[str, typer.Argument(metavar="RUN", help="The run's id, or a unique beginning of it.")],
    agent: Annotated[str | None, typer.Argument(metavar="AGENT", help="Default: all of them.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the run ends.")] = False,
) -> None:
    """Show the end of what the agents wrote.

    \b
    Examples:
      massgend logs 3f2a ada
      massgend logs 3f2a --follow
    """
    from cli.errors import Misuse
    from cli.session import opened
    from cli.text import clean

    with opened() as client:
        view = client.run(run_id)
        names = [one.name for one in view.agents]
        if agent is not None and agent not in names:
            raise Misuse(f"run {view.run_id} has no agent '{clean(agent)}'; its agents: {', '.join(names)}")
        wanted = [agent] if agent is not None else names
        width = max(map(len, wanted), default=0) if len(wanted) > 1 else 0
        readers = [LogReader(client, view.run_id, name, prefix_cells=width) for name in wanted]
        while True:
            # Asked before reading, so that what is written at the very end is read as well.
            going_on = follow and view.ended_at is None
            for reader in readers:
                for line in reader.new_lines(last=not going_on):
                    print(line)
            sys.stdout.flush()
            if not going_on:
                return
            time.sleep(PAUSE_S)
            view = client.run(view.run_id)


class LogReader:
    """One agent's log, line by line, from where the last look ended."""

    def __init__(self, client: Client, run_id: str, agent: str, *, prefix_cells: int) -> None:
        self._client, self._run_id, self._agent = client, run_id, agent
        self._prefix = f"{agent:<{prefix_cells}} | " if prefix_cells else ""
        self._seen_bytes: int | None = None
        self._rest = b""

    def new_lines(self, *, last: bool) -> list[str]:
        """Cleaned for the terminal. `last`: an unfinished line comes, too."""
        wanted = FIRST_TAIL_BYTES if self._seen_bytes is None else NEXT_TAIL_BYTES
        tail = self._client.log(self._run_id, self._agent, tail_bytes=wanted)
        new = tail.size_bytes - (self._seen_bytes or 0)
        content = tail.content[-new:] if new > 0 else b""
        missed = self._seen_bytes is not None and new > len(tail.content)
        cut = self._seen_bytes is None and tail.size_bytes > len(tail.content)
        self._seen_bytes = tail.size_bytes
        if cut:
            content = content.partition(b"\n")[2]
        *lines, self._rest = (self._rest + content).split(b"\n")
        if last and self._rest:
            lines.append(self._rest)
            self._rest = b""
        return [*(["..."] if missed else []), *map(self._shown, lines)]

    def _shown(self, line: bytes) -> str:
        from cli.text import clean_line

        return self._prefix + clean_line(line.decode(errors="replace").rstrip("\r"))
