"""Talks to a process that runs in a process group of its own: feeds it, drains it, ends it with all its children."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import IO


@dataclass(frozen=True, kw_only=True)
class Ended:
    """`exit_code` None: it ran out of time and was killed."""

    exit_code: int | None
    stdout: bytes
    stderr: str


def converse(process: subprocess.Popen[bytes], chunks: Iterable[bytes], timeout_s: float) -> Ended:
    """Feed and drain a process without a deadlock: chunks may come from files, output may be long."""
    late = threading.Event()

    def end() -> None:
        late.set()
        kill(process)

    if process.stdout is None or process.stderr is None:
        raise AssertionError("both are pipes")
    stdout: list[bytes] = []
    stderr: list[bytes] = []
    readers = (
        threading.Thread(target=read, args=(process.stdout, stdout), daemon=True),
        threading.Thread(target=read, args=(process.stderr, stderr), daemon=True),
    )
    timer = threading.Timer(timeout_s, end)
    timer.daemon = True
    timer.start()
    for reader in readers:
        reader.start()
    try:
        if process.stdin is not None:
            write(process.stdin, chunks)
        for reader in readers:
            reader.join()
        timer.cancel()
        exit_code = process.wait()
    finally:
        timer.cancel()
        kill(process)
        for reader in readers:
            reader.join()
    return Ended(
        exit_code=None if late.is_set() else exit_code,
        stdout=b"".join(stdout),
        stderr=os.fsdecode(b"".join(stderr)),
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
