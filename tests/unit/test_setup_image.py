"""What scripts/image says while it works: a sign of life at least every ten seconds, with whole words."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.scripts import SCRIPTS, load

image = load("image")


def wait_until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_quiet_step_shows_that_it_goes_on() -> None:
    out = io.StringIO()
    with image.Progress("making the base", out=out, every_s=0.05):
        wait_until(lambda: out.getvalue().count("\n") >= 3)
    assert all(re.fullmatch(r" +\d+ s  making the base", line) for line in out.getvalue().splitlines())


def test_ten_seconds_is_the_longest_silence() -> None:
    assert image.SIGN_OF_LIFE_S <= 10


def test_a_new_step_is_shown_at_once_and_stands_before_what_it_says() -> None:
    out = io.StringIO()
    with image.Progress("building", out=out, every_s=0.5) as progress:
        progress.show("Step 1/3 : FROM debian\n")
        progress.show("Get:1 one\nGet:2 two\n")
        wait_until(lambda: "Get:2 two\n" in out.getvalue())
        progress.show("Step 2/3 : RUN true\n")
    lines = [line.split(" s  ", 1)[1] for line in out.getvalue().splitlines()]
    told = list(dict.fromkeys(line for line in lines if line != "Step 1/3"))
    assert told[:3] == ["Step 1/3 : FROM debian", "Step 1/3: Get:2 two", "Step 2/3 : RUN true"]


def test_a_program_that_writes_a_log_shows_its_newest_line(tmp_path: Path) -> None:
    out, log = io.StringIO(), tmp_path / "pip.log"
    log.write_bytes(b"Collecting one\nCollecting two\nhalf a li")
    with image.Progress("pip", out=out, every_s=0.05, log=log):
        wait_until(lambda: "\n" in out.getvalue())
    assert out.getvalue().splitlines()[0].endswith(" s  pip: Collecting two")


@pytest.mark.parametrize("line", ["Step 4/9 : RUN " + "some words " * 40, "\x1b[31mred\x1b[0m " + "word " * 90])
def test_no_word_is_cut_in_two(line: str) -> None:
    shown = image.shortened(line, cells=80)
    assert len(shown) <= 80
    assert shown.endswith(" ...")
    assert set(shown.removesuffix(" ...").split()) <= set(line.replace("\x1b[31m", "").replace("\x1b[0m", "").split())


def test_a_failing_step_ends_its_signs_of_life() -> None:
    out = io.StringIO()
    with pytest.raises(image.NoImageError), image.Progress("making the base", out=out, every_s=0.1):
        raise image.NoImageError("no")
    before = out.getvalue()
    time.sleep(0.3)
    assert out.getvalue() == before


def test_pip_in_the_set_up_shows_that_it_goes_on(tmp_path: Path) -> None:
    """The shell's own sign of life, around a command that is slow and writes to its log."""
    script = (SCRIPTS / "venv").read_text()
    function = script[script.index("alive() {") : script.index("\n}\n", script.index("alive() {")) + 3]
    log = tmp_path / "pip.log"
    log.write_text("Collecting " + "word " * 60 + "\n")
    with subprocess.Popen(
        ["bash", "-euc", f'{function}\nlog="{log}"; alive 0.1'],
        stderr=subprocess.PIPE,
        text=True,
        env={"PATH": os.environ["PATH"]},
        start_new_session=True,
    ) as process:
        assert process.stderr is not None
        lines = [process.stderr.readline().rstrip("\n") for _ in range(2)]
        os.killpg(process.pid, signal.SIGKILL)
    for line in lines:
        assert re.fullmatch(r" +\d+ s  pip: Collecting( word)+", line)
        assert len(line) <= 110
