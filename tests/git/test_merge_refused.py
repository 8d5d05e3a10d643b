"""Where a merge is not safe nothing is touched, one sentence says why, and the commands that it prints really work."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from snapshots.repository import MergeMode, MergeReport, MergeStatus
from snapshots.user_repository import GitUserRepository
from tests.support import git_repos
from tests.support.answers import decided, merged, wait
from tests.support.git_repos import Repository
from tests.support.repo_fingerprint import differing, fingerprint


@pytest.fixture
def users(tmp_path: Path) -> GitUserRepository:
    return GitUserRepository(tmp_path / "state", patience_s=0.3)


def refused(
    users: GitUserRepository,
    repository: Path,
    base_and_commit: tuple[object, str],
    *,
    mode: MergeMode = MergeMode.AUTO,
    into: str | None = None,
) -> MergeReport:
    """Asks for the merge, and sees that not one file of the repository changed."""
    base, commit = base_and_commit
    before = fingerprint(repository)
    report = merged(users, repository, base, commit, mode=mode, into=into)  # type: ignore[arg-type]
    assert report.status is MergeStatus.NOT_MERGED
    assert "\n" not in report.reason
    assert fingerprint(repository) == before
    return report


def type_in(report: MergeReport, *, last_exit_code: int = 0) -> None:
    """Types the printed commands, one after the other, as the user would."""
    assert report.commands
    for number, command in enumerate(report.commands, start=1):
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, cwd="/", check=False)
        wanted = last_exit_code if number == len(report.commands) else 0
        assert done.returncode == wanted, f"{command}: {done.stdout}{done.stderr}"


def contains(repository: Repository, commit: str, branch: str = "HEAD") -> bool:
    return commit in repository.git("rev-list", branch).split()


@pytest.mark.parametrize("mode", [MergeMode.BRANCH, MergeMode.NONE, MergeMode.ASK])
def test_other_modes_only_say_what_to_type(tmp_path: Path, users: GitUserRepository, mode: MergeMode) -> None:
    repository = git_repos.plain(tmp_path / "a repo")
    run = decided(users, repository.path, {"a.txt": b"a\n", ".envrc": b"export A=1\n"})
    report = refused(users, repository.path, run, mode=mode)
    assert report.risky == (".envrc",)
    assert "2 files changed" in report.stat[-1]
    type_in(report)
    assert repository.head == run[1]


def test_other_modes_on_another_branch_say_to_switch(tmp_path: Path, users: GitUserRepository) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    run = decided(users, repository.path, {"a.txt": b"a\n"})
    repository.git("switch", "-q", "-c", "elsewhere")
    type_in(refused(users, repository.path, run, mode=MergeMode.BRANCH))
    assert repository.git("rev-parse", "main") == run[1]


def test_a_conflict_names_the_files_and_leaves_the_merge_to_the_user(tmp_path: Path, users: GitUserRepository) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    run = decided(
        users, repository.path, {"README.md": b"theirs\n", "gr\u00fc\u00dfe\n.txt": b"theirs\n", "a.txt": b"a\n"}
    )
    repository.write("README.md", "mine\n")
    repository.write("gr\u00fc\u00dfe\n.txt", "mine\n")
    repository.commit("mine")
    report = refused(users, repository.path, run)
    assert report.conflicts == ("README.md", "gr\u00fc\u00dfe\n.txt")
    type_in(report, last_exit_code=1)
    unmerged = repository.git_bytes("diff", "--name-only", "--diff-filter=U", "-z").decode().split("\0")
    assert tuple(unmerged[:-1]) == report.conflicts


def test_a_conflict_with_squash(tmp_path: Path, users: GitUserRepository) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    run = decided(users, repository.path, {"README.md": b"theirs\n"})
    repository.write("README.md", "mine\n")
    repository.commit("mine")
    report = refused(users, repository.path, run, mode=MergeMode.SQUASH)
    assert "--squash" in report.commands[0]
    assert report.conflicts == ("README.md",)


def test_a_conflict_in_which_one_side_deleted(tmp_path: Path, users: GitUserRepository) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    run = decided(users, repository.path, {"README.md": None})
    repository.write("README.md", "mine\n")
    repository.commit("mine")
    assert refused(users, repository.path, run).conflicts == ("README.md",)


@pytest.mark.parametrize("staged", [True, False])
def test_edits_that_overlap_are_kept_and_the_commands_carry_them_over(
    tmp_path: Path, users: GitUserRepository, staged: bool
) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    lines = [f"{number}\n" for number in range(20)]
    repository.write("long.txt", "".join(lines))
    repository.commit("long")
    run = decided(users, repository.path, {"long.txt": "".join(["theirs\n", *lines[1:]]).encode()})
    repository.write("long.txt", "".join([*lines[:-1], "mine\n"]))
    if staged:
        repository.git("add", "long.txt")
    report = refused(users, repository.path, run)
    assert report.conflicts == ("long.txt",)
    assert "uncommitted changes in long.txt" in report.reason
    type_in(report)
    assert repository.head == run[1]
    assert (repository.path / "long.txt").read_text() == "".join(["theirs\n", *lines[1:-1], "mine\n"])


def test_a_deleted_file_that_the_merge_changes_is_an_overlap(tmp_path: Path, users: GitUserRepository) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    run = decided(users, repository.path, {"README.md": b"theirs\n"})
    (repository.path / "README.md").unlink()
    assert refused(users, repository.path, run).conflicts == ("README.md",)


@pytest.mark.parametrize("how", ["unknown", "ignored", "link", "file where a folder comes"])
def test_unknown_files_in_the_way_are_kept_and_the_commands_move_them_aside(
    tmp_path: Path, users: GitUserRepository, how: str
) -> None:
    repository = git_repos.plain(tmp_path / "re'po")
    if how == "ignored":
        repository.write(".gitignore", "new file\n")
        repository.commit("ignore")
    run = decided(users, repository.path, {("new file/deep" if how.startswith("file") else "new file"): b"theirs\n"})
    if how == "link":
        (repository.path / "new file").symlink_to("nowhere")
    else:
        repository.write("new file", "mine\n")
    report = refused(users, repository.path, run)
    assert report.conflicts == ("new file",)
    type_in(report)
    assert repository.head == run[1]
    aside = repository.path / "new file.mine"
    assert (os.readlink(aside) == "nowhere") if how == "link" else (aside.read_text() == "mine\n")


def test_a_folder_of_unknown_files_where_a_file_comes_is_kept(tmp_path: Path, users: GitUserRepository) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    run = decided(users, repository.path, {"thing": b"theirs\n"})
    repository.write("thing/mine.txt", "mine\n")
    report = refused(users, repository.path, run)
    assert report.conflicts == ("thing",)
    type_in(report)
    assert (repository.path / "thing.mine" / "mine.txt").read_text() == "mine\n"
    assert repository.head == run[1]


def test_an_unknown_file_in_a_folder_that_becomes_a_file_is_kept(tmp_path: Path, users: GitUserRepository) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    base, commit = decided(users, repository.path, {"src/app.py": None, "src": b"theirs\n"})
    repository.write("src/mine.txt", "mine\n")
    report = merged(users, repository.path, base, commit)
    assert report.status is MergeStatus.NOT_MERGED
    assert "src" in report.reason
    assert (repository.path / "src" / "mine.txt").read_text() == "mine\n"
    assert repository.git("status", "--porcelain") == "?? src/mine.txt"


@pytest.mark.parametrize("operation", ["rebase", "merge", "cherry-pick", "revert", "bisect", "stash"])
def test_nothing_is_touched_in_the_middle_of_an_operation(
    tmp_path: Path, users: GitUserRepository, operation: str
) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    run = decided(users, repository.path, {"a.txt": b"a\n"})
    repository.git("switch", "-q", "-c", "side")
    repository.write("README.md", "side\n")
    repository.commit("side's")
    repository.git("switch", "-q", "main")
    repository.write("README.md", "main\n")
    repository.commit("main's")
    finish: tuple[str, ...] = (operation, "--abort")
    match operation:
        case "bisect":
            repository.git("bisect", "start", "HEAD", "HEAD~2")
            finish = ("bisect", "reset")
        case "revert":
            repository.write("README.md", "again\n")
            repository.commit("again")
            repository.git("revert", "HEAD~1", check=False)
        case "stash":
            repository.write("README.md", "stashed\n")
            repository.git("stash", "push", "-q")
            repository.write("README.md", "again\n")
            repository.commit("again")
            repository.git("stash", "pop", check=False)
            finish = ("reset", "-q", "--hard")
        case _:
            repository.git(operation, "side", check=False)
    report = refused(users, repository.path, run, into="main")
    assert (operation if operation != "stash" else "conflicts") in report.reason
    repository.git(*finish)
    type_in(report)
    assert contains(repository, run[1], "main")


def test_a_branch_that_is_checked_out_elsewhere_is_merged_there(tmp_path: Path, users: GitUserRepository) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    run = decided(users, repository.path, {"a.txt": b"a\n"})
    repository.git("switch", "-q", "-c", "elsewhere")
    repository.git("worktree", "add", "-q", tmp_path / "other place", "main")
    other = fingerprint(tmp_path / "other place")
    report = refused(users, repository.path, run)
    assert str(tmp_path / "other place") in report.reason
    assert fingerprint(tmp_path / "other place") == other
    type_in(report)
    assert Repository(path=tmp_path / "other place").head == run[1]
    assert (tmp_path / "other place" / "a.txt").exists()


def test_a_branch_that_is_rebased_elsewhere_is_left_alone(tmp_path: Path, users: GitUserRepository) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    run = decided(users, repository.path, {"a.txt": b"a\n"})
    repository.git("switch", "-q", "-c", "elsewhere")
    repository.write("README.md", "elsewhere\n")
    repository.commit("elsewhere")
    repository.git("worktree", "add", "-q", tmp_path / "other", "main")
    other = Repository(path=tmp_path / "other")
    other.write("README.md", "main\n")
    other.commit("main")
    other.git("rebase", "elsewhere", check=False)
    base, commit = run
    before = fingerprint(repository.path)
    report = merged(users, repository.path, base, commit, named_by_user=True)
    assert report.status is MergeStatus.NOT_MERGED
    assert fingerprint(repository.path) == before
    assert str(tmp_path / "other") in report.reason


def test_when_the_user_has_moved_away_nothing_is_touched(tmp_path: Path, users: GitUserRepository) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    run = decided(users, repository.path, {"a.txt": b"a\n"})
    repository.git("switch", "-q", "-c", "elsewhere")
    report = refused(users, repository.path, run)
    assert "no longer on main" in report.reason
    type_in(report)
    assert repository.git("rev-parse", "main") == run[1]


def test_a_detached_head_is_never_moved(tmp_path: Path, users: GitUserRepository) -> None:
    repository = git_repos.detached(tmp_path / "repo")
    run = decided(users, repository.path, {"a.txt": b"a\n"})
    report = refused(users, repository.path, run)
    assert "detached" in report.reason
    type_in(report)
    assert repository.head == run[1]


def test_a_head_that_was_detached_meanwhile(tmp_path: Path, users: GitUserRepository) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    run = decided(users, repository.path, {"a.txt": b"a\n"})
    repository.git("switch", "-q", "--detach")
    type_in(refused(users, repository.path, run))
    assert repository.git("rev-parse", "main") == run[1]


def test_a_branch_that_is_gone_is_not_made_again_unasked(tmp_path: Path, users: GitUserRepository) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    run = decided(users, repository.path, {"a.txt": b"a\n"})
    repository.git("branch", "-m", "main", "renamed")
    type_in(refused(users, repository.path, run))
    assert repository.git("rev-parse", "main") == run[1]


def test_an_index_lock_is_respected(tmp_path: Path, users: GitUserRepository) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    run = decided(users, repository.path, {"a.txt": b"a\n"})
    lock = repository.path / ".git" / "index.lock"
    lock.write_bytes(b"")
    report = refused(users, repository.path, run)
    assert str(lock) in report.reason
    lock.unlink()
    type_in(report)
    assert repository.head == run[1]


def test_a_rewritten_branch_shares_no_history(tmp_path: Path, users: GitUserRepository) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    run = decided(users, repository.path, {"a.txt": b"a\n"})
    repository.git("switch", "-q", "--orphan", "fresh")
    repository.write("b.txt", "b\n")
    repository.commit("fresh")
    repository.git("branch", "-q", "-M", "main")
    report = refused(users, repository.path, run)
    assert "share no history" in report.reason
    type_in(report)
    assert sorted(repository.git("ls-files").split()) == ["README.md", "a.txt", "b.txt", "run.sh", "src/app.py"]


def test_changes_that_went_on_after_a_dirty_start_are_kept(tmp_path: Path, users: GitUserRepository) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    repository.write("README.md", "edited\n")
    repository.write("new.txt", "new\n")
    run = decided(users, repository.path, {"a.txt": b"a\n"}, include_dirty=True)
    repository.write("new.txt", "edited since\n")
    report = refused(users, repository.path, run)
    assert report.conflicts == ("README.md", "new.txt")
    type_in(report)
    assert repository.head == run[1]
    assert (repository.path / "README.md").read_text() == "edited\n"
    assert (repository.path / "new.txt.mine").read_text() == "edited since\n"


def test_something_else_that_is_staged_after_a_dirty_start_is_kept(tmp_path: Path, users: GitUserRepository) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    repository.write("README.md", "edited\n")
    run = decided(users, repository.path, {"a.txt": b"a\n"}, include_dirty=True)
    repository.write("README.md", "only staged\n")
    repository.git("add", "README.md")
    repository.write("README.md", "edited\n")
    assert refused(users, repository.path, run).conflicts == ("README.md",)


@pytest.mark.parametrize("into", ["main~1", "a b", "-x", "x..y", "HEAD^{commit}"])
def test_what_is_no_branch_name_is_refused(tmp_path: Path, users: GitUserRepository, into: str) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    run = decided(users, repository.path, {"a.txt": b"a\n"})
    assert into in refused(users, repository.path, run, into=into).reason


def test_an_old_git_leaves_a_real_merge_to_the_user(
    tmp_path: Path, users: GitUserRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    run = decided(users, repository.path, {"a.txt": b"a\n"})
    repository.write("b.txt", "b\n")
    repository.commit("mine")
    old = tmp_path / "bin" / "git"
    old.parent.mkdir()
    old.write_text(f'#!/bin/sh\ncase " $* " in *" --write-tree "*) exit 129;; esac\nexec {shutil.which("git")} "$@"\n')
    old.chmod(0o755)
    monkeypatch.setenv("PATH", f"{old.parent}:{os.environ['PATH']}")
    report = refused(users, repository.path, run)
    assert "too old" in report.reason
    type_in(report)
    assert contains(repository, run[1])


def test_a_commit_that_was_never_brought_is_named(tmp_path: Path, users: GitUserRepository) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    base = wait(users.import_base, repository.path, run="r1", include_dirty=False)
    report = refused(users, repository.path, (base, "1" * 40))
    assert "is not in" in report.reason


def test_a_repository_that_is_gone_is_a_sentence(tmp_path: Path, users: GitUserRepository) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    base, commit = decided(users, repository.path, {"a.txt": b"a\n"})
    repository.path.rename(tmp_path / "moved")
    report = merged(users, repository.path, base, commit)
    assert report.status is MergeStatus.NOT_MERGED
    assert "does not exist" in report.reason


def test_a_filter_that_fails_in_the_middle_leaves_the_checkout_as_it_was(
    tmp_path: Path, users: GitUserRepository
) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    repository.write(".gitattributes", "*.picky filter=picky\n")
    repository.commit("attributes")
    repository.git("config", "filter.picky.smudge", "false")
    repository.git("config", "filter.picky.required", "true")
    files: dict[str | bytes, bytes | None] = {
        "README.md": b"theirs\n",
        "aaa.txt": b"a\n",
        "run.sh": None,
        "m.picky": b"m\n",
        "zzz.txt": b"z\n",
    }
    base, commit = decided(users, repository.path, files)
    repository.write("src/app.py", "print('mine')\n")
    repository.write("unknown.txt", "mine\n")
    status = repository.git("status", "--porcelain")
    before = fingerprint(repository.path)
    report = merged(users, repository.path, base, commit)
    assert report.status is MergeStatus.NOT_MERGED
    assert "picky" in report.reason
    assert repository.git("status", "--porcelain") == status
    touched = {path for path in differing(before, fingerprint(repository.path)) if not path.startswith(".git/")}
    assert touched == set()
