"""A failed turn or snapshot: again after a while, or out (rule 10). PURE."""

from __future__ import annotations

from massgend.domain.draft import Draft
from massgend.domain.facts import AgentRetired, TurnFailed
from massgend.domain.run import Agent, Phase

MAX_BACKOFF_S = 300.0


def fail(draft: Draft, agent: Agent, reason: str, retry_after_s: float | None) -> None:
    """Rule 10: again after a while, or out."""
    limits = draft.run.task.limits
    failures = agent.failures + 1
    out = failures >= limits.max_failures
    wait = min(MAX_BACKOFF_S, limits.backoff_s * 2 ** (failures - 1))
    delay = None if out else max(wait, retry_after_s or 0.0)
    draft.change_agent(
        agent.name,
        failures=failures,
        last_failure=reason,
        reminders=0,
        notice=f"Your last turn failed: {reason}. Your workspace is as you left it.",
        unfinished=True,
        turn=None,
    )
    draft.tell(TurnFailed(at=draft.at, agent=agent.name, reason=reason, failures=failures, retry_in_s=delay))
    if delay is None:
        draft.change_agent(agent.name, phase=Phase.OUT, step=None)
        draft.tell(AgentRetired(at=draft.at, agent=agent.name, reason=f"it failed {failures} times: {reason}"))
    else:
        draft.back_off(agent.name, delay)
