"""The command as a process: exit codes, what goes where, Ctrl-C, a terminal that goes away. The daemon is scripted."""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from cli.main import run_command
from massgend.api.schemas import Created, DoctorLine, GcLine, GcView, RunLine
from massgend.discovery import find_places
from massgend.domain.run import Status
from tests.support import git_repos
from tests.support.run_views import RUN, facts, health, merge, view
from tests.support.scripted_api import Asked, Reply, ScriptedApi, problem, scripted_api, sse

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = (
    *("run", "attach", "ps", "show", "logs", "diff", "merge", "cancel", "gc", "up", "down", "status", "setup"),
    *("doctor", "dev model"),
)


@dataclass
class Daemon:
    """The scripted daemon's answers, and where it is."""

    folder: Path
    result: dict[str, Any] = field(default_factory=lambda: view().model_dump(mode="json"))
    refusal: Reply | None = None
    hold: threading.Event = field(default_factory=threading.Event)
    creating: threading.Event = field(default_factory=threading.Event)
    """Cleared: the daemon takes its time to make the run."""
    keys: tuple[str, ...] = ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL")
    api: ScriptedApi | None = None

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": str(ROOT),
            "HOME": str(self.folder),
            "MASSGEND_STATE": str(self.folder / "state"),
            "TERM": "xterm",
        }

    def answer(self, asked: Asked) -> Reply:
        match (asked.method, asked.path.split("?")[0]):
            case ("GET", "/health"):
                return Reply(body=health().model_dump(mode="json"))
            case ("POST", "/runs"):
                created = Created(run_id=RUN, status=Status.PREPARING)
                self.creating.wait(60)
                return self.refusal or Reply(status=201, body=created.model_dump(mode="json"))
            case ("GET", "/runs"):
                return Reply(body=[line().model_dump(mode="json")])
            case ("GET", path) if path == f"/runs/{RUN}":
                return Reply(body=self.result)
            case ("GET", path) if path.endswith("/events"):
                return Reply(chunks=self.stream(), content_type="text/event-stream")
            case ("POST", path) if path.endswith("/cancel"):
                self.result["status"] = "cancelled"
                self.hold.set()
                return Reply(status=202, body=line().model_dump(mode="json"))
            case ("GET", path) if path.endswith("/log"):
                return Reply(body=b"one\n\x1b]0;t\x07two\n", content_type="text/plain")
            case (_, "/keys" | "/keys/anthropic"):
                return Reply(body={"keys": [], "variables": self.keys, "file": "/keys.toml"})
            case ("POST", "/keys/anthropic/test"):
                return Reply(body={"provider": "anthropic", "works": True, "detail": "it answers"})
            case ("POST", "/merges"):
                return Reply(body=merge(merged=False, reason="not safe").model_dump(mode="json"))
            case ("POST", "/gc"):
                return Reply(body=collected(asked.body["dry_run"]).model_dump(mode="json"))
            case ("GET", "/doctor"):
                found = [DoctorLine(name="image", ok=False, detail="not there", advice="scripts/image")]
                return Reply(body=[one.model_dump(mode="json") for one in found])
        return problem(404, "not_found", "There is no such run.")

    def stream(self) -> Iterator[bytes]:
        for number, (kind, content) in enumerate(facts(), 1):
            yield sse(kind, content, id=str(number))
        self.hold.wait(120)
        yield sse("result", self.result)


def line() -> RunLine:
    return RunLine(
        run_id=RUN,
        status=Status.RUNNING,
        task="make a page",
        agents=("ada", "bob"),
        winner=None,
        repository=Path("/repo"),
        requested_at=time.time() - 60,
        ended_at=None,
    )


def collected(dry_run: bool) -> GcView:
    gone = GcLine(run_id=RUN, status="delivered", age_s=7200, size_bytes=2048, merged=True, action="delete", why="")
    return GcView(dry_run=dry_run, lines=(gone,), freed_bytes=0 if dry_run else 2048)


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with tempfile.TemporaryDirectory(prefix="mg-") as name:
        made = Daemon(folder=Path(name))
        places = find_places(made.environment)
        places.sockets.mkdir(parents=True)
        with scripted_api(places.api_socket, made.answer) as made.api:
            made.hold.set()
            made.creating.set()
            yield made
            made.hold.set()
            made.creating.set()


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    made = git_repos.plain(tmp_path / "repo")
    for name in ("ada", "bob", "winner"):
        made.git("branch", f"massgend/{RUN}/{name}")
    return made.path


@dataclass(frozen=True, kw_only=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


def massgend(daemon: Daemon, *arguments: str, cwd: Path | None = None, **environment: str) -> Done:
    """In this process, since starting one takes most of a second; the tests with a terminal start their own."""
    out, complaints = io.StringIO(), io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(complaints),
    ):
        for name in daemon.keys:
            patch.delenv(name, raising=False)
        for name, value in {**daemon.environment, **environment}.items():
            patch.setenv(name, value)
        patch.chdir(cwd or daemon.folder)
        code = run_command(list(arguments))
    return Done(returncode=code, stdout=out.getvalue(), stderr=complaints.getvalue())


RUN_ARGUMENTS = ("run", "make a page", "--agent", "command:true")


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({}, 0),
        ({"status": "no_result", "merge": None}, 1),
        ({"status": "no_result", "merge": None, "limit_reached": True}, 3),
        ({"status": "decided", "merge": merge(merged=False).model_dump(mode="json")}, 4),
    ],
)
def test_the_exit_code_says_how_the_run_ended(daemon: Daemon, repo: Path, changes: dict[str, Any], code: int) -> None:
    daemon.result |= changes
    done = massgend(daemon, *RUN_ARGUMENTS, cwd=repo)
    assert done.returncode == code, done.stderr
    assert "\x1b" not in done.stdout


def test_json_is_one_object_a_line_and_the_last_is_the_result(daemon: Daemon, repo: Path) -> None:
    done = massgend(daemon, *RUN_ARGUMENTS, "--json", cwd=repo)
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["type"] for one in told] == [*(kind for kind, _ in facts()), "result"]
    assert {"run_id", "status", "winner", "answers", "votes", "checks", "branches", "merge"} <= told[-1].keys()


def test_without_a_repository_it_says_where_it_begins_and_where_the_result_goes(daemon: Daemon) -> None:
    done = massgend(daemon, *RUN_ARGUMENTS)
    folder = daemon.folder / "massgend-result"
    assert done.stderr.splitlines()[0] == (
        f"No git repository here: the run begins from an empty folder, and its result goes to {folder}"
    )
    assert "No git repository" not in massgend(daemon, "run", "--config", "@examples/bugfix").stderr


def test_detached_it_prints_the_id_and_returns(daemon: Daemon, repo: Path) -> None:
    daemon.hold.clear()
    done = massgend(daemon, *RUN_ARGUMENTS, "--json", "--detach", cwd=repo)
    assert json.loads(done.stdout)["run_id"] == RUN
    done = massgend(daemon, *RUN_ARGUMENTS, "--detach", cwd=repo)
    assert done.stdout == f"{RUN}\n", "alone, for $(...)"
    assert f"massgend attach {RUN}" in done.stderr


def test_what_the_daemon_refuses_is_one_sentence_and_code_two(daemon: Daemon, repo: Path) -> None:
    daemon.refusal = problem(422, "no_image", "There is no image 'x': build it with scripts/image.")
    done = massgend(daemon, *RUN_ARGUMENTS, cwd=repo)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "massgend: There is no image 'x': build it with scripts/image.\n"


def test_an_examples_repository_goes_again_when_the_run_is_refused(daemon: Daemon) -> None:
    daemon.refusal = problem(422, "no_image", "There is no image.")
    assert massgend(daemon, "run", "--config", "@examples/bugfix").returncode == 2
    assert not (daemon.folder / "massgend-example-bugfix").exists()
    daemon.refusal = None
    assert massgend(daemon, "run", "--config", "@examples/bugfix").returncode == 0
    assert (daemon.folder / "massgend-example-bugfix/.git").is_dir()
    assert daemon.api is not None
    body = next(asked.body for asked in reversed(daemon.api.asked) if asked.path == "/runs")
    assert body["repository"] == str(daemon.folder / "massgend-example-bugfix")
    assert body["scripted"] is True


CLAUDE_CODE = ("run", "make a page", "--agent", "claude-code")


def keys_sent(daemon: Daemon) -> list[dict[str, str]]:
    assert daemon.api is not None
    sent = [asked.body["environment"] for asked in daemon.api.asked if asked.method == "POST" and asked.path == "/keys"]
    daemon.api.asked.clear()
    return sent


def test_the_environments_keys_go_to_the_daemon_and_nowhere_else(daemon: Daemon, repo: Path) -> None:
    mine = {"ANTHROPIC_API_KEY": "sk-canary-1", "OPENAI_API_KEY": "sk-canary-2", "OTHER_SECRET": "sk-canary-3"}
    done = massgend(daemon, *CLAUDE_CODE, cwd=repo, **mine)
    assert done.returncode == 0, done.stderr
    assert "canary" not in done.stdout + done.stderr
    assert daemon.api is not None
    others = [asked for asked in daemon.api.asked if asked.path != "/keys"]
    assert "canary" not in repr(others), "in no other request, path or header"
    assert keys_sent(daemon) == [{"ANTHROPIC_API_KEY": "sk-canary-1"}], "only what the daemon names"


def test_keys_are_handed_over_only_when_a_model_is_to_be_asked(daemon: Daemon, repo: Path) -> None:
    key = {"ANTHROPIC_API_KEY": "sk-canary-1"}
    scripted = repo / "scripted.yaml"
    scripted.write_text("scripted_model: x\nagents:\n  - {name: ada, kind: claude-code}\n")
    for arguments in (
        RUN_ARGUMENTS,
        (*CLAUDE_CODE, "--replay", "old.jsonl"),
        ("run", "t", "--config", str(scripted)),
        ("run", "--config", "@examples/claude-offline"),
    ):
        done = massgend(daemon, *arguments, cwd=repo, **key)
        assert done.returncode == 0, done.stderr
        assert keys_sent(daemon) == [], arguments
    for arguments in (CLAUDE_CODE, (*CLAUDE_CODE, "--record", "new.jsonl")):
        massgend(daemon, *arguments, cwd=repo, **key)
        assert keys_sent(daemon) == [key], arguments
    massgend(daemon, *CLAUDE_CODE, cwd=repo)
    assert keys_sent(daemon) == [], "there is none to hand over"


def test_no_program_is_started_with_a_key_among_its_arguments(
    daemon: Daemon, repo: Path, terminals: list[Terminal]
) -> None:
    daemon.hold.clear()
    terminal = Terminal(daemon, repo, *CLAUDE_CODE, environment={"ANTHROPIC_API_KEY": "sk-canary-1"})
    terminals.append(terminal)
    wait_until(lambda: asked_for(daemon, "/runs"))
    lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if readable(path)]
    assert any(b"claude-code" in line for line in lines)
    assert not any(b"sk-canary-1" in line for line in lines)
    daemon.hold.set()
    assert terminal.ended() == 0
    assert b"canary" not in terminal.shown


def test_setup_tests_a_key_before_it_is_written_and_never_shows_it(
    daemon: Daemon, repo: Path, terminals: list[Terminal]
) -> None:
    terminal = Terminal(daemon, repo, "setup")
    terminals.append(terminal)
    terminal.wait_for(b"Key for anthropic")
    os.write(terminal.main, b"sk-canary-1\n")
    terminal.wait_for(b"Write it to /keys.toml")
    os.write(terminal.main, b"y\n")
    assert terminal.ended() == 0
    assert b"canary" not in terminal.shown
    assert daemon.api is not None
    given = [(asked.method, asked.path, asked.body) for asked in daemon.api.asked if asked.path.startswith("/keys/")]
    assert given == [
        ("PUT", "/keys/anthropic", {"key": "sk-canary-1", "save": False}),
        ("POST", "/keys/anthropic/test", None),
        ("PUT", "/keys/anthropic", {"key": "sk-canary-1", "save": True}),
    ]


def test_setup_without_a_terminal_and_a_key_says_what_to_do(daemon: Daemon) -> None:
    done = massgend(daemon, "setup")
    assert done.returncode == 2
    assert "run massgend setup in a terminal" in done.stdout


def readable(path: Path) -> bool:
    try:
        path.read_bytes()
    except OSError:
        return False
    return True


def test_mistakes_start_nothing(daemon: Daemon, repo: Path) -> None:
    for arguments in (
        ("run", "t"),
        ("run", "t", "--agent", "wizard"),
        ("run", "--config", "none.yaml"),
        ("run", "t", "--turns", "x"),
        ("run", "--nonsense"),
        ("nonsense",),
        ("diff",),
        ("gc", "--yes", "--dry-run"),
    ):
        done = massgend(daemon, *arguments, cwd=repo)
        assert done.returncode == 2, arguments
        assert done.stdout == ""
        assert len(done.stderr.splitlines()) == 1, done.stderr
    assert daemon.api is not None
    assert not daemon.api.asked


def test_looking_at_runs(daemon: Daemon) -> None:
    assert massgend(daemon, "ps").stdout.splitlines()[1].split()[:2] == [RUN, "running"]
    assert json.loads(massgend(daemon, "ps", "--json").stdout)["run_id"] == RUN
    assert json.loads(massgend(daemon, "show", RUN, "--json").stdout) == daemon.result
    shown = massgend(daemon, "show", RUN).stdout
    assert "ada (command)  voted, turn 2, 1 answer" in shown
    assert massgend(daemon, "logs", RUN, "ada").stdout == "one\ntwo\n"
    assert massgend(daemon, "logs", RUN).stdout == "ada | one\nada | two\nbob | one\nbob | two\n"
    unknown = massgend(daemon, "logs", RUN, "zed")
    assert (unknown.returncode, unknown.stderr) == (
        2,
        f"massgend: run {RUN} has no agent 'zed'; its agents: ada, bob\n",
    )
    assert massgend(daemon, "show", "zz").returncode == 2


def test_a_merge_that_could_not_be_done_is_code_four_with_the_commands(daemon: Daemon, repo: Path) -> None:
    done = massgend(daemon, "merge", RUN, cwd=repo)
    assert done.returncode == 4
    assert "By hand   git -C /repo reset --keep abc" in done.stdout
    assert daemon.api is not None
    assert daemon.api.asked[-1].body == {
        "repository": str(repo),
        "run_id": RUN,
        "agent": None,
        "into": None,
        "mode": "auto",
    }


def merges(daemon: Daemon) -> int:
    assert daemon.api is not None
    return sum(asked.path == "/merges" for asked in daemon.api.asked)


@pytest.mark.parametrize("command", ["merge", "diff"])
def test_without_a_winner_no_agent_is_taken_silently(daemon: Daemon, repo: Path, command: str) -> None:
    git_repos.Repository(path=repo).git("branch", "-D", f"massgend/{RUN}/winner", f"massgend/{RUN}/bob")
    done = massgend(daemon, command, RUN, cwd=repo)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"massgend: run {RUN} has no winner: name one of its agents: ada\n"
    assert merges(daemon) == 0


def test_an_answer_that_fails_a_check_is_not_merged_unless_told(daemon: Daemon, repo: Path) -> None:
    done = massgend(daemon, "merge", RUN, "ada", cwd=repo)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "massgend: ada's answer 1 fails the check unit: --yes merges it all the same\n"
    assert merges(daemon) == 0
    assert massgend(daemon, "merge", RUN, "ada", "--yes", cwd=repo).returncode == 4
    assert massgend(daemon, "merge", RUN, "bob", cwd=repo).returncode == 4
    assert merges(daemon) == 2
    daemon.result["checks"][1] |= {"passed": False, "exit_code": 1}
    assert massgend(daemon, "merge", RUN, cwd=repo).returncode == 2, "also when it is the winner"


def test_a_merge_of_a_run_that_the_daemon_forgot_needs_no_word(daemon: Daemon, repo: Path) -> None:
    git = git_repos.Repository(path=repo)
    git.git("branch", "massgend/old4711/ada")
    assert massgend(daemon, "merge", "old4711", "ada", cwd=repo).returncode == 4


def test_unfinished_work_is_merged_with_a_note(daemon: Daemon, repo: Path) -> None:
    daemon.result |= {"answers": [], "winner": None, "winner_answer": None, "tally": [], "votes": [], "checks": []}
    done = massgend(daemon, "merge", RUN, "ada", cwd=repo)
    assert done.returncode == 4
    assert "ada has handed in no answer" in done.stderr


@pytest.mark.parametrize(("word", "code"), [(b"n\n", 1), (b"y\n", 4)])
def test_on_a_terminal_the_merge_of_an_answer_that_fails_is_asked_for(
    daemon: Daemon, repo: Path, terminals: list[Terminal], word: bytes, code: int
) -> None:
    terminal = Terminal(daemon, repo, "merge", RUN, "ada")
    terminals.append(terminal)
    terminal.wait_for(b"ada's answer 1 fails the check unit. Merge it all the same? [y/N]")
    os.write(terminal.main, word)
    assert terminal.ended() == code
    assert merges(daemon) == (1 if code == 4 else 0)


def test_gc_deletes_nothing_unless_told(daemon: Daemon) -> None:
    done = massgend(daemon, "gc")
    assert "1 run, 2.0 KiB would be freed." in done.stdout
    assert "--yes deletes it" in done.stdout
    assert daemon.api is not None
    assert [asked.body["dry_run"] for asked in daemon.api.asked if asked.path == "/gc"] == [True]
    assert "1 run, 2.0 KiB freed." in massgend(daemon, "gc", "--yes").stdout


def test_doctor_fails_when_something_is_missing(daemon: Daemon) -> None:
    done = massgend(daemon, "doctor")
    assert (done.returncode, done.stdout) == (2, "FAIL  image: not there\n      scripts/image\n")


def test_status_names_the_process_or_says_that_it_is_down(daemon: Daemon) -> None:
    up = json.loads(massgend(daemon, "status", "--json").stdout)
    assert (up["pid"], up["docker_host"], up["runs_under_way"]) == (1, "unix:///docker.sock", 1)
    other = daemon.folder / "other"
    down = massgend(daemon, "status", "--json", MASSGEND_STATE=str(other), DOCKER_HOST="unix:///x.sock")
    said = json.loads(down.stdout)
    assert (said["pid"], said["docker_host"], said["state"]) == (None, "unix:///x.sock", str(other))
    assert not other.exists()


class Terminal:
    """The command on a terminal of 80x24."""

    def __init__(
        self, daemon: Daemon, cwd: Path, *arguments: str, environment: Mapping[str, str] | None = None
    ) -> None:
        self.main, side = pty.openpty()
        fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "cli.main", *arguments],
            cwd=cwd,
            env={**daemon.environment, **(environment or {})},
            stdin=side,
            stdout=side,
            stderr=side,
            start_new_session=True,
        )
        os.close(side)
        self.shown = b""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        try:
            while chunk := os.read(self.main, 65536):
                self.shown += chunk
        except OSError:
            return

    def wait_for(self, text: bytes) -> None:
        end = time.monotonic() + 60
        while text not in self.shown:
            assert time.monotonic() < end, self.shown[-2000:]
            time.sleep(0.02)

    def wait_for_the_read(self) -> None:
        """Until it sleeps. A signal between a question and the system call that reads the answer ends no read."""
        end, asleep = time.monotonic() + 60, 0
        while asleep < 10:
            assert time.monotonic() < end
            state = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[0]
            asleep = asleep + 1 if state == "S" else 0
            time.sleep(0.02)

    def ended(self) -> int:
        code = self.process.wait(60)
        self._reader.join(5)
        return code


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    opened: list[Terminal] = []
    yield opened
    for one in opened:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()
        os.close(one.main)


def asked_for(daemon: Daemon, path: str) -> bool:
    assert daemon.api is not None
    return any(asked.path == path for asked in daemon.api.asked)


def wait_until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def cancels(daemon: Daemon) -> int:
    assert daemon.api is not None
    return sum(asked.path.endswith("/cancel") for asked in daemon.api.asked)


def test_ctrl_c_once_cancels_and_shows_the_end(daemon: Daemon, repo: Path, terminals: list[Terminal]) -> None:
    daemon.hold.clear()
    terminal = Terminal(daemon, repo, *RUN_ARGUMENTS)
    terminals.append(terminal)
    terminal.wait_for(b"votes for bob.1")
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.ended() == 130
    assert cancels(daemon) == 1
    assert b"Cancelled" in terminal.shown
    assert terminal.shown.count(b"\x1b[?25l") == terminal.shown.count(b"\x1b[?25h") == 1


@pytest.mark.parametrize("detach", [(), ("--detach",)])
def test_ctrl_c_before_the_run_has_an_id_is_heard_and_cancels_it(
    daemon: Daemon, repo: Path, terminals: list[Terminal], detach: tuple[str, ...]
) -> None:
    daemon.hold.clear()
    daemon.creating.clear()
    terminal = Terminal(daemon, repo, *RUN_ARGUMENTS, *detach)
    terminals.append(terminal)
    wait_until(lambda: asked_for(daemon, "/runs"))
    terminal.process.send_signal(signal.SIGINT)
    terminal.wait_for(b"Ctrl-C was heard")
    assert cancels(daemon) == 0, "its id is not known yet"
    daemon.creating.set()
    assert terminal.ended() == 130
    assert cancels(daemon) == 1
    assert b"goes on by itself" not in terminal.shown


def test_leaving_before_the_daemon_answers_says_that_the_run_may_have_started(
    daemon: Daemon, repo: Path, terminals: list[Terminal]
) -> None:
    daemon.creating.clear()
    terminal = Terminal(daemon, repo, *RUN_ARGUMENTS)
    terminals.append(terminal)
    wait_until(lambda: asked_for(daemon, "/runs"))
    terminal.process.send_signal(signal.SIGINT)
    terminal.wait_for(b"Ctrl-C was heard")
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.ended() == 130
    assert b"massgend ps" in terminal.shown


def test_ctrl_c_twice_leaves_at_once(daemon: Daemon, repo: Path, terminals: list[Terminal]) -> None:
    daemon.hold.clear()
    answer = daemon.answer

    def never_ending(asked: Asked) -> Reply:
        reply = answer(asked)
        daemon.hold.clear()
        return reply

    assert daemon.api is not None
    daemon.api.answer = never_ending
    terminal = Terminal(daemon, repo, *RUN_ARGUMENTS)
    terminals.append(terminal)
    terminal.wait_for(b"votes for bob.1")
    terminal.process.send_signal(signal.SIGINT)
    terminal.wait_for(b"Cancelling")
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.ended() == 130, "and the daemon has not answered"
    assert terminal.shown.count(b"\x1b[?25h") == 1, "the cursor is back"
    assert b"Traceback" not in terminal.shown


def test_a_terminal_that_goes_away_cancels_nothing(daemon: Daemon, repo: Path, terminals: list[Terminal]) -> None:
    daemon.hold.clear()
    terminal = Terminal(daemon, repo, *RUN_ARGUMENTS)
    terminals.append(terminal)
    terminal.wait_for(b"votes for bob.1")
    terminal.process.send_signal(signal.SIGHUP)
    assert terminal.ended() == 128 + signal.SIGHUP
    assert cancels(daemon) == 0


def test_a_merge_that_is_to_be_asked_for_is_asked_for(daemon: Daemon, repo: Path, terminals: list[Terminal]) -> None:
    branch = f"massgend/{RUN}/winner"
    waiting = merge(merged=False, mode="ask", reason="It waits for your word.").model_dump(mode="json")
    daemon.result |= {"status": "decided", "merge": waiting, "repository": str(repo), "branches": {"bob": branch}}
    terminal = Terminal(daemon, repo, *RUN_ARGUMENTS, "--merge", "ask")
    terminals.append(terminal)
    terminal.wait_for(b"Merge it into main?")
    os.write(terminal.main, b"y\n")
    assert terminal.ended() == 4
    assert b"not safe" in terminal.shown
    assert daemon.api is not None
    assert daemon.api.asked[-1].body["into"] == "main"


def test_the_change_can_be_looked_at_before_the_word_and_merged_later(
    daemon: Daemon, repo: Path, terminals: list[Terminal]
) -> None:
    git = git_repos.Repository(path=repo)
    start = git.head
    git.git("switch", "-q", f"massgend/{RUN}/winner")
    git.write("new.txt", "of the winner\n")
    git.commit("work")
    git.git("switch", "-q", "main")
    waiting = merge(merged=False, mode="ask", reason="It waits for your word.", commands=()).model_dump(mode="json")
    daemon.result |= {"status": "decided", "merge": waiting, "repository": str(repo), "base_commit": start}
    terminal = Terminal(daemon, repo, *RUN_ARGUMENTS, "--merge", "ask", environment={"GIT_PAGER": "cat"})
    terminals.append(terminal)
    terminal.wait_for(b"[y]es, [d]iff, [n]o")
    assert b"new.txt | 1 +" in terminal.shown
    assert b"+of the winner" not in terminal.shown
    os.write(terminal.main, b"d\n")
    terminal.wait_for(b"+of the winner")
    os.write(terminal.main, b"n\n")
    assert terminal.ended() == 0
    assert f"Next      massgend merge {RUN}".encode() in plain(terminal.shown)


def test_ctrl_c_at_the_question_leaves_the_ended_run_alone(
    daemon: Daemon, repo: Path, terminals: list[Terminal]
) -> None:
    waiting = merge(merged=False, mode="ask", reason="It waits for your word.", commands=()).model_dump(mode="json")
    daemon.result |= {"status": "decided", "merge": waiting, "repository": str(repo)}
    terminal = Terminal(daemon, repo, *RUN_ARGUMENTS, "--merge", "ask")
    terminals.append(terminal)
    terminal.wait_for(b"[y]es, [d]iff, [n]o")
    terminal.wait_for_the_read()
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.ended() == 130
    assert cancels(daemon) == 0
    assert b"Cancelling" not in terminal.shown
    assert f"Next      massgend merge {RUN}".encode() in plain(terminal.shown)


def plain(shown: bytes) -> bytes:
    return re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]", b"", shown)


def test_a_reader_that_goes_away_leaves_no_complaint(daemon: Daemon, repo: Path) -> None:
    daemon.hold.clear()
    with subprocess.Popen(
        [sys.executable, "-m", "cli.main", *RUN_ARGUMENTS, "--json"],
        cwd=repo,
        env=daemon.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        daemon.hold.set()
        assert process.wait(60) in (0, 1)
        assert process.stderr.read() == b""


def test_an_unforeseen_error_is_a_sentence_unless_debugging(daemon: Daemon) -> None:
    daemon.result = {"run_id": 5}
    done = massgend(daemon, "show", RUN)
    assert done.returncode == 1
    assert "of different versions" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_top_help_fits_a_terminal_and_every_command_has_examples(daemon: Daemon) -> None:
    top = massgend(daemon, "--help").stdout.splitlines()
    assert len(top) < 24
    assert max(map(len, top)) <= 80
    assert not any("..." in line and "ARGS" not in line for line in top), "a summary is cut off"
    for command in COMMANDS:
        said = massgend(daemon, *command.split(), "--help").stdout
        assert "Example" in said, command
        assert f"massgend {command}" in said, command
    for code in ("0  ", "1  ", "2  ", "3  ", "4  ", "130  "):
        assert f"\n    {code}" in massgend(daemon, "run", "--help").stdout


def test_usage_lines_are_written_as_everybody_writes_them(daemon: Daemon) -> None:
    usages = [massgend(daemon, *command.split(), "--help").stdout.splitlines()[0] for command in COMMANDS]
    assert not [usage for usage in usages if set("{}") & set(usage) or "......" in usage or "...]..." in usage]
    assert "Usage: massgend show [OPTIONS] RUN" in usages
    assert "Usage: massgend gc [OPTIONS] [RUN]..." in usages


def test_gc_says_that_the_record_goes_too(daemon: Daemon) -> None:
    said = " ".join(massgend(daemon, "gc", "--help").stdout.split())
    assert "and its record" in said
    assert "Stays: every branch" in said


def test_a_run_without_a_name_is_told_at_once(daemon: Daemon) -> None:
    for arguments in (("show", ""), ("cancel", " "), ("attach", ""), ("logs", "")):
        done = massgend(daemon, *arguments)
        assert (done.returncode, done.stderr) == (2, "massgend: which run? massgend ps lists them\n"), arguments


def test_starting_loads_nothing_heavy() -> None:
    script = "import cli.main, sys; print('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert not loaded & {"fastapi", "docker", "sqlalchemy", "httpx", "pydantic", "yaml", "rich.console", "anyio"}


def test_the_version_is_said(daemon: Daemon) -> None:
    assert massgend(daemon, "--version").stdout == f"massgend {health().version}\n"
