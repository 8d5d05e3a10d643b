"""Talks to a process that runs in a process group of its own: feeds it, drains it, ends it with all its children."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO


@dataclass(frozen=True, kw_only=True)
class Ended:
    """`exit_code` None: it ran out of time and was killed."""

    exit_code: int | None
    stdout: bytes
    stderr: str


@contextmanager
def complaints() -> Iterator[IO[bytes]]:
    """A place in memory for what a process says on stderr. Not a pipe: one that outlives us, or a filter that it
    runs, would die of SIGPIPE at its next word, in the middle of a checkout."""
    with open(os.memfd_create("stderr"), "w+b", buffering=0) as place:
        yield place


def text_of(place: IO[bytes]) -> str:
    """Valid UTF-8, whatever the process said."""
    place.seek(0)
    return place.read().decode("utf-8", "backslashreplace")


def converse(process: subprocess.Popen[bytes], chunks: Iterable[bytes], told: IO[bytes], timeout_s: float) -> Ended:
    """Feed and drain a process without a deadlock: chunks may come from files, output may be long. `told`: its stderr,
    made by `complaints`."""
    late = threading.Event()

    def end() -> None:
        late.set()
        kill(process)

    if process.stdout is None:
        raise AssertionError("it is a pipe")
    stdout: list[bytes] = []
    reader = threading.Thread(target=read, args=(process.stdout, stdout), daemon=True)
    timer = threading.Timer(timeout_s, end)
    timer.daemon = True
    timer.start()
    reader.start()
    try:
        if process.stdin is not None:
            write(process.stdin, chunks)
        reader.join()
        timer.cancel()
        exit_code = process.wait()
    finally:
        timer.cancel()
        kill(process)
        reader.join()
    return Ended(
        exit_code=None if late.is_set() else exit_code,
        stdout=b"".join(stdout),
        stderr=text_of(told),
    )


def wait(process: subprocess.Popen[bytes], timeout_s: float) -> int:
    try:
        return process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        kill(process)
        return process.wait()


def kill(process: subprocess.Popen[bytes]) -> None:
    """End the whole group. While nobody has waited for its leader, its id cannot be anybody else's, even when the
    leader has ended and left a child that holds our pipes."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def read(stream: IO[bytes], into: list[bytes]) -> None:
    while chunk := stream.read(1 << 16):
        into.append(chunk)


def write(stream: IO[bytes], chunks: Iterable[bytes]) -> None:
    """A reader that went away is not an error here: its exit code tells why."""
    try:
        for chunk in chunks:
            stream.write(chunk)
    except BrokenPipeError:
        pass
    finally:
        with suppress(BrokenPipeError):
            stream.close()
