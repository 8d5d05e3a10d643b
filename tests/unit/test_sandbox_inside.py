"""The files that go inside: they fit old Pythons, are staged readable by all, and the supervisor keeps its word."""

from __future__ import annotations

import ast
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sandboxes.staging import inside_source, stage

SUPERVISOR = [sys.executable, "-I", "-S", str(inside_source() / "supervisor.py")]


def supervise(*argv: str, grace_s: float = 0.3) -> subprocess.Popen[bytes]:
    words = [*SUPERVISOR, "--grace", str(grace_s), "--", *argv]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def alive(marker: str) -> bool:
    """Whether any process has this word on its command line."""
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and marker.encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                return True
        except OSError:
            continue
    return False


@pytest.mark.parametrize("name", ["supervisor.py", "handin.py"])
def test_the_inside_files_are_python_3_8(name: str) -> None:
    ast.parse((inside_source() / name).read_text(), feature_version=(3, 8))


def test_staged_files_are_readable_by_all_and_made_once(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        first = stage(tmp_path / "ours", uid=1234, gid=1235)
    finally:
        os.umask(before)
    assert first == stage(tmp_path / "ours", uid=1234, gid=1235)
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in first.inside.rglob("*")}
    assert modes[first.inside / "bin"] == 0o755
    assert modes[first.inside / "bin" / "massgend-answer"] == 0o755
    assert modes[first.inside / "supervisor.py"] == 0o644
    assert stat.S_IMODE(first.inside.stat().st_mode) == 0o755
    assert "agent:x:1234:1235:" in first.passwd.read_text()
    assert stat.S_IMODE(first.passwd.stat().st_mode) == 0o644
    assert not [path for path in (tmp_path / "ours").iterdir() if path.name.startswith(".making")]


def test_the_programs_environment_is_the_one_given() -> None:
    env = {"A": "1", "PATH": os.environ["PATH"], "PYTHONHOME": "/nonsense"}
    ended = subprocess.run(
        [*SUPERVISOR, "--", "env"], env=env, stdin=subprocess.DEVNULL, capture_output=True, check=True
    )
    assert dict(line.split("=", 1) for line in ended.stdout.decode().splitlines()) == env


@pytest.mark.parametrize(
    "flags", [["--grace"], ["--nonsense", "x", "--", "true"], ["--grace", "x", "--", "true"], ["--"]]
)
def test_wrong_use_is_told(flags: list[str]) -> None:
    ended = subprocess.run([*SUPERVISOR, *flags], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert ended.returncode == 125
    assert ended.stderr.startswith(b"supervisor: ")


def test_sigterm_ends_everything_at_once(tmp_path: Path) -> None:
    marker = f"600.{os.getpid()}1"
    with supervise(
        "bash", "-c", f"trap '' TERM; (setsid sleep {marker} &); echo ready; sleep 600", grace_s=60
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        while not alive(marker):  # the shell goes on before the sleeper has started; the test's time-out bounds it
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 137  # long before the grace is over
    assert not alive(marker)


def test_a_program_that_never_reads_its_stdin_does_not_hide_the_end_of_the_life_line() -> None:
    with supervise("sleep", "600") as process:
        assert process.stdin is not None
        process.stdin.write(b"x" * 3_000_000)
        process.stdin.close()
        assert process.wait(10) == 137


def test_stdin_is_a_life_line_also_when_the_program_reads_a_file(tmp_path: Path) -> None:
    task = tmp_path / "task"
    task.write_text("the task")
    words = [*SUPERVISOR, "--grace", "0.2", "--stdin", str(task), "--", "bash", "-c", "cat; exec sleep 600"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.read(8) == b"the task"
        process.stdin.write(b"not for the program")
        process.stdin.close()
        assert process.wait(10) == 137


def test_a_program_that_closes_its_stdin_goes_on() -> None:
    with supervise("bash", "-c", "exec 0<&-; sleep 0.5; exit 9", grace_s=30) as process:
        assert process.stdin is not None
        process.stdin.write(b"x" * 1000)
        process.stdin.flush()
        assert process.wait(10) == 9


def test_waiting_costs_no_cpu() -> None:
    with supervise("bash", "-c", "exec 0<&-; sleep 1.5", grace_s=30) as process:
        time.sleep(1.2)
        ticks = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
        assert sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK") < 0.3
        assert process.wait(10) == 0
