"""Nothing an agent writes can drive the terminal."""

from __future__ import annotations

import pytest

from cli.text import clean, clean_line, clip, first_line, pad, shown_age, shown_duration, shown_size


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bP1$r\x1b\\dcs", "dcs"),
        ("\x1b]52;c;never ended", ""),
        ("\x9b2Jcsi", "csi"),
        ("a\rb\bc\x7fd\x00e", "a bcde"),
        ("abc\u202edcba\u2066x\u200b", "abcdcbax"),
        ("line\nbreak\u2028too\tand  more", "line break too and more"),
        ("tag\U000e0041s", "tags"),
        ("e" + "\u0301" * 50, "e" + "\u0301" * 3),
        ("\ud800", ""),
        ("\x1b\x1b[31m[2J", "[2J"),
        ("gr\u00fc\u00dfe \u4f60\u597d", "gr\u00fc\u00dfe \u4f60\u597d"),
    ],
)
def test_controls_and_invisible_signs_are_removed(hostile: str, shown: str) -> None:
    assert clean(hostile) == shown


def test_what_is_left_after_cleaning_is_clean() -> None:
    hostile = "\x1b\x1b]0;x\x07[31m\x1b[\x1b[31m31m"
    assert "\x1b" not in clean(hostile)
    assert clean(clean(hostile)) == clean(hostile)


def test_code_keeps_its_spaces() -> None:
    assert clean_line("\tif x:\x1b[2K  y") == "    if x:  y"


def test_the_first_line_that_says_something() -> None:
    assert first_line("\n \x1b[0m\nTitle\nmore") == "Title"
    assert first_line("") == ""


@pytest.mark.parametrize("text", ["short", "a longer text than fits", "\u4f60\u597d\u4f60\u597d\u4f60\u597d"])
def test_clipped_and_padded_text_has_the_columns_it_should(text: str) -> None:
    from rich.cells import cell_len

    assert cell_len(clip(text, 9)) <= 9
    assert cell_len(pad(text, 9)) == 9


def test_numbers_in_peoples_units() -> None:
    assert [shown_duration(s) for s in (0, 7.9, 754, 3723)] == ["0:00", "0:07", "12:34", "1:02:03"]
    assert [shown_age(s) for s in (40, 720, 10_800, 432_000)] == ["40 s", "12 min", "3 h", "5 d"]
    assert [shown_size(n) for n in (12, 2048, 5 * 1024**2, 3 * 1024**3)] == ["12 B", "2.0 KiB", "5.0 MiB", "3.0 GiB"]
