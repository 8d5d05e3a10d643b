"""Runs are found by their branches alone, in real repositories."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cli.diff import shown_lines
from cli.errors import Misuse
from cli.git import Git, base_of, chosen_repository, find_agent, find_root, find_run
from tests.support import git_repos
from tests.support.git_repos import Repository

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def repo(tmp_path: Path) -> Repository:
    """Runs `aa11` (ada, bob, a winner) and `aa22` (one agent) on top of main."""
    made = git_repos.plain(tmp_path / "repo")
    for branch, text in (("aa11/ada", "from ada\n"), ("aa11/bob", "from bob\n"), ("aa22/solo", "alone\n")):
        made.git("switch", "-q", "-c", f"massgend/{branch}", "main")
        made.write("page.txt", text)
        made.commit(branch)
    made.git("branch", "massgend/aa11/winner", "massgend/aa11/bob")
    made.git("switch", "-q", "main")
    return made


def test_a_run_is_found_by_a_unique_beginning(repo: Repository) -> None:
    git = Git(repo.path)
    assert sorted(find_run(git, "aa11").agents) == ["ada", "bob"]
    assert find_run(git, "aa2").run_id == "aa22"
    assert find_run(git, "aa11").winning_agent == "bob"
    with pytest.raises(Misuse, match="can be any of the runs aa11, aa22"):
        find_run(git, "aa")
    with pytest.raises(Misuse, match="runs with branches there: aa11, aa22"):
        find_run(git, "zz")
    with pytest.raises(Misuse, match="no branches"):
        find_run(git, "")


def test_an_agent_is_the_winner_or_the_only_one_unless_named(repo: Repository) -> None:
    git = Git(repo.path)
    assert find_agent(find_run(git, "aa11"), None) == "massgend/aa11/winner"
    assert find_agent(find_run(git, "aa11"), "ada") == "massgend/aa11/ada"
    with pytest.raises(Misuse, match="no winner: name one of its agents: solo"):
        find_agent(find_run(git, "aa22"), None)
    with pytest.raises(Misuse, match="its agents: ada, bob"):
        find_agent(find_run(git, "aa11"), "zed")
    repo.git("branch", "-D", "massgend/aa11/winner")
    with pytest.raises(Misuse, match="no winner: name one of its agents: ada, bob"):
        find_agent(find_run(git, "aa11"), None)


def test_the_base_is_where_the_run_began_also_after_a_fast_forward(repo: Repository) -> None:
    git, start = Git(repo.path), repo.head
    assert base_of(git, "aa11", "massgend/aa11/winner") == start
    repo.git("update-ref", "refs/massgend/aa11/before-merge", start)
    repo.git("merge", "-q", "--ff-only", "massgend/aa11/winner")
    assert base_of(git, "aa11", "massgend/aa11/winner") == start
    assert base_of(git, "aa11", "massgend/aa11/ada", known="0" * 40) == start, "a base that is gone does not count"


def test_a_run_that_began_from_nothing_is_compared_with_nothing(tmp_path: Path) -> None:
    made = git_repos.empty(tmp_path / "repo")
    made.git("switch", "-q", "--orphan", "massgend/aa11/ada")
    made.write("a.txt", "a\n")
    made.commit("ada")
    made.git("symbolic-ref", "HEAD", "refs/heads/main")
    base = base_of(Git(made.path), "aa11", "massgend/aa11/ada")
    assert made.git("diff", "--name-only", base, "massgend/aa11/ada") == "a.txt"


def test_a_repository_is_found_from_a_folder_in_it(repo: Repository, tmp_path: Path) -> None:
    assert find_root(repo.path / "src") == repo.path
    assert find_root(tmp_path) is None
    with pytest.raises(Misuse, match="there is no such folder"):
        chosen_repository(tmp_path / "none")


def command(*arguments: str, cwd: Path, state: Path) -> subprocess.CompletedProcess[bytes]:
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "MASSGEND_STATE": str(state), "HOME": str(state)}
    return subprocess.run(
        [sys.executable, "-m", "cli.main", *arguments], cwd=cwd, env=environment, capture_output=True, check=False
    )


def test_a_diff_without_a_terminal_is_a_patch_that_applies(repo: Repository, tmp_path: Path) -> None:
    repo.git("switch", "-q", "massgend/aa11/bob")
    repo.write("logo.png", git_repos.PNG)
    repo.write("esc.txt", b"\x1b[31m\x00binary")
    repo.commit("more")
    repo.git("branch", "-f", "massgend/aa11/winner")
    repo.git("switch", "-q", "main")
    done = command("diff", "aa11", cwd=repo.path / "src", state=tmp_path / "state")
    assert done.returncode == 0, done.stderr
    repo.git_bytes("apply", "--index", stdin=done.stdout)
    assert repo.git("write-tree") == repo.git("rev-parse", "massgend/aa11/winner^{tree}")
    assert not (tmp_path / "state").exists(), "a diff starts no daemon and makes no state"


def test_two_agents_can_be_compared(repo: Repository, tmp_path: Path) -> None:
    done = command("diff", "aa11", "ada", "bob", cwd=repo.path, state=tmp_path / "state")
    assert b"-from ada\n+from bob\n" in done.stdout


def test_a_diff_runs_no_program_that_attributes_name(repo: Repository, tmp_path: Path) -> None:
    repo.git("config", "diff.evil.command", f"touch {tmp_path}/ran")
    repo.git("config", "diff.evil.textconv", f"touch {tmp_path}/ran")
    repo.write(".gitattributes", "* diff=evil\n")
    repo.commit("attributes")
    command("diff", "aa11", cwd=repo.path, state=tmp_path / "state")
    assert not (tmp_path / "ran").exists()


def test_a_diff_on_the_terminal_is_cleaned_and_coloured() -> None:
    diff = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old\x1b]0;t\x07\n+new\x1b[2J\n--- not a header\n"
    shown = list(shown_lines(diff, coloured=True))
    assert shown[4:] == ["\x1b[31m-old\x1b[m", "\x1b[32m+new\x1b[m", "\x1b[31m--- not a header\x1b[m"]
    assert list(shown_lines(diff, coloured=False))[4:] == ["-old", "+new", "--- not a header"]
