"""A run without a repository delivers a folder: every byte, mode and link of the commit, whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from snapshots.errors import RepositoryRefused
from snapshots.snapshot import Base
from snapshots.user_repository import GitUserRepository
from tests.support import git_repos
from tests.support.answers import answer, wait
from tests.support.users import UID, give_away


@pytest.fixture
def users(tmp_path: Path) -> GitUserRepository:
    return GitUserRepository(tmp_path / "state")


@pytest.fixture
def base(users: GitUserRepository) -> Base:
    return wait(users.import_base, None, run="r1", include_dirty=False)


def test_bytes_modes_links_and_names_are_delivered_as_they_are(
    tmp_path: Path, users: GitUserRepository, base: Base
) -> None:
    attributes = b"*.txt text eol=crlf\n*.c ident\n*.u working-tree-encoding=UTF-16\n*.f filter=x\n"
    plain: dict[str | bytes, bytes | None] = {
        ".gitattributes": attributes,
        "crlf.txt": b"one\r\ntwo\n",
        "ident.c": b"/* $Id$ */\n",
        "text.u": b"text\n",
        "filtered.f": b"f\n",
        **{b"odd/" + name: name for name in git_repos.ODD_NAMES},
    }
    commit = answer(base, plain)
    commit = answer(base, {"tool": b"#!/bin/sh\n"}, number=2, parent=commit, mode="100755")
    commit = answer(base, {"link": b"/etc/passwd"}, number=3, parent=commit, mode="120000")
    target = wait(users.deliver_folder, base, commit=commit, target=tmp_path / "out")
    for name, content in plain.items():
        assert (target / os.fsdecode(name)).read_bytes() == content
    assert (target / "tool").stat().st_mode & 0o100
    assert os.readlink(target / "link") == "/etc/passwd"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "state"]
    assert not (target / ".git").exists()


def test_an_empty_folder_is_filled_and_a_full_one_refused(tmp_path: Path, users: GitUserRepository, base: Base) -> None:
    commit = answer(base, {"a.txt": b"a\n"})
    (tmp_path / "empty").mkdir()
    wait(users.deliver_folder, base, commit=commit, target=tmp_path / "empty")
    (tmp_path / "empty" / "mine").write_text("mine")
    for place in (tmp_path / "empty", tmp_path / "empty" / "a.txt"):
        with pytest.raises(RepositoryRefused, match="not an empty folder"):
            wait(users.deliver_folder, base, commit=commit, target=place)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to("elsewhere")
    with pytest.raises(RepositoryRefused, match="not an empty folder"):
        wait(users.deliver_folder, base, commit=commit, target=tmp_path / "link")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_missing_parent_is_named(tmp_path: Path, users: GitUserRepository, base: Base) -> None:
    with pytest.raises(RepositoryRefused, match="make it first"):
        wait(users.deliver_folder, base, commit=base.commit, target=tmp_path / "none" / "out")


def test_the_files_belong_to_the_owner_of_the_folder_above(
    tmp_path: Path, users: GitUserRepository, base: Base
) -> None:
    (tmp_path / "theirs").mkdir()
    give_away(tmp_path / "theirs")
    commit = answer(base, {"src/a.txt": b"a\n"})
    commit = answer(base, {"link": b"/etc/hostname"}, number=2, parent=commit, mode="120000")
    owner = os.stat("/etc/hostname").st_uid
    target = wait(users.deliver_folder, base, commit=commit, target=tmp_path / "theirs" / "out")
    assert {path.lstat().st_uid for path in (target, *target.rglob("*"))} == {UID}
    assert os.stat("/etc/hostname").st_uid == owner
