"""The merge on consensus: save first, then apply, then say how to undo; or touch nothing and say what to type.

The result is computed as objects (fast-forward, or `git merge-tree`), so a conflict costs the checkout nothing. It is
applied by `git merge --ff-only`: one process that takes the index lock, refuses edited, staged, untracked and ignored
files in its way before it writes anything, applies the user's filters, and moves the branch only from where it stood.
(`read-tree -u` and `update-ref` would leave the checkout ahead of its branch between the two, and overwrite ignored
files.) Every step can be broken off: a second call goes on from what the refs and the index say.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from snapshots.branches import set_refs, signature, undo_point
from snapshots.checkouts import Checkout, open_checkout, under_way, worktrees
from snapshots.errors import GitFailed, RepositoryRefused
from snapshots.merge_result import (
    Conflict,
    Result,
    compute,
    is_in,
    preview,
    record,
    what_it_brings,
)
from snapshots.names import checked_id, shown
from snapshots.next_commands import (
    git_at,
    merge_around,
    merge_by_hand,
    undo_checked_out,
    undo_ref_only,
)
from snapshots.overlap import overlap
from snapshots.put_back import put_back
from snapshots.repository import MergeMode, MergeReport, MergeStatus

_APPLY = (
    *("merge", "--ff-only", "--no-squash", "--no-overwrite-ignore", "--no-autostash"),
    *("--no-verify-signatures", "--no-stat", "--quiet"),
)


@dataclass(frozen=True, kw_only=True)
class Request:
    """A merge that somebody asked for. `name` is what they would type for `commit`; `before` None: an unborn branch."""

    checkout: Checkout
    run: str
    commit: str
    name: str
    branch: str
    before: str | None
    squash: bool
    message: str

    @property
    def here(self) -> bool:
        return self.checkout.branch == self.branch

    def by_hand(self, folder: Path | None = None, *, unrelated: bool = False) -> tuple[str, ...]:
        return merge_by_hand(folder or self.checkout.root, self.name, squash=self.squash, unrelated=unrelated)

    def not_merged(
        self, reason: str, commands: tuple[str, ...] | None = None, *, conflicts: tuple[str, ...] = ()
    ) -> MergeReport:
        risky, stat = preview(self.checkout, self.before, self.commit)
        return MergeReport(
            status=MergeStatus.NOT_MERGED,
            reason=reason,
            branch=self.branch,
            before=self.before,
            conflicts=conflicts,
            risky=risky,
            stat=stat,
            commands=self.by_hand() if commands is None else commands,
        )


def merge(
    repository: Path,
    *,
    run: str,
    commit: str,
    into: str | None,
    mode: MergeMode,
    message: str,
    named_by_user: bool = False,
) -> MergeReport:
    """See `UserRepository.merge`. Raises GitFailed when git could not be asked."""
    checked_id(run)
    try:
        checkout = open_checkout(repository)
    except RepositoryRefused as refusal:
        return MergeReport(status=MergeStatus.NOT_MERGED, reason=str(refusal))
    if not checkout.has(commit):
        reason = f"The commit {commit} is not in {checkout.root}: the branches of run {run} were never brought there."
        return MergeReport(status=MergeStatus.NOT_MERGED, reason=reason)
    squash = mode is MergeMode.SQUASH
    name = _name_of(checkout, run, commit)
    branch = into or checkout.branch
    if branch is None:
        reason = "HEAD is detached, so there is no branch to merge into: switch to one, then merge."
        commands = merge_by_hand(checkout.root, name, squash=squash)
        return MergeReport(status=MergeStatus.NOT_MERGED, reason=reason, commands=commands)
    request = Request(
        checkout=checkout,
        run=run,
        commit=commit,
        name=name,
        branch=branch,
        before=checkout.commit_of(f"refs/heads/{branch}"),
        squash=squash,
        message=message,
    )
    if request.before is None and not request.here:
        command = git_at(checkout.root, "branch", branch, name)
        return request.not_merged(f"There is no branch {branch} in {checkout.root}.", (command,))
    if request.before is not None and is_in(checkout, run=run, commit=commit, branch=request.before):
        return _up_to_date(request)
    match mode:
        case MergeMode.BRANCH | MergeMode.NONE:
            return request.not_merged(f"Nothing was merged, as asked: the work is on {name}.", _when_wanted(request))
        case MergeMode.ASK:
            return request.not_merged(f"The work on {name} waits for your word.", _when_wanted(request))
        case MergeMode.AUTO | MergeMode.SQUASH:
            return _hindered(request, named_by_user) or _merge(request)


def _name_of(checkout: Checkout, run: str, commit: str) -> str:
    """What to type for the commit: the winner's branch when it stands there, any other of the run, the bare id."""
    listing = checkout.git.text(
        *("for-each-ref", f"--points-at={commit}", "--format=%(refname:lstrip=2)", f"refs/heads/massgend/{run}/")
    ).splitlines()
    winner = f"massgend/{run}/winner"
    return winner if winner in listing else next(iter(listing), commit)


def _when_wanted(request: Request) -> tuple[str, ...]:
    """To look and then to merge, from wherever the user stands."""
    root = request.checkout.root
    look = (git_at(root, "diff", f"{request.before}...{request.name}"),) if request.before else ()
    switch = () if request.here else (git_at(root, "switch", request.branch),)
    return (*look, *switch, *request.by_hand())


def _up_to_date(request: Request) -> MergeReport:
    """Also what a call reports whose predecessor was broken off after its last step: so it names the undo as well."""
    saved = request.checkout.commit_of(undo_point(request.run))
    after = request.before
    commands: tuple[str, ...] = ()
    if request.here and saved is not None and after is not None and saved != after:
        commands = (undo_checked_out(request.checkout.root, request.branch, before=saved, after=after),)
    return MergeReport(
        status=MergeStatus.UP_TO_DATE,
        reason=f"{request.branch} has this work already.",
        branch=request.branch,
        before=saved if commands else after,
        after=after,
        commands=commands,
    )


def _hindered(request: Request, named_by_user: bool) -> MergeReport | None:
    """Reasons that lie in the state of the repository, before anything is computed."""
    checkout, branch = request.checkout, request.branch
    holders = [worktree for worktree in worktrees(checkout) if worktree.branch == branch]
    elsewhere = (
        [worktree.path for worktree in holders if not worktree.path.samefile(checkout.root)]
        if all(worktree.path.exists() for worktree in holders)
        else [worktree.path for worktree in holders]
    )
    operation = under_way(checkout)
    if elsewhere:
        where = elsewhere[0]
        return request.not_merged(
            f"{branch} is checked out or in work in {where}: merge there.", request.by_hand(where)
        )
    if operation and (request.here or holders):
        return request.not_merged(
            f"{operation.capitalize()} is under way in {checkout.root}: finish or abort it, then merge.",
            (git_at(checkout.root, "status"), *(() if request.here else _to_branch(request)), *request.by_hand()),
        )
    if not request.here:
        if named_by_user:
            return None
        return request.not_merged(
            f"{checkout.root} is no longer on {branch}: nothing was touched there.",
            (*_to_branch(request), *request.by_hand()),
        )
    if os.path.lexists(checkout.git_dir / "index.lock"):
        lock = checkout.git_dir / "index.lock"
        return request.not_merged(f"Another git command is at work in {checkout.root} ({lock}): merge when it is done.")
    if checkout.git.run("ls-files", "--unmerged", "-z"):
        return request.not_merged(
            f"There are unresolved conflicts in {checkout.root}: resolve them, then merge.",
            (git_at(checkout.root, "status"), *request.by_hand()),
        )
    return None


def _same_folder(one: Path, other: Path) -> bool:
    """A working tree whose folder is gone (or is on a disk that is not mounted) is no other's."""
    return one.exists() and one.samefile(other)


def _to_branch(request: Request) -> tuple[str, ...]:
    return (git_at(request.checkout.root, "switch", request.branch),)


def _merge(request: Request) -> MergeReport:
    checkout = request.checkout
    match compute(checkout, before=request.before, commit=request.commit, squash=request.squash):
        case Conflict() as conflict:
            return request.not_merged(
                conflict.reason,
                _to_do(request, unrelated=conflict.unrelated),
                conflicts=conflict.paths,
            )
        case Result() as result:
            pass
    if request.here and (blocked := _overlapping(request, result)):
        return blocked
    after = record(checkout, result, run=request.run, commit=request.commit, message=request.message)
    if request.before is not None:
        set_refs(
            checkout,
            f"update {undo_point(request.run)} {request.before}\n",
            why=f"massgend: {request.branch} before the merge",
        )
    refusal = _apply_here(request, result, after) if request.here else _apply_to_ref(request, after)
    if refusal is not None:
        return request.not_merged(refusal, _to_do(request))
    return _merged(request, result, after)


def _to_do(request: Request, *, unrelated: bool = False) -> tuple[str, ...]:
    switch = () if request.here else _to_branch(request)
    return (*switch, *request.by_hand(unrelated=unrelated))


def _overlapping(request: Request, result: Result) -> MergeReport | None:
    found = overlap(request.checkout, before=result.before_tree, after=result.tree)
    if not found:
        return None
    aside = tuple(old for old, _ in found.in_the_way)
    parts = []
    if found.edited:
        parts.append(f"you have uncommitted changes in {_few(found.edited)}")
    if aside:
        parts.append(f"{_few(aside)} would be overwritten, and git does not know it")
    root = request.checkout.root
    return request.not_merged(
        f"The merge into {request.branch} would touch your work: {'; '.join(parts)}.",
        merge_around(root, request.name, squash=request.squash, edited=found.edited, in_the_way=found.in_the_way),
        conflicts=tuple(sorted((*found.edited, *aside))),
    )


def _apply_here(request: Request, result: Result, after: str) -> str | None:
    """None, or why it was not done. When it breaks in the middle (a filter of the user's that fails), what it had
    written by then is put back: those files were equal to the last commit, or not there."""
    checkout = request.checkout
    action = {"GIT_REFLOG_ACTION": f"massgend merge {request.run}"}
    done = checkout.git.attempt(*_APPLY, after, environment={**signature(checkout), **action})
    if done.exit_code == 0:
        return None
    if checkout.commit_of(f"refs/heads/{request.branch}") == request.before:
        put_back(checkout, before=result.before_tree, after=result.tree)
    return f"git did not merge into {request.branch}: {_first(done.stderr)}"


def _apply_to_ref(request: Request, after: str) -> str | None:
    change = f"update refs/heads/{request.branch} {after} {request.before}\n"
    try:
        set_refs(request.checkout, change, why=f"massgend merge {request.run}")
    except GitFailed as error:
        return f"{request.branch} was not moved: {_first(error.stderr)}"
    return None


def _merged(request: Request, result: Result, after: str) -> MergeReport:
    checkout, before = request.checkout, request.before
    if request.here:
        undo = undo_checked_out(checkout.root, request.branch, before=before, after=after)
    else:
        undo = undo_ref_only(checkout.root, request.branch, before=str(before), after=after)
    risky, stat = what_it_brings(checkout, result.before_tree, result.tree)
    return MergeReport(
        status=MergeStatus.MERGED,
        reason=f"{request.name} was merged into {request.branch} ({result.how}).",
        branch=request.branch,
        before=before,
        after=after,
        risky=risky,
        stat=stat,
        commands=(undo,),
    )


def _few(paths: tuple[str, ...]) -> str:
    return ", ".join(map(shown, paths[:5])) + (f" and {len(paths) - 5} more" if len(paths) > 5 else "")


def _first(complaint: str) -> str:
    """git's own words in one line: what was fatal, else its first error with the paths that are listed below it."""
    lines = [line for line in complaint.splitlines() if line.strip()] or ["it gave no reason"]
    fatal = [line for line in lines if line.startswith("fatal: ")]
    listed = [line.strip() for line in lines[1:] if line.startswith("\t")]
    text = fatal[0] if fatal else " ".join((lines[0], _few(tuple(listed)))).strip()
    return text.removeprefix("error: ").removeprefix("fatal: ")
