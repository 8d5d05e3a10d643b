"""From the domain's values to the API's words, and back. PURE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from massgend.api.schemas import (
    AgentView,
    AnswerView,
    CheckView,
    LimitsConfig,
    MergeView,
    RunLine,
    RunRequest,
    RunView,
    TallyView,
    VoteView,
)
from massgend.domain.closing import why_ended
from massgend.domain.run import Cause, Delivery, Run, Stage, Status
from massgend.domain.tally import valid_votes
from massgend.domain.task import AgentSpec, CheckSpec, Disclosure, Limits, SandboxSettings, Task
from massgend.journal import RunSummary


def task_of(request: RunRequest) -> Task:
    """What was asked for, as the machine takes it."""
    sandbox = request.sandbox
    return Task(
        text=request.task,
        agents=tuple(
            AgentSpec(name=agent.name, kind=agent.kind, options={"run": agent.run}) for agent in request.agents
        ),
        repository=request.repository,
        checks=tuple(CheckSpec(**check.model_dump()) for check in request.checks),
        limits=Limits(**request.limits.model_dump()),
        sandbox=SandboxSettings(
            image=sandbox.image,
            memory_bytes=sandbox.memory,
            cpus=sandbox.cpus,
            pids=sandbox.pids,
            runtime=sandbox.runtime,
        ),
        merge=request.merge,
        include_dirty=request.include_dirty,
        allow_self_vote=request.allow_self_vote,
        disclose=Disclosure(**request.disclose.model_dump()),
        deliver_to=request.deliver_to,
        scripted=request.scripted,
    )


def run_view(run: Run, state: Path) -> RunView:
    """The run as everybody sees it. `state`: where the daemon keeps workspaces."""
    decision = run.decision
    return RunView(
        run_id=run.id,
        status=run.status,
        reason=_reason(run),
        task=run.task.text,
        scripted=run.task.scripted,
        repository=run.task.repository,
        base_commit=run.base.source_commit or run.base.commit if run.base is not None else None,
        base_branch=run.base.branch if run.base is not None else None,
        winner=decision.winner.agent if decision is not None else None,
        winner_answer=decision.winner.number if decision is not None else None,
        decided_by=decision.by if decision is not None else None,
        overruled=decision.overruled if decision is not None else False,
        answers=_answers(run),
        votes=_votes(run),
        tally=_tally(run),
        checks=_checks(run),
        branches=dict(run.branches),
        merge=merge_view(run.delivery) if run.delivery is not None else None,
        agents=_agents(run, state),
        warnings=run.base.warnings if run.base is not None else (),
        trouble=run.trouble,
        limits=LimitsConfig(**asdict(run.task.limits)),
        limit_reached=run.cause in (Cause.RUN_LIMIT, Cause.BUDGET),
        requested_at=run.requested_at,
        started_at=run.started_at,
        ended_at=run.ended_at,
    )


def _reason(run: Run) -> str:
    if run.stage is Stage.DONE:
        return why_ended(run)
    return "Agents are at work." if run.status is Status.RUNNING else "Workspaces are being prepared."


def _answers(run: Run) -> tuple[AnswerView, ...]:
    return tuple(
        AnswerView(
            agent=answer.id.agent,
            label=run.agents[answer.id.agent].label,
            number=answer.id.number,
            summary=answer.summary,
            commit=answer.snapshot.commit,
            changed_files=answer.snapshot.changed_files,
            about=answer.snapshot.about,
            forced=answer.forced,
            accepted_at=answer.accepted_at,
        )
        for answer in run.answers
    )


def _votes(run: Run) -> tuple[VoteView, ...]:
    counted = {vote.order for vote in valid_votes(run)}
    return tuple(
        VoteView(
            voter=vote.voter,
            agent=vote.answer.agent,
            number=vote.answer.number,
            reason=vote.reason,
            valid=vote.order in counted,
            cast_at=vote.cast_at,
        )
        for vote in run.past_votes
    )


def _tally(run: Run) -> tuple[TallyView, ...]:
    lines = run.decision.tally if run.decision is not None else ()
    return tuple(
        TallyView(
            agent=line.answer.agent,
            number=line.answer.number,
            votes=line.votes,
            checks_passed=line.checks_passed,
            eligible=line.eligible,
        )
        for line in lines
    )


def _checks(run: Run) -> tuple[CheckView, ...]:
    return tuple(
        CheckView(agent=answer.id.agent, number=answer.id.number, **asdict(check))
        for answer in run.answers
        for check in answer.checks or ()
    )


def _agents(run: Run, state: Path) -> tuple[AgentView, ...]:
    specs: Mapping[str, AgentSpec] = {spec.name: spec for spec in run.task.agents}
    return tuple(
        AgentView(
            name=agent.name,
            label=agent.label,
            kind=specs[agent.name].kind,
            model=specs[agent.name].model,
            phase=agent.phase,
            turn=agent.turns,
            answers=agent.answers,
            failures=agent.failures,
            last_failure=agent.last_failure,
            workspace=state / "runs" / run.id / agent.label / "workspace",
        )
        for agent in run.agents.values()
    )


def merge_view(delivery: Delivery) -> MergeView:
    return MergeView(**asdict(delivery))


def run_line(summary: RunSummary) -> RunLine:
    return RunLine(
        run_id=summary.run_id,
        status=Status(summary.status),
        task=summary.task,
        agents=summary.agents,
        winner=summary.winner,
        repository=Path(summary.repository) if summary.repository is not None else None,
        requested_at=summary.requested_at,
        ended_at=summary.ended_at,
    )
