"""PURE parts of the merge: which paths are risky, what the messages look like, which commands are printed."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from snapshots.merge_result import with_trailers
from snapshots.next_commands import merge_around, undo_checked_out
from snapshots.risk import runs_code, scripts_differ


@pytest.mark.parametrize(
    "path",
    [
        ".gitattributes",
        "deep/down/.gitattributes",
        ".gitmodules",
        ".envrc",
        ".mcp.json",
        ".husky/pre-commit",
        ".githooks/x",
        ".vscode/tasks.json",
        "sub/.vscode/settings.json",
        ".idea/workspace.xml",
        ".claude/settings.json",
        ".devcontainer/devcontainer.json",
        ".github/workflows/ci.yml",
        ".github/actions/x/action.yml",
        ".gitlab-ci.yml",
        ".circleci/config.yml",
        "Jenkinsfile",
        ".pre-commit-config.yaml",
    ],
)
def test_what_tools_read_as_orders_is_risky(path: str) -> None:
    assert runs_code(path)


@pytest.mark.parametrize(
    "path",
    ["README.md", "Makefile", "src/vscode/x", "github/workflows/ci.yml", ".github/CODEOWNERS", "x.gitattributes"],
)
def test_plain_files_are_not_risky(path: str) -> None:
    assert not runs_code(path)


def test_a_hooks_folder_of_the_users_own_choice_is_risky() -> None:
    assert runs_code("tools/hooks/pre-push", hooks_folder="tools/hooks")
    assert not runs_code("tools/hooks2/pre-push", hooks_folder="tools/hooks")


@pytest.mark.parametrize(
    ("before", "after", "differ"),
    [
        (b'{"scripts": {"a": "b"}}', b'{"x": 1, "scripts": {"a": "b"}}', False),
        (b'{"scripts": {"a": "b"}}', b'{"scripts": {"a": "c"}}', True),
        (None, b'{"scripts": {"a": "b"}}', True),
        (None, b'{"scripts": null}', False),
        (None, b"[]", True),
        (b"{}", b"{not json", True),
        (b"{}", b"\xff\xfe", True),
    ],
)
def test_only_changed_package_scripts_are_risky(before: bytes | None, after: bytes, differ: bool) -> None:
    assert scripts_differ(before, after) is differ


def test_trailers_join_those_that_are_there_and_are_never_doubled() -> None:
    trailers = {"Massgend-Run": "r1", "Massgend-Commit": "abc"}
    assert with_trailers("Title", trailers) == "Title\n\nMassgend-Run: r1\nMassgend-Commit: abc\n"
    assert with_trailers("fix: title", trailers) == "fix: title\n\nMassgend-Run: r1\nMassgend-Commit: abc\n"
    joined = with_trailers("Title\n\nMassgend-Run: r1\n", trailers)
    assert joined == "Title\n\nMassgend-Run: r1\nMassgend-Commit: abc\n"
    assert with_trailers(joined, trailers) == joined
    assert with_trailers("  ", trailers).startswith("Merge the result of a massgend run\n\nMassgend-Run")


def test_commands_are_safe_for_a_shell() -> None:
    root = Path("/it's $(a) `repo`")
    commands = merge_around(root, "massgend/r/x", squash=False, edited=("a",), in_the_way=(("-f; x", "-f; x.mine"),))
    assert shlex.split(commands[0]) == ["mv", "-n", "--", f"{root}/-f; x", f"{root}/-f; x.mine"]
    assert [shlex.split(command)[3:5] for command in commands[1:]] == [
        ["stash", "push"],
        ["merge", "massgend/r/x"],
        ["stash", "pop"],
    ]
    assert "'/it'\"'\"'s $(a) `repo`'" in undo_checked_out(root, "main", before="b", after="a")
