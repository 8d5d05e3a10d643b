"""Carries effects out and posts what came of them. One of the three boundaries where any error becomes a report."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import assert_never

from massgend.domain.effects import (
    Close,
    Deliver,
    Effect,
    EndTurn,
    FreezeSnapshot,
    InterruptTurn,
    Notify,
    Prepare,
    PublishBranch,
    RunChecks,
    SetTimer,
    StartTurn,
)
from massgend.domain.events import (
    BranchPublished,
    ChecksFinished,
    Closed,
    Delivered,
    Event,
    Prepared,
    PrepareFailed,
    SnapshotFailed,
    TimerFired,
    TurnEnd,
    TurnEnded,
)
from massgend.domain.run import WINNER, BaseRecord, CheckResult, Delivery, Run, StopReason
from massgend.orchestrator.checks import run_checks
from massgend.orchestrator.delivery import deliver, freeze, publish
from massgend.orchestrator.models import Share
from massgend.orchestrator.ports import Ports, workspace_id
from massgend.orchestrator.turn import HandIn, LiveTurn, run_turn
from sandboxes.errors import SandboxError
from snapshots.errors import SnapshotError
from snapshots.repository import MergeMode
from snapshots.snapshot import Base

log = logging.getLogger(__name__)

NOTICE = {
    StopReason.NEWS: "A peer has submitted an answer: you will be restarted with it in {grace:g} s. "
    "Finish your current step; your workspace is kept.",
    StopReason.TURN_LIMIT: "The time of this turn is over: hand in within {grace:g} s.",
    StopReason.CLOSING: "The run is ending now.",
}


class EffectRunner:
    """One run's effects. `current` gives the run's newest value; `post` and `hand_in` reach its mailbox."""

    def __init__(
        self, ports: Ports, current: Callable[[], Run], post: Callable[[Event], Awaitable[None]], hand_in: HandIn
    ) -> None:
        self._ports = ports
        self._current = current
        self._post = post
        self._hand_in = hand_in
        self._turns: dict[int, LiveTurn] = {}
        self.share: Share | None = None
        self._publishing = asyncio.Lock()

    async def carry_out(self, effect: Effect) -> None:
        """Run one effect to its end. An error that nobody expected is logged and posted as the effect's failure."""
        try:
            await self._dispatch(effect)
        except Exception as error:
            log.exception("effect %s of run %s failed", type(effect).__name__, self._current().id)
            report = self._failure(effect, f"unexpected {type(error).__name__}: {error}")
            if report is not None:
                await self._post(report)

    async def _dispatch(self, effect: Effect) -> None:
        match effect:
            case Prepare():
                await self._prepare(effect)
            case StartTurn():
                await self._turn(effect)
            case InterruptTurn():
                await self._interrupt(effect)
            case EndTurn():
                if effect.step in self._turns:
                    self._turns[effect.step].end()
            case Notify():
                if effect.step in self._turns:
                    self._turns[effect.step].notify(effect.text)
            case FreezeSnapshot():
                await self._post(await freeze(self._ports, self._current(), effect))
            case RunChecks():
                results = await run_checks(self._ports, self._current(), effect)
                await self._post(ChecksFinished(at=self._now(), step=effect.step, results=results))
            case PublishBranch():
                async with self._publishing:
                    await self._post(await publish(self._ports, self._current(), effect))
            case SetTimer():
                await asyncio.sleep(max(0.0, effect.due_at - self._now()))
                await self._post(TimerFired(at=self._now(), clock=effect.clock, agent=effect.agent, step=effect.step))
            case Deliver():
                await self._deliver(effect)
            case Close():
                await self._close(effect)
            case _:
                assert_never(effect)

    def _now(self) -> float:
        return self._ports.chance.now()

    async def _prepare(self, effect: Prepare) -> None:
        run = self._current()
        try:
            base = await self._ports.repository.import_base(
                run.task.repository, run=run.id, include_dirty=run.task.include_dirty
            )
            await self._make_workspaces(run, base)
        except (SnapshotError, OSError) as error:
            await self._post(PrepareFailed(at=self._now(), step=effect.step, reason=str(error)))
            return
        record = BaseRecord(
            commit=base.commit,
            source_commit=base.source_commit,
            branch=base.branch,
            bare=str(base.bare),
            warnings=base.warnings,
        )
        await self._post(Prepared(at=self._now(), step=effect.step, base=record))

    async def _make_workspaces(self, run: Run, base: Base) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                for agent in run.agents.values():
                    tasks.create_task(
                        self._ports.store.create_workspace(
                            base, workspace_id(run, agent.name), f"massgend/{agent.label}"
                        )
                    )
        except ExceptionGroup as group:
            raise group.exceptions[0] from group

    async def _turn(self, effect: StartTurn) -> None:
        assert self.share is not None, "effects are carried out while the run has its share of the gateway"
        live = LiveTurn(self._current(), effect, self._hand_in, self.share.gateway.turn(effect.agent))
        self._turns[effect.step] = live
        try:
            await run_turn(self._ports, live, self._post, ended=self.share.reporter.report)
        finally:
            del self._turns[effect.step]

    async def _interrupt(self, effect: InterruptTurn) -> None:
        live = self._turns.get(effect.step)
        if live is None:
            return
        if effect.grace_s > 0:
            live.notify(NOTICE[effect.why].format(grace=effect.grace_s))
            await asyncio.sleep(effect.grace_s)
        live.stop()

    async def _deliver(self, effect: Deliver) -> None:
        run = self._current()
        answer = run.answer(effect.answer)
        if run.task.merge is not MergeMode.NONE:
            async with self._publishing:
                winner = PublishBranch(agent=WINNER, commit=answer.snapshot.commit)
                await self._post(await publish(self._ports, run, winner))
        delivery = await deliver(self._ports, run, effect)
        await self._post(Delivered(at=self._now(), step=effect.step, delivery=delivery))

    async def _close(self, effect: Close) -> None:
        """Everything of the run but workspaces and refs. What stays behind is told, and `gc` tries again."""
        run = self._current()
        trouble: list[str] = []
        try:
            await self._ports.provider.remove_ours(self._ports.instance, run.id)
        except SandboxError as error:
            trouble.append(f"containers or volumes may be left in the engine: {error}")
        try:
            for agent in run.agents.values():
                await self._ports.store.close_views(run.id, agent.label)
            await self._ports.store.release_trees(run.id)
        except (SnapshotError, OSError) as error:
            trouble.append(f"temporary files may be left: {error}")
        await self._post(Closed(at=self._now(), step=effect.step, trouble=tuple(trouble)))

    def _failure(self, effect: Effect, reason: str) -> Event | None:
        at = self._now()
        match effect:
            case Prepare():
                return PrepareFailed(at=at, step=effect.step, reason=reason)
            case StartTurn():
                return TurnEnded(at=at, agent=effect.agent, step=effect.step, end=TurnEnd.FAILED, reason=reason)
            case FreezeSnapshot():
                return SnapshotFailed(at=at, agent=effect.agent, step=effect.step, reason=reason)
            case RunChecks():
                return ChecksFinished(at=at, step=effect.step, results=self._no_checks(reason))
            case PublishBranch():
                return BranchPublished(at=at, agent=effect.agent, branch="", problem=reason)
            case Deliver():
                mode = self._current().task.merge.value
                return Delivered(at=at, step=effect.step, delivery=Delivery(merged=False, mode=mode, reason=reason))
            case Close():
                return Closed(at=at, step=effect.step, trouble=(reason,))
            case InterruptTurn() | EndTurn() | Notify() | SetTimer():
                return None
            case _:
                assert_never(effect)

    def _no_checks(self, reason: str) -> tuple[CheckResult, ...]:
        empty = CheckResult(name="", required=True, passed=False, exit_code=None, duration_s=0.0, tail=reason)
        return tuple(replace(empty, name=check.name, required=check.required) for check in self._current().task.checks)
