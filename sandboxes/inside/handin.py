"""The two ways to hand in from inside a sandbox: `massgend-answer` and `massgend-vote`, over the gateway's socket.

Standard library only, Python >= 3.8. Exit 0: taken; 1: refused (stderr says why); 2: wrong use, or nobody there.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import socket
import stat
import sys

SOCKET_PATH = os.environ.get("MASSGEND_SOCKET", "/run/gateway/s.sock")
TOKEN_PATH = os.environ.get("MASSGEND_TOKEN_FILE", "/run/gateway/token")
REPLY_TIMEOUT_S = 900  # an answer is taken only once its snapshot is saved


class GatewayConnection(http.client.HTTPConnection):
    """HTTP/1.1 over the gateway's unix socket."""

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(SOCKET_PATH)


def plain(text: str) -> str:
    """Valid Unicode, whatever bytes the shell handed us."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def hand_in(path: str, content: dict[str, str]) -> int:
    try:
        with open(TOKEN_PATH, encoding="ascii") as token_file:
            token = token_file.read().strip()
        connection = GatewayConnection("gateway", timeout=REPLY_TIMEOUT_S)
        body = json.dumps(content).encode()
        headers = {"Content-Type": "application/json", "Authorization": "Bearer " + token}
        connection.request("POST", path, body, headers)
        reply = connection.getresponse()
        raw = reply.read()
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        sys.stderr.write(f"massgend cannot be reached ({reason}): nothing was handed in, try again.\n")
        return 2
    fields = parse(raw)
    if 200 <= reply.status < 300:
        print(fields.get("message", "Taken."))
        return 0
    reason = fields.get("detail") or fields.get("title") or f"massgend answered {reply.status} {reply.reason}."
    sys.stderr.write(str(reason) + "\n")
    return 1


def parse(raw: bytes) -> dict[str, object]:
    try:
        fields = json.loads(raw)
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}


def is_task_file(fd: int) -> bool:
    """A program inherits the task as its stdin; that is never what it wants to hand in."""
    task = os.environ.get("MASSGEND_TASK_FILE")
    try:
        return task is not None and os.path.samestat(os.fstat(fd), os.stat(task))
    except OSError:
        return False


def has_piped_stdin() -> bool:
    try:
        mode = os.fstat(0).st_mode
    except OSError:
        return False
    return not stat.S_ISCHR(mode) and not is_task_file(0)


def answer(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="massgend-answer",
        description="Hand in the workspace as your answer. It counts once its snapshot is saved; then your turn ends.",
    )
    parser.add_argument(
        "summary", nargs="?", metavar="SUMMARY",
        help="what you did, for those who judge it; '-', or none with a pipe on stdin: read it from there",
    )  # fmt: skip
    summary: str | None = parser.parse_args(argv).summary
    if summary is None and not has_piped_stdin():
        parser.error("say what you did: massgend-answer SUMMARY, or pipe it in")
    if summary in (None, "-"):
        summary = sys.stdin.buffer.read().decode("utf-8", "replace")
    assert summary is not None
    if not summary.strip():
        parser.error("the summary is empty: say what you did")
    return hand_in("/v1/answer", {"summary": plain(summary)})


def vote(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="massgend-vote",
        description="Vote for one of the answers you were shown; then your turn ends.",
    )
    parser.add_argument("label", metavar="LABEL", help="the answer's label, as in /peers/LABEL")
    parser.add_argument("--reason", required=True, metavar="TEXT", help="why this answer is the best one")
    options = parser.parse_args(argv)
    return hand_in("/v1/vote", {"label": plain(options.label), "reason": plain(options.reason)})


if __name__ == "__main__":
    commands = {"answer": answer, "vote": vote}
    sys.exit(commands[sys.argv[1]](sys.argv[2:]))
