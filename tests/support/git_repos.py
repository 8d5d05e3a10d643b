"""Makes real repositories for tests: plain, and odd in each way that people's repositories are odd.

Every function takes a folder that does not exist yet, makes a repository there, and returns it.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

LFS_POINTER = (
    b"version https://git-lfs.github.com/spec/v1\n"
    b"oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n"
)
PNG = bytes.fromhex("89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000049454e44ae426082")
ODD_NAMES = (
    b"with space.txt",
    b'quote"double.txt',
    b"quote'single.txt",
    b"new\nline.txt",
    b"tab\tname.txt",
    b"back\\slash.txt",
    "gr\u00fc\u00dfe-\u4f60\u597d-\U0001f600.txt".encode(),
    "decomposed-u\u0308.txt".encode(),
    b"latin1-\xfc\xff.txt",
    b"-dash-first.txt",
    b"!bang.txt",
    b"#hash.txt",
    b"trailing-space ",
    b"*star?.txt",
    b"[brackets].txt",
    b":(glob)magic.txt",
    b"n" * 255,
)


@dataclass(frozen=True, kw_only=True)
class Repository:
    """A repository on disk, with a git that reads nothing of this machine's configuration."""

    path: Path

    def git(self, *arguments: str | bytes | Path, check: bool = True, stdin: bytes = b"") -> str:
        return os.fsdecode(self.git_bytes(*arguments, check=check, stdin=stdin)).strip()

    def git_bytes(self, *arguments: str | bytes | Path, check: bool = True, stdin: bytes = b"") -> bytes:
        result = subprocess.run(
            ["git", *arguments], cwd=self.path, env=_environment(), input=stdin, capture_output=True, check=False
        )
        if check and result.returncode != 0:
            raise AssertionError(f"git {arguments} exited {result.returncode}: {os.fsdecode(result.stderr)}")
        return result.stdout

    def write(self, name: str | bytes, content: bytes | str = b"", *, executable: bool = False) -> Path:
        path = self.path / os.fsdecode(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        path.chmod(0o755 if executable else 0o644)
        return path

    def commit(self, message: str = "change") -> str:
        """Everything in the checkout, also what is ignored is left to git; the new commit."""
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.head

    @property
    def head(self) -> str:
        return self.git("rev-parse", "HEAD")


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return kept | {
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_TERMINAL_PROMPT": "0",
        "LC_ALL": "C",
        "GIT_ALLOW_PROTOCOL": "file",
    }


def empty(path: Path, *, branch: str = "main") -> Repository:
    """No commit yet (an unborn branch)."""
    path.mkdir(parents=True)
    repository = Repository(path=path)
    repository.git("init", "-q", "-b", branch)
    repository.git("config", "user.name", "Uma User")
    repository.git("config", "user.email", "uma@example.com")
    return repository


def plain(path: Path, *, branch: str = "main") -> Repository:
    """Two commits, a script, a folder."""
    repository = empty(path, branch=branch)
    repository.write("README.md", "hello\n")
    repository.commit("first")
    repository.write("src/app.py", "print('hello')\n")
    repository.write("run.sh", "#!/bin/sh\necho hi\n", executable=True)
    repository.commit("second")
    return repository


def detached(path: Path) -> Repository:
    repository = plain(path)
    repository.git("checkout", "-q", "--detach", "HEAD")
    return repository


def shallow(path: Path) -> Repository:
    """A clone that has the newest commit only."""
    origin = plain(path.with_name(path.name + "-origin"))
    subprocess.run(["git", "clone", "-q", "--depth=1", origin.path.as_uri(), path], env=_environment(), check=True)
    repository = Repository(path=path)
    repository.git("config", "user.name", "Uma User")
    repository.git("config", "user.email", "uma@example.com")
    return repository


def with_submodule(path: Path, *, initialised: bool = True) -> Repository:
    """A declared submodule at `libs/dep`, with its git folder in `.git/modules/libs/dep` when initialised."""
    library = empty(path.with_name(path.name + "-library"))
    library.write("lib.py", "VALUE = 1\n")
    library.commit("library")
    repository = plain(path)
    repository.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", library.path, "libs/dep")
    repository.commit("add a submodule")
    if not initialised:
        repository.git("submodule", "--quiet", "deinit", "-f", "libs/dep")
        subprocess.run(["rm", "-rf", repository.path / ".git/modules"], check=True)
    return repository


def with_lfs_pointer(path: Path) -> Repository:
    """A file of git-lfs, as its pointer, in a repository whose filter is declared but not installed."""
    repository = plain(path)
    repository.write(".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n")
    repository.write("model.bin", LFS_POINTER)
    repository.commit("a large file")
    return repository


def with_line_ends(path: Path) -> Repository:
    """Blobs with CRLF and LF, under attributes that would convert each of them at checkout or commit."""
    repository = plain(path)
    repository.write("crlf.txt", b"one\r\ntwo\r\n")
    repository.write("lf.txt", b"one\ntwo\n")
    repository.write("mixed.txt", b"one\r\ntwo\n")
    repository.write("ident.c", b"/* $Id$ */\n")
    repository.write("utf16.txt", "hi\r\n".encode("utf-16"))
    repository.commit("line ends")
    repository.write(
        ".gitattributes",
        "*.txt text eol=crlf\ncrlf.txt text eol=lf\nident.c ident\nutf16.txt working-tree-encoding=UTF-16\n",
    )
    repository.git("add", ".gitattributes")
    repository.git("commit", "-q", "-m", "attributes")
    return repository


def with_odd_names(path: Path) -> Repository:
    repository = plain(path)
    for name in ODD_NAMES:
        repository.write(name, b"odd " + name)
    repository.commit("odd names")
    return repository


def with_links(path: Path) -> Repository:
    repository = plain(path)
    for name, target in (("to-file", "README.md"), ("to-folder", "src"), ("dangling", "nowhere"), ("loop", "loop")):
        (repository.path / name).symlink_to(target)
    repository.commit("links")
    return repository


def with_hooks_and_signing(path: Path, canary: Path) -> Repository:
    """Every hook and every program that the configuration can name writes to `canary` and fails."""
    repository = plain(path)
    trap = repository.path / ".git" / "trap"
    trap.write_text(f'#!/bin/sh\necho "$0 $*" >> "{canary}"\nexit 1\n')
    trap.chmod(0o755)
    for hook in (
        "pre-commit", "commit-msg", "prepare-commit-msg", "post-commit", "pre-merge-commit", "post-merge",
        "post-checkout", "reference-transaction", "post-index-change", "pre-auto-gc", "post-rewrite", "update",
        "pre-receive", "post-receive", "post-update", "pre-push", "pre-rebase",
    ):  # fmt: skip
        (repository.path / ".git" / "hooks").mkdir(exist_ok=True)
        (repository.path / ".git" / "hooks" / hook).symlink_to(trap)
    for setting, value in (
        ("commit.gpgSign", "true"),
        ("tag.gpgSign", "true"),
        ("gpg.program", str(trap)),
        ("core.fsmonitor", str(trap)),
        ("core.askPass", str(trap)),
        ("core.editor", str(trap)),
        ("core.pager", str(trap)),
    ):
        repository.git("config", setting, value)
    return repository
