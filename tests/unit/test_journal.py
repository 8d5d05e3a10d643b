"""The journal gives back what it was given, in order, and survives being opened again."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from massgend.domain.events import CloseRequested, DaemonRestarted, HandedIn, RunRequested
from massgend.domain.machine import begin
from massgend.domain.run import Cause, NewAnswer, VoteFor
from massgend.domain.task import AgentSpec, CheckSpec, Task
from massgend.journal import Journal, JournalError, RunSummary, storable

pytestmark = pytest.mark.anyio

TASK = Task(
    text='grüße\n"x"',
    agents=(AgentSpec(name="a", kind="command", options={"run": "true"}), AgentSpec(name="b", kind="command")),
    repository=Path("/srv/répo"),
    checks=(CheckSpec(name="unit", run="true"),),
)
REQUESTED = RunRequested(at=1.5, run="run1", task=TASK, labels={"a": "oak", "b": "elm"})


def summary(run_id: str = "run1", *, is_open: bool = True, at: float = 1.5) -> RunSummary:
    return RunSummary(
        run_id=run_id,
        status="running" if is_open else "delivered",
        open=is_open,
        requested_at=at,
        ended_at=None if is_open else at + 1,
        task="t",
        agents=("a", "b"),
        winner=None,
        repository=None,
    )


async def test_events_come_back_equal_and_in_order_after_a_restart(tmp_path: Path) -> None:
    events = [
        REQUESTED,
        HandedIn(at=2.0, agent="a", step=1, choice=NewAnswer(summary="s")),
        HandedIn(at=3.0, agent="b", step=2, choice=VoteFor(label="oak", reason="r")),
        CloseRequested(at=4.0, cause=Cause.CANCELLED),
        DaemonRestarted(at=5.0),
    ]
    journal = Journal(tmp_path / "j.db")
    for seq, event in enumerate(events, start=1):
        await journal.append(summary(), seq, event, 1, ())
    journal.close()

    again = Journal(tmp_path / "j.db")
    assert list(await again.events("run1")) == events
    again.close()


async def test_facts_are_read_from_any_number_on(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.db")
    facts = begin(REQUESTED).facts
    await journal.append(summary(), 1, REQUESTED, 1, facts)
    await journal.append(summary(), 2, DaemonRestarted(at=2.0), 2, facts)

    assert [fact.seq for fact in await journal.facts("run1", after=0)] == [1, 2]
    assert [fact.seq for fact in await journal.facts("run1", after=1)] == [2]
    assert await journal.facts("run1", after=2) == ()
    assert await journal.fact_count("run1") == 2
    journal.close()


async def test_an_event_is_never_recorded_twice_under_one_number(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.db")
    await journal.append(summary(), 1, REQUESTED, 1, ())
    with pytest.raises(Exception, match="UNIQUE"):
        await journal.append(summary(), 1, DaemonRestarted(at=2.0), 1, ())

    assert await journal.events("run1") == (REQUESTED,)
    journal.close()


async def test_open_runs_and_prefixes_are_found(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.db")
    for run_id, is_open, at in (("abc1", True, 1.0), ("abc2", False, 2.0), ("a_c3", True, 3.0)):
        await journal.append(summary(run_id, is_open=is_open, at=at), 1, REQUESTED, 1, ())

    assert [one.run_id for one in await journal.runs()] == ["a_c3", "abc2", "abc1"]
    assert [one.run_id for one in await journal.runs(open_only=True)] == ["a_c3", "abc1"]
    assert sorted(await journal.find("abc")) == ["abc1", "abc2"]
    assert await journal.find("a_") == ("a_c3",)
    assert await journal.find("abc1") == ("abc1",)
    assert await journal.find("%") == ()
    journal.close()


async def test_a_forgotten_run_leaves_nothing(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.db")
    await journal.append(summary(), 1, REQUESTED, 1, begin(REQUESTED).facts)
    await journal.forget("run1")

    assert await journal.events("run1") == ()
    assert await journal.facts("run1", after=0) == ()
    assert await journal.runs() == ()
    journal.close()


async def test_a_file_that_is_no_journal_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "j.db").write_bytes(b"not a database" * 100)

    with pytest.raises(JournalError, match="move it aside"):
        Journal(tmp_path / "j.db")


async def test_a_journal_of_another_schema_is_refused(tmp_path: Path) -> None:
    Journal(tmp_path / "j.db").close()
    with sqlite3.connect(tmp_path / "j.db") as connection:
        connection.execute("UPDATE meta SET value = '99' WHERE key = 'schema'")
    connection.close()

    with pytest.raises(JournalError, match="schema 99"):
        Journal(tmp_path / "j.db")


async def test_the_journal_is_for_its_user_only(tmp_path: Path) -> None:
    Journal(tmp_path / "j.db").close()

    assert (tmp_path / "j.db").stat().st_mode & 0o077 == 0


def test_text_that_cannot_be_stored_is_replaced_before_it_counts() -> None:
    odd = HandedIn(at=2.0, agent="a", step=1, choice=NewAnswer(summary="half \ud800 of a sign"))

    assert storable(odd) == HandedIn(at=2.0, agent="a", step=1, choice=NewAnswer(summary="half ? of a sign"))
    assert storable(REQUESTED) is REQUESTED
