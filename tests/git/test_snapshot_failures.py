"""When a freeze cannot be finished: no ref, no leftovers, the workspace as it was, and the next one works."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from snapshots.directories import DirectoryStore
from snapshots.errors import SnapshotFailed
from snapshots.snapshot import Author, Budget, Snapshot
from tests.support import git_repos
from tests.support.stores import ADA, BOB, GID, UID, Stand, content_of, stand

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def here(tmp_path: Path) -> Stand:
    return stand(tmp_path, git_repos.plain(tmp_path / "repo").path)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", folder], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.decode()}")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_full_disk_fails_the_freeze_and_nothing_else(small_disk: Path, tmp_path: Path) -> None:
    here = stand(small_disk, git_repos.plain(tmp_path / "repo").path)
    (here.path / "first").write_text("fits")
    first = here.frozen("1")
    (here.path / "large").write_bytes(os.urandom(3_500_000))
    before = content_of(here.path)
    with pytest.raises(SnapshotFailed, match=r"workspace of ada could not be recorded as 2.*No space left"):
        here.freeze("2")
    assert content_of(here.path) == before
    assert here.snapshots() == (first,)
    assert [path.name for path in (here.state / "trees").iterdir()] == [first.tree.name]
    assert list((here.state / "runs/r1/ada/snapshots").glob("*.pending")) == []
    (here.path / "large").write_bytes(b"smaller")
    assert here.frozen("2").paths == ("large",)


def test_a_disk_that_fills_up_while_git_records_fails_the_freeze_and_makes_no_ref(
    small_disk: Path, tmp_path: Path
) -> None:
    here = stand(small_disk, git_repos.plain(tmp_path / "repo").path)
    # Once in the workspace, once in the tree: the third copy, in the repository, is the one too many.
    (here.path / "large").write_bytes(os.urandom(2_400_000))
    with pytest.raises(SnapshotFailed, match="fast-import"):
        here.freeze("1")
    assert here.snapshots() == ()
    assert list((here.state / "trees").iterdir()) == []
    (here.path / "large").write_bytes(os.urandom(1_000))
    assert here.frozen("1").paths == ("large",)


def test_a_damaged_repository_fails_the_freeze_with_the_first_error(here: Stand) -> None:
    (here.path / "work").write_text("x")
    (here.base.bare / "HEAD").rename(here.base.bare / "HEAD.away")
    with pytest.raises(SnapshotFailed, match="not a git repository"):
        here.freeze("1")
    (here.base.bare / "HEAD.away").rename(here.base.bare / "HEAD")
    assert here.frozen("1").paths == ("work",)


@pytest.mark.parametrize("fatal", ["plant", "record", "changed_paths", "save", "create_ref", "unlink"])
def test_a_daemon_killed_at_any_step_leaves_a_workspace_that_freezes_anew(here: Stand, fatal: str) -> None:
    (here.path / "work").write_text("x")
    program = textwrap.dedent(
        """
        import os, sys
        from pathlib import Path
        sys.path.insert(0, sys.argv[1])
        watched = sys.argv[2]

        def die_before(frame, event, argument):
            # A real kill, at the moment when the store enters a function of that name.
            if event == "call" and frame.f_code.co_name == watched and (
                "/snapshots/" in frame.f_code.co_filename or watched == "unlink"
                and frame.f_locals["self"].suffix == ".pending"
            ):
                os.kill(os.getpid(), 9)

        import threading
        from tests.support import stores
        import anyio
        from snapshots.directories import DirectoryStore
        from snapshots.snapshot import Base, Workspace
        state = Path(sys.argv[3])
        bare, commit = Path(sys.argv[4]), sys.argv[5]
        base = Base(run="r1", repository=None, bare=bare, commit=commit, source_commit=None, branch=None)
        folder = state / "runs/r1/ada"
        workspace = Workspace(id=stores.ADA, path=folder / "workspace", home=folder / "home")
        store = DirectoryStore(state, uid=os.geteuid(), gid=os.getegid())
        threading.setprofile(die_before)
        stores.Stand(state=state, store=store, base=base, workspace=workspace).freeze("1")
        """
    )
    arguments = (str(REPOSITORY), fatal, str(here.state), str(here.base.bare), here.base.commit)
    ended = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, check=False)
    assert ended.returncode == -9, ended.stderr.decode()
    again = here.restarted()
    known = again.snapshots()
    assert (len(known) == 1) == (fatal == "unlink")  # the last step comes after the ref
    snapshot = again.frozen("1")
    assert snapshot.paths == ("work",)
    assert content_of(snapshot.tree) == content_of(here.path)
    (here.path / "more").write_text("x")
    second = again.frozen("2")
    assert second.paths == ("more",)
    trees = {path.name for path in (here.state / "trees").iterdir()}
    assert trees == {snapshot.tree.name, second.tree.name}
    assert again.view(snapshot).lower.is_dir()


@pytest.mark.parametrize("lost", ["manifest.json", "snapshots/1.json"])
@pytest.mark.parametrize("how", ["gone", "cut off"])
def test_lost_notes_are_made_anew_from_git(here: Stand, lost: str, how: str) -> None:
    (here.path / "work").write_text("x")
    first = here.frozen("1")
    notes = here.state / "runs/r1/ada" / lost
    notes.unlink() if how == "gone" else notes.write_bytes(notes.read_bytes()[:20])
    again = here.restarted()
    (known,) = again.snapshots()
    assert (known.ref, known.commit, known.git_tree, known.paths) == (
        first.ref,
        first.commit,
        first.git_tree,
        first.paths,
    )
    assert (again.view(known).lower / "work").read_text() == "x"
    (here.path / "more").write_text("x")
    assert again.frozen("2").paths == ("more",)


def test_a_file_that_is_still_being_written_fails_the_freeze(here: Stand) -> None:
    path = here.path / "growing"
    path.write_bytes(os.urandom(1_000_000))
    program = "import sys\nwhile True: open(sys.argv[1], 'ab', 0).write(b'x')"
    failures: list[str] = []
    with subprocess.Popen([sys.executable, "-c", program, str(path)]) as writer:
        try:
            # On a busy machine the writer may sleep through a whole freeze: such a freeze is right to succeed.
            for number in range(50):
                try:
                    here.freeze(f"while-{number}")
                except SnapshotFailed as error:
                    failures.append(str(error))
                    break
        finally:
            writer.kill()
    assert len(failures) == 1
    assert "changed while it was being read" in failures[0]
    known = here.snapshots()
    assert here.frozen("after").paths == ("growing",)
    assert here.snapshots()[:-1] == known


@pytest.mark.timeout(600)  # half a minute alone, minutes on a busy machine
def test_three_hundred_freezes_leave_no_open_file(here: Stand) -> None:
    def open_files() -> int:
        return len(os.listdir("/proc/self/fd"))

    async def go() -> tuple[int, int]:
        counts = []
        for number in range(300):
            (here.path / "work").write_text(str(number))
            result = await here.store.freeze(
                here.base,
                ADA,
                name=str(number),
                message="x",
                author=Author(name="Ada", email="a@b"),
                taken_at=number,
                budget=Budget(),
            )
            assert isinstance(result, Snapshot)
            counts.append(open_files())
        return counts[10], max(counts[10:])

    first, most = anyio.run(go)
    assert most <= first
    assert len(here.snapshots()) == 300


def test_freezes_of_one_workspace_take_turns_and_those_of_two_run_at_once(tmp_path: Path) -> None:
    here = stand(tmp_path, git_repos.plain(tmp_path / "repo").path)
    bob = anyio.run(here.store.create_workspace, here.base, BOB, "massgend/bob")
    store = DirectoryStore(here.state, uid=UID, gid=GID)
    results: list[object] = []

    async def go() -> None:
        async def one(name: str, agent: object) -> None:
            results.append(
                await store.freeze(
                    here.base,
                    agent,  # type: ignore[arg-type]
                    name=name,
                    message="x",
                    author=Author(name="A", email="a@b"),
                    taken_at=1,
                    budget=Budget(),
                    refuse_unchanged=False,
                )
            )

        async with anyio.create_task_group() as group:
            for number in range(6):
                group.start_soon(one, str(number), ADA)
                group.start_soon(one, str(number), BOB)

    (here.path / "work").write_text("ada")
    (bob.path / "work").write_text("bob")
    anyio.run(go)
    for agent in (ADA, BOB):
        found = replace(here, store=store).snapshots(agent)
        assert len(found) == 6
        parents = [here.git("rev-parse", f"{one.commit}^").decode().strip() for one in found]
        assert parents == [here.base.commit, *(one.commit for one in found[:-1])]
        assert [one.changed_files for one in found] == [1, 0, 0, 0, 0, 0]


def test_a_freeze_does_not_hold_up_the_event_loop(here: Stand) -> None:
    for number in range(3000):
        (here.path / f"f{number}").write_text("x")

    async def go() -> float:
        longest = 0.0
        done = anyio.Event()

        async def tick() -> None:
            nonlocal longest
            while not done.is_set():
                before = time.monotonic()
                await anyio.sleep(0.01)
                longest = max(longest, time.monotonic() - before)

        async with anyio.create_task_group() as group:
            group.start_soon(tick)
            await here.store.freeze(
                here.base, ADA, name="1", message="x", author=Author(name="A", email="a@b"), taken_at=1, budget=Budget()
            )
            done.set()
        return longest

    assert anyio.run(go) < 0.5
