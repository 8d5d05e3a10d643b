"""From the domain's values to the API's words, and back. PURE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import assert_never

from massgend.api.schemas import (
    AgentView,
    AnswerView,
    CheckView,
    ClaudeCodeAgent,
    CommandAgent,
    HostView,
    LimitsConfig,
    MergeView,
    RunLine,
    RunRequest,
    RunView,
    TallyView,
    UsageView,
    VoteView,
)
from massgend.domain.closing import why_ended
from massgend.domain.run import Cause, Delivery, Run, Stage, Status, UsageRecord
from massgend.domain.tally import valid_votes
from massgend.domain.task import AgentSpec, CheckSpec, Disclosure, Limits, ModelSettings, SandboxSettings, Task
from massgend.journal import RunSummary


def task_of(request: RunRequest) -> Task:
    """What was asked for, as the machine takes it."""
    sandbox = request.sandbox
    return Task(
        text=request.task,
        agents=tuple(_spec(agent, request.scripted_model) for agent in request.agents),
        repository=request.repository,
        checks=tuple(CheckSpec(**check.model_dump()) for check in request.checks),
        limits=_limits(request.limits),
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
        models=ModelSettings(
            allow=tuple(request.models.allow),
            map=request.models.map,
            provider_tools=request.models.provider_tools,
            scripted=request.scripted_model is not None,
        ),
        egress=tuple(request.egress),
        presentation=_presents(request),
        planning=request.planning or _has_outside_effects(request),
        record=request.record,
        replay=request.replay,
        deliver_to=request.deliver_to,
        scripted=request.scripted or request.scripted_model is not None,
    )


def _presents(request: RunRequest) -> bool:
    """A program cannot be expected to polish unless it is asked; a model can (rule 12)."""
    if request.presentation is not None:
        return request.presentation
    return all(isinstance(agent, ClaudeCodeAgent) for agent in request.agents)


def _has_outside_effects(request: RunRequest) -> bool:
    """Such tools are executed in the winner's last turn only, so there must be one (rule 14)."""
    return any(isinstance(agent, ClaudeCodeAgent) and agent.outside_effects for agent in request.agents)


def _limits(limits: LimitsConfig) -> Limits:
    values = limits.model_dump(exclude={"max_cost"})
    return Limits(**values, max_cost_usd=limits.max_cost)


def _limits_view(limits: Limits) -> LimitsConfig:
    values = asdict(limits)
    return LimitsConfig(max_cost=values.pop("max_cost_usd"), **values)


def _spec(agent: CommandAgent | ClaudeCodeAgent, script: str | None) -> AgentSpec:
    match agent:
        case CommandAgent():
            return AgentSpec(name=agent.name, kind=agent.kind, options={"run": agent.run})
        case ClaudeCodeAgent():
            if script is not None:
                told = f"{agent.append_system_prompt}\n\n{script}".strip()
                agent = agent.model_copy(update={"append_system_prompt": told})
            return AgentSpec(
                name=agent.name,
                kind=agent.kind,
                model=agent.model,
                options=agent.as_options(),
                max_cost_usd=agent.max_cost,
                max_tokens=agent.max_tokens,
            )
        case _:
            assert_never(agent)


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
        presentation=run.presented.reason if run.presented is not None and run.presented.over else None,
        agents=_agents(run, state),
        warnings=run.base.warnings if run.base is not None else (),
        trouble=run.trouble,
        limits=_limits_view(run.task.limits),
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
            usage=_usage(run.usage[agent.name]) if agent.name in run.usage else None,
            workspace=state / "runs" / run.id / agent.label / "workspace",
        )
        for agent in run.agents.values()
    )


def _usage(usage: UsageRecord) -> UsageView:
    return UsageView(
        calls=usage.calls,
        input_tokens=usage.input_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        cache_write_1h_tokens=usage.cache_write_1h_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        output_tokens=usage.output_tokens,
        cost_usd=usage.cost_usd,
        hosts=tuple(HostView(**asdict(host)) for host in usage.hosts),
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
