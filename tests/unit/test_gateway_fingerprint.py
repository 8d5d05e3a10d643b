"""A replayed request is the same when only numbers, dates, ids and digests differ."""

from __future__ import annotations

import pytest

from massgend.gateway.fingerprint import fingerprint


def of(text: str) -> str:
    return fingerprint("messages", "m", {"messages": [{"content": text}]})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Recent commits:\n9e8d3f1 start", "Recent commits:\n0ab12cd start"),
        ("at 2026-12-01T10:00", "at 2027-01-31T23:59"),
        ("id 123e4567-e89b-12d3-a456-426614174000", "id 00000000-0000-4000-8000-00000000000f"),
        ("took 12 ms", "took 9 ms"),
    ],
)
def test_what_changes_from_run_to_run_makes_no_difference(one: str, other: str) -> None:
    assert of(one) == of(other)


@pytest.mark.parametrize(("one", "other"), [("say defaced", "say effaced"), ("file a.py", "file b.py"), ("", "x")])
def test_words_make_a_difference(one: str, other: str) -> None:
    assert of(one) != of(other)
