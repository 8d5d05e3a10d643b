"""The merge on consensus: save first, then apply, then say how to undo; or touch nothing and say what to type.

The result is computed as objects (fast-forward, or `git merge-tree`), so a conflict costs the checkout nothing. It is
applied by `git merge --ff-only`: one process that takes the index lock, refuses edited, staged, untracked and ignored
files in its way before it writes anything, applies the user's filters, and moves the branch only from where it stood.
(`read-tree -u` and `update-ref` would leave the checkout ahead of its branch between the two, and overwrite ignored
files.) Every step can be broken off: a second call goes on from what the refs and the index say.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from snapshots.adoption import adopt, holds_exactly, uncommitted_base
from snapshots.branches import set_refs, signature, undo_point
from snapshots.checkouts import Checkout, open_checkout
from snapshots.errors import GitFailed, RepositoryRefused
from snapshots.merge_request import Request, hindrance, to_branch
from snapshots.merge_result import (
    Conflict,
    Result,
    compute,
    is_in,
    is_left_by_merge,
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
from snapshots.overlap import changed_paths, overlap
from snapshots.patience import PATIENCE_S, wait_for_index
from snapshots.put_back import is_half_written, put_back
from snapshots.repository import MergeMode, MergeReport, MergeStatus

_APPLY = (
    *("merge", "--ff-only", "--no-squash", "--no-overwrite-ignore", "--no-autostash"),
    *("--no-verify-signatures", "--no-stat", "--quiet"),
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
    patience_s: float = PATIENCE_S,
) -> MergeReport:
    """See `UserRepository.merge`. Raises GitFailed when git could not be asked."""
    checked_id(run)
    try:
        checkout = open_checkout(repository)
        concerned = mode in (MergeMode.AUTO, MergeMode.SQUASH) and into in (None, checkout.branch)
        if concerned and wait_for_index(checkout, patience_s):
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
    if checkout.git.attempt("check-ref-format", f"refs/heads/{branch}").exit_code != 0:
        return MergeReport(status=MergeStatus.NOT_MERGED, reason=f"{shown(branch)} is not the name of a branch.")
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
            return hindrance(request, named_by_user) or _merge(_resumed(request))


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
    checkout, after = request.checkout, str(request.before)
    saved = checkout.commit_of(undo_point(request.run))
    commands: tuple[str, ...] = ()
    if request.here and saved is not None and is_left_by_merge(checkout, after, saved=saved, commit=request.commit):
        changes = uncommitted_base(checkout, run=request.run, before=saved, commit=after)
        undo = undo_checked_out(checkout.root, request.branch, before=saved, after=after, uncommitted=changes)
        commands = (undo,)
    return MergeReport(
        status=MergeStatus.UP_TO_DATE,
        reason=f"{request.branch} has this work already.",
        branch=request.branch,
        before=saved if commands else after,
        after=after,
        commands=commands,
    )


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
        changed = _with_changes_committed(request)
        if changed is not None:
            return _merge(changed)
        if not _put_back_half(request, result):
            return blocked
    after = record(checkout, result, run=request.run, commit=request.commit, message=request.message)
    if request.before is not None and request.uncommitted_on is None:
        _save(request)
    refusal = _apply_here(request, result, after) if request.here else _apply_to_ref(request, after)
    if refusal is None:
        return _merged(request, result, after)
    now = checkout.commit_of(f"refs/heads/{request.branch}")
    if now not in (None, request.before) and is_in(checkout, run=request.run, commit=request.commit, branch=str(now)):
        return _up_to_date(replace(request, before=now))  # another call was a moment faster
    return request.not_merged(refusal, _to_do(request))


def _resumed(request: Request) -> Request:
    """When an earlier call was broken off after it committed the user's changes, its undo goes to before that."""
    saved = request.checkout.commit_of(undo_point(request.run))
    if saved is None or request.before is None or saved == request.before:
        return request
    changes = uncommitted_base(request.checkout, run=request.run, before=saved, commit=request.before)
    return replace(request, uncommitted_on=saved) if changes == request.before else request


def _save(request: Request) -> None:
    why = f"massgend: {request.branch} before the merge"
    set_refs(request.checkout, f"update {undo_point(request.run)} {request.before}\n", why=why)


def _with_changes_committed(request: Request) -> Request | None:
    """The same merge, after the changes that the run started with were committed; None when they are others now."""
    checkout, before = request.checkout, request.before
    if before is None or request.uncommitted_on is not None:
        return None
    changes = uncommitted_base(checkout, run=request.run, before=before, commit=request.commit)
    if changes is None or not holds_exactly(checkout, before=before, changes=changes):
        return None
    further = compute(checkout, before=changes, commit=request.commit, squash=request.squash)
    settled = set(changed_paths(checkout, before, changes))
    if isinstance(further, Conflict) or overlap(checkout, before=changes, after=further.tree, settled=settled):
        return None
    _save(request)
    adopt(checkout, branch=request.branch, before=before, changes=changes)
    return replace(request, before=changes, uncommitted_on=before)


def _to_do(request: Request, *, unrelated: bool = False) -> tuple[str, ...]:
    switch = () if request.here else to_branch(request)
    return (*switch, *request.by_hand(unrelated=unrelated))


def _put_back_half(request: Request, result: Result) -> bool:
    """When an earlier call was killed together with its git, in the middle of the checkout, and nothing but what that
    had written is in the way: the files go back to where they were, and the merge can be done."""
    checkout, before = request.checkout, request.before
    if before is None or checkout.commit_of(undo_point(request.run)) != before:
        return False
    if uncommitted_base(checkout, run=request.run, before=before, commit=request.commit) is not None:
        return False  # the same files may be the changes that the run started with
    found = overlap(checkout, before=result.before_tree, after=result.tree)
    if not is_half_written(checkout, (*found.edited, *(old for old, _ in found.in_the_way)), after=result.tree):
        return False
    put_back(checkout, before=result.before_tree, after=result.tree)
    return not overlap(checkout, before=result.before_tree, after=result.tree)


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
        if checkout.commit_of(f"refs/heads/{request.branch}") == after:
            return None
        return f"{checkout.root} was switched away from {request.branch} in that very moment"
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
        changes = before if request.uncommitted_on is not None else None
        before = request.uncommitted_on or before
        undo = undo_checked_out(checkout.root, request.branch, before=before, after=after, uncommitted=changes)
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
