"""scripts/engine without an engine: what it finds, what it refuses, and whom it leaves alone."""

from __future__ import annotations

import os
import socketserver
import tempfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from massgend import discovery
from tests.support.scripts import engine, load


class Ping(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"OK")

    def log_message(self, format: str, *args: object) -> None:
        pass

    def address_string(self) -> str:
        return "unix"


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder whose path leaves room for a unix socket's name."""
    with tempfile.TemporaryDirectory(prefix="mgs-") as folder:
        yield Path(folder)


@pytest.fixture
def answering(short: Path) -> Iterator[Path]:
    path = short / "docker.sock"
    with socketserver.ThreadingUnixStreamServer(str(path), Ping) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield path
        server.shutdown()
        thread.join()


def test_status_names_the_engine_of_docker_host(answering: Path) -> None:
    done = engine("status", DOCKER_HOST=f"unix://{answering}")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"unix://{answering}\n", "")


def test_ensure_says_nothing_when_an_engine_answers(answering: Path) -> None:
    done = engine("ensure", DOCKER_HOST=f"unix://{answering}")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_named_engine_that_is_dead_is_not_replaced_by_another_one(short: Path, answering: Path) -> None:
    done = engine("ensure", DOCKER_HOST=f"unix://{short}/nobody.sock", MASSGEND_ENGINE_RUN=str(short))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert f"unix://{short}/nobody.sock, which does not answer" in done.stderr


def test_the_engines_are_looked_for_in_the_order_that_the_daemon_uses(
    short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rootless, own = short / "rootless", short / "own"
    for folder in (rootless, own):
        folder.mkdir()
        (folder / "docker.sock").touch()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(rootless))
    monkeypatch.setenv("MASSGEND_ENGINE_RUN", str(own))
    found = load("engine").candidates()
    assert found[-2:] == [f"unix://{rootless}/docker.sock", f"unix://{own}/docker.sock"]


def test_the_daemon_looks_for_our_engine_where_the_script_starts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MASSGEND_ENGINE_RUN", raising=False)
    assert load("engine").OWN_SOCKET == discovery.OWN_ENGINE


def test_stop_clears_a_stale_pid_file_and_leaves_the_process_of_that_number_alone(short: Path) -> None:
    (short / "docker.pid").write_text(str(os.getpid()))
    (short / "docker.sock").touch()
    done = engine("stop", MASSGEND_ENGINE_RUN=str(short), MASSGEND_ENGINE_DATA=str(short / "data"))
    assert (done.returncode, done.stderr) == (0, "")
    assert not (short / "docker.pid").exists()
    assert not (short / "docker.sock").exists()


def test_stop_with_nothing_to_stop_creates_nothing(short: Path) -> None:
    assert engine("stop", MASSGEND_ENGINE_RUN=str(short / "none")).returncode == 0
    assert not (short / "none").exists()


def test_a_wrong_word_is_a_usage_error() -> None:
    done = engine("restart")
    assert done.returncode == 2
    assert "ensure|status|stop" in done.stderr
