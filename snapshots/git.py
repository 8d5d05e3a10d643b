"""The one place that runs the git binary (and GitPython): argv lists, a scrubbed environment, a timeout on every call.

Two profiles: `Git.ours` for the daemon's bare repositories, where nothing of any user's configuration is read and git
dies with the daemon, and `Git.users` for the user's repository, where their filters, name and line ends count, but no
hook, signature or prompt can, and git finishes what it began. Calls block: the async layer runs them in threads. It
must not be pointed at an agent's `.git`.
"""

from __future__ import annotations

import io
import os
import pwd
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import IO, cast

from snapshots.errors import GitFailed
from snapshots.processes import complaints, converse, kill, text_of, wait, write

TIMEOUT_S = 300.0

_QUIET = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.askPass=false",
    "core.quotePath=false",
    "commit.gpgSign=false",
    "tag.gpgSign=false",
    "log.showSignature=false",
    "merge.verifySignatures=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "protocol.ext.allow=never",
    "credential.helper=",
    "color.ui=false",
)
_OURS = (
    "core.attributesFile=/dev/null",
    "core.excludesFile=/dev/null",
    "core.ignoreCase=false",
    "core.autocrlf=false",
    "core.symlinks=true",
    "core.fileMode=true",
    "safe.directory=*",
)
# `false` as the program that asks for passwords: a prompt becomes an error at once.
_NEVER_ASK = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "false",
    "SSH_ASKPASS": "false",
    "GIT_EDITOR": "false",
    "GIT_PAGER": "cat",
    "GIT_OPTIONAL_LOCKS": "0",
    "LC_ALL": "C",
}
_NO_CONFIG = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "HOME": "/nonexistent",
}


@dataclass(frozen=True, kw_only=True)
class Finished:
    """A git command that ended, with any exit code."""

    exit_code: int
    stdout: bytes
    stderr: str


@dataclass(frozen=True, kw_only=True)
class Identity:
    """The user a git command runs as, when the daemon is root and the repository is somebody else's."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Git:
    """How to run git on one repository. Make it with `ours` or `users`. Holds no process and no file."""

    directory: Path | None = None
    settings: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    identity: Identity | None = None
    timeout_s: float = TIMEOUT_S
    ends_with_us: bool = False

    @classmethod
    def ours(cls, git_dir: Path | None, *, work_tree: Path | None = None, timeout_s: float = TIMEOUT_S) -> Git:
        """For a repository of the daemon (None: for `init`, `clone`). Reads no configuration but the repository's own.

        With `work_tree` git runs in that folder, which must not be one that an agent can still write to.
        """
        environment = {"PATH": os.environ.get("PATH", os.defpath), **_NEVER_ASK, **_NO_CONFIG}
        if git_dir is not None:
            environment["GIT_DIR"] = str(git_dir)
        if work_tree is not None:
            environment["GIT_WORK_TREE"] = str(work_tree)
        return cls(
            directory=work_tree or git_dir,
            settings=_QUIET + _OURS,
            environment=environment,
            timeout_s=timeout_s,
            ends_with_us=True,
        )

    @classmethod
    def users(cls, directory: Path, *, timeout_s: float = TIMEOUT_S) -> Git:
        """For the user's repository at or above `directory`, with the user's own configuration.

        When the daemon is root and the folder is another user's, git runs as that user: what it writes is theirs.
        """
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        identity = None
        owner = directory.stat()
        if os.geteuid() == 0 and owner.st_uid != 0:
            identity, home = _identity(owner.st_uid, owner.st_gid)
            environment = {"PATH": environment.get("PATH", os.defpath), "HOME": home}
        return cls(
            directory=directory,
            settings=_QUIET,
            environment={**environment, **_NEVER_ASK},
            identity=identity,
            timeout_s=timeout_s,
        )

    def run(
        self,
        *arguments: str | Path,
        stdin: bytes | Iterable[bytes] | IO[bytes] | None = None,
        environment: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> bytes:
        """Standard output of a command that must succeed. Raises GitFailed."""
        finished = self.attempt(*arguments, stdin=stdin, environment=environment, timeout_s=timeout_s)
        if finished.exit_code != 0:
            raise GitFailed(_shown(arguments), finished.exit_code, finished.stderr)
        return finished.stdout

    def text(self, *arguments: str | Path, environment: Mapping[str, str] | None = None) -> str:
        """Like `run`, as one stripped string; bytes that are not UTF-8 come as surrogates."""
        return os.fsdecode(self.run(*arguments, environment=environment)).strip()

    def attempt(
        self,
        *arguments: str | Path,
        stdin: bytes | Iterable[bytes] | IO[bytes] | None = None,
        environment: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> Finished:
        """Run a command whose exit code is an answer. `stdin`: bytes, chunks, or an open file (a pipe of another
        command). Raises GitFailed when git could not be started or ran out of time (its process group is killed)."""
        chunks: Iterable[bytes] = ()
        source: int | IO[bytes] = subprocess.PIPE
        if stdin is None:
            source = subprocess.DEVNULL
        elif isinstance(stdin, bytes):
            chunks = (stdin,)
        elif isinstance(stdin, io.BufferedIOBase | io.RawIOBase):
            source = cast("IO[bytes]", stdin)
        else:
            chunks = stdin
        with (
            complaints() as told,
            self._process(arguments, stdin=source, stderr=told, environment=environment) as process,
        ):
            ended = converse(process, chunks, told, timeout_s or self.timeout_s)
        if ended.exit_code is None:
            raise GitFailed(_shown(arguments), None, ended.stderr)
        return Finished(exit_code=ended.exit_code, stdout=ended.stdout, stderr=ended.stderr)

    def pipe(self, *arguments: str | Path, into: Git, then: Iterable[str | Path], stdin: bytes = b"") -> bytes:
        """`git arguments | git then` (in the repository `into`), no shell; standard output of the second. Raises
        GitFailed for the first that failed: the source's error is the cause, the sink's only follows from it."""
        then = tuple(then)
        with (
            complaints() as told,
            self._process(arguments, stdin=subprocess.PIPE, stderr=told, environment=None) as source,
        ):
            if source.stdin is None or source.stdout is None:
                raise AssertionError("both are pipes")
            feeder = threading.Thread(target=write, args=(source.stdin, (stdin,)), daemon=True)
            feeder.start()
            result = into.attempt(*then, stdin=source.stdout, timeout_s=self.timeout_s)
            source.stdout.close()
            exit_code = wait(source, 10.0)
            feeder.join()
            broken_by_sink = result.exit_code != 0 and exit_code == -signal.SIGPIPE
            if exit_code != 0 and not broken_by_sink:
                raise GitFailed(_shown(arguments), exit_code, text_of(told))
            if result.exit_code != 0:
                raise GitFailed(_shown(then), result.exit_code, result.stderr)
            return result.stdout

    @contextmanager
    def _process(
        self,
        arguments: tuple[str | Path, ...],
        *,
        stdin: int | IO[bytes],
        stderr: IO[bytes],
        environment: Mapping[str, str] | None,
    ) -> Iterator[subprocess.Popen[bytes]]:
        settings = (part for setting in self.settings for part in ("-c", setting))
        identity = self.identity
        tie = _tie(shutil.which("setpriv", path=self.environment["PATH"])) if self.ends_with_us else ()
        try:
            process = subprocess.Popen(
                [*tie, "git", *settings, *map(str, arguments)],
                cwd=self.directory,
                env={**self.environment, **(environment or {})},
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=stderr,
                process_group=0,
                user=identity.uid if identity else None,
                group=identity.gid if identity else None,
                extra_groups=identity.groups if identity else None,
            )
        except OSError as error:
            raise GitFailed(_shown(arguments), -1, f"git could not be started: {error}") from error
        with process:
            try:
                yield process
            finally:
                kill(process)


def read_heads(repository: Path, prefix: str = "") -> dict[str, str]:
    """Branches (full names without `refs/heads/`) that start with `prefix`, and their commits. Read by GitPython,
    straight from the files, without a process a branch. An unreadable repository raises GitFailed."""
    # Imported here: importing GitPython looks for the git binary and raises when there is none.
    from git import GitError, Repo, SymbolicReference

    try:
        with Repo(repository) as repo:
            return {
                head.name: SymbolicReference.dereference_recursive(repo, head.path)
                for head in repo.heads
                if head.name.startswith(prefix)
            }
    except (GitError, OSError, ValueError) as error:
        raise GitFailed(("git", "for-each-ref"), -1, f"{repository}: {error}") from error


@cache
def _tie(setpriv: str | None) -> tuple[str, ...]:
    """What starts a program that ends with the thread that started it, also when the daemon is killed: else a git of
    ours would go on writing beside the next daemon's. By SIGTERM, on which git takes its locks away. (Code of ours
    between fork and exec could not do it: other threads may hold locks then.) Nothing where there is no such program.
    """
    if setpriv is None:
        return ()
    tie = (setpriv, "--pdeathsig", "TERM", "--")
    try:
        known = subprocess.run([*tie, "true"], stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=60.0)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return tie if known.returncode == 0 else ()


def _identity(uid: int, gid: int) -> tuple[Identity, str]:
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return Identity(uid=uid, gid=gid), "/nonexistent"
    groups = tuple(os.getgrouplist(entry.pw_name, entry.pw_gid))
    return Identity(uid=uid, gid=entry.pw_gid, groups=groups), entry.pw_dir


def _shown(arguments: Iterable[str | Path]) -> tuple[str, ...]:
    return ("git", *map(str, arguments))
