"""A diff on the terminal: through the user's pager, coloured by us, and without what could drive the terminal."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator

from cli.errors import Misuse
from cli.git import Git
from cli.text import clean_line

_RED, _GREEN, _CYAN, _BOLD, _RESET = "\x1b[31m", "\x1b[32m", "\x1b[36m", "\x1b[1m", "\x1b[m"
_NO_SUCH_COMMAND = 127
_HEADERS = ("diff ", "index ", "--- ", "+++ ", "new file", "deleted file", "old mode", "new mode", "rename ", "copy ")


def show_diff(git: Git, old: str, new: str, *, stat: bool, page: bool = True) -> None:
    """To a terminal: cleaned, coloured, paged. Elsewhere: git's own bytes, so that it is a patch. Raises Misuse."""
    to_terminal = sys.stdout.isatty()
    kind = ["--stat=80"] if stat else ["--stat=80", "--patch"] if to_terminal else ["--patch", "--binary"]
    # No programs that the repository's or the user's attributes name: the files are hostile.
    done = git.attempt("diff", "--no-ext-diff", "--no-textconv", "--no-color", *kind, old, new, "--")
    if done.returncode != 0:
        raise Misuse(f"git in {git.folder} cannot show this: {clean_line(os.fsdecode(done.stderr)).strip()}")
    if not to_terminal:
        sys.stdout.buffer.write(done.stdout)
        sys.stdout.buffer.flush()
        return
    coloured = "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    text = "".join(f"{line}\n" for line in shown_lines(done.stdout.decode(errors="replace"), coloured=coloured))
    if page and text:
        _page(git, text)
    else:
        sys.stdout.write(text or "No difference.\n")


def shown_lines(diff: str, *, coloured: bool) -> Iterator[str]:
    in_hunk = False
    for raw in diff.split("\n")[:-1] if diff.endswith("\n") else diff.split("\n"):
        line = clean_line(raw)
        if line.startswith("diff --git "):
            in_hunk = False
        elif line.startswith("@@"):
            in_hunk = True
        colour = _colour(line, in_hunk) if coloured else ""
        yield f"{colour}{line}{_RESET}" if colour else line


def _colour(line: str, in_hunk: bool) -> str:
    if line.startswith("@@"):
        return _CYAN
    if not in_hunk:
        return _BOLD if line.startswith(_HEADERS) else ""
    return {"+": _GREEN, "-": _RED}.get(line[:1], "")


def _page(git: Git, text: str) -> None:
    """As git would: GIT_PAGER, core.pager, PAGER, less. Without one it is printed."""
    configured = git.attempt("config", "core.pager").stdout
    pager = os.environ.get("GIT_PAGER") or os.fsdecode(configured).strip() or os.environ.get("PAGER") or "less"
    if pager == "cat":
        sys.stdout.write(text)
        return
    environment = {"LESS": "FRX", "LV": "-c", **os.environ}
    try:
        # A shell, as in git: these settings hold command lines.
        argv = ["sh", "-c", f"exec {pager}"] if not pager.isalnum() else shlex.split(pager)
        with subprocess.Popen(argv, stdin=subprocess.PIPE, env=environment) as process:
            process.communicate(text.encode(errors="replace"))
        found = process.returncode != _NO_SUCH_COMMAND
    except OSError:
        found = False
    if not found:
        sys.stdout.write(text)
