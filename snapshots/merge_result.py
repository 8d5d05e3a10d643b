"""What a merge would be, computed as git objects only: no branch, index or file is touched here."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from snapshots.branches import signature
from snapshots.checkouts import Checkout
from snapshots.names import shown
from snapshots.overlap import changed_paths
from snapshots.risk import risky_paths, scripts_differ
from snapshots.texts import readable

_TRAILERS = re.compile(r"[A-Za-z][A-Za-z0-9-]*: \S.*(\n[A-Za-z][A-Za-z0-9-]*: \S.*)*")


@dataclass(frozen=True, kw_only=True)
class Result:
    """A merge without conflicts. `commit` when it exists already (a fast-forward), else it has `parents`."""

    tree: str
    before_tree: str
    commit: str | None
    parents: tuple[str, ...]
    author_of: str | None
    how: str


@dataclass(frozen=True, kw_only=True)
class Conflict:
    """There is no merge that git can compute alone."""

    reason: str
    paths: tuple[str, ...] = ()
    unrelated: bool = False


def is_in(checkout: Checkout, *, run: str, commit: str, branch: str) -> bool:
    """Does the history of commit `branch` contain `commit`, or the one commit that it was squashed to?"""
    if is_ancestor(checkout, commit, branch):
        return True
    trailers = "--format=%(trailers:key=Massgend-Run,key=Massgend-Commit,valueonly,separator=%x20)"
    listing = checkout.git.text("log", trailers, f"--grep=^Massgend-Commit: {commit}", branch, f"^{commit}")
    return any({run, commit} <= set(line.split()) for line in listing.splitlines())


def is_left_by_merge(checkout: Checkout, tip: str, *, saved: str, commit: str) -> bool:
    """Is a branch at `tip` just as a merge of `commit` left it, which `saved` was the undo point of?"""
    if tip == commit:
        return saved != tip and is_ancestor(checkout, saved, tip)
    shown = checkout.git.text(
        "show", "--no-patch", "--no-notes", "--format=%P %(trailers:key=Massgend-Commit,valueonly)", tip
    )
    parent, *others = shown.split() or [""]
    return commit in others and (parent == saved or checkout.commit_of(f"{parent}^") == saved)


def is_ancestor(checkout: Checkout, commit: str, of: str) -> bool:
    return checkout.git.attempt("merge-base", "--is-ancestor", commit, of).exit_code == 0


def compute(checkout: Checkout, *, before: str | None, commit: str, squash: bool) -> Result | Conflict:
    """`before` None: an unborn branch, which the work becomes as it is."""
    git = checkout.git
    tree = git.text("rev-parse", f"{commit}^{{tree}}")
    forward = before is None or is_ancestor(checkout, before, commit)
    before_tree = empty_tree(checkout) if before is None else git.text("rev-parse", f"{before}^{{tree}}")
    if not forward:
        above = _tree_above_the_same(checkout, str(before), before_tree, commit)
        merged = above or _three_way(checkout, str(before), commit)
        if isinstance(merged, Conflict):
            return merged
        tree = merged
    if squash:
        single = (before,) if before is not None else ()
        how = "one commit"
        return Result(tree=tree, before_tree=before_tree, commit=None, parents=single, author_of=commit, how=how)
    if forward:
        how = "fast-forward"
        return Result(tree=tree, before_tree=before_tree, commit=commit, parents=(), author_of=None, how=how)
    parents = (str(before), commit)
    how = "a merge commit"
    return Result(tree=tree, before_tree=before_tree, commit=None, parents=parents, author_of=None, how=how)


def record(checkout: Checkout, result: Result, *, run: str, commit: str, message: str) -> str:
    """The commit to move the branch to. A merge commit is the user's, a squashed one keeps its author."""
    if result.commit is not None:
        return result.commit
    environment = signature(checkout)
    if result.author_of is not None:
        shown = checkout.git.run("show", "--no-patch", "--no-notes", "--format=%an%x00%ae%x00%ad", "--date=raw", commit)
        name, email, date = os.fsdecode(shown).rstrip("\n").split("\0")
        environment |= {"GIT_AUTHOR_NAME": name, "GIT_AUTHOR_EMAIL": email, "GIT_AUTHOR_DATE": f"@{date}"}
    above = [part for parent in result.parents for part in ("-p", parent)]
    text = with_trailers(readable(message), {"Massgend-Run": run, "Massgend-Commit": commit})
    made = checkout.git.run("commit-tree", result.tree, *above, stdin=text.encode(), environment=environment)
    return made.decode().strip()


def with_trailers(message: str, trailers: dict[str, str]) -> str:
    """A message with trailers at its end. By hand: `git interpret-trailers` can run programs of the configuration."""
    text = message.strip() or "Merge the result of a massgend run"
    lines = [line for key, value in trailers.items() if (line := f"{key}: {value}") not in text.splitlines()]
    last = text.rpartition("\n\n")[2]
    between = "\n" if last != text and _TRAILERS.fullmatch(last) else "\n\n"
    return text + between + "\n".join(lines) + "\n" if lines else text + "\n"


def what_it_brings(checkout: Checkout, before: str, after: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Risky paths and the lines of `git diff --stat` between two trees or commits."""
    paths = changed_paths(checkout, before, after, only="AMT")
    found = risky_paths(paths, hooks_folder=_hooks_folder(checkout))
    for path in paths:
        if path.rpartition("/")[2] == "package.json" and path not in found:
            old, new = (checkout.git.attempt("cat-file", "blob", f"{tree}:{path}") for tree in (before, after))
            if scripts_differ(old.stdout if old.exit_code == 0 else None, new.stdout):
                found.append(path)
    options = ("--stat=100", "--no-color", "--no-ext-diff", "--no-textconv", "--no-relative")
    stat = os.fsdecode(checkout.git.run("diff", *options, before, after)).split("\n")
    return tuple(sorted(found)), tuple(filter(None, stat))


def preview(checkout: Checkout, before: str | None, commit: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What `commit` would bring to `before`, against their merge base."""
    base = empty_tree(checkout)
    if before is not None:
        found = checkout.git.attempt("merge-base", before, commit)
        base = found.stdout.decode().strip() if found.exit_code == 0 else before
    return what_it_brings(checkout, base, commit)


def empty_tree(checkout: Checkout) -> str:
    return checkout.git.text("hash-object", "-t", "tree", "/dev/null")


def _tree_above_the_same(checkout: Checkout, before: str, before_tree: str, commit: str) -> str | None:
    """The work's tree when it starts from just the files that the branch has, in another commit: the user committed
    what a run with `--include-dirty` started from."""
    work = checkout.git.text("rev-list", "--first-parent", commit, f"^{before}").split()
    if not work or checkout.git.text("rev-parse", f"{work[-1]}^{{tree}}") != before_tree:
        return None
    return checkout.git.text("rev-parse", f"{commit}^{{tree}}")


def _three_way(checkout: Checkout, before: str, commit: str) -> str | Conflict:
    unrelated = checkout.git.attempt("merge-base", before, commit).exit_code != 0
    if unrelated and not _starts_empty(checkout, commit):
        return Conflict(reason="The branch and the work share no history: it was rewritten meanwhile.", unrelated=True)
    allowed = ("--allow-unrelated-histories",) if unrelated else ()
    options = ("--write-tree", "-z", "--name-only", "--no-messages", *allowed)
    merged = checkout.git.attempt("merge-tree", *options, before, commit, timeout_s=60.0)
    tree, *paths = (os.fsdecode(part) for part in merged.stdout.split(b"\0") if part) if merged.stdout else ("",)
    match merged.exit_code:
        case 0:
            return tree
        case 1:
            names = tuple(dict.fromkeys(paths))
            listed = ", ".join(map(shown, names[:5]))
            reason = f"Both sides changed the same lines: {listed}. Merge by hand, resolve, commit."
            return Conflict(reason=reason, paths=names, unrelated=unrelated)
        case 129:
            return Conflict(reason="This git is too old to merge without the checkout (2.38 is needed): merge by hand.")
        case _:
            return Conflict(reason=f"git could not compute the merge: {merged.stderr.strip()}", unrelated=unrelated)


def _starts_empty(checkout: Checkout, commit: str) -> bool:
    """Did the run start from nothing, so that its history has to be unrelated and its base is the empty tree?"""
    roots = checkout.git.text("rev-list", "--max-parents=0", commit).split()
    trees = [checkout.git.text("rev-parse", f"{root}^{{tree}}") for root in roots]
    return bool(trees) and all(tree == empty_tree(checkout) for tree in trees)


def _hooks_folder(checkout: Checkout) -> str | None:
    """The user's core.hooksPath when it lies inside the repository (ours, which switches hooks off, is not asked)."""
    listing = os.fsdecode(checkout.git.attempt("config", "--show-scope", "--get-all", "core.hooksPath").stdout)
    theirs = [line.partition("\t")[2] for line in listing.splitlines() if not line.startswith("command\t")]
    if not theirs:
        return None
    folder = os.path.normpath(os.path.join(checkout.root, os.path.expanduser(theirs[-1])))
    inside = os.path.relpath(folder, checkout.root)
    return None if inside.startswith("..") or inside == "." else inside
