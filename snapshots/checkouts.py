"""Reading the user's repository: what stands at a path, where HEAD is, who has which branch checked out.

Read-only: no lock is taken, no index refreshed, nothing written. A sentence for the user comes as RepositoryRefused.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from snapshots.errors import GitFailed, RepositoryRefused
from snapshots.git import Git
from snapshots.names import shown
from snapshots.repository import RepositoryReport
from snapshots.texts import is_readable, readable

# In the order in which git itself would name them: a rebase also leaves CHERRY_PICK_HEAD behind.
_UNDER_WAY = (
    ("rebase-merge", "a rebase"),
    ("rebase-apply", "a rebase"),
    ("MERGE_HEAD", "a merge"),
    ("CHERRY_PICK_HEAD", "a cherry-pick"),
    ("REVERT_HEAD", "a revert"),
    ("sequencer", "a cherry-pick or revert of several commits"),
    ("BISECT_LOG", "a bisect"),
)
_SETTINGS = (
    "submodule.recurse=false",
    "merge.autoStash=false",
)
# Without the program, a repository made for Git LFS cannot be read or checked out at all: pointers are kept instead.
_WITHOUT_LFS = ("filter.lfs.process=", "filter.lfs.clean=", "filter.lfs.smudge=", "filter.lfs.required=false")
_SHOWN = 5


@dataclass(frozen=True, kw_only=True)
class Checkout:
    """A working tree of the user's that git can read. `head` None: no commit yet; `branch` None: detached HEAD.

    `git_dir` is this working tree's own, `common_dir` the repository's; they differ in a linked worktree.
    """

    root: Path
    git_dir: Path
    common_dir: Path
    object_format: str
    head: str | None
    branch: str | None
    git: Git

    @property
    def shallow_file(self) -> Path:
        return self.common_dir / "shallow"

    def has(self, commit: str) -> bool:
        return self.git.attempt("cat-file", "-e", f"{commit}^{{commit}}").exit_code == 0

    def commit_of(self, ref: str) -> str | None:
        """The commit that a full ref name stands for, None when there is no such ref."""
        found = self.git.attempt("rev-parse", "--quiet", "--verify", f"{ref}^{{commit}}")
        return os.fsdecode(found.stdout).strip() if found.exit_code == 0 else None


@dataclass(frozen=True, kw_only=True)
class Worktree:
    """A working tree of the repository; `branch` is what it has checked out or is rebasing or bisecting."""

    path: Path
    branch: str | None


def open_checkout(path: Path) -> Checkout:
    """The checkout at or above `path`. Raises RepositoryRefused with one sentence that says what to do."""
    path = Path(os.path.abspath(path))
    try:
        return _opened(_marked_root(path))
    except OSError as error:
        raise RepositoryRefused(_unreadable(path, error)) from error


def _opened(marked: Path) -> Checkout:
    try:
        git = Git.users(marked)
        git = replace(git, settings=git.settings + _SETTINGS + (() if shutil.which("git-lfs") else _WITHOUT_LFS))
        _expect_working_tree(git, marked)
        root, git_dir, common_dir = (
            Path(os.fsdecode(git.run("rev-parse", "--path-format=absolute", what)[:-1]))
            for what in ("--show-toplevel", "--git-dir", "--git-common-dir")
        )
        object_format = git.text("rev-parse", "--show-object-format")
        branch, head = _head(git, root)
    except GitFailed as error:
        raise RepositoryRefused(_sentence(marked, error.stderr)) from error
    return Checkout(
        root=root,
        git_dir=git_dir,
        common_dir=common_dir,
        object_format=object_format,
        head=head,
        branch=branch,
        git=replace(git, directory=root),
    )


def look(path: Path) -> RepositoryReport:
    """What stands at `path`, before anything starts."""
    try:
        _refuse_unreadable_name(path)
        checkout = open_checkout(path)
        refuse_unusable(checkout)
        dirty = len(dirty_paths(checkout, untracked=True))
        warnings = warnings_for(checkout)
    except RepositoryRefused as refusal:
        return _refused(path, str(refusal))
    except GitFailed as error:
        return _refused(path, _sentence(path, error.stderr))
    except OSError as error:
        return _refused(path, _unreadable(path, error))
    return RepositoryReport(
        path=path,
        root=checkout.root,
        head=checkout.head,
        branch=checkout.branch,
        dirty_files=dirty,
        problem=None,
        warnings=warnings,
    )


def _refused(path: Path, problem: str) -> RepositoryReport:
    path = Path(readable(str(path)))
    return RepositoryReport(path=path, root=None, head=None, branch=None, dirty_files=0, problem=problem)


def refuse_unusable(checkout: Checkout) -> None:
    """Raises RepositoryRefused for a repository that git can read and a run cannot start from."""
    _refuse_unreadable_name(checkout.root)
    if checkout.branch is not None and not is_readable(checkout.branch):
        raise RepositoryRefused(
            f"The name of the branch {checkout.branch} in {checkout.root} is not UTF-8: "
            "run `git branch -m NEW-NAME` there and try again."
        )
    listing = checkout.git.text("for-each-ref", "--format=%(refname)", "refs/heads/massgend", "refs/massgend")
    for ref, move in (("refs/heads/massgend", "branch -m massgend NEW-NAME"), ("refs/massgend", "update-ref -d")):
        if ref in listing.splitlines():
            move = move if ref != "refs/massgend" else f"{move} {ref}"
            raise RepositoryRefused(
                f"{checkout.root} has a ref {ref}, and git allows no massgend/RUN/AGENT beside it: "
                f"run `git {move}` there and try again."
            )
    promised = checkout.git.attempt("config", "--get-regexp", r"^(extensions\.partialclone|remote\..*\.promisor)$")
    if promised.exit_code == 0:
        raise RepositoryRefused(
            f"{checkout.root} is a partial clone, which lacks objects that agents need: clone it without --filter."
        )


def warnings_for(checkout: Checkout) -> tuple[str, ...]:
    """Plain sentences on what a run on this checkout will not see or not do."""
    found: list[str] = []
    if operation := under_way(checkout):
        found.append(
            f"{operation.capitalize()} is under way in {checkout.root}: the result will not be merged for you."
        )
    elif checkout.branch is None:
        found.append("HEAD is detached: the result will not be merged into a branch for you.")
    if checkout.head is None:
        found.append("The repository has no commit yet: agents start from an empty folder.")
    if checkout.shallow_file.exists():
        found.append("The clone is shallow: agents see the history that is there.")
    pointers = _paths(checkout.git.run("ls-files", "-z", "--", ":(top,attr:filter=lfs)"))
    if pointers:
        found.append(f"Git LFS keeps {_named(pointers)}: agents see the pointers, not the contents.")
    links = _gitlinks(checkout)
    if missing := [path for path in links if not (checkout.root / path / ".git").exists()]:
        found.append(f"Submodules that are not initialised: {_named(missing)}.")
    if links:
        found.append(f"Submodules are empty folders in the workspaces: {_named(links)}.")
    return tuple(found)


def under_way(checkout: Checkout) -> str | None:
    """What the user is in the middle of in this working tree ("a rebase"), or None."""
    for name, operation in _UNDER_WAY:
        if os.path.lexists(checkout.git_dir / name):
            return operation
    return None


def dirty_paths(checkout: Checkout, *, untracked: bool) -> dict[str, str]:
    """Paths that differ from HEAD in the index or the working tree -> their two letters of `git status`."""
    listing = checkout.git.run(
        "status",
        "--porcelain=v1",
        "-z",
        "--no-renames",
        "--ignore-submodules=dirty",
        f"--untracked-files={'all' if untracked else 'no'}",
    )
    return {entry[3:]: entry[:2] for entry in _paths(listing)}


def worktrees(checkout: Checkout) -> tuple[Worktree, ...]:
    """All working trees of the repository; one that rebases or bisects a branch counts as having it checked out."""
    found: list[Worktree] = []
    listing = os.fsdecode(checkout.git.run("worktree", "list", "--porcelain", "-z"))
    for record in listing.split("\0\0"):
        fields = dict(line.partition(" ")[::2] for line in record.split("\0") if line)
        if "worktree" in fields:
            branch = fields.get("branch", "").removeprefix("refs/heads/") or None
            found.append(Worktree(path=Path(fields["worktree"]), branch=branch))
    git_dirs = {checkout.common_dir: found[0].path} if found else {}
    for linked in (checkout.common_dir / "worktrees").glob("*"):
        pointer = linked / "gitdir"
        if pointer.is_file():
            git_dirs[linked] = Path(os.fsdecode(pointer.read_bytes().rstrip(b"\n"))).parent
    for git_dir, path in git_dirs.items():
        found += [Worktree(path=path, branch=branch) for branch in _branches_in_work(git_dir)]
    return tuple(found)


def _branches_in_work(git_dir: Path) -> list[str]:
    """Branches that a rebase or a bisect has taken HEAD off and will come back to."""
    found = []
    for name in ("rebase-merge/head-name", "rebase-apply/head-name", "BISECT_START"):
        note = git_dir / name
        if note.is_file():
            found.append(os.fsdecode(note.read_bytes()).rstrip("\n").removeprefix("refs/heads/"))
    return found


def _marked_root(path: Path) -> Path:
    if not path.exists():
        raise RepositoryRefused(f"{path} does not exist: give --repo the folder of a git repository.")
    if not path.is_dir():
        raise RepositoryRefused(f"{path} is not a folder: give --repo the folder of a git repository.")
    if not os.access(path, os.R_OK | os.X_OK):
        raise RepositoryRefused(f"{path} cannot be read by this user: check its permissions.")
    for folder in (path, *path.parents):
        git_folder = (folder / "HEAD").exists() and (folder / "objects").is_dir() and (folder / "refs").is_dir()
        if git_folder or os.path.lexists(folder / ".git"):
            return folder
    raise RepositoryRefused(
        f"{path} is not a git repository: run `git init` there, or leave --repo away to start from an empty folder."
    )


def _refuse_unreadable_name(path: Path) -> None:
    if not is_readable(str(path)):
        raise RepositoryRefused(f"The path {path} is not UTF-8: rename that folder, or give --repo a clone elsewhere.")


def _unreadable(path: Path, error: OSError) -> str:
    return f"{path} cannot be read by this user ({error.strerror}): check the permissions of it and the folders above."


def _expect_working_tree(git: Git, marked: Path) -> None:
    bare, inside = git.text("rev-parse", "--is-bare-repository", "--is-inside-git-dir").split()
    if bare == "true":
        raise RepositoryRefused(f"{marked} is a bare repository: give --repo a clone of it with a working tree.")
    if inside == "true":
        raise RepositoryRefused(f"{marked} is the inside of a repository: give --repo the folder with the files.")


def _head(git: Git, root: Path) -> tuple[str | None, str | None]:
    """Branch and commit of HEAD. A branch that exists and has no readable commit is broken, not unborn."""
    symbolic = git.attempt("symbolic-ref", "--quiet", "HEAD")
    ref = os.fsdecode(symbolic.stdout).removesuffix("\n")
    commit = git.attempt("rev-parse", "--quiet", "--verify", "HEAD^{commit}")
    branch = ref.removeprefix("refs/heads/") or None
    if commit.exit_code == 0:
        head = os.fsdecode(commit.stdout).strip()
        if git.attempt("cat-file", "-e", f"{head}^{{tree}}").exit_code != 0:
            raise RepositoryRefused(f"{root} is damaged, the files of {head} are missing: `git fsck` there says more.")
        return branch, head
    listing = git.attempt("for-each-ref", ref or "refs/heads")
    if branch is None or listing.stdout or "broken ref" in listing.stderr or listing.exit_code != 0:
        raise RepositoryRefused(f"{root} is damaged, HEAD names no commit that is there: `git fsck` there says more.")
    return branch, None


def _gitlinks(checkout: Checkout) -> list[str]:
    listing = _paths(checkout.git.run("ls-files", "--stage", "-z"))
    return [entry.partition("\t")[2] for entry in listing if entry.startswith("160000 ")]


def _sentence(path: Path, complaint: str) -> str:
    first = next((line for line in complaint.splitlines() if line.strip()), "git gave no reason")
    if "dubious ownership" in complaint:
        owner = path.stat().st_uid if path.exists() else "another user"
        return f"{path} belongs to another user (uid {owner}): run massgend as that user, or give --repo a clone."
    return f"git cannot read the repository at {path}: {first.removeprefix('fatal: ')}"


def _paths(listing: bytes) -> list[str]:
    return [os.fsdecode(entry) for entry in listing.split(b"\0") if entry]


def _named(paths: list[str]) -> str:
    more = len(paths) - _SHOWN
    return ", ".join(map(shown, paths[:_SHOWN])) + (f" and {more} more" if more > 0 else "")
