"""A failed turn or snapshot: again after a while, or out (rule 10). PURE."""

from __future__ import annotations

from massgend.domain.draft import Draft
from massgend.domain.facts import AgentRetired, TurnFailed
from massgend.domain.run import Agent, Phase, Run

MAX_BACKOFF_S = 300.0


def wait_s(run: Run, name: str, failures: int, retry_after_s: float | None) -> float:
    """How long to wait before the next try: doubled each time, or the provider's wish when that is longer.

    Agents that fail together are not tried again together: each waits longer by its place among the agents, up to half
    as much again. This stands for jitter, without randomness, so that a replay comes to the same.
    """
    wait = min(MAX_BACKOFF_S, run.task.limits.backoff_s * 2.0 ** (failures - 1))
    place = list(run.agents).index(name) / len(run.agents)
    return max(wait, retry_after_s or 0.0) + wait * place / 2


def fail(draft: Draft, agent: Agent, reason: str, retry_after_s: float | None) -> None:
    """Rule 10: again after a while, or out."""
    limits = draft.run.task.limits
    failures = agent.failures + 1
    out = failures >= limits.max_failures or agent.used_up is not None
    delay = None if out else wait_s(draft.run, agent.name, failures, retry_after_s)
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
        why = agent.used_up or f"it failed {failures} times: {reason}"
        draft.tell(AgentRetired(at=draft.at, agent=agent.name, reason=why))
    else:
        draft.back_off(agent.name, delay)
