"""The control API of a real daemon, as documented."""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.installed import Installed, agent, wait_until

pytestmark = pytest.mark.docker


@pytest.fixture
def api(installed: Installed) -> Iterator[httpx.Client]:
    assert installed.command("up").exit_code == 0
    transport = httpx.HTTPTransport(uds=str(installed.state / "s" / "api.sock"))
    with httpx.Client(transport=transport, base_url="http://massgend", timeout=60) as client:
        yield client


def request(repository: Path, script: str) -> dict[str, object]:
    return {"task": "t", "repository": str(repository), "agents": [json.loads(agent("a", script))]}


def sse(text: str) -> list[dict[str, str]]:
    blocks = [block for block in text.split("\n\n") if block and not block.startswith(":")]
    return [dict(line.split(": ", 1) for line in block.splitlines()) for block in blocks]


def test_the_socket_is_for_its_user_only(api: httpx.Client, installed: Installed) -> None:
    assert api.get("/health").status_code == 200
    assert stat.S_IMODE((installed.state / "s" / "api.sock").stat().st_mode) == 0o600
    assert stat.S_IMODE(installed.state.stat().st_mode) == 0o700


def test_a_stream_can_be_resumed_after_any_event_and_ends_with_the_result(api: httpx.Client, repository: Path) -> None:
    created = api.post("/runs", json=request(repository, "echo x > x; massgend-answer done"))
    assert created.status_code == 201
    run_id = created.json()["run_id"]
    whole = sse(api.get(f"/runs/{run_id}/events").text)

    numbered = [event for event in whole if "id" in event]
    assert [int(event["id"]) for event in numbered] == list(range(1, len(numbered) + 1))
    assert whole[-1]["event"] == "result"
    assert json.loads(whole[-1]["data"]) == api.get(f"/runs/{run_id}").json()
    rest = sse(api.get(f"/runs/{run_id}/events", headers={"Last-Event-ID": "3"}).text)
    assert [event["id"] for event in rest if "id" in event] == [event["id"] for event in numbered[3:]]


def test_a_run_is_found_by_a_prefix_of_its_id_unless_that_is_ambiguous(api: httpx.Client, repository: Path) -> None:
    run_id = api.post("/runs", json=request(repository, "echo y > y; massgend-answer y")).json()["run_id"]
    assert api.get(f"/runs/{run_id[:9]}").json()["run_id"] == run_id
    assert api.get("/runs/zzzzzzzz").status_code == 404
    wait_until(lambda: api.get(f"/runs/{run_id}").json()["status"] == "delivered", 60, "the run ends")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "task"),
        ({"task": "t", "agents": []}, "agents"),
        ({"task": "t", "agents": [{"name": "a", "kind": "command", "run": "x"}], "repository": "relative"}, "absolute"),
        ({"task": "t", "agents": [{"name": "a", "kind": "command", "run": "x"}], "more": 1}, "more"),
    ],
)
def test_a_wrong_request_is_a_problem_in_one_sentence(api: httpx.Client, body: dict[str, object], said: str) -> None:
    response = api.post("/runs", json=body)

    assert response.status_code == 422
    assert response.headers["content-type"] == "application/problem+json"
    assert said in response.json()["detail"]
    assert response.json()["code"] == "invalid_request"


def test_a_request_that_is_too_large_is_refused(api: httpx.Client) -> None:
    assert api.post("/runs", content=b"x" * (9 * 1024**2)).status_code == 413


def test_every_route_is_documented(api: httpx.Client) -> None:
    documented = set(re.findall(r"`((?:GET|POST|PUT|DELETE) /[^`]*)`", Path("docs/api.md").read_text()))
    routes = {
        f"{method.upper()} {path}"
        for path, methods in api.get("/openapi.json").json()["paths"].items()
        for method in methods
    }

    assert routes == documented - {"GET /openapi.json"}


def test_gc_frees_ended_runs_whose_work_is_on_branches_and_keeps_the_branches(
    api: httpx.Client, installed: Installed, repository: Path
) -> None:
    run_id = api.post("/runs", json=request(repository, "echo g > g; massgend-answer g")).json()["run_id"]
    wait_until(lambda: api.get(f"/runs/{run_id}").json()["status"] == "delivered", 60, "the run ends")
    dry = api.post("/gc", json={"run_ids": [run_id]}).json()
    assert [(line["run_id"], line["action"], line["merged"]) for line in dry["lines"]] == [(run_id, "delete", True)]
    assert (installed.state / "runs" / run_id).exists()

    done = api.post("/gc", json={"run_ids": [run_id], "dry_run": False}).json()
    assert done["freed_bytes"] > 0
    assert not (installed.state / "runs" / run_id).exists()
    assert api.get(f"/runs/{run_id}").status_code == 404
    shown = installed.command("diff", run_id, "a", cwd=repository)
    assert shown.exit_code == 0, shown.stderr


def test_gc_keeps_work_that_is_nowhere_else_unless_forced(
    api: httpx.Client, installed: Installed, repository: Path
) -> None:
    script = "echo g > g; massgend-answer g; echo more > more.txt; sleep 0.2"
    body = {**request(repository, script), "checks": []}
    run_id = api.post("/runs", json=body).json()["run_id"]
    wait_until(lambda: api.get(f"/runs/{run_id}").json()["status"] == "delivered", 60, "the run ends")
    workspace = Path(api.get(f"/runs/{run_id}").json()["agents"][0]["workspace"])
    (workspace / "later.txt").write_text("found later\n")

    kept = api.post("/gc", json={"run_ids": [run_id], "dry_run": False}).json()
    assert kept["lines"][0]["action"] == "keep"
    assert "workspace of a" in kept["lines"][0]["why"]
    assert (workspace / "later.txt").exists()
    api.post("/gc", json={"run_ids": [run_id], "dry_run": False, "force": True})
    assert not workspace.exists()
