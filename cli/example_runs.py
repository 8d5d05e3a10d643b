"""The packaged examples, `@examples/NAME`: where they are, and a fresh repository made from one."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from cli.errors import Misuse
from cli.git import Git
from cli.text import clean

PREFIX = "@examples/"


@dataclass(frozen=True, kw_only=True)
class ExampleRun:
    """`config`: its run.yaml. `files`: the small repository that it starts from."""

    name: str
    config: Path
    files: Path


def examples_folders() -> tuple[Path, ...]:
    """In the source tree, and in an installed package."""
    package = Path(__file__).resolve().parent
    return package.parent / "examples", package / "_examples"


def list_examples() -> dict[str, ExampleRun]:
    found: dict[str, ExampleRun] = {}
    for folder in examples_folders():
        for config in sorted(folder.glob("*/run.yaml")):
            name = config.parent.name
            found.setdefault(name, ExampleRun(name=name, config=config, files=config.parent / "repository"))
    return found


def find_example(reference: str) -> ExampleRun:
    """`@examples/NAME`. Raises Misuse, naming those there are."""
    name = reference.removeprefix(PREFIX)
    examples = list_examples()
    if name not in examples:
        known = ", ".join(PREFIX + one for one in examples) or "none is installed"
        raise Misuse(f"there is no example {clean(reference)}; examples: {known}")
    return examples[name]


def unpack(example: ExampleRun, *, into: Path) -> Path:
    """A new repository with one commit: `into`/massgend-example-NAME, or a temporary folder when that is taken.

    Whoever called owns the folder.
    """
    target = into / f"massgend-example-{example.name}"
    try:
        target.mkdir()
    except OSError:
        target = Path(tempfile.mkdtemp(prefix=f"massgend-example-{example.name}-"))
    if example.files.is_dir():
        shutil.copytree(example.files, target, dirs_exist_ok=True, symlinks=True, ignore=_leftovers)
    git = Git(target)
    git.must("init", "-q", "-b", "main")
    git.must("add", "-A", "-f")
    git.must(
        *("-c", "user.name=massgend", "-c", "user.email=massgend@localhost", "-c", "commit.gpgSign=false"),
        *("-c", f"core.hooksPath={os.devnull}", "commit", "-q", "--allow-empty", "-m", f"Start of {example.name}"),
    )
    return target


def _leftovers(_folder: str, names: list[str]) -> set[str]:
    return {name for name in names if name in ("__pycache__", ".pytest_cache")}
