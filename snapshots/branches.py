"""Our branches in the user's repository: `massgend/<run>/<agent>`, for review. Created, moved and deleted here only.

A branch there is ours when it stands on a commit that only a run of ours can have put there: one that our bare
repository holds below `refs/massgend/<run>/` and that was not in the base already. A commit that the user added on
top is not, so a branch that the user worked on is never moved. (A trailer would not do: `git commit --amend` keeps it.)
"""

from __future__ import annotations

import os
from pathlib import Path

from snapshots.checkouts import Checkout, open_checkout, worktrees
from snapshots.errors import GitFailed, RefTaken
from snapshots.git import Git
from snapshots.names import checked_id
from snapshots.repository import ReviewBranch
from snapshots.snapshot import Base
from snapshots.texts import is_readable

_HEADS = "refs/heads/"
# As git's own fetch.unpackLimit: a few objects become loose ones, many stay a pack.
_UNPACK_BELOW = 100


def publish(base: Base, *, agent: str, commit: str) -> str:
    """Bring `commit` into the user's repository and set the agent's branch to it; the branch's name."""
    if base.repository is None:
        return ""
    name = f"massgend/{checked_id(base.run)}/{checked_id(agent)}"
    checkout, bare = open_checkout(base.repository), Git.ours(base.bare)
    standing = checkout.commit_of(_HEADS + name)
    if standing == commit:
        return name
    _refuse_blocked(checkout, name)
    if standing is not None and not _is_ours(bare, base, standing):
        raise RefTaken(
            f"The branch {name} in {checkout.root} has commits that are not from this run: it was left alone."
        )
    _bring(checkout, bare, base, commit, standing)
    for worktree in worktrees(checkout):
        if worktree.branch == name:
            raise RefTaken(f"The branch {name} is checked out in {worktree.path}: it was not moved to {commit}.")
    change = f"update {_HEADS}{name} {commit} {standing or '0' * len(commit)}\n"
    set_refs(checkout, change, why=f"massgend: work of {agent}")
    return name


def review_branches(repository: Path) -> tuple[ReviewBranch, ...]:
    """All our branches in a repository, from the refs alone."""
    return tuple(_listed(open_checkout(repository), "refs/heads/massgend/"))


def discard(repository: Path, *, run: str, force: bool) -> tuple[str, ...]:
    """Delete a run's branches and its undo point; the full names of the refs that are gone.

    Without `force` what HEAD does not contain stays. A branch that is checked out somewhere always stays.
    """
    checkout = open_checkout(repository)
    checked_id(run)
    held = {worktree.branch for worktree in worktrees(checkout)}
    going = {
        _HEADS + branch.name: branch.commit
        for branch in _listed(checkout, f"refs/heads/massgend/{run}/")
        if (force or branch.merged) and branch.name not in held
    }
    kept = checkout.commit_of(undo_point(run))
    if kept is not None and (force or _contained(checkout, kept)):
        going[undo_point(run)] = kept
    if going:
        set_refs(
            checkout, "".join(f"delete {ref} {commit}\n" for ref, commit in going.items()), why="massgend: discard"
        )
    return tuple(sorted(going))


def undo_point(run: str) -> str:
    """Where the commit that a merge is about to replace is kept."""
    return f"refs/massgend/{run}/before-merge"


def set_refs(checkout: Checkout, changes: str, *, why: str) -> None:
    """One transaction of `update-ref --stdin` lines, each with its old value: all of it happens or nothing."""
    checkout.git.run(*("update-ref", "-m", why, "--stdin"), stdin=os.fsencode(changes), environment=signature(checkout))


def signature(checkout: Checkout) -> dict[str, str]:
    """The user's own name for commits and reflogs, ours when git knows none (it would ask or fail)."""
    name, email = (
        os.fsdecode(checkout.git.attempt("config", key).stdout).strip() for key in ("user.name", "user.email")
    )
    if not (name and email):
        name, email = "massgend", "massgend@localhost"
    return {
        "GIT_AUTHOR_NAME": name,
        "GIT_AUTHOR_EMAIL": email,
        "GIT_COMMITTER_NAME": name,
        "GIT_COMMITTER_EMAIL": email,
    }


def _listed(checkout: Checkout, prefix: str) -> list[ReviewBranch]:
    merged = set[str]()
    if checkout.head is not None:
        merged = set(_refs(checkout, "--format=%(refname)", f"--merged={checkout.head}", prefix))
    found = []
    for line in _refs(checkout, "--format=%(objectname) %(refname)", prefix):
        commit, _, ref = line.partition(" ")
        parts = ref.removeprefix("refs/heads/massgend/").split("/")
        # A name that is not UTF-8 is none that we gave.
        if len(parts) == 2 and is_readable(ref):
            run, agent = parts
            name = ref.removeprefix(_HEADS)
            found.append(ReviewBranch(name=name, run=run, agent=agent, commit=commit, merged=ref in merged))
    return found


def _refs(checkout: Checkout, *arguments: str) -> list[str]:
    return checkout.git.text("for-each-ref", *arguments).splitlines()


def _contained(checkout: Checkout, commit: str) -> bool:
    if checkout.head is None:
        return False
    return checkout.git.attempt("merge-base", "--is-ancestor", commit, checkout.head).exit_code == 0


def _refuse_blocked(checkout: Checkout, name: str) -> None:
    parents = [name.rsplit("/", cut)[0] for cut in (1, 2)]
    blocking = set(_refs(checkout, "--format=%(refname)", *(_HEADS + parent for parent in parents)))
    for parent in parents:
        if _HEADS + parent in blocking:
            raise RefTaken(
                f"A branch named {parent} stands in {checkout.root} where {name} should go: "
                f"run `git branch -m {parent} NEW-NAME` there."
            )
    below = _refs(checkout, "--count=1", "--format=%(refname)", f"{_HEADS}{name}/")
    if below:
        raise RefTaken(f"The ref {below[0]} in {checkout.root} leaves no room for {name}: rename it.")


def _is_ours(bare: Git, base: Base, commit: str) -> bool:
    if bare.attempt("cat-file", "-e", f"{commit}^{{commit}}").exit_code != 0:
        return False
    if bare.attempt("merge-base", "--is-ancestor", commit, base.commit).exit_code == 0:
        return False
    below = f"refs/massgend/{base.run}/"
    return bool(bare.text("for-each-ref", "--count=1", "--format=%(refname)", f"--contains={commit}", below))


def _bring(checkout: Checkout, bare: Git, base: Base, commit: str, standing: str | None) -> None:
    """A pack through a pipe, checked object by object as git checks what it fetches; no FETCH_HEAD, no remote.

    That the commit is there proves nothing (a prune may have taken its files); that a branch stands on it does.
    """
    if commit in _refs(checkout, "--format=%(objectname)", f"refs/heads/massgend/{base.run}/"):
        return
    known = [there for there in (base.source_commit, standing) if there is not None and checkout.has(there)]
    wanted = [commit, *(f"^{there}" for there in known)]
    few = int(bare.text("rev-list", "--objects", "--count", *wanted)) < _UNPACK_BELOW
    sink = ("unpack-objects", "--strict", "-q") if few else ("index-pack", "--stdin", "--fix-thin", "--strict")
    try:
        bare.pipe(
            *("pack-objects", "--revs", "--thin", "--stdout", "--delta-base-offset", "-q"),
            into=checkout.git,
            then=sink,
            stdin="".join(f"{line}\n" for line in wanted).encode(),
        )
    except GitFailed as error:
        why = f"{commit} was not taken over into {checkout.root}: {error.stderr}"
        raise GitFailed(error.argv, error.exit_code, why) from error
