"""The first snapshots of a run's agents share the files that none of them changed, and no file with a workspace."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from tests.support import git_repos
from tests.support.stores import ADA, BOB, Stand, content_of, stand

MANY = 2000


@pytest.fixture
def here(tmp_path: Path) -> Stand:
    """Two agents. Files that are a few ticks old when a checkout ends count as unchanged later: so there are many."""
    repository = git_repos.with_odd_names(tmp_path / "repo")
    repository.write("snapshots/x.pending", "0" * 32)  # looks like a note of ours, and is the user's
    for number in range(MANY):
        repository.write(f"a{number % 20}/{number}", str(number))
    repository.commit("more")
    here = stand(tmp_path, repository.path)
    anyio.run(here.store.create_workspace, here.base, BOB, "massgend/bob")
    return here


def inodes(tree: Path) -> dict[str, int]:
    return {str(path.relative_to(tree)): path.stat().st_ino for path in tree.rglob("*") if path.is_file()}


def test_two_agents_first_snapshots_share_unchanged_files_and_nothing_else(here: Stand) -> None:
    bobs = here.state / "runs/r1/bob/workspace"
    (here.path / "a1/1").write_text("ada's")
    (bobs / "a1/1").write_text("bob's")
    (bobs / "a2/2").unlink()
    (bobs / "a3/3").chmod(0o755)
    ada, bob = here.frozen("1"), here.frozen("1", agent=BOB)
    for snapshot, workspace in ((ada, here.path), (bob, bobs)):
        assert content_of(snapshot.tree) == content_of(workspace)
        assert set(inodes(snapshot.tree).values()).isdisjoint(inodes(workspace).values())
    shared = set(inodes(ada.tree).items()) & set(inodes(bob.tree).items())
    assert len(shared) > MANY / 4
    assert {"a1/1", "a2/2", "a3/3"}.isdisjoint(path for path, _ in shared)
    assert bob.paths == ("a1/1", "a2/2", "a3/3")


def test_an_agent_that_is_alone_pays_for_no_base_tree(tmp_path: Path) -> None:
    here = stand(tmp_path, git_repos.plain(tmp_path / "repo").path)
    assert not (here.state / "runs/r1/.base").exists()


def test_without_the_base_tree_first_snapshots_are_whole_all_the_same(here: Stand) -> None:
    (here.path / "work").write_text("x")
    anyio.run(here.store.release_trees, "r1")
    assert not (here.state / "runs/r1/.base").exists()
    assert content_of(here.frozen("1").tree) == content_of(here.path)


def test_a_base_tree_that_a_crash_left_half_made_is_not_used(tmp_path: Path) -> None:
    here = stand(tmp_path, git_repos.plain(tmp_path / "repo").path)
    (here.state / "runs/r1/.base.partial").mkdir()
    anyio.run(here.store.create_workspace, here.base, BOB, "massgend/bob")
    assert not (here.state / "runs/r1/.base").exists()
    (here.path / "work").write_text("x")
    assert content_of(here.frozen("1").tree) == content_of(here.path)


def test_many_agents_made_at_once_make_one_base_tree(tmp_path: Path) -> None:
    here = stand(tmp_path, git_repos.plain(tmp_path / "repo").path)

    async def go() -> None:
        async with anyio.create_task_group() as group:
            for name in ("b", "c", "d", "e"):
                group.start_soon(here.store.create_workspace, here.base, type(ADA)(run="r1", agent=name), "massgend/x")

    anyio.run(go)
    assert content_of(here.state / "runs/r1/.base") == content_of(here.path)
    names = sorted(path.name for path in (here.state / "runs/r1").iterdir())
    assert names == [".base", "ada", "b", "c", "d", "e"]


def test_the_base_tree_goes_with_its_run_and_what_the_user_has_in_it_names_no_tree_of_ours(here: Stand) -> None:
    other = here.state / "trees" / ("0" * 32)
    other.mkdir(parents=True)
    anyio.run(here.store.release_trees, "r1")
    here.delete_run()
    assert other.is_dir()
    assert not (here.state / "runs/r1").exists()
