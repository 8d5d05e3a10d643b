"""Records a planted tree in our bare repository: one `git fast-import` stream of what changed, then one new ref.

Git runs on the bare repository alone; file contents come from the immutable tree, byte for byte.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from snapshots.git import Git
from snapshots.names import is_submodule_ref, quoted
from snapshots.scanning import Entry
from snapshots.selection import TreeEntry
from snapshots.snapshot import Author

GITLINK = "160000"
NO_COMMIT = "0" * 40
MOST_PATHS = 1_000
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Change:
    """What a new commit changes against its parent. Paths are relative to the commit's root; `files` are relative
    to it too, and lie under `folder`."""

    folder: Path
    deleted: Sequence[str]
    files: Sequence[tuple[str, Entry]]


@dataclass(frozen=True, kw_only=True)
class Wording:
    message: str
    author: Author
    taken_at: int


def list_files(bare: Path, commit: str) -> dict[str, TreeEntry]:
    """Every path of a commit, submodules as their gitlink. Raises GitFailed."""
    listing = os.fsdecode(Git.ours(bare).run("ls-tree", "-r", "-z", "--full-tree", commit))
    found: dict[str, TreeEntry] = {}
    for line in listing.split("\0")[:-1]:
        about, _, path = line.partition("\t")
        mode, _, oid = about.split(" ")
        found[path] = TreeEntry(mode, oid)
    return found


def has_commit(bare: Path, commit: str) -> bool:
    return Git.ours(bare).attempt("cat-file", "-e", f"{commit}^{{commit}}").exit_code == 0


def tree_of(bare: Path, commit: str) -> str:
    return Git.ours(bare).text("rev-parse", "--verify", "-q", f"{commit}^{{tree}}")


def record(bare: Path, *, parent: str | None, wording: Wording, change: Change, scratch_ref: str) -> str:
    """Write a commit; no ref points to it yet. Raises GitFailed, or OSError when a file cannot be read."""
    stream = _stream(parent=parent, wording=wording, change=change, scratch_ref=scratch_ref)
    answer = Git.ours(bare).run("fast-import", "--quiet", "--done", stdin=stream)
    return answer.decode("ascii").strip()


def changed_paths(bare: Path, parent: str, commit: str) -> tuple[str, ...]:
    listing = Git.ours(bare).run("diff-tree", "-r", "-z", "--no-renames", "--name-only", parent, commit)
    return tuple(os.fsdecode(path) for path in listing.split(b"\0")[:-1])


def create_ref(bare: Path, ref: str, commit: str) -> None:
    """Raises GitFailed when the ref exists."""
    Git.ours(bare).run("update-ref", ref, commit, NO_COMMIT)


def set_ref(bare: Path, ref: str, commit: str) -> None:
    Git.ours(bare).run("update-ref", ref, commit)


def refs_below(bare: Path, prefix: str) -> dict[str, str]:
    """Refs whose name starts with `prefix` (a whole folder, ending in `/`), and their commits."""
    listing = Git.ours(bare).text("for-each-ref", "--format=%(objectname) %(refname)", prefix.rstrip("/"))
    pairs = (line.partition(" ") for line in listing.splitlines())
    return {ref: commit for commit, _, ref in pairs}


def delete_refs(bare: Path, refs: Iterable[str]) -> None:
    commands = b"".join(b"delete " + os.fsencode(ref) + b"\0" + b"\0" for ref in refs)
    if commands:
        Git.ours(bare).run("update-ref", "-z", "--stdin", stdin=commands)


def collect_garbage(bare: Path) -> None:
    """Drop objects that nothing reaches. Young ones stay: another run's freeze may be about to point a ref at them."""
    git = Git.ours(bare)
    git.run("repack", "-q", "-A", "-d", "-l", "--unpack-unreachable=1.hour.ago")
    git.run("prune", "--expire=1.hour.ago")


def snapshot_refs(bare: Path, run: str, agent: str, base: str) -> list[tuple[str, str]]:
    """An agent's snapshot refs with their commits, oldest first: each is the child of the one before."""
    refs = refs_below(bare, f"refs/massgend/{run}/{agent}/")
    refs = {ref: commit for ref, commit in refs.items() if not is_submodule_ref(ref)}
    if len(refs) < 2:
        return list(refs.items())
    commits = "\n".join([*set(refs.values()), f"^{base}"]).encode()
    order = Git.ours(bare).run("rev-list", "--topo-order", "--reverse", "--stdin", stdin=commits).decode().split()
    place = {commit: number for number, commit in enumerate(order)}
    return sorted(refs.items(), key=lambda pair: (place[pair[1]], pair[0]))


def export(bare: Path, commit: str, target: Path, index: Path) -> None:
    """Write the files of a commit to the folder `target`, bytes as they are. `index`: a file of ours to use up."""
    environment = {"GIT_INDEX_FILE": str(index)}
    git = Git.ours(bare, work_tree=target)
    try:
        git.run("read-tree", commit, environment=environment)
        git.run("checkout-index", "-a", "-f", "-q", environment=environment)
    finally:
        index.unlink(missing_ok=True)


def _stream(*, parent: str | None, wording: Wording, change: Change, scratch_ref: str) -> Iterator[bytes]:
    person = _person(wording)
    message = wording.message.replace("\0", "").encode("utf-8", "backslashreplace")
    yield f"commit {scratch_ref}\nmark :1\n".encode()
    yield b"author %s\ncommitter %s\n" % (person, person)
    yield b"data %d\n%s\n" % (len(message), message)
    if parent is not None:
        yield f"from {parent}\n".encode()
    # Deletions first: a folder may have taken a deleted file's place, or a file a folder's.
    for path in change.deleted:
        yield b"D %s\n" % quoted(path)
    folder = os.open(change.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) if change.files else None
    try:
        for path, entry in change.files:
            yield b"M %s inline %s\n" % (entry.git_mode.encode(), quoted(path))
            yield from _content(path, entry, folder)
    finally:
        if folder is not None:
            os.close(folder)
    yield b"get-mark :1\n"
    # The ref was only needed to build the commit: it must not appear, the real one is made in a step of its own.
    yield f"reset {scratch_ref}\nfrom {NO_COMMIT}\n\ndone\n".encode()


def _content(path: str, entry: Entry, folder: int | None) -> Iterator[bytes]:
    if entry.is_link:
        target = os.readlink(os.fsencode(path), dir_fd=folder)
        yield b"data %d\n%s\n" % (len(target), target)
        return
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder), "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        yield b"data %d\n" % size
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk
        yield b"\n"


def _person(wording: Wording) -> bytes:
    name = re.sub(r"[<>\x00-\x1f]", "", wording.author.name).strip() or "agent"
    email = re.sub(r"[<>\x00-\x20]", "", wording.author.email)
    return f"{name} <{email}> {wording.taken_at} +0000".encode("utf-8", "backslashreplace")


def gitlinks(files: Mapping[str, TreeEntry]) -> dict[str, str]:
    return {path: entry.oid for path, entry in files.items() if entry.mode == GITLINK}
