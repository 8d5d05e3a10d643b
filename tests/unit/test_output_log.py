"""Agents' output: bounded on disk, harmless on a screen."""

from __future__ import annotations

from pathlib import Path

from massgend.orchestrator.feed import Feed
from massgend.orchestrator.output import MAX_LINE_CHARS, MAX_LOG_BYTES, OutputLog, plain_line, read_tail
from sandboxes.sandbox import Chunk, Stream


def test_a_flood_keeps_its_tail_and_stays_bounded(tmp_path: Path) -> None:
    log = OutputLog(tmp_path / "a.log", Feed(), "a")
    block = b"x" * 1_000_000
    for _ in range(40):
        log.take(Chunk(stream=Stream.STDOUT, content=block))
    log.take(Chunk(stream=Stream.STDOUT, content=b"the end\n"))
    log.close()

    on_disk = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert on_disk <= 2 * MAX_LOG_BYTES
    tail, written = read_tail(tmp_path / "a.log", 3_000_000)
    assert tail.endswith(b"the end\n")
    assert len(tail) == 3_000_000
    assert written == 40_000_008


def test_the_tail_goes_on_across_the_two_halves(tmp_path: Path) -> None:
    log = OutputLog(tmp_path / "a.log", Feed(), "a")
    log.take(Chunk(stream=Stream.STDOUT, content=b"a" * (MAX_LOG_BYTES - 10)))
    log.take(Chunk(stream=Stream.STDOUT, content=b"b" * 20))
    log.close()

    assert read_tail(tmp_path / "a.log", 30) == (b"a" * 10 + b"b" * 20, MAX_LOG_BYTES + 10)


def test_an_agent_without_output_has_an_empty_tail(tmp_path: Path) -> None:
    assert read_tail(tmp_path / "none.log", 100) == (b"", 0)


def test_the_shown_line_has_no_escapes_controls_or_direction_marks() -> None:
    hostile = "\x1b]0;title\x07\x1b[2J\x1b[31mred\x1b[0m \u202egnp.exe\u2066\r\x08 ok\x00"

    assert plain_line(hostile) == "red gnp.exe ok"


def test_the_shown_line_is_bounded() -> None:
    assert len(plain_line("y" * 10_000)) == MAX_LINE_CHARS


def test_the_last_whole_line_is_shown(tmp_path: Path) -> None:
    feed = Feed()
    log = OutputLog(tmp_path / "a.log", feed, "a")
    log.take(Chunk(stream=Stream.STDOUT, content=b"one\ntwo\nthr"))

    assert feed.doing["a"].line == "two"

    log.take(Chunk(stream=Stream.STDOUT, content=b"ee"))
    log.close()
    assert feed.doing["a"].line == "three"
