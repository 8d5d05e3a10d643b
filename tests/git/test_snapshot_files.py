"""Odd files: whatever an agent leaves in its workspace is recorded byte for byte, or told about."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from pathlib import Path

import pytest

from snapshots.snapshot import Unchanged
from snapshots.texts import readable
from tests.support import git_repos
from tests.support.stores import Stand, content_of, stand


@pytest.fixture
def here(tmp_path: Path) -> Stand:
    return stand(tmp_path, git_repos.plain(tmp_path / "repo").path)


def nested(path: Path, *, commit: bool) -> None:
    repository = git_repos.empty(path)
    repository.write("inner.txt", "inner")
    if commit:
        repository.commit()


def test_names_of_any_bytes_are_recorded_as_they_are(here: Stand) -> None:
    for name in git_repos.ODD_NAMES:
        (here.path / os.fsdecode(name)).write_bytes(b"odd " + name)
        folder = here.path / "folders" / os.fsdecode(name)
        folder.mkdir(parents=True)
        (folder / os.fsdecode(name)).write_bytes(b"odd " + name)
    snapshot = here.frozen()
    files = here.commit_files(snapshot.commit)
    for name in git_repos.ODD_NAMES:
        assert files[name] == ("100644", b"odd " + name)
        assert files[b"folders/" + name + b"/" + name] == ("100644", b"odd " + name)
        assert readable(os.fsdecode(name)) in snapshot.paths
    assert content_of(snapshot.tree) == content_of(here.path)
    for name in git_repos.ODD_NAMES:
        (here.path / os.fsdecode(name)).unlink()
    assert set(here.frozen("2").paths) == {readable(os.fsdecode(name)) for name in git_repos.ODD_NAMES}


def test_ignore_rules_hold_for_odd_names(here: Stand) -> None:
    (here.path / ".gitignore").write_bytes(b"*.txt\n!README.txt\n")
    for name in git_repos.ODD_NAMES:
        (here.path / os.fsdecode(name)).write_bytes(b"odd")
    here.agent_git("add", "-A")
    expected = {".gitignore", *(readable(os.fsdecode(one)) for one in git_repos.ODD_NAMES if not one.endswith(b".txt"))}
    assert set(here.frozen().paths) == expected


@pytest.mark.parametrize("commit", [True, False])
def test_a_nested_repository_is_captured_as_plain_files_and_its_history_told_about(here: Stand, commit: bool) -> None:
    nested(here.path / "site", commit=commit)
    nested(here.path / "site/deeper", commit=commit)
    snapshot = here.frozen()
    assert snapshot.paths == ("site/deeper/inner.txt", "site/inner.txt")
    assert (snapshot.tree / "site/inner.txt").read_text() == "inner"
    assert not (snapshot.tree / "site/.git").exists()
    assert any("site/.git" in sentence and "nested repository" in sentence for sentence in snapshot.about)
    (here.path / "site/inner.txt").write_text("changed")
    assert here.frozen("2").paths == ("site/inner.txt",)


def test_names_that_some_system_reads_as_dot_git_are_left_out_and_told_about(here: Stand) -> None:
    names = (".GIT", "git~1", ".git ", ".git.", ".g\u200cit", ".git::$INDEX_ALLOCATION", "x\\.git")
    for name in names:
        (here.path / "sub" / name).mkdir(parents=True)
        (here.path / "sub" / name / "config").write_text("x")
    (here.path / "sub/.gitmodules").symlink_to("elsewhere")
    (here.path / "sub/.gitignored").write_text("fine")
    snapshot = here.frozen()
    assert snapshot.paths == ("sub/.gitignored",)
    assert len(snapshot.about) == 2
    here.git("fsck", "--strict", snapshot.commit)


def test_symlinks_are_recorded_as_links_wherever_they_point(here: Stand) -> None:
    targets = ("README.md", "src", "/etc/passwd", "nowhere", "../../..", "itself", "l\u00fcnk\nx", "x" * 3000)
    for number, target in enumerate(targets):
        (here.path / f"link{number}").symlink_to(target)
    (here.path / "itself").symlink_to("itself")
    snapshot = here.frozen()
    files = here.commit_files(snapshot.commit)
    for number, target in enumerate(targets):
        assert files[f"link{number}".encode()] == ("120000", target.encode())
    assert content_of(snapshot.tree) == content_of(here.path)
    assert here.freeze("2") == Unchanged(against=snapshot.ref)


def test_a_file_outside_that_a_link_points_to_is_never_read(here: Stand, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("canary-8d1f")
    (here.path / "file").symlink_to(secret / "key")
    (here.path / "folder").symlink_to(secret)
    (here.path / "dots").symlink_to(os.path.relpath(secret, here.path))
    (here.path / ".gitignore").symlink_to(secret / "key")
    past = time.time_ns() - 10**12  # relatime: an old access time is renewed by the next read
    for path in (secret / "key", secret):
        os.utime(path, ns=(past, past + 10**9))
    snapshot = here.frozen()
    assert (secret / "key").stat().st_atime_ns == past
    assert secret.stat().st_atime_ns == past
    assert not subprocess.run(["grep", "-rl", "canary-8d1f", here.state], capture_output=True, check=False).stdout
    assert all(b"canary" not in content for _, content in here.commit_files(snapshot.commit).values())


def test_a_folder_replaced_by_a_link_to_one_outside_is_recorded_as_a_link(here: Stand, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "app.py").write_text("not ours")
    (here.path / "src/app.py").unlink()
    (here.path / "src").rmdir()
    (here.path / "src").symlink_to(outside)
    snapshot = here.frozen()
    assert set(snapshot.paths) == {"src", "src/app.py"}
    assert here.commit_files(snapshot.commit)[b"src"] == ("120000", os.fsencode(outside))


def test_every_kind_can_take_the_place_of_every_other(here: Stand) -> None:
    def put(kind: str, number: int) -> None:
        place = here.path / "place"
        subprocess.run(["rm", "-rf", place], check=True)
        match kind:
            case "file":
                place.write_text(f"file {number}")
            case "link":
                place.symlink_to(f"target {number}")
            case "folder":
                (place / "sub").mkdir(parents=True)
                (place / "sub" / "file").write_text(f"inside {number}")

    order = ("file", "folder", "link", "file", "link", "folder", "file", "none", "folder", "none", "link")
    for number, kind in enumerate(order):
        put(kind, number)
        snapshot = here.frozen(str(number))
        found = {path: entry for path, entry in here.commit_files(snapshot.commit).items() if path.startswith(b"place")}
        expected = {
            "file": {b"place": ("100644", f"file {number}".encode())},
            "link": {b"place": ("120000", f"target {number}".encode())},
            "folder": {b"place/sub/file": ("100644", f"inside {number}".encode())},
            "none": {},
        }
        assert found == expected[kind], (number, kind)
        assert content_of(snapshot.tree) == content_of(here.path)


def test_only_the_exec_bit_is_recorded_and_no_mode_makes_noise(here: Stand) -> None:
    (here.path / "README.md").chmod(0o600)
    (here.path / "src").chmod(0o700)
    assert here.freeze("1") == Unchanged(against="base")
    (here.path / "README.md").chmod(0o755)
    (here.path / "run.sh").chmod(0o644)
    snapshot = here.frozen("1")
    files = here.commit_files(snapshot.commit)
    assert (files[b"README.md"][0], files[b"run.sh"][0]) == ("100755", "100644")
    assert (snapshot.tree / "README.md").stat().st_mode & 0o777 == 0o755
    assert (snapshot.tree / "src").stat().st_mode & 0o777 == 0o700


def test_set_user_id_bits_do_not_travel(here: Stand) -> None:
    (here.path / "tool").write_text("x")
    (here.path / "tool").chmod(0o6755)
    assert (here.frozen().tree / "tool").stat().st_mode & 0o7777 == 0o755


def test_line_ends_and_attributes_change_no_byte(here: Stand) -> None:
    contents = {"a.txt": b"one\r\ntwo\r\n", "b.txt": b"one\ntwo\n", "c.txt": b"one\r\ntwo\n", "d.c": b"$Id: x $\n"}
    (here.path / ".gitattributes").write_text(
        "*.txt text eol=lf\nb.txt eol=crlf\nd.c ident\n* working-tree-encoding=UTF-16\n"
    )
    for name, content in contents.items():
        (here.path / name).write_bytes(content)
    files = here.commit_files(here.frozen().commit)
    for name, content in contents.items():
        assert files[name.encode()][1] == content


def test_binaries_images_and_empty_files_are_recorded(here: Stand) -> None:
    contents = {"logo.png": git_repos.PNG, "zeros": bytes(100_000), "random": os.urandom(3_000_000), "empty": b""}
    for name, content in contents.items():
        (here.path / name).write_bytes(content)
    snapshot = here.frozen()
    files = here.commit_files(snapshot.commit)
    assert {name: files[name.encode()][1] for name in contents} == contents
    assert content_of(snapshot.tree) == content_of(here.path)


def test_empty_folders_are_in_the_tree_for_peers(here: Stand) -> None:
    (here.path / "empty/inside").mkdir(parents=True)
    (here.path / "work").write_text("x")
    assert (here.frozen().tree / "empty/inside").is_dir()


def test_pipes_sockets_and_devices_are_left_out_and_told_about_without_opening_them(here: Stand) -> None:
    os.mkfifo(here.path / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(here.path / "socket"))
    (here.path / "work").write_text("x")
    snapshot = here.frozen()
    assert snapshot.paths == ("work",)
    assert sorted(os.listdir(snapshot.tree)) == sorted({*os.listdir(here.path)} - {".git", "pipe", "socket"})
    assert any("pipe" in sentence and "socket" in sentence for sentence in snapshot.about)


def test_a_file_with_forged_size_and_time_is_still_seen_as_changed(here: Stand) -> None:
    path = here.path / "sneaky"
    path.write_text("before")
    time.sleep(0.1)
    here.frozen("1")
    status = path.stat()
    path.write_text("after!")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert path.stat().st_mtime_ns == status.st_mtime_ns
    snapshot = here.frozen("2")
    assert snapshot.paths == ("sneaky",)
    assert (snapshot.tree / "sneaky").read_text() == "after!"


def test_a_file_changed_in_the_tick_of_its_freeze_is_still_seen_as_changed(here: Stand) -> None:
    path = here.path / "quick"
    for number in range(30):
        path.write_text(f"{number:04}")
        snapshot = here.frozen(str(number))
        assert here.commit_files(snapshot.commit)[b"quick"][1] == f"{number:04}".encode()
        assert (snapshot.tree / "quick").read_text() == f"{number:04}"


def test_hard_links_inside_the_workspace_become_separate_equal_files(here: Stand) -> None:
    (here.path / "one").write_text("same")
    os.link(here.path / "one", here.path / "two")
    snapshot = here.frozen()
    assert set(snapshot.paths) == {"one", "two"}
    assert (snapshot.tree / "one").stat().st_ino != (here.path / "one").stat().st_ino


def test_files_and_folders_without_any_permission_are_recorded_or_told_about(here: Stand) -> None:
    (here.path / "closed").mkdir()
    (here.path / "closed/file").write_text("x")
    (here.path / "secret").write_text("x")
    (here.path / "open").write_text("x")
    (here.path / "secret").chmod(0)
    (here.path / "closed").chmod(0)
    snapshot = here.frozen()
    told = " ".join(snapshot.about)
    for path in ("secret", "closed"):
        assert path in told or any(one.startswith(path) for one in snapshot.paths)
    assert (here.path / "secret").stat().st_mode & 0o777 == 0
    here.delete_run()


def test_folders_too_deep_to_be_named_are_told_about_and_the_rest_is_recorded(here: Stand) -> None:
    fd = os.open(here.path, os.O_RDONLY)
    for _ in range(2000):
        os.mkdir("deep", dir_fd=fd)
        below = os.open("deep", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(os.open("bottom", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
    os.close(fd)
    (here.path / "deep/top").write_text("x")
    snapshot = here.frozen()
    assert snapshot.paths == ("deep/top",)
    assert any("too long" in sentence for sentence in snapshot.about)
    here.delete_run()
    assert list((here.state / "runs").iterdir()) == []


def test_ten_thousand_files_are_recorded_and_a_small_change_after_them_costs_little(here: Stand) -> None:
    for folder in range(100):
        (here.path / f"d{folder}").mkdir()
        for number in range(100):
            (here.path / f"d{folder}" / str(number)).write_text(f"{folder} {number}")
    time.sleep(0.1)
    first = here.frozen("1")
    assert first.changed_files == 10_000
    assert len(first.paths) == 1_000
    (here.path / "d5/5").write_text("changed")
    second = here.frozen("2")
    assert second.paths == ("d5/5",)
    # Unchanged files are one file with the earlier tree's: nothing was copied.
    assert (second.tree / "d6/6").stat().st_ino == (first.tree / "d6/6").stat().st_ino
    assert (second.tree / "d5/5").read_text() == "changed"
    assert (first.tree / "d5/5").read_text() == "5 5"
