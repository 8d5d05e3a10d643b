"""Reads the user's repository: where it is, the branches of runs, what they changed. Changes nothing in it."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from cli.errors import Misuse
from cli.text import clean

HEADS = "refs/heads/massgend/"


@dataclass(frozen=True)
class Git:
    """Runs git in one folder, by argv, without a prompt; what GIT_* the shell has set does not count."""

    folder: Path

    def attempt(self, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        try:
            return subprocess.run(
                ["git", "-C", str(self.folder), *arguments],
                env={**kept, "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C.UTF-8"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
            )
        except OSError as error:
            raise Misuse(f"git cannot be run ({error.strerror}): install git") from None

    def must(self, *arguments: str) -> str:
        """Its output. Raises Misuse with git's own first words."""
        done = self.attempt(*arguments)
        if done.returncode != 0:
            said = next(iter(os.fsdecode(done.stderr).strip().splitlines()), f"exit code {done.returncode}")
            raise Misuse(f"git in {self.folder}: {clean(said.removeprefix('fatal: ').removeprefix('error: '))}")
        return os.fsdecode(done.stdout).strip()

    def commit_of(self, ref: str) -> str | None:
        done = self.attempt("rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
        return os.fsdecode(done.stdout).strip() if done.returncode == 0 else None

    def merge_base(self, one: str, other: str) -> str | None:
        done = self.attempt("merge-base", one, other)
        return os.fsdecode(done.stdout).split()[0] if done.returncode == 0 else None


@dataclass(frozen=True, kw_only=True)
class RunBranches:
    """The branches of one run in a repository: agent -> commit; `winner` apart."""

    run_id: str
    agents: dict[str, str]
    winner: str | None

    @property
    def winning_agent(self) -> str | None:
        return next((agent for agent, commit in self.agents.items() if commit == self.winner), None)


def find_root(folder: Path) -> Path | None:
    """The working tree that `folder` lies in, by its `.git`; a broken one counts, so that it is not worked around."""
    return next((one for one in (folder, *folder.parents) if (one / ".git").exists()), None)


def chosen_repository(repo: Path | None) -> Path:
    """`--repo`, else the repository of the current folder. Raises Misuse."""
    if repo is not None:
        if not repo.is_dir():
            raise Misuse(f"{repo}: there is no such folder: name a repository with --repo")
        return repo.resolve()
    root = find_root(Path.cwd())
    if root is None:
        raise Misuse(f"{Path.cwd()} is not in a git repository: go into one, or name one with --repo")
    return root


def run_branches(git: Git) -> dict[str, RunBranches]:
    """All runs that left branches here, from the refs alone."""
    runs: dict[str, RunBranches] = {}
    for line in git.must("for-each-ref", "--format=%(objectname) %(refname)", HEADS).splitlines():
        commit, ref = line.split(" ", 1)
        run_id, _, agent = ref.removeprefix(HEADS).partition("/")
        run = runs.setdefault(run_id, RunBranches(run_id=run_id, agents={}, winner=None))
        if agent == "winner":
            runs[run_id] = RunBranches(run_id=run_id, agents=run.agents, winner=commit)
        else:
            run.agents[agent] = commit
    return runs


def find_run(git: Git, prefix: str) -> RunBranches:
    """By the run's id or a unique beginning of it. Raises Misuse."""
    runs = run_branches(git)
    if prefix in runs:
        return runs[prefix]
    matching = sorted(run_id for run_id in runs if prefix and run_id.startswith(prefix))
    if not matching:
        known = ", ".join(sorted(runs)[-5:]) or "none"
        raise Misuse(f"no branches of a run '{clean(prefix)}' in {git.folder}; runs with branches there: {known}")
    if len(matching) > 1:
        raise Misuse(f"'{clean(prefix)}' can be any of the runs {', '.join(matching[:6])}: write more of it")
    return runs[matching[0]]


def find_agent(run: RunBranches, agent: str | None) -> str:
    """The name of the branch for one agent; without a name the winner's, never another's. Raises Misuse."""
    base = f"massgend/{run.run_id}/"
    if agent == "winner" or (agent is None and run.winner is not None):
        if run.winner is None:
            raise Misuse(f"run {run.run_id} has no winner; its agents: {', '.join(run.agents)}")
        return f"{base}winner"
    if agent is None:
        raise Misuse(f"run {run.run_id} has no winner: name one of its agents: {', '.join(run.agents)}")
    if agent not in run.agents:
        raise Misuse(f"run {run.run_id} has no branch of '{clean(agent)}'; its agents: {', '.join(run.agents)}")
    return base + agent


def base_of(git: Git, run_id: str, branch: str, *, known: str | None = None) -> str:
    """Where the run started: as the daemon says, else what the branch has in common with the user's own.

    The point saved before a merge comes before HEAD: after a fast-forward HEAD itself holds the agent's work.
    """
    if known is not None and git.commit_of(known) is not None:
        return known
    for mine in (f"refs/massgend/{run_id}/before-merge", "HEAD"):
        if git.commit_of(mine) is not None and (base := git.merge_base(mine, f"refs/heads/{branch}")) is not None:
            return base
    return git.must("hash-object", "-t", "tree", os.devnull)
