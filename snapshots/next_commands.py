"""PURE: the exact commands that a merge prints, to finish it by hand or to undo it. Each is one line for a shell.

An undo first looks whether the branch still stands where the merge left it, so that it can never drop later commits,
and then lets git refuse when it would touch a file that was edited since.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from snapshots.texts import is_readable

_NOT_PLAIN = re.compile(rb"[^A-Za-z0-9/._]")


def git_at(folder: Path, *arguments: str) -> str:
    return _line("git", "-C", str(folder), *arguments)


def merge_by_hand(folder: Path, name: str, *, squash: bool, unrelated: bool = False) -> tuple[str, ...]:
    """`git merge` in a working tree that has the branch checked out."""
    extra = ("--allow-unrelated-histories",) if unrelated else ()
    if squash:
        return git_at(folder, "merge", "--squash", *extra, name), git_at(folder, "commit", "--no-edit")
    return (git_at(folder, "merge", *extra, name),)


def merge_around(
    folder: Path, name: str, *, squash: bool, edited: Sequence[str], in_the_way: Sequence[tuple[str, str]]
) -> tuple[str, ...]:
    """The same with work in its way: files that git does not know are moved aside, edits are stashed and put back."""
    moves = tuple(_line("mv", "-n", "--", str(folder / old), str(folder / new)) for old, new in in_the_way)
    merging = merge_by_hand(folder, name, squash=squash)
    if not edited:
        return (*moves, *merging)
    return (*moves, git_at(folder, "stash", "push"), *merging, git_at(folder, "stash", "pop"))


def undo_checked_out(root: Path, branch: str, *, before: str | None, after: str, uncommitted: str | None = None) -> str:
    """`uncommitted`: the commit on top of `before` that holds what was uncommitted then, and is to be so again."""
    ref = f"refs/heads/{branch}"
    standing = f'"$({git_at(root, "symbolic-ref", "HEAD")}) $({git_at(root, "rev-parse", "HEAD")})"'
    check = f"test {standing} = {_word(f'{ref} {after}')}"
    if before is not None:
        # Not `reset --keep`, which would drop what is staged and has nothing to do with the merge.
        back = git_at(root, "checkout", "--quiet", "--no-overwrite-ignore", "-B", branch, uncommitted or before)
        loosened = f" && {git_at(root, 'reset', '--quiet', before)}" if uncommitted else ""
        return f"{check} && {back}{loosened}"
    empty_tree = "$(" + git_at(root, "hash-object", "-w", "-t", "tree", "/dev/null") + ")"
    clearing = f'{git_at(root, "read-tree", "-m", "-u", after)} "{empty_tree}"'
    return f"{check} && {clearing} && {git_at(root, 'update-ref', '-d', ref, after)}"


def undo_ref_only(root: Path, branch: str, *, before: str, after: str) -> str:
    standing = f'"$({git_at(root, "rev-parse", f"refs/heads/{branch}")})"'
    return f"test {standing} = {after} && {git_at(root, 'branch', '-f', branch, before)}"


def _line(*words: str) -> str:
    return " ".join(map(_word, words))


def _word(word: str) -> str:
    """Quoted for any POSIX shell. Bytes that are not UTF-8 are spelled out, so that the command itself is."""
    if is_readable(word):
        return shlex.quote(word)
    spelled = _NOT_PLAIN.sub(lambda match: b"\\%03o" % match[0][0], os.fsencode(word)).decode()
    return f"\"$(printf '{spelled}')\""
