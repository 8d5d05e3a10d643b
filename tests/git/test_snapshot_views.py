"""Views through a real overlay mount: what a peer sees, what it cannot see, and that nothing it does gets through."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from snapshots.errors import SnapshotError
from snapshots.snapshot import View
from tests.support import git_repos
from tests.support.stores import Stand, content_of, stand


@pytest.fixture
def here(tmp_path: Path) -> Stand:
    return stand(tmp_path, git_repos.with_links(tmp_path / "repo").path)


@contextmanager
def mounted(view: View, at: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("only root can mount an overlay")
    at.mkdir()
    options = f"lowerdir={view.lower},upperdir={view.upper},workdir={view.work},userxattr"
    result = subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, at], capture_output=True, check=False)
    if result.returncode != 0:
        pytest.skip(f"no overlay can be mounted here: {result.stderr.decode()}")
    try:
        yield at
    finally:
        subprocess.run(["umount", at], check=True)


def test_a_peer_sees_the_snapshot_without_the_instruction_files(here: Stand, tmp_path: Path) -> None:
    for name in (
        "CLAUDE.md",
        "docs/guide.md",
        "docs/AGENTS.md",
        ".claude/settings.json",
        "a/b/.mcp.json",
        "a/b/app.py",
    ):
        (here.path / name).parent.mkdir(parents=True, exist_ok=True)
        (here.path / name).write_text(name)
    (here.path / "docs").chmod(0o750)
    snapshot = here.frozen()
    expected = {
        path: entry
        for path, entry in content_of(here.path).items()
        if not {b"CLAUDE.md", b"AGENTS.md", b".claude", b".mcp.json"} & set(path.split(b"/"))
    }
    with mounted(here.view(snapshot), tmp_path / "peer") as peer:
        assert content_of(peer) == expected
        assert (peer / "docs").stat().st_mtime_ns == (snapshot.tree / "docs").stat().st_mtime_ns


def test_what_is_done_in_a_view_reaches_neither_the_snapshot_nor_the_next_turn(here: Stand, tmp_path: Path) -> None:
    (here.path / "work").write_text("x")
    snapshot = here.frozen()
    before = content_of(snapshot.tree)
    with mounted(here.view(snapshot, turn=1), tmp_path / "peer") as peer:
        (peer / "README.md").write_text("scribble")
        (peer / "run.sh").unlink()
        (peer / "src" / "new").write_text("x")
        (peer / "work").chmod(0o777)
        assert subprocess.run(["sh", "-c", "rm -r src && mkdir src && touch src/x"], cwd=peer, check=True)
    assert content_of(snapshot.tree) == before
    anyio.run(here.store.close_views, "r1", "bob", 1)
    assert not (here.state / "runs/r1/bob/scratch/1").exists()
    with mounted(here.view(snapshot, turn=2), tmp_path / "again") as peer:
        assert content_of(peer) == before


def test_a_view_that_is_still_mounted_is_not_deleted_through(here: Stand, tmp_path: Path) -> None:
    (here.path / "work").write_text("x")
    snapshot = here.frozen()
    view = here.view(snapshot)
    inside = view.upper.parent / "mount"
    with mounted(view, inside):
        with pytest.raises(SnapshotError, match=r"scratch of bob failed.*(mounted folder|busy)"):
            anyio.run(here.store.close_views, "r1", "bob", 1)
        assert (inside / "work").exists()
    assert (snapshot.tree / "work").exists()
