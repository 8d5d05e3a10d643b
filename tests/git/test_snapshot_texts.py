"""Names are bytes, results are texts: whatever a repository holds, each result can be written as JSON in UTF-8."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import asdict
from pathlib import Path

import pytest

from snapshots.errors import GitFailed, RefTaken, RepositoryRefused, SnapshotError
from snapshots.repository import MergeMode, MergeReport, MergeStatus
from snapshots.user_repository import GitUserRepository
from tests.support import git_repos
from tests.support.answers import answer, decided, merged, wait
from tests.support.git_repos import Repository
from tests.support.stores import stand

ODD = b"b\xff.json"
ESCAPED = "b\\xff.json"


def written(value: object) -> str:
    """As JSON, the way the journal and the API write it. Raises UnicodeEncodeError."""
    text = json.dumps(value if isinstance(value, str) else asdict(value), ensure_ascii=False, default=str)  # type: ignore[call-overload]
    return text.encode().decode().replace("\\\\", "\\")


@pytest.fixture
def users(tmp_path: Path) -> GitUserRepository:
    return GitUserRepository(tmp_path / "state", patience_s=0.1)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return git_repos.with_odd_names(tmp_path / "repo")


def test_a_check_like_this_fails_for_a_name_as_python_has_it() -> None:
    with pytest.raises(UnicodeEncodeError):
        written(os.fsdecode(ODD))


def test_a_snapshot_names_odd_paths_and_leaves_out_odd_things_in_plain_text(tmp_path: Path) -> None:
    here = stand(tmp_path, git_repos.with_odd_names(tmp_path / "repo").path)
    (here.path / os.fsdecode(ODD)).write_text("x")
    os.mkfifo(here.path / os.fsdecode(b"pipe\xff"))
    (here.path / ".gitignore").write_text("heavy*\n")
    (here.path / os.fsdecode(b"heavy\xff")).write_bytes(bytes(9000))
    snapshot = here.frozen("1", budget={"max_ignored_bytes": 10})
    assert ESCAPED in snapshot.paths
    assert "pipe\\xff" in written(snapshot)
    assert here.snapshots() == (snapshot,)
    assert here.restarted().snapshots() == (snapshot,)
    (here.path / os.fsdecode(b"large\xff")).write_bytes(bytes(9000))
    assert "large\\xff" in written(here.freeze("2", budget={"max_bytes": 500}))


def test_a_merge_of_odd_names_is_reported_in_plain_text(users: GitUserRepository, repository: Repository) -> None:
    base, commit = decided(users, repository.path, {b".vscode/" + ODD: b"{}", ODD: b"x", b"d\xff/package.json": b"{"})
    for mode in (MergeMode.BRANCH, MergeMode.ASK, MergeMode.AUTO, MergeMode.AUTO):
        report = merged(users, repository.path, base, commit, mode=mode)
        written(report)
        if report.status is MergeStatus.MERGED:
            assert report.risky == (".vscode/b\\xff.json", "d\\xff/package.json")
            assert any(ESCAPED in line for line in report.stat)
    assert report.status is MergeStatus.UP_TO_DATE


def test_a_conflict_in_odd_names_is_reported_in_plain_text(users: GitUserRepository, repository: Repository) -> None:
    base, commit = decided(users, repository.path, {b"latin1-\xfc\xff.txt": b"theirs"})
    repository.write(b"latin1-\xfc\xff.txt", b"mine")
    repository.commit("mine")
    report = merged(users, repository.path, base, commit)
    assert report.conflicts == ("latin1-\\xfc\\xff.txt",)
    assert "latin1-\\xfc\\xff.txt" in report.reason
    written(report)


def test_odd_files_in_the_way_are_told_in_plain_text_and_the_printed_commands_work(
    users: GitUserRepository, repository: Repository
) -> None:
    odd = b"in the 'way' %s \\n \xff.txt"
    base, commit = decided(users, repository.path, {odd: b"theirs", b"latin1-\xfc\xff.txt": b"theirs"})
    repository.write(odd, b"mine")
    repository.write(b"latin1-\xfc\xff.txt", b"edited")
    report = merged(users, repository.path, base, commit)
    written(report)
    assert len(report.conflicts) == 2
    for command in report.commands[:-1]:
        subprocess.run(["sh", "-c", command.encode()], check=True, stdout=subprocess.DEVNULL)
    assert repository.head == commit
    assert (repository.path / os.fsdecode(odd + b".mine")).read_bytes() == b"mine"
    assert repository.git("stash", "list") != ""


def test_what_a_filter_of_the_users_complains_about_is_told_in_plain_text(
    users: GitUserRepository, repository: Repository
) -> None:
    repository.write(".gitattributes", "*.bad filter=bad\n")
    repository.commit("attributes")
    repository.git("config", "filter.bad.smudge", "printf 'fatal: it is \\377\\n' >&2; false")
    repository.git("config", "filter.bad.required", "true")
    base, commit = decided(users, repository.path, {b"\xff.bad": b"x"})
    report = merged(users, repository.path, base, commit)
    assert report.status is MergeStatus.NOT_MERGED
    assert "\\xff" in written(report)


def test_a_branch_whose_name_is_not_utf8_is_refused_before_anything_starts(
    users: GitUserRepository, repository: Repository
) -> None:
    repository.git("switch", "-q", "-c", b"gr\xfcn")
    report = wait(users.look, repository.path)
    assert report.problem is not None
    assert "gr\\xfcn" in report.problem
    assert "git branch -m NEW-NAME" in report.problem
    written(report)
    with pytest.raises(RepositoryRefused) as refused:
        wait(users.import_base, repository.path, run="r1", include_dirty=False)
    written(str(refused.value))
    repository.git("branch", "-m", "green")
    assert wait(users.look, repository.path).problem is None


@pytest.mark.parametrize("inside", ["", "src"])
def test_a_folder_whose_name_is_not_utf8_is_refused_before_anything_starts(
    tmp_path: Path, users: GitUserRepository, inside: str
) -> None:
    repository = git_repos.plain(tmp_path / os.fsdecode(b"gr\xfcn"))
    report = wait(users.look, repository.path / inside)
    assert report.problem is not None
    assert "is not UTF-8" in report.problem
    written(report)
    (tmp_path / "link").symlink_to(repository.path)
    written(wait(users.look, tmp_path / "link"))
    with pytest.raises(RepositoryRefused) as refused:
        wait(users.import_base, repository.path, run="r1", include_dirty=False)
    written(str(refused.value))


def test_odd_paths_that_are_no_repository_are_told_in_plain_text(tmp_path: Path, users: GitUserRepository) -> None:
    odd = tmp_path / os.fsdecode(ODD)
    written(wait(users.look, odd))
    odd.write_text("x")
    written(wait(users.look, odd))
    written(merged_nowhere(users, odd))


def merged_nowhere(users: GitUserRepository, path: Path) -> MergeReport:
    return wait(users.merge, path, run="r1", commit="0" * 40, into="main", mode=MergeMode.AUTO, message="m")


def test_warnings_and_refusals_of_uncommitted_changes_are_plain_text(
    tmp_path: Path, users: GitUserRepository, repository: Repository
) -> None:
    repository.write(b".gitattributes", "*.bin filter=lfs\n")
    repository.write(b"model\xff.bin", git_repos.LFS_POINTER)
    repository.commit("large")
    git_repos.plain(repository.path / os.fsdecode(b"nested\xff"))
    report = wait(users.look, repository.path)
    assert "model\\xff.bin" in written(report)
    base = wait(users.import_base, repository.path, run="r1", include_dirty=True)
    assert "nested\\xff" in written(base)
    assert wait(users.import_base, repository.path, run="r1", include_dirty=True) == base


def test_a_branch_into_which_to_merge_may_have_any_name(users: GitUserRepository, repository: Repository) -> None:
    base, commit = decided(users, repository.path, {"a.txt": b"a\n"})
    repository.git("switch", "-q", "-c", b"gr\xfcn")
    written(merged(users, repository.path, base, commit))  # moved away since
    report = wait(users.merge, repository.path, run="r1", commit=commit, into=None, mode=MergeMode.AUTO, message="m")
    assert report.status is MergeStatus.MERGED
    assert "gr\\xfcn" in written(report)
    (undo,) = report.commands
    subprocess.run(["sh", "-c", undo.encode()], check=True)
    assert repository.head == base.commit
    assert repository.git("symbolic-ref", "HEAD") == os.fsdecode(b"refs/heads/gr\xfcn")


def test_branches_of_odd_names_below_ours_are_nobodys_review_branches(
    users: GitUserRepository, repository: Repository
) -> None:
    decided(users, repository.path, {"a.txt": b"a\n"})
    repository.git("branch", b"massgend/r1/b\xff")
    assert [one.name for one in wait(users.review_branches, repository.path)] == [
        "massgend/r1/ada",
        "massgend/r1/winner",
    ]
    gone = wait(users.discard, repository.path, run="r1", force=True)
    assert len(gone) == 2
    assert repository.git("branch", "--list", "massgend/*").strip() == os.fsdecode(b"massgend/r1/b\xff")


def test_errors_are_plain_text() -> None:
    odd = os.fsdecode(ODD)
    for error in (SnapshotError(odd), RefTaken(f"{odd} is taken"), GitFailed(("git", odd), 1, odd)):
        assert ESCAPED in written(str(error))
    failed = GitFailed(("git", odd), 1, odd)
    assert ESCAPED in written(failed.stderr)
    assert ESCAPED in written(" ".join(failed.argv))


def test_a_worktree_of_an_odd_name_is_told_in_plain_text(
    tmp_path: Path, users: GitUserRepository, repository: Repository
) -> None:
    base, commit = decided(users, repository.path, {"a.txt": b"a\n"})
    repository.git("switch", "-q", "--detach")
    other = tmp_path / os.fsdecode(b"w\xff")
    repository.git("worktree", "add", "-q", other, "main")
    report = merged(users, repository.path, base, commit)
    assert "w\\xff" in written(report)
    subprocess.run(["sh", "-c", report.commands[-1].encode()], check=True, stdout=subprocess.DEVNULL)
    assert Repository(path=other).head == commit
    Repository(path=other).git("switch", "-q", "massgend/r1/ada")
    further = answer(base, {"b": b"b"}, number=2)
    with pytest.raises(RefTaken) as taken:
        wait(users.publish, base, agent="ada", commit=further)
    written(str(taken.value))
