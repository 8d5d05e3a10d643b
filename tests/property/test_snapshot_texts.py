"""Any bytes can be a name: its text is valid UTF-8, and a printed command with it names the same bytes in a shell."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from snapshots.errors import GitFailed
from snapshots.names import shown
from snapshots.next_commands import git_at
from snapshots.repository import MergeReport, MergeStatus
from snapshots.texts import is_readable, readable

NAMES = st.binary(min_size=1, max_size=40).filter(lambda name: b"\0" not in name)


@given(name=NAMES)
def test_the_text_of_any_name_is_valid_utf8_and_stays_what_it_was_where_it_could(name: bytes) -> None:
    text = os.fsdecode(name)
    assert readable(text) == name.decode("utf-8", "backslashreplace")
    assert is_readable(text) == (readable(text) == text)
    shown(text).encode()
    report = MergeReport(status=MergeStatus.NOT_MERGED, reason=text, branch=text, conflicts=(text, "a"), stat=(text,))
    for told in (report.reason, str(report.branch), *report.conflicts, *report.stat):
        assert told.encode() in (readable(text).encode(), b"a")
    str(GitFailed((text,), 1, text)).encode()


@given(text=st.text(st.characters(codec=None), max_size=20))
def test_any_text_becomes_valid_utf8(text: str) -> None:
    readable(text).encode()


@settings(max_examples=40, deadline=None)
@example(name=b"-x %s \\n 'q' \"d\" $HOME `id` \xff")
@example(name=b"\xff*?[")
@given(name=NAMES.filter(lambda name: not name.endswith(b"\n")))
def test_a_printed_command_names_the_same_bytes(name: bytes) -> None:
    command = git_at(Path("/"), os.fsdecode(name)).encode()
    told = subprocess.run(["sh", "-c", b'git() { printf "%s" "$3"; }; ' + command], capture_output=True, check=True)
    assert told.stdout == name
