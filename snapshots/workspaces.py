"""Makes an agent's permanent workspace: an independent clone that shares nothing with any repository of ours.

Git runs in a workspace here, before an agent has ever seen it, and never again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from snapshots import folders, manifest
from snapshots.errors import GitFailed, WorkspaceFailed
from snapshots.git import Git
from snapshots.layout import BASE_TREE, AgentFolder
from snapshots.planting import Owner, plant
from snapshots.recording import gitlinks, has_commit, list_files
from snapshots.scanning import entries, scan
from snapshots.snapshot import Base, WorkspaceId

NEUTRAL_ATTRIBUTES = "* -text -filter -ident !eol !working-tree-encoding\n"
"""Highest in precedence when in `info/attributes`: bytes in the repository are bytes in the checkout, and back."""

FEW_TO_READ_AGAIN = 1000
"""So many files are read in the time it takes until they count as old (50 ms): then waiting gains nothing."""
PATIENCE_NS = 3_000_000_000
"""More than any file system's grain; a file server whose clock is ahead is not waited for."""


@dataclass(frozen=True, kw_only=True)
class Checkout:
    """A commit of one of our repositories (or a user's submodule) and where it goes."""

    source: Git
    commit: str
    target: Path
    branch: str
    person: str


def neutralise(git_dir: Path) -> None:
    """Switch off every attribute that changes bytes. Raises OSError."""
    folder = git_dir / "info"
    folder.mkdir(exist_ok=True)
    attributes = folder / "attributes"
    if not attributes.exists() or attributes.read_text() != NEUTRAL_ATTRIBUTES:
        manifest.write_whole(attributes, NEUTRAL_ATTRIBUTES.encode())


def create(base: Base, workspace: WorkspaceId, branch: str, folder: AgentFolder, owner: Owner) -> None:
    """Make the workspace and its HOME. Made beside and renamed: it is whole or not there. Raises WorkspaceFailed."""
    try:
        folder.records.mkdir(parents=True, exist_ok=True)
        folders.remove(folder.partial)
        folder.home.mkdir(exist_ok=True, mode=0o700)
        neutralise(base.bare)
        _fill(base, workspace, branch, folder.partial)
        if owner.change:
            os.chown(folder.home, owner.uid, owner.gid)
            folders.give(folder.partial, owner.uid, owner.gid)
        _remember(base, folder)
        _share(base, folder, owner)
        folder.partial.rename(folder.workspace)
    except (OSError, GitFailed) as error:
        raise WorkspaceFailed(f"the workspace of {workspace.agent} could not be made: {error}") from error


def _fill(base: Base, workspace: WorkspaceId, branch: str, target: Path) -> None:
    _clone(
        Checkout(source=Git.ours(base.bare), commit=base.commit, target=target, branch=branch, person=workspace.agent),
        shallow=base.bare / "shallow",
    )
    links = gitlinks(list_files(base.bare, base.commit))
    if not links or base.repository is None:
        return
    for path, source in submodule_sources(base, base.repository, links).items():
        inner = target / path
        if inner.is_symlink() or not inner.is_dir():
            continue
        try:
            _import_commit(source, links[path], base)
            _clone(
                Checkout(
                    source=Git.ours(base.bare), commit=links[path], target=inner, branch=branch, person=workspace.agent
                ),
                shallow=base.bare / "shallow",
            )
        except GitFailed:
            # Not there locally, or not that commit: the folder stays empty, as the base's warnings say.
            folders.remove(inner)
            inner.mkdir()


def submodule_sources(base: Base, repository: Path, links: Mapping[str, str]) -> dict[str, Path]:
    """Where the user's repository has the git folders of declared submodules: path in the tree -> git folder.

    The declaration is the repository's content, so anybody's: it is read from the commit, and names no other folder.
    """
    declared = Git.ours(base.bare).attempt(
        "config", "-z", "--blob", f"{base.commit}:.gitmodules", "--get-regexp", r"^submodule\..*\.path$"
    )
    common = Git.users(repository).text("rev-parse", "--path-format=absolute", "--git-common-dir")
    modules = (Path(common) / "modules").resolve()
    found: dict[str, Path] = {}
    for line in declared.stdout.split(b"\0")[:-1]:
        key, _, path = os.fsdecode(line).partition("\n")
        name = key.removeprefix("submodule.").removesuffix(".path")
        source = (modules / name).resolve()
        if path in links and source != modules and source.is_relative_to(modules) and (source / "HEAD").is_file():
            found[path] = source
    return found


def _import_commit(source: Path, commit: str, base: Base) -> None:
    """Bring a submodule's commit into our bare repository and pin it, so that its changes have a parent."""
    ref = f"refs/massgend-submodules/{base.run}/{commit}"
    if not has_commit(base.bare, commit):
        Git.users(source).pipe(
            "pack-objects",
            "--revs",
            "--stdout",
            "-q",
            into=Git.ours(base.bare),
            then=("index-pack", "--stdin", "--fix-thin"),
            stdin=commit.encode() + b"\n",
        )
        _share_shallow(source / "shallow", base.bare / "shallow")
    Git.ours(base.bare).run("update-ref", ref, commit)


def _share_shallow(source: Path, target: Path) -> None:
    """A history that was cut off there is cut off at the same commits here."""
    if source.is_file():
        lines = set(source.read_text().split()) | set(target.read_text().split() if target.is_file() else ())
        manifest.write_whole(target, "".join(f"{line}\n" for line in sorted(lines)).encode())


def _clone(checkout: Checkout, *, shallow: Path) -> None:
    """A pack of the commit's history, and a branch: no clone, so there is no remote, no link and no alternate."""
    git_dir = checkout.target / ".git"
    Git.ours(None).run("init", "-q", "--template=", "-b", checkout.branch, checkout.target)
    checkout.source.pipe(
        "pack-objects",
        "--revs",
        "--stdout",
        "-q",
        into=Git.ours(git_dir),
        then=("index-pack", "--stdin"),
        stdin=checkout.commit.encode() + b"\n",
    )
    if shallow.is_file():
        (git_dir / "shallow").write_bytes(shallow.read_bytes())
    neutralise(git_dir)
    git = Git.ours(git_dir, work_tree=checkout.target)
    git.run("config", "user.name", checkout.person)
    git.run("config", "user.email", f"{checkout.person}@massgend.invalid")
    git.run("update-ref", f"refs/heads/{checkout.branch}", checkout.commit)
    git.run("read-tree", "-m", "-u", checkout.commit)


def _share(base: Base, folder: AgentFolder, owner: Owner) -> None:
    """The files of a fresh checkout once more, for the first snapshots of all agents to link to. Made with the second
    agent of a run: one alone would gain nothing. When it cannot be made, first snapshots are copies."""
    others = [one for one in folder.root.parent.iterdir() if one != folder.root and not one.name.startswith(".")]
    partial = folder.base_tree.with_name(f"{BASE_TREE}.partial")
    if not others or folder.base_tree.exists() or partial.exists():
        return
    links = frozenset(gitlinks(list_files(base.bare, base.commit)))
    try:
        plant(
            scan(folder.partial, submodules=links).root,
            workspace=folder.partial,
            target=partial,
            previous=None,
            unchanged=lambda entry: False,
            omitted=frozenset(),
            owner=owner,
        )
        partial.rename(folder.base_tree)
    except FileExistsError:
        return  # another agent's workspace is being made at the same time, and was faster
    except OSError:
        folders.remove(partial)


def _remember(base: Base, folder: AgentFolder) -> None:
    """The manifest of the fresh checkout: the first freeze then reads only what the agent changed.

    Nobody writes in the workspace before it has its name, so time may pass until its files count as old.
    """
    links = frozenset(gitlinks(list_files(base.bare, base.commit)))
    found = list(entries(scan(folder.partial, submodules=links).root))
    now_ns = time.time_ns()
    young_ns = [entry.ctime_ns for entry in found if entry.ctime_ns >= manifest.old_before_ns(entry.ctime_ns, now_ns)]
    if len(young_ns) > FEW_TO_READ_AGAIN:
        while (
            max(young_ns) >= manifest.old_before_ns(max(young_ns), time.time_ns())
            and time.time_ns() < now_ns + PATIENCE_NS
        ):
            time.sleep(0.005)
    taken_ns = time.time_ns()
    manifest.save(folder.manifest, manifest.of(base.commit, None, taken_ns, found, ignored=frozenset()))
