"""The runner of the git binary: what reaches git, what ends it, and whose error is told."""

from __future__ import annotations

import os
import pwd
import time
from pathlib import Path

import pytest

from snapshots.errors import GitFailed
from snapshots.git import Git, read_heads
from tests.support import git_repos


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    Git.ours(None).run("init", "-q", "--bare", tmp_path / "a.git")
    return tmp_path / "a.git"


@pytest.mark.parametrize("script", ["sleep 60", "sleep 60 &"])
def test_a_command_out_of_time_is_ended_with_all_its_children(bare: Path, script: str) -> None:
    start = time.monotonic()
    with pytest.raises(GitFailed, match="timed out") as failed:
        Git.ours(bare).run("-c", f"alias.z=!{script}", "z", timeout_s=0.5)
    assert failed.value.exit_code is None
    assert time.monotonic() - start < 10


def test_long_input_and_long_output_at_once_do_not_block(bare: Path) -> None:
    blob = Git.ours(bare).run("hash-object", "-w", "--stdin", stdin=b"x" * 100_000).strip()
    output = Git.ours(bare).run("cat-file", "--batch", stdin=(blob + b"\n" for _ in range(100)))
    assert len(output) > 10_000_000


def test_a_source_that_fails_ends_the_command(bare: Path) -> None:
    def chunks() -> object:
        yield b"start"
        raise OSError("the disk said no")

    with pytest.raises(OSError, match="the disk said no"):
        Git.ours(bare).run("hash-object", "-w", "--stdin", stdin=chunks())  # type: ignore[arg-type]


def test_in_a_pipe_the_error_of_the_source_is_the_one_told(bare: Path, tmp_path: Path) -> None:
    Git.ours(None).run("init", "-q", "--bare", tmp_path / "b.git")
    sink = Git.ours(tmp_path / "b.git")
    with pytest.raises(GitFailed, match="bad revision 'nonsense'"):
        Git.ours(bare).pipe(
            "pack-objects", "--revs", "--stdout", "-q", into=sink, then=("index-pack", "--stdin"), stdin=b"nonsense\n"
        )


def test_nothing_of_the_environment_or_of_any_users_configuration_reaches_our_repositories(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".gitconfig").write_text("[user]\n name = Mallory\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / ".gitconfig"))
    monkeypatch.setenv("GIT_DIR", "/nonexistent")
    assert Git.ours(bare).attempt("config", "user.name").exit_code == 1
    assert Git.ours(bare).text("rev-parse", "--absolute-git-dir") == str(bare)


def test_the_users_own_configuration_counts_in_their_repository_but_no_hook_or_signature(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".gitconfig").write_text("[core]\n autocrlf = input\n[commit]\n gpgSign = true\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("GIT_CONFIG_GLOBAL", raising=False)
    canary = tmp_path / "canary"
    repository = git_repos.with_hooks_and_signing(tmp_path / "repo", canary)
    git = Git.users(repository.path)
    assert git.text("config", "core.autocrlf") == "input"
    git.run("commit", "-q", "--allow-empty", "-m", "x")
    assert not canary.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_in_the_repository_of_another_user_git_runs_as_that_user(tmp_path: Path) -> None:
    other = pwd.getpwnam("nobody")
    repository = tmp_path / "repo"
    repository.mkdir()
    os.chown(repository, other.pw_uid, other.pw_gid)
    git = Git.users(repository)
    assert git.identity is not None
    assert (git.identity.uid, git.identity.gid) == (other.pw_uid, other.pw_gid)
    assert git.environment["HOME"] == other.pw_dir


def test_branches_are_read_from_files_loose_and_packed_without_a_leak(tmp_path: Path) -> None:
    repository = git_repos.plain(tmp_path / "repo")
    repository.git("branch", "massgend/r1/ada")
    repository.git("pack-refs", "--all")
    repository.git("branch", "massgend/r1/bob")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(100):
        found = read_heads(repository.path, "massgend/")
    assert found == {"massgend/r1/ada": repository.head, "massgend/r1/bob": repository.head}
    assert len(os.listdir("/proc/self/fd")) == before
    with pytest.raises(GitFailed):
        read_heads(tmp_path)
