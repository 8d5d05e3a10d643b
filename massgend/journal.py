"""The append-only event log: the truth after a crash. SQLite (WAL) through SQLAlchemy; calls block, in one thread.

Holds each run's events (the machine's input), the facts derived from them (what readers see), and one line a run for
lists. Must not interpret either: folding is the machine's.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import anyio
import anyio.to_thread
from pydantic import Field, TypeAdapter
from pydantic_core import PydanticSerializationError
from sqlalchemy import (
    Column,
    Connection,
    Engine,
    Float,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    create_engine,
    delete,
    event,
    insert,
    select,
    update,
)
from sqlalchemy.exc import SQLAlchemyError

from massgend.domain.events import Event
from massgend.domain.facts import Fact

SCHEMA_VERSION = 1

_EVENT: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="type")])
_FACT: TypeAdapter[Fact] = TypeAdapter(Annotated[Fact, Field(discriminator="type")])
_TABLES = MetaData()
_META = Table("meta", _TABLES, Column("key", String, primary_key=True), Column("value", String, nullable=False))
_RUNS = Table(
    "runs",
    _TABLES,
    Column("run_id", String, primary_key=True),
    Column("status", String, nullable=False),
    Column("open", Integer, nullable=False),
    Column("requested_at", Float, nullable=False),
    Column("ended_at", Float),
    Column("task", String, nullable=False),
    Column("agents", String, nullable=False),
    Column("winner", String),
    Column("repository", String),
    Index("runs_open", "open"),
    Index("runs_by_time", "requested_at"),
)


def _log(name: str) -> Table:
    return Table(
        name,
        _TABLES,
        Column("run_id", String, primary_key=True),
        Column("seq", Integer, primary_key=True),
        Column("at", Float, nullable=False),
        Column("type", String, nullable=False),
        Column("body", String, nullable=False),
        sqlite_with_rowid=False,
    )


_EVENTS = _log("events")
_FACTS = _log("facts")

T = TypeVar("T")


def storable(what: Event) -> Event:
    """The event as it will be read again: a lone surrogate cannot be stored, and is replaced."""
    try:
        _EVENT.dump_json(what)
    except PydanticSerializationError:
        text = json.dumps(_EVENT.dump_python(what, mode="json"), ensure_ascii=False)
        return _EVENT.validate_json(text.encode(errors="replace"))
    return what


class JournalError(Exception):
    """The journal cannot be used: the daemon must not start. The message says why and what to do."""


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """One run in a list. `open`: it has not ended, so the daemon carries it on."""

    run_id: str
    status: str
    open: bool
    requested_at: float
    ended_at: float | None
    task: str
    agents: tuple[str, ...]
    winner: str | None
    repository: str | None


@dataclass(frozen=True, kw_only=True)
class StoredFact:
    """`seq` counts a run's facts from 1; `body` is the fact as JSON text, `type` its kind."""

    seq: int
    type: str
    body: str


class Journal:
    """One journal file. Calls run one at a time in a thread, in the order they are made."""

    def __init__(self, path: Path) -> None:
        self._engine = _open(path)
        self._one_at_a_time = anyio.CapacityLimiter(1)

    def close(self) -> None:
        self._engine.dispose()

    async def append(self, summary: RunSummary, seq: int, what: Event, first_fact: int, facts: Sequence[Fact]) -> None:
        """Record one event as number `seq` (from 1) with its facts (from `first_fact`), and the run's line. Atomic."""

        def write(connection: Connection) -> None:
            connection.execute(insert(_EVENTS), [_row(summary.run_id, seq, what, _EVENT)])
            if facts:
                rows = [_row(summary.run_id, first_fact + k, fact, _FACT) for k, fact in enumerate(facts)]
                connection.execute(insert(_FACTS), rows)
            line = _line(summary)
            if seq == 1:
                connection.execute(insert(_RUNS), [line])
            else:
                connection.execute(update(_RUNS).where(_RUNS.c.run_id == summary.run_id).values(line))

        await self._in_thread(write)

    async def events(self, run_id: str) -> tuple[Event, ...]:
        def read(connection: Connection) -> tuple[Event, ...]:
            query = select(_EVENTS.c.body).where(_EVENTS.c.run_id == run_id).order_by(_EVENTS.c.seq)
            return tuple(_EVENT.validate_json(body) for body in connection.scalars(query))

        return await self._in_thread(read)

    async def facts(self, run_id: str, *, after: int, limit: int = 500) -> tuple[StoredFact, ...]:
        """The run's facts with a number above `after`, in order, at most `limit`."""

        def read(connection: Connection) -> tuple[StoredFact, ...]:
            query = (
                select(_FACTS.c.seq, _FACTS.c.type, _FACTS.c.body)
                .where(_FACTS.c.run_id == run_id, _FACTS.c.seq > after)
                .order_by(_FACTS.c.seq)
                .limit(limit)
            )
            return tuple(StoredFact(seq=row.seq, type=row.type, body=row.body) for row in connection.execute(query))

        return await self._in_thread(read)

    async def fact_count(self, run_id: str) -> int:
        def read(connection: Connection) -> int:
            query = select(_FACTS.c.seq).where(_FACTS.c.run_id == run_id).order_by(_FACTS.c.seq.desc()).limit(1)
            return connection.scalar(query) or 0

        return await self._in_thread(read)

    async def runs(self, *, open_only: bool = False) -> tuple[RunSummary, ...]:
        """Newest first."""

        def read(connection: Connection) -> tuple[RunSummary, ...]:
            query = select(_RUNS).order_by(_RUNS.c.requested_at.desc())
            if open_only:
                query = query.where(_RUNS.c.open == 1)
            return tuple(_summary(row) for row in connection.execute(query))

        return await self._in_thread(read)

    async def find(self, prefix: str) -> tuple[str, ...]:
        """The ids that begin with `prefix`; the exact one alone when there is one."""

        def read(connection: Connection) -> tuple[str, ...]:
            query = select(_RUNS.c.run_id).where(_RUNS.c.run_id.startswith(prefix, autoescape=True)).limit(20)
            found = tuple(connection.scalars(query))
            return (prefix,) if prefix in found else found

        return await self._in_thread(read)

    async def forget(self, run_id: str) -> None:
        """Delete everything of a run that has ended."""

        def write(connection: Connection) -> None:
            for table in (_EVENTS, _FACTS, _RUNS):
                connection.execute(delete(table).where(table.c.run_id == run_id))

        await self._in_thread(write)

    async def _in_thread(self, work: Callable[[Connection], T]) -> T:
        def call() -> T:
            with self._engine.begin() as connection:
                return work(connection)

        # A commit that has begun is never abandoned: whoever is cancelled waits for it, so that the fold in memory and
        # the file cannot part ways. (The thread pool alone does not hold against a task's own cancel().)
        working = asyncio.ensure_future(anyio.to_thread.run_sync(call, limiter=self._one_at_a_time))
        try:
            return await asyncio.shield(working)
        except asyncio.CancelledError:
            await asyncio.wait({working})
            raise


def _open(path: Path) -> Engine:
    engine = create_engine(f"sqlite:///{path}", connect_args={"check_same_thread": False, "timeout": 30})

    @event.listens_for(engine, "connect")
    def _settings(connection: Any, _record: Any) -> None:
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}").close()

    try:
        with engine.begin() as connection:
            _TABLES.create_all(connection)
            version = connection.scalar(select(_META.c.value).where(_META.c.key == "schema"))
            if version is None:
                connection.execute(insert(_META), [{"key": "schema", "value": str(SCHEMA_VERSION)}])
    except SQLAlchemyError as error:
        engine.dispose()
        raise JournalError(f"the journal {path} cannot be opened: {error}; move it aside to start anew") from error
    if version is not None and version != str(SCHEMA_VERSION):
        engine.dispose()
        raise JournalError(
            f"the journal {path} has schema {version}, this massgend knows {SCHEMA_VERSION}: install the version that "
            "wrote it, or move it aside to start anew"
        )
    path.chmod(0o600)
    return engine


def _row(run_id: str, seq: int, what: Event | Fact, adapter: TypeAdapter[Any]) -> dict[str, object]:
    body = adapter.dump_json(what).decode()
    return {"run_id": run_id, "seq": seq, "at": what.at, "type": what.type, "body": body}


def _line(summary: RunSummary) -> dict[str, object]:
    return {
        "run_id": summary.run_id,
        "status": summary.status,
        "open": int(summary.open),
        "requested_at": summary.requested_at,
        "ended_at": summary.ended_at,
        "task": summary.task,
        "agents": json.dumps(summary.agents),
        "winner": summary.winner,
        "repository": summary.repository,
    }


def _summary(row: Any) -> RunSummary:
    return RunSummary(
        run_id=row.run_id,
        status=row.status,
        open=bool(row.open),
        requested_at=row.requested_at,
        ended_at=row.ended_at,
        task=row.task,
        agents=tuple(json.loads(row.agents)),
        winner=row.winner,
        repository=row.repository,
    )
