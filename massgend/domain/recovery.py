"""What is taken up again when the daemon comes back: every awaited effect once more, every turn anew. PURE."""

from __future__ import annotations

from massgend.domain.answers import freezing
from massgend.domain.draft import Draft
from massgend.domain.effects import Close, Deliver, Prepare, PublishBranch, RunChecks, SetTimer
from massgend.domain.events import Clock
from massgend.domain.facts import RunRecovered
from massgend.domain.keeping import keeping_of
from massgend.domain.run import IN_TURN, Phase, Stage
from massgend.domain.turns import after_turn


def recover(draft: Draft) -> None:
    """Reissue effects with their old steps; end turns that were under way (they are gone for certain)."""
    run = draft.run
    in_turn = tuple(agent for agent in run.agents.values() if agent.phase in IN_TURN)
    draft.tell(RunRecovered(at=draft.at, agents=tuple(agent.name for agent in in_turn)))
    _reissue_run(draft)
    for agent in run.agents.values():
        if agent.phase in IN_TURN:
            after_turn(draft, agent, None)
        elif agent.phase is Phase.FREEZING and agent.step is not None and agent.pending is not None:
            draft.do(freezing(run, agent, agent.pending, agent.step))
        elif agent.phase is Phase.BACKOFF:
            due_at = max(draft.at, agent.retry_at or draft.at)
            draft.do(SetTimer(clock=Clock.BACKOFF, due_at=due_at, agent=agent.name, step=agent.step))


def _reissue_run(draft: Draft) -> None:
    run = draft.run
    presented = run.presented.answer if run.presented is not None and not run.presented.over else None
    for answer in run.answers if presented is None else (*run.answers, presented):
        if not answer.visible and answer.check_step is not None:
            draft.do(RunChecks(step=answer.check_step, answer=answer.id))
    for name, commit in run.heads.items():
        draft.do(PublishBranch(agent=name, commit=commit))
    for name, step in run.keeping.items():
        draft.do(keeping_of(run, name, step))
    match run.stage:
        case Stage.PREPARING if run.step is not None:
            draft.do(Prepare(step=run.step))
        case Stage.RUNNING if run.started_at is not None:
            draft.set_run_timers(run.started_at)
        case Stage.DELIVERING if run.step is not None and run.result is not None:
            draft.do(Deliver(step=run.step, answer=run.result))
        case Stage.CLOSING if run.step is not None:
            draft.do(Close(step=run.step))
        case _:
            pass
