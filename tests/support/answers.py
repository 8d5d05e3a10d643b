"""A run's work without containers: commits made straight in our bare repository, as a snapshot would leave them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import ParamSpec, TypeVar

import anyio

from snapshots.git import Git
from snapshots.repository import MergeMode, MergeReport
from snapshots.snapshot import Base
from snapshots.user_repository import GitUserRepository

P = ParamSpec("P")
T = TypeVar("T")


def wait(call: Callable[P, Awaitable[T]], *arguments: P.args, **named: P.kwargs) -> T:
    """Run one async call to its end."""
    return anyio.run(partial(call, *arguments, **named))


def answer(
    base: Base,
    files: Mapping[str | bytes, bytes | None],
    *,
    agent: str = "ada",
    number: int = 1,
    parent: str | None = None,
    mode: str = "100644",
) -> str:
    """A commit on top of `parent` (None: the base) with these files (None: deleted), under the agent's ref."""
    git = Git.ours(base.bare)
    with tempfile.TemporaryDirectory() as folder:
        environment = {"GIT_INDEX_FILE": str(Path(folder) / "index")}
        git.run("read-tree", parent or base.commit, environment=environment)
        for name, content in files.items():
            path = os.fsencode(name)
            if content is None:
                line = b"0 " + b"0" * len(base.commit) + b"\t" + path
            else:
                blob = git.run("hash-object", "-w", "--stdin", stdin=content).strip()
                line = mode.encode() + b" " + blob + b"\t" + path
            git.run("update-index", "-z", "--index-info", stdin=line + b"\0", environment=environment)
        tree = git.run("write-tree", environment=environment).decode().strip()
    author = {
        f"GIT_{role}_{what}": value
        for role in ("AUTHOR", "COMMITTER")
        for what, value in (("NAME", agent), ("EMAIL", f"{agent}@massgend.invalid"), ("DATE", "1700000000 +0000"))
    }
    message = f"Answer {number} of {agent}\n\nMassgend-Run: {base.run}\nMassgend-Agent: {agent}\n"
    made = git.run("commit-tree", tree, "-p", parent or base.commit, stdin=message.encode(), environment=author)
    commit = made.decode().strip()
    git.run("update-ref", f"refs/massgend/{base.run}/{agent}/{number}", commit)
    return commit


def decided(
    users: GitUserRepository,
    repository: Path,
    files: Mapping[str | bytes, bytes | None],
    *,
    run: str = "r1",
    include_dirty: bool = False,
) -> tuple[Base, str]:
    """A run on `repository` that ended with one answer by ada, published as her branch and the winner's."""
    base = wait(users.import_base, repository, run=run, include_dirty=include_dirty)
    commit = answer(base, files)
    for agent in ("ada", "winner"):
        wait(users.publish, base, agent=agent, commit=commit)
    return base, commit


def merged(
    users: GitUserRepository,
    repository: Path,
    base: Base,
    commit: str,
    *,
    mode: MergeMode = MergeMode.AUTO,
    into: str | None = None,
    named_by_user: bool = False,
) -> MergeReport:
    return wait(
        users.merge,
        repository,
        run=base.run,
        commit=commit,
        into=into or base.branch,
        mode=mode,
        message="Make it better\n\nBecause it was asked for.",
        named_by_user=named_by_user,
    )
