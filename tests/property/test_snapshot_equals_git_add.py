"""Whatever an agent does between freezes, the commit is what `git add -A` records, and the tree is the workspace."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from snapshots.snapshot import Snapshot, Unchanged
from tests.support import git_repos
from tests.support.stores import Stand, content_of, stand

NAMES = st.sampled_from(
    ["a", "b", "build", "x.log", "keep.log", '\u00fc "q"\n', "\udcff", ":(top)", ".gitattributes", "dir"]
)
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
CONTENTS = st.sampled_from([b"", b"one", b"two", b"one\r\ntwo\r\n", b"* text eol=crlf\n", bytes(5000)])
RULES = st.sampled_from(
    ["", "build\n", "build/\n*.log\n!keep.log\n", "/a\n", "**/b\n", "a/b\n!a/b/dir\n", "*\n!*/\n!keep.log\n"]
)
# No link that leads to itself: `git add` takes the files of a folder that such a link replaced for still there (ELOOP).
TARGETS = st.sampled_from([b"src", b"../../..", b"/etc/passwd", b"nowhere"])
OPERATIONS = st.one_of(
    st.tuples(st.just("write"), PATHS, CONTENTS),
    st.tuples(st.just("link"), PATHS, TARGETS),
    st.tuples(st.just("folder"), PATHS, st.just(b"")),
    st.tuples(st.just("delete"), PATHS, st.just(b"")),
    st.tuples(st.just("exec"), PATHS, st.just(b"")),
    st.tuples(
        st.just("rules"), st.sampled_from([".gitignore", "a/.gitignore", "dir/.gitignore"]), RULES.map(str.encode)
    ),
    st.tuples(st.just("move"), PATHS, NAMES.map(os.fsencode)),
)


def place(root: Path, name: str) -> Path:
    """The path, with nothing there, and real folders above it."""
    path = root
    for part in name.split("/")[:-1]:
        path = path / part
        if path.is_symlink() or path.is_file():
            path.unlink()
        path.mkdir(exist_ok=True)
    path = root / name
    clear(path)
    return path


def clear(path: Path) -> None:
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.is_dir():
        shutil.rmtree(path)


def inside(root: Path, name: str) -> bool:
    """Is there something at the path, reached without going through a link?"""
    above = [root.joinpath(*name.split("/")[:depth]) for depth in range(1, name.count("/") + 1)]
    return all(path.is_dir() and not path.is_symlink() for path in above) and os.path.lexists(root / name)


def apply(root: Path, kind: str, name: str, argument: bytes) -> None:
    if kind == "write" or kind == "rules":
        place(root, name).write_bytes(argument)
    elif kind == "link":
        os.symlink(argument, os.fsencode(place(root, name)))
    elif kind == "folder":
        place(root, name).mkdir()
    elif not inside(root, name):
        return
    elif kind == "delete":
        clear(root / name)
    elif kind == "exec" and not (root / name).is_symlink():
        (root / name).chmod((root / name).stat().st_mode ^ 0o111 if (root / name).is_file() else 0o755)
    elif kind == "move" and os.fsdecode(argument) != name.split("/")[0]:
        clear(root / os.fsdecode(argument))
        (root / name).rename(root / os.fsdecode(argument))


def git_adds(workspace: Path, parent: dict[bytes, tuple[str, bytes]], scratch: Path) -> str:
    """The tree that `git add -A` records in a copy of the workspace, over the files of the parent commit."""
    shutil.rmtree(scratch, ignore_errors=True)
    shutil.copytree(workspace, scratch, symlinks=True, ignore=shutil.ignore_patterns(".git"))
    repository = git_repos.Repository(path=scratch)
    repository.git("init", "-q")
    repository.write(".git/info/attributes", "* -text -filter -ident !eol !working-tree-encoding\n")
    for path, (mode, content) in parent.items():
        oid = repository.git("hash-object", "-w", "--stdin", stdin=content)
        line = f"{mode} {oid}\t".encode() + path + b"\0"
        repository.git("update-index", "-z", "--index-info", stdin=line)
    repository.git("-c", "core.fileMode=true", "add", "-A")
    return repository.git("write-tree")


@pytest.mark.timeout(600)  # each example makes repositories
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(rounds=st.lists(st.lists(OPERATIONS, min_size=1, max_size=12), min_size=1, max_size=4))
def test_commits_equal_git_add_and_trees_equal_the_workspace(rounds: list[list[tuple[str, str, bytes]]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        here = stand(Path(folder), git_repos.plain(Path(folder) / "repo").path)
        parent = here.base.commit
        for number, operations in enumerate(rounds):
            for operation in operations:
                apply(here.path, *operation)
            expected = git_adds(here.path, here.commit_files(parent), Path(folder) / "scratch")
            parent = check(here, number, expected, parent)


def check(here: Stand, number: int, expected: str, parent: str) -> str:
    was = here.git("rev-parse", f"{parent}^{{tree}}").decode().strip()
    assert here.changed() == (expected != was)
    result = here.freeze(str(number))
    if expected == was:
        assert isinstance(result, Unchanged)
        return parent
    assert isinstance(result, Snapshot)
    assert result.git_tree == expected
    assert content_of(result.tree) == content_of(here.path)
    return result.commit


def test_the_comparison_can_fail(tmp_path: Path) -> None:
    here = stand(tmp_path, git_repos.plain(tmp_path / "repo").path)
    (here.path / "work").write_text("x")
    one = git_adds(here.path, here.commit_files(here.base.commit), tmp_path / "scratch")
    (here.path / "work").write_text("y")
    assert git_adds(here.path, here.commit_files(here.base.commit), tmp_path / "scratch") != one
