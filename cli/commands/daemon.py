"""`massgend up`, `down`, `status`, `doctor`: the daemon itself."""

from __future__ import annotations

import os
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="As JSON.")]


def up() -> None:
    """Start the daemon; runs that were under way go on.

    `massgend run` does this by itself when need be.

    \b
    Example:
      massgend up
    """
    from cli.daemon import connect, ensure_running, places, running
    from cli.notes import say

    where = places()
    with connect(where) as client:
        already = running(client)
        health = already or ensure_running(client, where, note=say)
    word = "runs already" if already else "is up"
    print(f"massgend {word} (process {health.pid}, engine {health.docker_host}).")
    if health.runs_under_way:
        print(f"Runs under way: {health.runs_under_way} (massgend ps).")


def down() -> None:
    """Stop the daemon; runs under way go on at the next `massgend up`.

    \b
    Example:
      massgend down
    """
    from cli.daemon import connect, places, stop
    from cli.notes import say

    where = places()
    with connect(where) as client:
        stopped = stop(client, where, note=say)
    if stopped is None:
        print("massgend is not running.")
        return
    print(f"massgend is down (process {stopped.pid}).")
    if stopped.runs_under_way:
        print(f"Runs that go on at the next massgend up: {stopped.runs_under_way}.")


def status(json: Json = False) -> None:
    """Say whether the daemon runs, with which state and engine.

    \b
    Examples:
      massgend status
      massgend status --json | jq .pid      (null when it is down)
    """
    from json import dumps

    from cli.daemon import connect, paused_runs, places, running
    from cli.version import own_version
    from massgend.discovery import find_engine

    where = places()
    with connect(where) as client:
        health = running(client)
    paused = 0 if health else paused_runs(where)
    found: dict[str, object] = {
        "pid": health.pid if health else None,
        "docker_host": health.docker_host if health else find_engine(os.environ),
        "state": str(health.state if health else where.state),
        "version": health.version if health else own_version(),
        "runs_under_way": health.runs_under_way if health else 0,
        "runs_paused": paused,
    }
    if json:
        print(dumps(found))
        return
    print(f"massgend runs (process {health.pid})." if health else "massgend is not running (massgend up).")
    print(f"  version         {found['version']}")
    print(f"  engine          {found['docker_host']}")
    print(f"  state           {found['state']}")
    if health:
        print(f"  runs under way  {health.runs_under_way}")
    elif paused:
        print(f"  runs paused     {paused} (massgend up goes on with them)")


def doctor(json: Json = False) -> None:
    """Check everything a run needs: engine, image, git, disk, sandboxes.

    Exit code 2 when something is missing; each line says what to do.

    \b
    Example:
      massgend doctor
    """
    from cli.errors import Exit
    from cli.session import opened
    from cli.text import clean

    with opened() as client:
        lines = client.doctor()
    for line in lines:
        if json:
            print(line.model_dump_json())
            continue
        print(f"{'ok  ' if line.ok else 'FAIL'}  {clean(line.name)}: {clean(line.detail)}")
        if line.advice:
            print(f"      {clean(line.advice)}")
    if not all(line.ok for line in lines):
        raise typer.Exit(Exit.MISUSE)
