"""Bringing the commit that a run starts from into our bare repository. The user's repository is only read.

Objects travel as packs through a pipe, so neither repository ever depends on the other, and git can run as the owner
on the user's side. Uncommitted changes are recorded with a copy of the index and an object folder of their own.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from snapshots.bares import EMAIL, NAME, identity, opened, repository_id
from snapshots.checkouts import Checkout, dirty_paths, open_checkout, refuse_unusable, under_way, warnings_for
from snapshots.errors import GitFailed, RepositoryRefused
from snapshots.git import Git
from snapshots.names import checked_id, quoted, shown
from snapshots.snapshot import Base

_NEWEST = 50


def import_base(repos: Path, path: Path | None, *, run: str, include_dirty: bool, now: int) -> Base:
    """The base of a run, pinned as `refs/massgend/<run>/base`; the recorded one when the run has one already."""
    checked_id(run)
    if path is None:
        bare = repos / f"folder-{run}.git"
        with opened(bare, "sha1") as git:
            return _recorded(git, bare, run) or _record(
                git,
                Base(
                    run=run,
                    repository=None,
                    bare=bare,
                    commit=_empty_commit(git, run, now),
                    source_commit=None,
                    branch=None,
                ),
            )
    checkout = open_checkout(path)
    refuse_unusable(checkout)
    bare = repos / f"{repository_id(checkout.common_dir, checkout.object_format)}.git"
    with opened(bare, checkout.object_format) as git:
        if recorded := _recorded(git, bare, run):
            return recorded
        try:
            source = checkout.head
            if source is not None:
                _bring_history(checkout, git, bare, source)
            commit = source or _empty_commit(git, run, now)
            warnings = warnings_for(checkout)
            if include_dirty:
                commit, left_out = _bring_changes(checkout, git, base=commit, run=run, now=now)
                warnings += left_out
        except GitFailed as error:
            raise RepositoryRefused(f"{checkout.root} could not be read: {error}") from error
        return _record(
            git,
            Base(
                run=run,
                repository=checkout.root,
                bare=bare,
                commit=commit,
                source_commit=source,
                branch=checkout.branch,
                warnings=warnings,
            ),
        )


def _recorded(git: Git, bare: Path, run: str) -> Base | None:
    about = git.attempt("cat-file", "blob", f"refs/massgend/{run}/base.about")
    if about.exit_code != 0:
        return None
    known = json.loads(about.stdout)
    return Base(
        run=run,
        repository=Path(known["repository"]) if known["repository"] is not None else None,
        bare=bare,
        commit=git.text("rev-parse", "--verify", f"refs/massgend/{run}/base^{{commit}}"),
        source_commit=known["source_commit"],
        branch=known["branch"],
        warnings=tuple(known["warnings"]),
    )


def _record(git: Git, base: Base) -> Base:
    """All refs in one transaction: a run has its whole base or none. (A dot keeps them apart from agents' names.)"""
    about = {
        "repository": str(base.repository) if base.repository is not None else None,
        "source_commit": base.source_commit,
        "branch": base.branch,
        "warnings": base.warnings,
    }
    blob = git.run("hash-object", "-w", "--stdin", stdin=json.dumps(about).encode()).decode().strip()
    wanted = {"base": base.commit, "base.about": blob, "base.source": base.source_commit}
    lines = [f"create refs/massgend/{base.run}/{name} {target}\n" for name, target in wanted.items() if target]
    git.run("update-ref", "--stdin", stdin="".join(lines).encode())
    return base


def _empty_commit(git: Git, run: str, now: int) -> str:
    tree = git.run("mktree", stdin=b"").decode().strip()
    message = f"Empty start\n\nMassgend-Run: {run}\nMassgend-Base: empty\n"
    return _commit(git, tree, parents=(), message=message, now=now)


def _commit(git: Git, tree: str, *, parents: tuple[str, ...], message: str, now: int) -> str:
    above = [part for parent in parents for part in ("-p", parent)]
    environment = identity(NAME, EMAIL, f"{now} +0000")
    return git.run("commit-tree", tree, *above, stdin=message.encode(), environment=environment).decode().strip()


def _bring_history(checkout: Checkout, git: Git, bare: Path, commit: str) -> None:
    """A commit is only there together with all that it needs: packs come whole or not at all, and nothing is pruned."""
    if git.attempt("cat-file", "-e", f"{commit}^{{commit}}").exit_code == 0:
        return
    cut = checkout.shallow_file.read_text().split() if checkout.shallow_file.exists() else []
    shallow = bare / "shallow"
    before = shallow.read_text().split() if shallow.exists() else []
    shared = [] if cut or before else _shared(checkout, git)
    wanted = "".join(f"{line}\n" for line in (commit, *(f"^{known}" for known in shared)))
    _transfer(checkout.git, git, wanted)
    boundary = [known for known in dict.fromkeys((*before, *cut)) if _lacks_a_parent(git, known)]
    if boundary or before:
        fresh = bare / "shallow.new"
        fresh.write_text("".join(f"{known}\n" for known in boundary))
        fresh.replace(shallow)


def _transfer(source: Git, sink: Git, wanted: str) -> None:
    # Deltas that the source has are taken over; looking for new ones would cost more than it saves, once.
    source.pipe(
        *("pack-objects", "--revs", "--thin", "--stdout", "--delta-base-offset", "--window=0", "-q"),
        into=sink,
        then=("index-pack", "--stdin", "--fix-thin"),
        stdin=wanted.encode(),
    )


def _shared(checkout: Checkout, git: Git) -> list[str]:
    """Commits that earlier runs brought and the user's repository still has: they need not travel again."""
    listing = git.text(
        "for-each-ref",
        "--sort=-creatordate",
        f"--count={_NEWEST}",
        "--format=%(objectname)",
        "refs/massgend/*/base.source",
    ).split()
    asked = "".join(f"{commit}\n" for commit in dict.fromkeys(listing)).encode()
    answers = checkout.git.run("cat-file", "--batch-check=%(objectname) %(objecttype)", stdin=asked).decode()
    return [line.split()[0] for line in answers.splitlines() if line.endswith(" commit")]


def _lacks_a_parent(git: Git, commit: str) -> bool:
    raw = git.attempt("cat-file", "commit", commit)
    if raw.exit_code != 0:
        return False
    head = raw.stdout.partition(b"\n\n")[0].decode(errors="replace")
    parents = [line.split()[1] for line in head.splitlines() if line.startswith("parent ")]
    return any(git.attempt("cat-file", "-e", parent).exit_code != 0 for parent in parents)


def _bring_changes(checkout: Checkout, git: Git, *, base: str, run: str, now: int) -> tuple[str, tuple[str, ...]]:
    """One commit of ours with what `git add --all` would record, on top of `base`; and sentences on what stays out."""
    dirty = dirty_paths(checkout, untracked=True)
    if unmerged := sorted(path for path, state in dirty.items() if "U" in state or state in ("AA", "DD")):
        raise RepositoryRefused(
            f"{checkout.root} has unresolved conflicts ({', '.join(map(shown, unmerged[:5]))}): "
            f"resolve them, or start without --include-dirty{_which(checkout)}."
        )
    nested = sorted(path for path, state in dirty.items() if state == "??" and path.endswith("/"))
    with _apart(checkout) as apart:
        outside = [f":(top,exclude,literal){path.rstrip('/')}" for path in nested]
        apart.run("add", "--all", "--", ":(top)", *outside)
        tree = apart.text("write-tree")
        if git.attempt("cat-file", "-e", tree).exit_code != 0:
            wanted = [tree] if checkout.head is None else [tree, f"^{checkout.head}"]
            _transfer(apart, git, "".join(f"{line}\n" for line in wanted))
    left_out = tuple(
        f"{shown(path)} is a repository of its own and was left out of the uncommitted changes." for path in nested
    )
    if tree == git.text("rev-parse", f"{base}^{{tree}}"):
        return base, left_out
    message = f"Uncommitted changes of the checkout\n\nMassgend-Run: {run}\nMassgend-Base: uncommitted changes\n"
    return _commit(git, tree, parents=(base,), message=message, now=now), left_out


def _which(checkout: Checkout) -> str:
    operation = under_way(checkout)
    return f" ({operation} is under way)" if operation else ""


@contextmanager
def _apart(checkout: Checkout) -> Iterator[Git]:
    """The user's git with a copy of the index and an object folder that lie outside of the repository."""
    folder = Path(tempfile.mkdtemp(prefix="massgend-"))
    try:
        objects, index = folder / "objects", folder / "index"
        (objects / "info").mkdir(parents=True)
        theirs = checkout.git.run("rev-parse", "--path-format=absolute", "--git-path", "objects")[:-1]
        (objects / "info" / "alternates").write_bytes(quoted(os.fsdecode(theirs)) + b"\n")
        if (checkout.git_dir / "index").exists():
            # With its time: a file edited in the same moment as the index must not look older than the copy.
            shutil.copy2(checkout.git_dir / "index", index)
        if owner := checkout.git.identity:
            for path in (folder, objects, objects / "info", objects / "info" / "alternates", index):
                if path.exists():
                    os.chown(path, owner.uid, owner.gid)
        environment = {"GIT_INDEX_FILE": str(index), "GIT_OBJECT_DIRECTORY": str(objects)}
        # A split index would write its shared half into the user's repository.
        settings = (*checkout.git.settings, "core.splitIndex=false")
        yield replace(checkout.git, settings=settings, environment={**checkout.git.environment, **environment})
    finally:
        shutil.rmtree(folder)
