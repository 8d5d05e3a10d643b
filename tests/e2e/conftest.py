"""One daemon for all stories of a module, on the real engine; each story has a repository of its own."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.installed import Installed


@pytest.fixture(scope="module")
def installed() -> Iterator[Installed]:
    state = Path(tempfile.mkdtemp(prefix="mge-"))
    product = Installed(state=state)
    yield product
    product.end()
    assert product.in_engine() == []
    shutil.rmtree(state)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "site", {"README.md": "# site\n"})


def make_repository(path: Path, files: dict[str, str]) -> Path:
    path.mkdir()
    for name, text in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text)
    git(path, "init", "-q", "-b", "main")
    git(path, "add", "-A")
    git(path, "commit", "-q", "-m", "start")
    return path


def git(repository: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=Una User", "-c", "user.email=una@example.org")
    done = subprocess.run(
        ["git", *identity, *arguments], cwd=repository, capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.strip()
