"""The set-up's other files: the image's inputs, the lock file, the Makefile, and what docs/install.md says of them."""

from __future__ import annotations

import os
import re
import shutil
import tomllib
from pathlib import Path

import pytest

from tests.support.scripts import ROOT, SCRIPTS, load, run

INSTALL_PAGE = (ROOT / "docs" / "install.md").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "sandboxes" / "inside" / "bin").mkdir(parents=True)
    for name in ("Dockerfile", ".dockerignore", "sandboxes/inside/bin/client"):
        (tmp_path / name).write_text(name)
    return tmp_path


@pytest.mark.parametrize(
    "changed", ["Dockerfile", ".dockerignore", "sandboxes/inside/bin/client", "sandboxes/inside/new"]
)
def test_the_image_is_outdated_when_an_input_changes(tree: Path, changed: str) -> None:
    image = load("image")
    before = image.inputs_hash(tree)
    (tree / changed).write_text("something else")
    assert image.inputs_hash(tree) != before


def test_the_image_is_outdated_when_a_client_becomes_executable(tree: Path) -> None:
    image = load("image")
    before = image.inputs_hash(tree)
    (tree / "sandboxes/inside/bin/client").chmod(0o755)
    assert image.inputs_hash(tree) != before


def test_caches_of_the_interpreter_do_not_outdate_the_image(tree: Path) -> None:
    image = load("image")
    before = image.inputs_hash(tree)
    (tree / "sandboxes/inside/__pycache__").mkdir()
    (tree / "sandboxes/inside/__pycache__/client.pyc").write_text("x")
    assert image.inputs_hash(tree) == before


def test_every_requirement_is_pinned_with_hashes() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = project["project"]["dependencies"] + project["dependency-groups"]["dev"]
    names = {re.split(r"[^A-Za-z0-9_.-]", requirement)[0].lower() for requirement in wanted}
    pinned = set(re.findall(r"^([a-z0-9_.-]+)==\S+ (?:; [^\\]+)?\\\n    --hash=sha256:", lock, re.MULTILINE))
    assert names <= pinned


def test_make_alone_lists_every_target() -> None:
    done = run("make", "-C", str(ROOT), "--no-print-directory", MAKEFLAGS=None, MAKELEVEL=None)
    phony = re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)
    assert phony is not None
    assert re.findall(r"^  make (\S+)", done.stdout, re.MULTILINE) == phony[1].split()


def test_the_install_page_names_every_target_and_every_place() -> None:
    engine = load("engine")
    places = [engine.OWN_SOCKET, engine.PID_FILE, engine.DATA_DIR, engine.LOG]
    assert [str(place) for place in places if str(place) not in INSTALL_PAGE] == []
    targets = re.findall(r"^([a-z-]+):.*## ", MAKEFILE, re.MULTILINE)
    assert [target for target in targets if f"make {target}" not in INSTALL_PAGE] == []
    variables = {name for script in SCRIPTS.iterdir() for name in re.findall(r"MASSGEND_[A-Z_]+", script.read_text())}
    assert {name for name in variables if name not in INSTALL_PAGE} == set()


def programs(folder: Path, *names: str) -> str:
    """A PATH on which only these programs are found."""
    folder.mkdir()
    for name in names:
        found = shutil.which(name)
        assert found is not None
        (folder / name).symlink_to(found)
    return str(folder)


def checkout(folder: Path) -> Path:
    shutil.copytree(SCRIPTS, folder / "scripts")
    for name in ("pyproject.toml", "requirements.lock"):
        shutil.copy(ROOT / name, folder)
    return folder


def test_without_a_recent_python_the_set_up_says_what_it_needs(tmp_path: Path) -> None:
    path = programs(tmp_path / "bin", "bash", "env", "dirname", "cat", "cksum")
    done = run(checkout(tmp_path / "src") / "scripts" / "venv", PATH=path, PYTHON=None)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "Python 3.11 or newer is needed" in done.stderr
    assert not (tmp_path / "src" / ".venv").exists()


def test_packages_are_not_installed_where_there_is_no_apt(tmp_path: Path) -> None:
    path = programs(tmp_path / "bin", "bash", "env", "dirname", "id")
    done = run(checkout(tmp_path / "src") / "scripts" / "apt-install", "there is no engine", "docker.io", PATH=path)
    assert done.returncode == 2
    assert "neither Debian nor Ubuntu: please install the equivalent of 'docker.io'" in done.stderr


def test_all_scripts_are_executable() -> None:
    scripts = [*SCRIPTS.iterdir(), ROOT / ".ci" / "run"]
    assert [script.name for script in scripts if script.is_file() and not os.access(script, os.X_OK)] == []
