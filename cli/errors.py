"""What the command says when it cannot go on, and the exit codes. One boundary, `cli.main`, prints and exits.

CliError                the text is one plain sentence: what, where, what to do
├── Misuse              the command line, the configuration or the repository is wrong: nothing was started (2)
├── DaemonDown          nobody answers at the socket: start the daemon, or say how (2)
├── Refused             the daemon said no; `code` is stable, `status` the HTTP status (2, or 1 when it failed inside)
└── ConnectionLost      the daemon went away in the middle and did not come back: the run goes on with it (1)
"""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """The exit codes of the command, as docs/cli.md lists them."""

    DONE = 0
    NO_RESULT = 1
    MISUSE = 2
    LIMIT = 3
    NOT_MERGED = 4
    INTERRUPTED = 130


class CliError(Exception):
    exit_code: Exit = Exit.NO_RESULT


class Misuse(CliError):
    exit_code = Exit.MISUSE


class DaemonDown(CliError):
    exit_code = Exit.MISUSE


class Refused(CliError):
    def __init__(self, detail: str, *, status: int, code: str = "") -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        # 503: the engine is not there, which is a matter of the set-up.
        self.exit_code = Exit.MISUSE if status < 500 or status == 503 else Exit.NO_RESULT


class ConnectionLost(CliError):
    pass
