"""What an engine's words mean. Every text was captured from a real engine (20.10 with runc 1.1 unless noted)."""

from __future__ import annotations

import pytest

from sandboxes import failure
from sandboxes.errors import EngineUnreachable, ImageMissing, SandboxError, SandboxGone, SandboxRefused

ID = "aba0f0ab76ceb757eca73bb6b0479f953372206cd95ca41d387ed97813e1b714"
ENDPOINT = "unix:///run/docker.sock"
NOT_FOUND = (
    "failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: "
    'exec: "nope": executable file not found in $PATH: unknown'
)


@pytest.mark.parametrize(
    ("status", "message", "expected"),
    [
        (404, "No such image: no/such:latest", ImageMissing),
        (404, "no such image: no/such: No such image: no/such:latest", ImageMissing),
        (404, "No such container: nope", SandboxGone),
        (404, f"No such exec instance: {ID}", SandboxGone),
        (409, f"Container {ID} is not running", SandboxGone),
        (409, "Container cap1 is paused, unpause the container before exec", SandboxGone),
        (409, f'Conflict. The container name "/cap1" is already in use by container "{ID}". You have to remove (or '
         "rename) that container to be able to reuse that name.", SandboxRefused),
        (400, "Unknown runtime specified nope", SandboxRefused),
        (400, 'invalid mount config for type "bind": bind source path does not exist: /no/such', SandboxRefused),
        (400, NOT_FOUND, SandboxRefused),
        (400, "Minimum memory limit allowed is 6MB", SandboxRefused),
        (400, "Range of CPUs is from 0.01 to 2.00, as there are only 2 CPUs available", SandboxRefused),
        (409, f"remove capv: volume is in use - [{ID}]", SandboxRefused),
        (500, "error while mounting volume '/v/capv/_data': failed to mount local volume: mount overlay:/v/capv/_data, "
         "data: lowerdir=/no,upperdir=/no,workdir=/no: no such file or directory", SandboxRefused),
        (500, 'failed to create shim task: OCI runtime create failed: runc create failed: unable to start container '
         "process: error during container init: error setting rlimits for ready process: error setting rlimit type 7: "
         "operation not permitted: unknown", SandboxRefused),
        (None, "No such file or directory", EngineUnreachable),
        (None, "Permission denied", EngineUnreachable),
    ],
)  # fmt: skip
def test_an_engines_answer_becomes_the_error_that_says_what_to_do(
    status: int | None, message: str, expected: type[SandboxError]
) -> None:
    error = failure.error_of("start sandbox x", status, message, endpoint=ENDPOINT)
    assert type(error) is expected
    assert "start sandbox x" in str(error)


@pytest.mark.parametrize(
    ("status", "message", "absent"),
    [
        (404, "No such container: nope", True),
        (404, "get capv: no such volume", True),
        (409, f"Cannot kill container: cap1: Container {ID} is not running", True),
        (409, f"removal of container {ID} is already in progress", True),
        (409, f"remove capv: volume is in use - [{ID}]", False),
        (500, "driver failed to remove root filesystem: device or resource busy", False),
    ],
)
def test_what_is_not_there_needs_no_removal(status: int, message: str, absent: bool) -> None:
    assert failure.is_absent(status, message) is absent


def verdict(*, code: int | None, started: bool = True, runs: bool = True, said: str = "") -> int | SandboxError:
    return failure.end_of_exec("cat in x", exit_code=code, started=started, sandbox_runs=runs, said=said)


def test_an_exit_code_is_the_programs() -> None:
    assert verdict(code=0) == 0
    assert verdict(code=126) == 126
    assert verdict(code=137) == 137
    assert verdict(code=3, runs=False) == 3


def test_137_of_a_dead_sandbox_is_not_the_programs() -> None:
    assert isinstance(verdict(code=137, runs=False), SandboxGone)


def test_what_never_ran_is_refused_with_the_engines_words_or_gone() -> None:
    said = "OCI runtime exec failed: exec failed: unable to start container process: exec: python3: not found\r\n"
    refused = verdict(code=126, started=False, said=said)
    assert isinstance(refused, SandboxRefused)
    assert "python3: not found" in str(refused)
    assert isinstance(verdict(code=None, started=False, runs=False), SandboxGone)


def test_a_missing_image_is_one_sentence_with_what_to_do() -> None:
    assert failure.missing_image("x", ENDPOINT) == (
        "image 'x' is not in the Docker engine at unix:///run/docker.sock: build or pull it first (docker pull x)"
    )
