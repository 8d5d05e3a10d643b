#!/usr/bin/env python3
"""A small double of the claude CLI for fast tests of how its end is told. Its part in the play is a word.

It speaks as much of the control stream as it must; the part stands in the file next to it, named `part`.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path


def say(message):
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def hear(kind):
    for line in sys.stdin:
        message = json.loads(line)
        if message["type"] == kind:
            return message
    sys.exit(0)


def result(**fields):
    base = {"type": "result", "subtype": "success", "duration_ms": 1, "duration_api_ms": 1, "is_error": False}
    say({**base, "num_turns": 1, "session_id": "s", "total_cost_usd": 0, "usage": {}, "result": "", **fields})


def initialise(part):
    request = hear("control_request")
    answer = {"subtype": "success", "request_id": request["request_id"], "response": {"commands": []}}
    if part == "refuses to initialise":
        answer = {"subtype": "error", "request_id": request["request_id"], "error": "no such mode"}
    say({"type": "control_response", "response": answer})
    hear("user")


def call_tool():
    block = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "sleep 9"}}
    say({"type": "assistant", "message": {"role": "assistant", "model": "m", "content": [block]}, "session_id": "s"})


def play(part):
    match part:
        case "says nothing more":
            hear("nothing")
        case "runs a tool for a second":
            call_tool()
            time.sleep(1)
            result()
        case "runs a tool for ten seconds":
            call_tool()
            time.sleep(10)
        case "ends without a result":
            sys.exit(0)
        case "ends with an error":
            sys.stderr.write("loading\nno space left on device\n")
            sys.exit(3)
        case "is killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "sends a line of 20 MB":
            sys.stdout.write('{"type": "x", "y": "' + "z" * 20_000_000 + '"}\n')
        case "sends garbage":
            sys.stdout.write("{garbage\n")
            sys.stdout.flush()
            time.sleep(600)
        case "sends an unknown message":
            say({"type": "assistant", "message": 7})
            time.sleep(600)
        case "mixes in other output":
            sys.stdout.write("warning: something\n\n[1]\n")
            result()
        case "tells an API error as a success":
            result(is_error=True, result="API Error: 529 overloaded", api_error_status=529)
        case "is told to wait":
            told = {
                "attempt": 1,
                "max_retries": 2,
                "retry_delay_ms": 42_000,
                "error_status": 429,
                "error": "rate_limit",
            }
            say({"type": "system", "subtype": "api_retry", **told, "session_id": "s"})
            result(is_error=True, result="API Error: 429", api_error_status=429)
        case "uses up its steps":
            result(subtype="error_max_turns", is_error=True, num_turns=5)
        case _:
            result()


def main():
    part = (Path(__file__).parent / "part").read_text().strip()
    if part == "never starts":
        hear("nothing")
    if part == "refuses the session" and any(word.startswith("--resume") for word in sys.argv):
        result(subtype="error_during_execution", is_error=True, errors=["No conversation found with session ID"])
        sys.exit(1)
    initialise(part)
    play(part)
    hear("nothing: until stdin is closed")


if __name__ == "__main__":
    main()
