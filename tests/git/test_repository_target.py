"""A folder can be delivered again after a crash at any moment; what is wrong with a target is known before a run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from snapshots.errors import RepositoryRefused
from snapshots.snapshot import Base
from snapshots.user_repository import GitUserRepository
from tests.support import git_repos
from tests.support.answers import answer, wait
from tests.support.repo_fingerprint import fingerprint
from tests.support.users import give_away

FILES: dict[str | bytes, bytes | None] = {"src/a.txt": b"a\n", **{b"odd/" + name: name for name in git_repos.ODD_NAMES}}
DELIVER = """
import sys, threading, os
from pathlib import Path
from snapshots.delivery import deliver_folder
from snapshots.snapshot import Base
fatal = sys.argv[4]

def die_before(frame, event, argument):
    # A real kill, at the moment when the delivery enters a function of that name, or has come to its end.
    if {"call": "", "return": "!"}.get(event, "?").join((frame.f_code.co_name, "")) == fatal:
        os.kill(os.getpid(), 9)

base = Base(run="r1", repository=None, bare=Path(sys.argv[1]), commit=sys.argv[2], source_commit=None, branch=None)
sys.setprofile(die_before)
deliver_folder(base, commit=sys.argv[2], target=Path(sys.argv[3]))
"""


@pytest.fixture
def users(tmp_path: Path) -> GitUserRepository:
    return GitUserRepository(tmp_path / "state")


@pytest.fixture
def base(users: GitUserRepository) -> Base:
    return wait(users.import_base, None, run="r1", include_dirty=False)


@pytest.fixture
def commit(base: Base) -> str:
    first = answer(base, FILES)
    second = answer(base, {"tool": b"#!/bin/sh\n"}, number=2, parent=first, mode="100755")
    return answer(base, {"link": b"/etc/passwd"}, number=3, parent=second, mode="120000")


@pytest.mark.parametrize(
    "fatal", ["mkdtemp", "mkdir", "run", "_give", "rename", "rename!", "_sweep!", "deliver_folder!"]
)
def test_a_delivery_that_was_killed_at_any_step_is_finished_by_the_next_call(
    tmp_path: Path, users: GitUserRepository, base: Base, commit: str, fatal: str
) -> None:
    there = tmp_path / "there"
    there.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    killed = [sys.executable, "-c", DELIVER, base.bare, commit, there / "out", fatal]
    assert subprocess.run(killed, env=environment, check=False).returncode == -9
    assert wait(users.deliver_folder, base, commit=commit, target=there / "out") == there / "out"
    assert [path.name for path in there.iterdir()] == ["out"]
    assert (there / "out/src/a.txt").read_bytes() == b"a\n"


def test_a_delivery_can_be_asked_for_again_and_changes_nothing(
    tmp_path: Path, users: GitUserRepository, base: Base, commit: str
) -> None:
    target = wait(users.deliver_folder, base, commit=commit, target=tmp_path / "out")
    before = fingerprint(target)
    assert wait(users.deliver_folder, base, commit=commit, target=tmp_path / "out") == target
    assert fingerprint(target) == before


@pytest.mark.parametrize("change", ["edit", "add", "remove", "exec", "relink", "replace", "pipe", "add in .git"])
def test_a_folder_with_other_content_is_refused_and_left_as_it_is(
    tmp_path: Path, users: GitUserRepository, base: Base, commit: str, change: str
) -> None:
    target = wait(users.deliver_folder, base, commit=commit, target=tmp_path / "out")
    match change:
        case "edit":
            (target / "src/a.txt").write_bytes(b"b\n")
        case "add":
            (target / "src/new").write_bytes(b"")
        case "remove":
            (target / "src/a.txt").unlink()
        case "exec":
            (target / "tool").chmod(0o644)
        case "relink":
            (target / "link").unlink()
            (target / "link").symlink_to("/etc/shadow")
        case "replace":
            shutil.rmtree(target / "src")
            (target / "src").symlink_to("/etc")
        case "pipe":
            os.mkfifo(target / "pipe")
        case _:
            (target / "src/.git").mkdir()
    before = fingerprint(target) if change != "pipe" else {}
    with pytest.raises(RepositoryRefused, match="not an empty folder"):
        wait(users.deliver_folder, base, commit=commit, target=target)
    assert not before or fingerprint(target) == before


def test_leftovers_of_this_run_are_swept_and_everything_else_beside_the_target_stays(
    tmp_path: Path, users: GitUserRepository, base: Base, commit: str
) -> None:
    there = tmp_path / "there"
    there.mkdir()
    (there / ".massgend-r1-ab12_xyz" / "files").mkdir(parents=True)
    others = [".massgend-r1-2-ab12xyz0", ".massgend-r2-ab12xyz0", ".massgend-x", ".massgend-r1-mine", "mine"]
    for name in others:
        (there / name).mkdir()
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious/file").write_text("x")
    (there / ".massgend-r1-abcdefgh").symlink_to(tmp_path / "precious")
    wait(users.deliver_folder, base, commit=commit, target=there / "out")
    assert sorted(path.name for path in there.iterdir()) == sorted([*others, ".massgend-r1-abcdefgh", "out"])
    assert (tmp_path / "precious/file").read_text() == "x"


def test_a_good_target_is_good(tmp_path: Path, users: GitUserRepository) -> None:
    (tmp_path / "empty").mkdir()
    before = fingerprint(tmp_path)
    for target in (tmp_path / "new", tmp_path / "empty", tmp_path / "empty/.." / "new"):
        assert wait(users.check_target, target) is None
    assert fingerprint(tmp_path) == before


def test_what_is_wrong_with_a_target_is_one_sentence_and_the_delivery_says_the_same(
    tmp_path: Path, users: GitUserRepository, base: Base, commit: str
) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").write_text("x")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to("elsewhere")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    for name, said in {
        "file": "not an empty folder",
        "full": "not an empty folder",
        "link": "not an empty folder",
        "dangling": "not an empty folder",
        "none/out": "make it first",
        "file/out": "is not a folder",
        "loop/out": "is not a folder",
        "x" * 300: "cannot be",
        os.fsdecode(b"gr\xfcn"): "not UTF-8",
        "": "not an empty folder",
    }.items():
        problem = wait(users.check_target, tmp_path / name)
        assert problem is not None
        assert said in problem, name
        assert "\n" not in problem.encode().decode()
        with pytest.raises(RepositoryRefused) as refused:
            wait(users.deliver_folder, base, commit=commit, target=tmp_path / name)
        assert str(refused.value) == problem
    assert wait(users.check_target, Path("/")) is not None


def test_a_target_where_this_user_may_not_write_is_told(tmp_path: Path) -> None:
    give_away(tmp_path)
    tmp_path.chmod(0o755)
    for name in ("readable", "closed", "empty"):
        (tmp_path / name).mkdir()
        give_away(tmp_path / name)
    (tmp_path / "empty" / "below").mkdir()
    (tmp_path / "closed").chmod(0o700)
    assert "may not write" in _problem_seen_by(4321, tmp_path / "readable/out")
    assert "may not write" in _problem_seen_by(4321, tmp_path / "empty/below")
    assert "cannot be" in _problem_seen_by(4321, tmp_path / "closed/deep/out")


def _problem_seen_by(uid: int, path: Path) -> str:
    script = (
        "import os, sys; from pathlib import Path; from snapshots.delivery import check_target;"
        f"os.setgroups([]); os.setgid({uid}); os.setuid({uid}); print(check_target(Path(sys.argv[1])))"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", script, path]
    return subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, check=True).stdout
