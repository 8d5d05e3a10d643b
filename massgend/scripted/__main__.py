"""`python -m massgend.scripted [--socket PATH | --port N]`: serve the scripted model until interrupted."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path

from massgend.scripted.server import PAGE, serve


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until Ctrl-C. Exit code 0."""
    parser = argparse.ArgumentParser(prog="massgend dev model", description=PAGE)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--socket", type=Path, help="listen on this unix socket")
    where.add_argument("--port", type=int, default=0, help="listen on 127.0.0.1 (default: any free port)")
    options = parser.parse_args(argv)
    try:
        asyncio.run(_serve(options.socket, options.port))
    except KeyboardInterrupt:
        return 0
    return 0


async def _serve(socket: Path | None, port: int) -> None:
    async with serve(socket, port=port) as url:
        print(PAGE + (f"Listening on the socket {socket}." if socket else f"Listening on {url}."), flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    raise SystemExit(main())
