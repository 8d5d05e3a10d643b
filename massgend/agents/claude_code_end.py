"""What the end of a talk with Claude Code means for the turn. PURE."""

from __future__ import annotations

import re

from claude_agent_sdk import ProcessError, ResultMessage

from massgend.agents.agent import OutcomeKind, TurnOutcome

KILLED = 137
MAX_REASON_CHARS = 500
_RETRY_AFTER = re.compile(r"retry after (\d+(?:\.\d+)?) s", re.IGNORECASE)
"""How massgend's gateway says in an error when it is worth to ask again; the CLI passes on texts, not headers."""


def of_result(result: ResultMessage, *, limit_s: float | None) -> TurnOutcome:
    """An undecided turn's end as the CLI tells it. `limit_s`: how long the provider limits us, if known."""
    if result.subtype == "error_max_turns":
        return TurnOutcome(kind=OutcomeKind.UNDECIDED, reason=f"it used all {result.num_turns} steps (max_turns)")
    if not result.is_error:
        return TurnOutcome(kind=OutcomeKind.UNDECIDED, reason="it ended its turn without a decision")
    text = _plain("; ".join(result.errors or ()) or result.result or result.subtype)
    if result.api_error_status is not None:
        text = f"the model API answered {result.api_error_status}: {text}"
    return failed(text, retry_after_s=retry_after(text, limit_s))


def of_error(error: Exception, stderr: str, *, out_of_memory: bool) -> TurnOutcome:
    """The CLI ended, or the talk with it broke."""
    if out_of_memory:
        return failed("Claude Code ran out of memory (sandbox.memory)")
    if isinstance(error, ProcessError) and error.exit_code == KILLED:
        return failed("Claude Code was killed")
    if isinstance(error, ProcessError) and error.exit_code is not None:
        return failed(f"Claude Code ended with exit code {error.exit_code}: {_last_line(stderr or str(error))}")
    return failed(f"the talk with Claude Code broke: {_plain(str(error) or type(error).__name__)}")


def is_refusal(heard: object) -> bool:
    """The CLI ended by itself with an error, so it is of no use to start it again in the same way."""
    return isinstance(heard, ProcessError) and heard.exit_code != KILLED


def retry_after(text: str, limit_s: float | None) -> float | None:
    """Seconds to wait before another try, where somebody said how long."""
    found = _RETRY_AFTER.search(text)
    return float(found[1]) if found is not None else limit_s


def failed(reason: str, *, retry_after_s: float | None = None) -> TurnOutcome:
    return TurnOutcome(kind=OutcomeKind.FAILED, reason=reason[:MAX_REASON_CHARS], retry_after_s=retry_after_s)


def _plain(text: str) -> str:
    return " ".join(text.split())


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1].strip() if lines else "it said nothing"
