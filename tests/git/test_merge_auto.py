"""A merge brings the work into the user's branch, keeps what was there, says how to undo, and touches nothing else."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from snapshots.repository import MergeMode, MergeReport, MergeStatus
from snapshots.user_repository import GitUserRepository
from tests.support import git_repos
from tests.support.answers import answer, decided, merged, wait
from tests.support.git_repos import Repository
from tests.support.repo_fingerprint import differing, fingerprint
from tests.support.users import UID, give_away

# What a merge into the branch that is checked out may touch, besides the files that it brings. (git itself notes
# ORIG_HEAD, the index and the reflogs.)
PROMISED = {
    ".git/refs/heads/main",
    ".git/logs/refs/heads/main",
    ".git/logs/HEAD",
    ".git/refs/massgend/r1/before-merge",
    ".git/index",
    ".git/ORIG_HEAD",
}


@pytest.fixture
def users(tmp_path: Path) -> GitUserRepository:
    return GitUserRepository(tmp_path / "state")


def undo(report: MergeReport, *, exit_code: int = 0) -> None:
    """Types what the report prints."""
    (command,) = report.commands
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, cwd="/", check=False)
    assert done.returncode == exit_code, done.stderr


def clean(repository: Repository) -> bool:
    return repository.git("status", "--porcelain") == ""


def test_a_fast_forward_updates_the_checkout_and_only_what_is_promised(
    tmp_path: Path, users: GitUserRepository
) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    head = repository.head
    base, commit = decided(users, repository.path, {"a.txt": b"a\n", "README.md": b"better\n", "run.sh": None})
    before = fingerprint(repository.path)
    report = merged(users, repository.path, base, commit)
    assert report.status is MergeStatus.MERGED
    assert (report.branch, report.before, report.after) == ("main", head, commit)
    assert report.reason == "massgend/r1/winner was merged into main (fast-forward)."
    assert "README.md" in report.stat[0]
    assert repository.head == commit
    assert clean(repository)
    assert repository.git("rev-parse", "refs/massgend/r1/before-merge") == head
    changed = differing(before, fingerprint(repository.path))
    assert changed == PROMISED | {"a.txt", "README.md", "run.sh"}


def test_merging_again_is_up_to_date_and_still_says_how_to_undo(tmp_path: Path, users: GitUserRepository) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    base, commit = decided(users, repository.path, {"a.txt": b"a\n"})
    first = merged(users, repository.path, base, commit)
    before = fingerprint(repository.path)
    again = merged(users, repository.path, base, commit)
    assert again.status is MergeStatus.UP_TO_DATE
    assert again.commands == first.commands
    assert fingerprint(repository.path) == before


def test_a_branch_that_moved_on_gets_a_real_three_way_merge(tmp_path: Path, users: GitUserRepository) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    base, commit = decided(users, repository.path, {"README.md": b"theirs\n"})
    repository.write("src/app.py", "print('mine')\n")
    mine = repository.commit("mine")
    before = fingerprint(repository.path)
    report = merged(users, repository.path, base, commit)
    assert report.status is MergeStatus.MERGED
    assert repository.git("rev-list", "--parents", "-1", "HEAD").split()[1:] == [mine, commit]
    assert (repository.path / "README.md").read_text() == "theirs\n"
    assert (repository.path / "src/app.py").read_text() == "print('mine')\n"
    assert repository.git("log", "-1", "--format=%s|%an|%cn") == "Make it better|Uma User|Uma User"
    trailers = repository.git("log", "-1", "--format=%(trailers:only)").splitlines()
    assert trailers == ["Massgend-Run: r1", f"Massgend-Commit: {commit}"]
    assert clean(repository)
    assert differing(before, fingerprint(repository.path)) == PROMISED | {"README.md"}


def test_squash_is_one_readable_commit_by_the_agent(tmp_path: Path, users: GitUserRepository) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    head = repository.head
    base = wait(users.import_base, repository.path, run="r1", include_dirty=False)
    first = answer(base, {"a.txt": b"a\n"})
    commit = answer(base, {"b.txt": b"b\n"}, number=2, parent=first)
    wait(users.publish, base, agent="winner", commit=commit)
    report = merged(users, repository.path, base, commit, mode=MergeMode.SQUASH)
    assert report.status is MergeStatus.MERGED
    assert repository.git("rev-list", "--parents", "-1", "HEAD").split()[1:] == [head]
    assert repository.git("log", "-1", "--format=%an|%cn") == "ada|Uma User"
    assert repository.git("log", "-1", "--format=%B").splitlines() == [
        "Make it better",
        "",
        "Because it was asked for.",
        "",
        "Massgend-Run: r1",
        f"Massgend-Commit: {commit}",
    ]
    assert clean(repository)
    for mode in (MergeMode.SQUASH, MergeMode.AUTO):
        assert merged(users, repository.path, base, commit, mode=mode).status is MergeStatus.UP_TO_DATE


def test_squash_onto_a_branch_that_moved_on(tmp_path: Path, users: GitUserRepository) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    base, commit = decided(users, repository.path, {"README.md": b"theirs\n"})
    repository.write("src/app.py", "print('mine')\n")
    mine = repository.commit("mine")
    assert merged(users, repository.path, base, commit, mode=MergeMode.SQUASH).status is MergeStatus.MERGED
    assert repository.git("rev-list", "--parents", "-1", "HEAD").split()[1:] == [mine]
    assert sorted(repository.git("diff", "--name-only", mine, "HEAD").split()) == ["README.md"]


def test_without_a_name_in_the_configuration_the_commit_is_ours(tmp_path: Path, users: GitUserRepository) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    base, commit = decided(users, repository.path, {"README.md": b"theirs\n"})
    repository.write("src/app.py", "print('mine')\n")
    repository.commit("mine")
    for key in ("user.name", "user.email"):
        repository.git("config", key, "")
    repository.git("config", "user.useConfigOnly", "true")
    assert merged(users, repository.path, base, commit).status is MergeStatus.MERGED
    assert repository.git("log", "-1", "--format=%an") == "massgend"


def test_an_unborn_branch_is_born(tmp_path: Path, users: GitUserRepository) -> None:
    repository = git_repos.empty(tmp_path / "repo")
    repository.write("notes.txt", "mine\n")
    base, commit = decided(users, repository.path, {"a.txt": b"a\n", "src/b.txt": b"b\n"})
    before = fingerprint(repository.path)
    report = merged(users, repository.path, base, commit)
    assert (report.status, report.before, report.after) == (MergeStatus.MERGED, None, commit)
    assert repository.head == commit
    assert repository.git("status", "--porcelain") == "?? notes.txt"
    undo(report)
    assert repository.git("rev-parse", "--verify", "-q", "HEAD", check=False) == ""
    assert differing(before, fingerprint(repository.path)) - {".git/logs/HEAD"} <= {".git/index"}
    assert repository.git("status", "--porcelain") == "?? notes.txt"


def test_an_unborn_branch_can_be_squashed_into(tmp_path: Path, users: GitUserRepository) -> None:
    repository = git_repos.empty(tmp_path / "repo")
    base, commit = decided(users, repository.path, {"a.txt": b"a\n"})
    assert merged(users, repository.path, base, commit, mode=MergeMode.SQUASH).status is MergeStatus.MERGED
    assert repository.git("rev-list", "--count", "HEAD") == "1"
    assert clean(repository)


def test_a_branch_that_was_born_meanwhile_is_merged_with(tmp_path: Path, users: GitUserRepository) -> None:
    repository = git_repos.empty(tmp_path / "repo")
    base, commit = decided(users, repository.path, {"a.txt": b"a\n"})
    repository.write("mine.txt", "mine\n")
    repository.commit("mine")
    assert merged(users, repository.path, base, commit).status is MergeStatus.MERGED
    assert sorted(repository.git("ls-files").split()) == ["a.txt", "mine.txt"]
    assert clean(repository)


def test_a_linked_worktree_is_merged_into_and_the_main_one_is_left_alone(
    tmp_path: Path, users: GitUserRepository
) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    repository.git("worktree", "add", "-q", "-b", "side", tmp_path / "linked")
    linked = Repository(path=tmp_path / "linked")
    base, commit = decided(users, linked.path, {"a.txt": b"a\n"})
    main = repository.head
    report = merged(users, linked.path, base, commit)
    assert (report.status, report.branch) == (MergeStatus.MERGED, "side")
    assert linked.head == commit
    assert repository.head == main
    assert clean(linked)
    assert clean(repository)
    undo(report)
    assert linked.head == main


def test_work_that_does_not_overlap_stays_as_it_was(tmp_path: Path, users: GitUserRepository) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    base, commit = decided(users, repository.path, {"a.txt": b"a\n", "README.md": b"better\n"})
    repository.write("src/app.py", "print('edited')\n")
    repository.write("staged.txt", "staged\n")
    repository.git("add", "staged.txt")
    repository.write("staged.txt", "edited after\n")
    repository.write("unknown.txt", "unknown\n")
    status = repository.git("status", "--porcelain")
    before = fingerprint(repository.path)
    report = merged(users, repository.path, base, commit)
    assert report.status is MergeStatus.MERGED
    assert repository.git("status", "--porcelain") == status
    assert repository.git("show", ":staged.txt") == "staged"
    assert differing(before, fingerprint(repository.path)) == PROMISED | {"a.txt", "README.md"}
    undo(report)
    assert repository.git("status", "--porcelain") == status


def test_a_file_that_was_only_touched_is_no_edit(tmp_path: Path, users: GitUserRepository) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    base, commit = decided(users, repository.path, {"README.md": b"better\n"})
    os.utime(repository.path / "README.md", (1, 1))
    assert merged(users, repository.path, base, commit).status is MergeStatus.MERGED


def test_a_branch_that_the_user_names_is_moved_without_touching_the_checkout(
    tmp_path: Path, users: GitUserRepository
) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    base, commit = decided(users, repository.path, {"a.txt": b"a\n"})
    repository.git("switch", "-q", "-c", "elsewhere")
    main = repository.head
    before = fingerprint(repository.path)
    report = merged(users, repository.path, base, commit, into="main", named_by_user=True)
    assert report.status is MergeStatus.MERGED
    assert repository.git("rev-parse", "main") == commit
    changed = differing(before, fingerprint(repository.path))
    assert changed == PROMISED - {".git/index", ".git/ORIG_HEAD", ".git/logs/HEAD"}
    undo(report)
    assert repository.git("rev-parse", "main") == main


def test_no_hook_runs_and_no_signature_is_asked_for(tmp_path: Path, users: GitUserRepository) -> None:
    repository = git_repos.with_hooks_and_signing(tmp_path / "repo", tmp_path / "canary")
    repository.git("config", "branch.main.mergeOptions", "--no-ff --squash --verify-signatures --signoff")
    repository.git("config", "merge.ff", "false")
    base, commit = decided(users, repository.path, {"README.md": b"theirs\n"})
    (repository.path / "src/app.py").write_text("print('mine')\n")
    quiet = ("-c", "core.hooksPath=/dev/null", "-c", "commit.gpgSign=false", "-c", "core.fsmonitor=false")
    repository.git(*quiet, "commit", "-qam", "mine")
    (tmp_path / "canary").unlink(missing_ok=True)
    assert merged(users, repository.path, base, commit).status is MergeStatus.MERGED
    assert not (tmp_path / "canary").exists()
    assert len(repository.git("rev-list", "--parents", "-1", "HEAD").split()) == 3


def test_the_users_filters_and_line_ends_apply_at_checkout(tmp_path: Path, users: GitUserRepository) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    repository.write(".gitattributes", "*.loud filter=loud\n*.crlf text eol=crlf\n")
    repository.git("config", "filter.loud.smudge", "tr a-z A-Z")
    repository.git("config", "filter.loud.clean", "tr A-Z a-z")
    repository.commit("filters")
    base, commit = decided(users, repository.path, {"word.loud": b"word\n", "lines.crlf": b"one\ntwo\n"})
    assert merged(users, repository.path, base, commit).status is MergeStatus.MERGED
    assert (repository.path / "word.loud").read_bytes() == b"WORD\n"
    assert (repository.path / "lines.crlf").read_bytes() == b"one\r\ntwo\r\n"
    assert clean(repository)


def test_modes_links_and_odd_names_arrive_as_they_are(tmp_path: Path, users: GitUserRepository) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    base = wait(users.import_base, repository.path, run="r1", include_dirty=False)
    commit = answer(base, {name: b"odd " + name for name in git_repos.ODD_NAMES})
    commit = answer(base, {"tool.sh": b"#!/bin/sh\n"}, number=2, parent=commit, mode="100755")
    commit = answer(base, {"link": b"README.md"}, number=3, parent=commit, mode="120000")
    wait(users.publish, base, agent="winner", commit=commit)
    assert merged(users, repository.path, base, commit).status is MergeStatus.MERGED
    for name in git_repos.ODD_NAMES:
        assert (repository.path / os.fsdecode(name)).read_bytes() == b"odd " + name
    assert (repository.path / "tool.sh").stat().st_mode & 0o111
    assert os.readlink(repository.path / "link") == "README.md"
    assert clean(repository)


def test_a_submodule_pointer_moves_and_its_checkout_is_left_alone(tmp_path: Path, users: GitUserRepository) -> None:
    repository = git_repos.with_submodule(tmp_path / "repo")
    repository.git("config", "submodule.recurse", "true")
    inside = fingerprint(repository.path / "libs/dep")
    base = wait(users.import_base, repository.path, run="r1", include_dirty=False)
    commit = answer(base, {"a.txt": b"a\n"})
    wait(users.publish, base, agent="winner", commit=commit)
    assert merged(users, repository.path, base, commit).status is MergeStatus.MERGED
    assert fingerprint(repository.path / "libs/dep") == inside
    assert clean(repository)


def test_git_lfs_pointers_are_kept_where_git_lfs_is_missing(tmp_path: Path, users: GitUserRepository) -> None:
    if shutil.which("git-lfs"):
        pytest.skip("git-lfs is installed here: it cannot be missing")
    repository = git_repos.with_lfs_pointer(tmp_path / "repo")
    for key, value in (("process", "git-lfs filter-process"), ("required", "true")):
        repository.git("config", f"filter.lfs.{key}", value)
    pointer = git_repos.LFS_POINTER.replace(b"12345", b"54321")
    base, commit = decided(users, repository.path, {"model.bin": pointer})
    assert merged(users, repository.path, base, commit).status is MergeStatus.MERGED
    assert (repository.path / "model.bin").read_bytes() == pointer


def test_what_runs_code_on_the_users_side_is_named(tmp_path: Path, users: GitUserRepository) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    repository.write("package.json", '{"name": "x", "scripts": {"test": "true"}}')
    repository.write("web/package.json", '{"name": "y"}')
    repository.write(".envrc", "export A=1\n")
    repository.git("config", "core.hooksPath", "tools/hooks")
    repository.commit("packages")
    files: dict[str | bytes, bytes | None] = {
        "package.json": b'{"name": "x", "scripts": {"test": "curl evil"}}',
        "web/package.json": b'{"name": "renamed"}',
        ".envrc": None,
        ".github/workflows/ci.yml": b"on: push\n",
        "tools/hooks/pre-commit": b"#!/bin/sh\n",
        "Makefile": b"all:\n",
    }
    base, commit = decided(users, repository.path, files)
    report = merged(users, repository.path, base, commit)
    assert report.risky == (".github/workflows/ci.yml", "package.json", "tools/hooks/pre-commit")


def test_our_state_may_be_gone(tmp_path: Path, users: GitUserRepository) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    base, commit = decided(users, repository.path, {"a.txt": b"a\n"})
    shutil.rmtree(tmp_path / "state")
    fresh = GitUserRepository(tmp_path / "other-state")
    assert merged(fresh, repository.path, base, commit).status is MergeStatus.MERGED
    assert not (tmp_path / "other-state").exists()


def test_in_another_users_repository_everything_stays_theirs(tmp_path: Path, users: GitUserRepository) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    give_away(repository.path)
    base, commit = decided(users, repository.path, {"a.txt": b"a\n"})
    assert merged(users, repository.path, base, commit).status is MergeStatus.MERGED
    assert {path.lstat().st_uid for path in repository.path.rglob("*")} == {UID}


def test_undo_brings_back_exactly_what_was_there(tmp_path: Path, users: GitUserRepository) -> None:
    repository = git_repos.plain(tmp_path / "it's a repo")
    base, commit = decided(users, repository.path, {"a.txt": b"a\n", "README.md": None, "src/app.py": b"x\n"})
    before, head = fingerprint(repository.path), repository.head
    report = merged(users, repository.path, base, commit)
    undo(report)
    assert repository.head == head
    assert clean(repository)
    left = {path for path in differing(before, fingerprint(repository.path)) if not path.startswith(".git/")}
    assert left == set()
    assert merged(users, repository.path, base, commit).status is MergeStatus.MERGED


def test_undo_does_nothing_once_there_are_later_commits(tmp_path: Path, users: GitUserRepository) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    base, commit = decided(users, repository.path, {"a.txt": b"a\n"})
    report = merged(users, repository.path, base, commit)
    repository.write("later.txt", "later\n")
    later = repository.commit("later")
    before = fingerprint(repository.path)
    undo(report, exit_code=1)
    assert repository.head == later
    assert fingerprint(repository.path) == before


@pytest.mark.parametrize("mode", [MergeMode.AUTO, MergeMode.SQUASH])
def test_up_to_date_offers_no_undo_that_would_drop_later_commits(
    tmp_path: Path, users: GitUserRepository, mode: MergeMode
) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    base, commit = decided(users, repository.path, {"a.txt": b"a\n"})
    merged(users, repository.path, base, commit, mode=mode)
    repository.write("later.txt", "later\n")
    repository.commit("later")
    again = merged(users, repository.path, base, commit, mode=mode)
    assert (again.status, again.commands) == (MergeStatus.UP_TO_DATE, ())


def test_undo_does_nothing_on_another_branch(tmp_path: Path, users: GitUserRepository) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    base, commit = decided(users, repository.path, {"a.txt": b"a\n"})
    report = merged(users, repository.path, base, commit)
    repository.git("switch", "-q", "-c", "other")
    undo(report, exit_code=1)
    assert repository.head == commit


def test_undo_keeps_edits_made_since(tmp_path: Path, users: GitUserRepository) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    base, commit = decided(users, repository.path, {"README.md": b"better\n"})
    report = merged(users, repository.path, base, commit)
    repository.write("run.sh", "edited since\n", executable=True)
    undo(report)
    assert (repository.path / "run.sh").read_text() == "edited since\n"
    merged(users, repository.path, base, commit)
    repository.write("README.md", "edited since\n")
    undo(report, exit_code=1)
    assert (repository.path / "README.md").read_text() == "edited since\n"
    assert repository.head == commit


def test_runs_that_end_at_the_same_moment_are_all_merged(tmp_path: Path, users: GitUserRepository) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    runs = [f"r{number}" for number in range(4)]
    commits = {run: decided(users, repository.path, {f"{run}.txt": b"x\n"}, run=run)[1] for run in runs}

    async def merge_all() -> list[MergeReport]:
        async def one(run: str) -> MergeReport:
            return await users.merge(
                repository.path, run=run, commit=commits[run], into="main", mode=MergeMode.AUTO, message=f"Merge {run}"
            )

        return list(await asyncio.gather(*(one(run) for run in runs)))

    reports = wait(merge_all)
    assert [report.status for report in reports] == [MergeStatus.MERGED] * 4, [report.reason for report in reports]
    assert all((repository.path / f"{run}.txt").exists() for run in runs)
    assert clean(repository)
