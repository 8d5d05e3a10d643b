"""What every snapshot store promises. Today there is one, `directories`; another one joins by a second parameter."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from snapshots.errors import GitFailed
from snapshots.snapshot import OverBudget, Unchanged, WorkspaceId
from tests.support import git_repos
from tests.support.stores import ADA, BOB, Stand, content_of, stand


@pytest.fixture(params=["directories"])
def here(request: pytest.FixtureRequest, tmp_path: Path) -> Stand:
    assert request.param == "directories"
    return stand(tmp_path, git_repos.plain(tmp_path / "repo").path)


def test_a_workspace_is_a_clone_on_its_branch_with_the_history_and_no_remote(here: Stand) -> None:
    assert here.agent_git("rev-parse", "HEAD") == here.base.commit
    assert here.agent_git("symbolic-ref", "HEAD") == "refs/heads/massgend/ada"
    assert here.agent_git("rev-list", "--count", "HEAD") == "2"
    assert here.agent_git("remote") == ""
    assert here.agent_git("status", "--porcelain") == ""
    assert here.workspace.home.is_dir()


def test_making_a_workspace_again_keeps_the_work_in_it(here: Stand) -> None:
    (here.path / "work.txt").write_text("kept")
    again = anyio.run(here.store.create_workspace, here.base, ADA, "massgend/ada")
    assert again == here.workspace
    assert (here.path / "work.txt").read_text() == "kept"


def test_an_agent_can_commit_in_its_workspace_and_its_work_is_recorded_all_the_same(here: Stand) -> None:
    (here.path / "work.txt").write_text("committed by the agent")
    here.agent_git("add", "-A")
    here.agent_git("commit", "-q", "-m", "mine")
    snapshot = here.frozen()
    assert snapshot.paths == ("work.txt",)


def test_a_snapshot_is_a_child_of_the_base_with_message_author_and_date_as_given(here: Stand) -> None:
    (here.path / "work.txt").write_text("work")
    snapshot = here.frozen("1", message="the summary\n\nMassgend-Run: r1\nMassgend-Agent: ada\nMassgend-Answer: 1\n")
    told = here.git("show", "-s", "--format=%P|%an <%ae>|%cn <%ce>|%at|%ct|%s|%(trailers:only,unfold)", snapshot.commit)
    assert told.decode().strip() == (
        f"{here.base.commit}|Ada <ada@massgend.invalid>|Ada <ada@massgend.invalid>|1700000000|1700000000|the summary|"
        "Massgend-Run: r1\nMassgend-Agent: ada\nMassgend-Answer: 1"
    )
    assert here.git("rev-parse", "refs/massgend/r1/ada/1").decode().strip() == snapshot.commit
    assert here.git("rev-parse", f"{snapshot.commit}^{{tree}}").decode().strip() == snapshot.git_tree


def test_the_next_snapshot_is_a_child_of_the_one_before(here: Stand) -> None:
    (here.path / "one").write_text("1")
    first = here.frozen("1")
    (here.path / "two").write_text("2")
    second = here.frozen("2")
    assert here.git("rev-parse", f"{second.commit}^").decode().strip() == first.commit
    assert second.paths == ("two",)
    assert here.snapshots() == (first, second)


def test_the_tree_for_peers_equals_the_workspace_and_does_not_follow_it(here: Stand) -> None:
    (here.path / "work.txt").write_text("then")
    snapshot = here.frozen()
    before = content_of(here.path)
    assert content_of(snapshot.tree) == before
    with (here.path / "work.txt").open("r+") as file:
        file.write("NOW!")
    (here.path / "run.sh").chmod(0o644)
    assert content_of(snapshot.tree) == before


def test_an_earlier_tree_does_not_change_when_a_later_one_is_taken(here: Stand) -> None:
    (here.path / "work.txt").write_text("one")
    first = here.frozen("1")
    kept = content_of(first.tree)
    (here.path / "work.txt").write_text("two")
    (here.path / "README.md").unlink()
    here.frozen("2")
    assert content_of(first.tree) == kept


def test_a_name_is_never_taken_twice(here: Stand) -> None:
    (here.path / "work.txt").write_text("one")
    first = here.frozen("1")
    (here.path / "work.txt").write_text("two")
    assert here.freeze("1") == first
    assert here.frozen("2").paths == ("work.txt",)


def test_an_unchanged_workspace_gives_no_snapshot_and_says_against_what(here: Stand) -> None:
    assert here.freeze("1") == Unchanged(against="base")
    (here.path / "work.txt").write_text("one")
    first = here.frozen("1")
    assert here.freeze("2") == Unchanged(against=first.ref)
    assert here.snapshots() == (first,)


def test_a_change_taken_back_is_no_change(here: Stand) -> None:
    text = (here.path / "README.md").read_text()
    (here.path / "README.md").write_text("other")
    (here.path / "README.md").write_text(text)
    assert here.freeze("1") == Unchanged(against="base")
    assert len(list((here.state / "trees").glob("*"))) == 0


def test_an_unchanged_workspace_can_be_recorded_when_asked_for(here: Stand) -> None:
    snapshot = here.frozen("1", refuse_unchanged=False)
    assert snapshot.changed_files == 0
    assert snapshot.commit != here.base.commit


def test_changed_tells_whether_there_is_anything_to_record(here: Stand) -> None:
    assert not here.changed()
    os.utime(here.path / "README.md")
    assert not here.changed()
    (here.path / "README.md").write_text("HELLO\n")
    assert here.changed()
    here.frozen("1")
    assert not here.changed()
    (here.path / "README.md").chmod(0o755)
    assert here.changed()


def test_too_many_bytes_are_refused_with_the_limit_and_the_largest_paths(here: Stand) -> None:
    for number in range(5):
        (here.path / f"big{number}").write_bytes(b"x" * 1000 * (number + 1))
    result = here.freeze("1", budget={"max_bytes": 5000})
    assert isinstance(result, OverBudget)
    assert "snapshot.max_bytes" in result.reason
    assert [name for name in ("big0", "big1", "big2", "big3", "big4") if name in result.reason] == [
        "big2",
        "big3",
        "big4",
    ]
    assert here.snapshots() == ()
    assert here.frozen("1").changed_files == 5


def test_too_many_files_are_refused_with_the_limit_and_the_folder_that_has_them(here: Stand) -> None:
    (here.path / "many").mkdir()
    for number in range(30):
        (here.path / "many" / str(number)).write_text("x")
    result = here.freeze("1", budget={"max_files": 20})
    assert isinstance(result, OverBudget)
    assert "snapshot.max_files" in result.reason
    assert "many (30 files)" in result.reason


def test_ignored_files_are_in_the_tree_for_peers_and_not_in_the_commit(here: Stand) -> None:
    (here.path / ".gitignore").write_text("node_modules/\n*.log\n!keep.log\n")
    (here.path / "node_modules/left-pad").mkdir(parents=True)
    (here.path / "node_modules/left-pad/index.js").write_text("module.exports = 1")
    (here.path / "a.log").write_text("x")
    (here.path / "keep.log").write_text("x")
    snapshot = here.frozen()
    assert snapshot.paths == (".gitignore", "keep.log")
    assert content_of(snapshot.tree) == content_of(here.path)


def test_ignored_folders_over_their_budget_are_left_out_whole_and_told_about(here: Stand) -> None:
    (here.path / ".gitignore").write_text("heavy/\nlight/\n")
    for folder, size in (("heavy", 9000), ("light", 10)):
        (here.path / folder / "deep").mkdir(parents=True)
        (here.path / folder / "deep" / "file").write_bytes(b"x" * size)
        (here.path / folder / "small").write_bytes(b"x")
    snapshot = here.frozen("1", budget={"max_ignored_bytes": 5000})
    assert not (snapshot.tree / "heavy").exists()
    assert (snapshot.tree / "light/deep/file").exists()
    assert any("heavy" in sentence and "light" not in sentence for sentence in snapshot.about)


def test_what_was_tracked_stays_in_when_it_becomes_ignored_and_what_is_no_longer_ignored_comes_in(here: Stand) -> None:
    (here.path / ".gitignore").write_text("README.md\nbuild/\n")
    (here.path / "build").mkdir()
    (here.path / "build/out").write_text("x")
    (here.path / "README.md").write_text("changed")
    assert here.frozen("1").paths == (".gitignore", "README.md")
    (here.path / ".gitignore").write_text("README.md\n")
    assert here.frozen("2").paths == (".gitignore", "build/out")


def test_a_restarted_store_knows_all_snapshots_and_goes_on(here: Stand) -> None:
    (here.path / "one").write_text("1")
    first = here.frozen("1")
    again = here.restarted()
    assert again.snapshots() == (first,)
    assert again.freeze("2") == Unchanged(against=first.ref)
    (here.path / "two").write_text("2")
    assert again.frozen("2").paths == ("two",)


def test_a_view_is_an_empty_scratch_over_the_tree(here: Stand) -> None:
    (here.path / "work").write_text("1")
    snapshot = here.frozen()
    view = here.view(snapshot)
    assert view.lower == snapshot.tree
    assert content_of(view.upper) == content_of(view.work) == {}
    (view.upper / "test-output").write_text("dirt")
    assert content_of(here.view(snapshot).upper) == {}


def test_instruction_files_of_peers_are_masked_at_any_depth(here: Stand) -> None:
    shown = {"README.md", "docs/claude.txt", "docs/agents.md.bak", "a b/c\nd/app.py"}
    masked = {"CLAUDE.md", "docs/Agents.md", "a b/c\nd/.mcp.json", "x/opencode.json", "y/GEMINI.md", "QWEN.md"}
    folders = {".claude", "docs/.CURSOR", "x/.codex", ".gemini", ".opencode", ".qwen"}
    for name in shown | masked | {f"{folder}/settings.json" for folder in folders}:
        (here.path / name).parent.mkdir(parents=True, exist_ok=True)
        (here.path / name).write_text("do as I say")
    view = here.view(here.frozen())
    found = {os.fsdecode(path) for path, (kind, _, _) in content_of(view.upper).items() if kind == "other"}
    assert found == masked | folders
    for path in found:
        assert (view.upper / path).lstat().st_rdev == os.makedev(0, 0)


def test_a_check_sees_everything(here: Stand) -> None:
    (here.path / "CLAUDE.md").write_text("do as I say")
    snapshot = here.frozen()

    async def check() -> None:
        view = await here.store.open_check(snapshot, run="r1", name="unit-1")
        assert content_of(view.upper) == {}
        await here.store.close_check("r1", "unit-1")
        assert not view.upper.exists()
        await here.store.close_check("r1", "unit-1")

    anyio.run(check)


def test_closing_views_deletes_that_turns_scratch_only(here: Stand) -> None:
    (here.path / "work").write_text("1")
    snapshot = here.frozen()
    first, second = here.view(snapshot, turn=1), here.view(snapshot, turn=2)
    anyio.run(here.store.close_views, "r1", "bob", 1)
    assert not first.upper.exists()
    assert second.upper.exists()
    anyio.run(here.store.close_views, "r1", "bob", None)
    assert not second.upper.exists()
    assert snapshot.tree.exists()


def test_a_released_tree_comes_back_from_the_commit_when_it_is_viewed(here: Stand) -> None:
    (here.path / "work").write_text("1")
    (here.path / "CLAUDE.md").write_text("1")
    (here.path / ".gitignore").write_text("junk/\n")
    (here.path / "junk/.claude").mkdir(parents=True)
    (here.path / "junk/.claude/x").write_text("1")
    snapshot = here.frozen()
    expected = {path: entry for path, entry in content_of(snapshot.tree).items() if not path.startswith(b"junk")}
    anyio.run(here.store.release_trees, "r1")
    assert not snapshot.tree.exists()
    assert here.snapshots() == (snapshot,)
    view = here.view(snapshot)
    assert content_of(view.lower) == expected
    assert set(content_of(view.upper)) == {b"CLAUDE.md"}


def test_two_agents_do_not_see_each_others_work(here: Stand) -> None:
    bob = anyio.run(here.store.create_workspace, here.base, BOB, "massgend/bob")
    (here.path / "ada.txt").write_text("ada")
    (bob.path / "bob.txt").write_text("bob")
    assert here.frozen("1").paths == ("ada.txt",)
    assert here.frozen("1", agent=BOB).paths == ("bob.txt",)
    assert not (bob.path / "ada.txt").exists()


def test_deleting_a_run_frees_real_disk_and_leaves_the_others(here: Stand, tmp_path: Path) -> None:
    (here.path / "big").write_bytes(os.urandom(3_000_000))
    time.sleep(0.1)  # a file as young as its freeze is copied again by the next one, to be sure
    here.frozen("1")
    (here.path / "small").write_bytes(b"x")
    here.frozen("2")
    other = replace(here.base, run="r2")
    kept = anyio.run(here.store.create_workspace, other, WorkspaceId(run="r2", agent="ada"), "massgend/ada")
    (held,) = anyio.run(here.store.usage, ("r1",))
    freed = here.delete_run("r1")
    assert 6_000_000 < freed == held.size_bytes < 7_500_000  # the workspace and one tree; the second tree is links
    assert here.git("for-each-ref", "refs/massgend/r1").decode().strip() == ""
    assert [one.run for one in anyio.run(here.store.usage)] == ["r2"]
    assert list((here.state / "trees").iterdir()) == []
    assert kept.path.is_dir()
    assert here.delete_run("r1") == 0


@pytest.mark.parametrize("bad", ["../x", "", "a/b", ".hidden", "A", "a b", "x" * 101])
def test_ids_that_could_leave_the_state_folder_are_refused(here: Stand, bad: str) -> None:
    with pytest.raises(ValueError, match="is not an id"):
        anyio.run(here.store.create_workspace, here.base, WorkspaceId(run="r1", agent=bad), "massgend/x")
    with pytest.raises(ValueError, match="is not an id"):
        here.delete_run(bad)


@pytest.mark.parametrize("bad", ["../x", "", "a/b", "a..b", "x.lock", "1-submodule-1"])
def test_snapshot_names_that_no_ref_can_have_are_refused(here: Stand, bad: str) -> None:
    with pytest.raises(ValueError, match="is not a name"):
        here.freeze(bad)


def test_what_a_deleted_run_recorded_is_freed_once_it_is_old_and_other_runs_keep_theirs(here: Stand) -> None:
    (here.path / "big").write_bytes(os.urandom(2_000_000))
    snapshot = here.frozen()
    other = WorkspaceId(run="r2", agent="ada")
    here.git("update-ref", "refs/massgend/r2/base", here.base.commit)
    kept = anyio.run(here.store.create_workspace, replace(here.base, run="r2"), other, "massgend/ada")
    (kept.path / "kept").write_text("x")
    second = replace(here, base=replace(here.base, run="r2"), workspace=kept)
    mine = second.frozen("1", agent=other)
    long_ago = time.time() - 7200
    for path in (here.base.bare / "objects").rglob("*"):
        os.utime(path, (long_ago, long_ago))
    here.delete_run("r1")
    assert here.git("cat-file", "-t", mine.commit) == b"commit\n"
    here.git("fsck", "--strict", "--connectivity-only")
    with pytest.raises(GitFailed):
        here.git("cat-file", "-e", snapshot.commit)
    again = second.restarted()
    (kept.path / "more").write_text("x")
    assert again.frozen("2", agent=other).paths == ("more",)


def test_empty_folders_count_as_files_do_and_the_one_that_has_them_is_named(here: Stand) -> None:
    for number in range(30):
        (here.path / "many" / str(number)).mkdir(parents=True)
    (here.path / "README.md").write_text("changed")
    result = here.freeze("1", budget={"max_files": 33})
    assert isinstance(result, OverBudget)
    assert "3 files and 32 folders" in result.reason
    assert "many (30 folders)" in result.reason
    assert "snapshot.max_files" in result.reason
    assert here.frozen("1", budget={"max_files": 35}).changed_files == 1


def test_folders_beyond_the_budget_are_refused_without_looking_at_all_of_them(here: Stand) -> None:
    for number in range(300):
        (here.path / "many" / str(number) / "deep").mkdir(parents=True)
    result = here.freeze("1", budget={"max_files": 100})
    assert isinstance(result, OverBudget)
    assert "more than 100 folders" in result.reason
    assert "many (" in result.reason
    assert here.snapshots() == ()
    assert list((here.state / "trees").glob("*")) == []


def test_ignored_files_beyond_any_measure_are_refused_too(here: Stand) -> None:
    (here.path / ".gitignore").write_text("heap/\n")
    (here.path / "heap").mkdir()
    for number in range(200):
        (here.path / "heap" / str(number)).touch()
    result = here.freeze("1", budget={"max_files": 20})
    assert isinstance(result, OverBudget)
    assert "more than 60 files and folders" in result.reason


def test_ignored_folders_count_with_the_ignored_files(here: Stand) -> None:
    (here.path / ".gitignore").write_text("heavy/\nlight/\n")
    for number in range(30):
        (here.path / "heavy" / str(number)).mkdir(parents=True)
        (here.path / "heavy" / str(number) / "file").write_text("x")
    (here.path / "heavy" / "empty").mkdir()
    (here.path / "light").mkdir()
    (here.path / "light" / "file").write_text("x")
    snapshot = here.frozen("1", budget={"max_files": 64})
    assert (snapshot.tree / "heavy/empty").is_dir()
    (here.path / "more").write_text("x")
    snapshot = here.frozen("2", budget={"max_files": 61})
    assert not (snapshot.tree / "heavy").exists()
    assert (snapshot.tree / "light/file").exists()
    assert any("heavy" in sentence for sentence in snapshot.about)


def test_a_refusal_of_many_folders_costs_a_look_and_not_a_tree(here: Stand) -> None:
    for number in range(3000):
        (here.path / str(number)).mkdir()
    (here.path / "README.md").write_text("changed")
    start = time.monotonic()
    for limit in (2000, 3001):
        assert isinstance(here.freeze("1", budget={"max_files": limit}), OverBudget)
    assert time.monotonic() - start < 5
    assert not (here.state / "trees").exists()
    assert here.frozen("1", budget={"max_files": 3004}).paths == ("README.md",)
