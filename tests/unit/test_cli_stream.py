"""The client of the API, against a small real server on a unix socket."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.client import Client, Event
from cli.errors import CliError, ConnectionLost, DaemonDown, Exit, Refused
from cli.stream import follow_events, read_event
from massgend.api.schemas import Activity, RunView
from massgend.discovery import socket_address
from massgend.domain.facts import VoteCast
from tests.support.run_views import RUN, facts, health, view
from tests.support.scripted_api import KEEPALIVE, Asked, Reply, problem, scripted_api, sse


@pytest.fixture
def socket() -> Iterator[Path]:
    """A short path: the names of sockets are limited."""
    with tempfile.TemporaryDirectory(prefix="mg-") as folder:
        yield Path(folder) / "api.sock"


def stream_of(*chunks: bytes, cut: bool = False) -> Reply:
    return Reply(chunks=iter(chunks), content_type="text/event-stream", cut=cut)


def result() -> bytes:
    return sse("result", view().model_dump(mode="json"))


def follow(client: Client, notes: list[str], *, patience_s: float = 5.0) -> list[Event]:
    ticks = itertools.count()
    events = follow_events(
        client,
        RUN,
        note=notes.append,
        patience_s=patience_s,
        pause=lambda _: None,
        clock=lambda: float(next(ticks)),
    )
    return list(events)


def test_answers_are_read_as_the_apis_models(socket: Path) -> None:
    def answer(asked: Asked) -> Reply:
        return Reply(body={"/health": health(), f"/runs/{RUN}": view()}[asked.path].model_dump(mode="json"))

    with scripted_api(socket, answer), Client(socket) as client:
        assert client.health() == health()
        assert client.run(RUN) == view()


def test_asking_again_and_again_over_a_long_path_opens_nothing_more(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    short = socket_address(folder / "api.sock")
    with (
        scripted_api(Path(short), lambda _: Reply(body=health().model_dump(mode="json"))),
        Client(folder / "api.sock") as client,
    ):
        client.health()
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(30):
            client.health()
        assert len(os.listdir("/proc/self/fd")) <= before + 2, "the server may be a step behind"


def test_nobody_there_is_told_from_a_refusal(socket: Path) -> None:
    with Client(socket) as client, pytest.raises(DaemonDown, match="massgend is not running"):
        client.health()
    with (
        scripted_api(socket, lambda _: problem(404, "not_found", "There is no run 'x'.")),
        Client(socket) as client,
        pytest.raises(Refused, match="There is no run 'x'") as caught,
    ):
        client.run("x")
    assert (caught.value.code, caught.value.status, caught.value.exit_code) == ("not_found", 404, Exit.MISUSE)


def test_an_error_that_is_no_problem_document_still_becomes_a_sentence(socket: Path) -> None:
    reply = Reply(status=500, body=b"<h1>\x1b[31mno</h1>", content_type="text/html")
    with scripted_api(socket, lambda _: reply), Client(socket) as client, pytest.raises(Refused) as caught:
        client.runs()
    assert str(caught.value) == "massgend answered 500: <h1>no</h1>"
    assert caught.value.exit_code == Exit.NO_RESULT


def test_an_answer_of_another_version_is_said_to_be_one(socket: Path) -> None:
    with (
        scripted_api(socket, lambda _: Reply(body={"new": "shape"})),
        Client(socket) as client,
        pytest.raises(CliError, match="of different versions"),
    ):
        client.health()


@pytest.mark.parametrize("name", ["../health", "a/b", "..", ".", "a?x=1", "a#b", "%2e%2e"])
def test_a_runs_name_cannot_become_another_route(socket: Path, name: str) -> None:
    def answer(asked: Asked) -> Reply:
        parts = asked.path.split("?")[0].split("/")
        assert len(parts) == 3, asked.path
        assert parts[:2] == ["", "runs"]
        return problem(404, "not_found", "no such run")

    with scripted_api(socket, answer) as api, Client(socket) as client:
        with pytest.raises(Refused):
            client.run(name)
        assert len(api.asked) == 1


def test_a_stream_is_followed_to_its_result(socket: Path) -> None:
    told = [sse(kind, content, id=str(number)) for number, (kind, content) in enumerate(facts(), 1)]
    notes: list[str] = []
    with scripted_api(socket, lambda _: stream_of(b": hello\n\n", *told, result())), Client(socket) as client:
        events = follow(client, notes)
    assert [event.type for event in events] == [kind for kind, _ in facts()] + ["result"]
    assert isinstance(read_event(events[-1]), RunView)
    assert not notes


def test_a_quiet_stream_goes_on(socket: Path) -> None:
    """After an id every comment is an event without data to the reader of the stream."""
    told = sse(*facts()[0], id="1")
    activity = sse("activity", {"type": "activity", "at": 1, "agent": "ada", "line": "x", "changed_files": 1})
    notes: list[str] = []
    chunks = (KEEPALIVE, told, KEEPALIVE, KEEPALIVE, activity, KEEPALIVE, result())
    with scripted_api(socket, lambda _: stream_of(*chunks)), Client(socket) as client:
        events = follow(client, notes)
    assert [event.type for event in events] == [facts()[0][0], "activity", "result"]
    assert not notes


def test_a_broken_stream_goes_on_after_the_last_fact_seen(socket: Path) -> None:
    one, two, three = (sse(*facts()[n], id=str(n)) for n in range(3))
    activity = sse("activity", {"type": "activity", "at": 1, "agent": "ada", "line": "x", "changed_files": 1})
    replies = iter(
        [
            stream_of(one, two, activity, cut=True),
            problem(503, "starting", "not yet"),
            stream_of(cut=True),
            stream_of(three, result()),
        ]
    )
    notes: list[str] = []
    with scripted_api(socket, lambda _: next(replies)) as api, Client(socket) as client:
        events = follow(client, notes)
    first, second, third = (kind for kind, _ in facts()[:3])
    assert [event.type for event in events] == [first, second, "activity", third, "result"]
    assert [asked.headers.get("Last-Event-ID") for asked in api.asked] == [None, "1", "1", "1"]
    assert notes == ["The connection to massgend broke; trying again...", "Connected again."]


def test_a_daemon_that_stays_away_is_not_waited_for_without_end(socket: Path) -> None:
    notes: list[str] = []
    with Client(socket) as client, pytest.raises(ConnectionLost, match=f"massgend attach {RUN}"):
        follow(client, notes)
    assert notes == ["The connection to massgend broke; trying again..."]


def test_a_run_that_is_gone_ends_the_stream(socket: Path) -> None:
    with (
        scripted_api(socket, lambda _: problem(404, "not_found", "There is no such run.")),
        Client(socket) as client,
        pytest.raises(Refused, match="no such run"),
    ):
        follow(client, [])


def test_events_are_read_as_values_and_unknown_ones_passed_over() -> None:
    kind, content = next(fact for fact in facts() if fact[0] == "vote_cast")
    vote = read_event(Event(type=kind, id="1", content=content))
    assert isinstance(vote, VoteCast)
    assert vote.votes_for == "bob"
    doing = {"type": "activity", "at": 1, "agent": "ada", "line": "x", "changed_files": 1, "run": RUN}
    assert isinstance(read_event(Event(type="activity", id=None, content=doing)), Activity)
    assert read_event(Event(type="from_the_future", id="2", content={"at": 1})) is None
