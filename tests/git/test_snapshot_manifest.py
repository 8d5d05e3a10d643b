"""When a file counts as unchanged: all that the kernel says of it is the same, and was old when it was read."""

from __future__ import annotations

import pytest

from snapshots import manifest
from snapshots.scanning import Entry

SECOND = 1_000_000_000
TAKEN = 1_700_000_000 * SECOND + 5
ENTRY = Entry("a", "a", 0o100644, 1, 2, 3, TAKEN - 60 * SECOND, TAKEN - 60 * SECOND + 1)


@pytest.mark.parametrize("field", ["mode", "device", "inode", "size", "mtime_ns", "ctime_ns"])
def test_any_difference_is_a_change(field: str) -> None:
    known = manifest.of("c", None, TAKEN, [ENTRY], frozenset())
    assert known.unchanged(ENTRY)
    assert not known.unchanged(ENTRY._replace(**{field: getattr(ENTRY, field) + 1}))


@pytest.mark.parametrize(
    ("changed_ns", "trusted"),
    [
        (TAKEN - SECOND // 10, True),  # a file system with fine times
        (TAKEN - SECOND // 100, False),
        (TAKEN - 5 - SECOND, False),  # whole seconds: another change may hide in the same one
        (TAKEN - 5 - 3 * SECOND, True),
    ],
)
def test_a_file_as_young_as_the_freeze_is_read_again_by_the_next(changed_ns: int, trusted: bool) -> None:
    young = ENTRY._replace(ctime_ns=changed_ns)
    assert manifest.of("c", None, TAKEN, [young], frozenset()).unchanged(young) is trusted
