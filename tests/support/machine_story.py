"""Tells one run as a story: each method is one thing that happens. The world checks every promise meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from massgend.domain.draft import Transition
from massgend.domain.effects import Deliver, Effect, FreezeSnapshot, RunChecks
from massgend.domain.events import (
    ChecksFinished,
    Clock,
    Closed,
    CloseRequested,
    DaemonRestarted,
    Delivered,
    Event,
    HandedIn,
    Prepared,
    SnapshotFailed,
    SnapshotRefused,
    SnapshotTaken,
    TurnEnd,
    TurnEnded,
    TurnStarted,
)
from massgend.domain.facts import Fact
from massgend.domain.run import (
    Agent,
    BaseRecord,
    Cause,
    Decision,
    Delivery,
    NewAnswer,
    Phase,
    SnapshotRecord,
    Stage,
    VoteFor,
)
from massgend.domain.task import CheckSpec, Disclosure, Limits
from tests.support.machine_reports import LiveTurn, request, result
from tests.support.machine_world import World

F = TypeVar("F")
E = TypeVar("E")


class Story(World):
    """A run whose workspaces are prepared; `told` and `wanted` are all facts and effects so far."""

    def __init__(
        self,
        agents: int = 3,
        *,
        checks: tuple[CheckSpec, ...] = (),
        limits: Limits | None = None,
        allow_self_vote: bool = True,
        disclose: Disclosure | None = None,
        labels: Mapping[str, str] | None = None,
        presentation: bool = False,
        planning: bool = False,
        prepared: bool = True,
    ) -> None:
        self.told: list[Fact] = []
        self.wanted: list[Effect] = []
        super().__init__(
            request(
                agents,
                checks=checks,
                limits=limits,
                allow_self_vote=allow_self_vote,
                disclose=disclose,
                labels=labels,
                presentation=presentation,
                planning=planning,
            )
        )
        if prepared:
            base = BaseRecord(commit="base", source_commit=None, branch="main", bare="r1")
            self.report(Prepared(at=self.now, step=1, base=base))

    def report(self, event: Event) -> Transition:
        step = super().report(event)
        self.told += step.facts
        self.wanted += step.effects
        return step

    def agent(self, name: str) -> Agent:
        return self.run.agents[name]

    def phase(self, name: str) -> Phase:
        return self.run.agents[name].phase

    def stage(self) -> Stage:
        return self.run.stage

    def turn(self, name: str) -> LiveTurn:
        return next(turn for turn in self.turns.values() if turn.effect.agent == name)

    def sees(self, name: str) -> set[str]:
        return {str(which) for which in self.turn(name).context}

    def facts(self, kind: type[F]) -> list[F]:
        return [fact for fact in self.told if isinstance(fact, kind)]

    def effects(self, kind: type[E]) -> list[E]:
        return [effect for effect in self.wanted if isinstance(effect, kind)]

    def decision(self) -> Decision:
        assert self.run.decision is not None
        return self.run.decision

    # -- turns ---------------------------------------------------------------------------------------------------------

    def agrees_on(self, author: str) -> None:
        """Its answer, and a vote of everybody for it; the others' first turns were not protected, or have ended."""
        self.answers(author)
        for name in self.run.agents:
            if self.phase(name) is Phase.STOPPING:
                self.stops(name)
        for name in self.run.agents if len(self.run.agents) > 1 else ():
            self.votes(name, author)

    def starts(self, *names: str) -> None:
        for name in names:
            self.report(TurnStarted(at=self.now, agent=name, step=self.turn(name).effect.step))

    def submits(self, name: str, summary: str = "done") -> Transition:
        step = self.turn(name).effect.step
        return self.report(HandedIn(at=self.now, agent=name, step=step, choice=NewAnswer(summary=summary)))

    def picks(self, name: str, author: str, reason: str = "better") -> Transition:
        choice = VoteFor(label=self.agent(author).label, reason=reason)
        return self.report(HandedIn(at=self.now, agent=name, step=self.turn(name).effect.step, choice=choice))

    def ends(
        self, name: str, end: TurnEnd = TurnEnd.DECIDED, reason: str = "", retry_after_s: float | None = None
    ) -> Transition:
        step = self.turn(name).effect.step
        return self.report(
            TurnEnded(at=self.now, agent=name, step=step, end=end, reason=reason, retry_after_s=retry_after_s)
        )

    def votes(self, name: str, author: str) -> Transition:
        self.picks(name, author)
        return self.ends(name)

    def answers(self, name: str, summary: str = "done") -> Transition:
        self.submits(name, summary)
        self.ends(name)
        return self.is_saved(name)

    def stops(self, *names: str) -> None:
        for name in names:
            self.ends(name, TurnEnd.INTERRUPTED)

    # -- snapshots, checks, the end ------------------------------------------------------------------------------------

    def freeze(self, name: str) -> FreezeSnapshot:
        return next(job for job in self.jobs.values() if isinstance(job, FreezeSnapshot) and job.agent == name)

    def is_saved(self, name: str) -> Transition:
        job = self.freeze(name)
        kept = SnapshotRecord(ref=job.name, commit=f"{name}-{job.name}", git_tree=str(job.step), changed_files=1)
        return self.report(SnapshotTaken(at=self.now, agent=name, step=job.step, snapshot=kept))

    def is_refused(self, name: str, reason: str = "your workspace has not changed") -> Transition:
        step = self.freeze(name).step
        unchanged = reason == "your workspace has not changed"
        return self.report(SnapshotRefused(at=self.now, agent=name, step=step, reason=reason, unchanged=unchanged))

    def cannot_be_saved(self, name: str, reason: str = "the disk is full") -> Transition:
        return self.report(SnapshotFailed(at=self.now, agent=name, step=self.freeze(name).step, reason=reason))

    def is_checked(self, name: str, *passed: bool) -> Transition:
        """The oldest check of an answer of this agent ends (or of its presentation); one bool a check."""
        job = next(job for job in self.jobs.values() if isinstance(job, RunChecks) and job.answer.agent == name)
        results = tuple(result(check, ok) for check, ok in zip(self.run.task.checks, passed, strict=True))
        return self.report(ChecksFinished(at=self.now, step=job.step, results=results))

    def time_is_up(self, clock: Clock, name: str | None = None) -> Transition:
        key = next(key for key in self.timers if key[:2] == (clock, name))
        return self.report(self.firing(key))

    def closes(self, cause: Cause) -> Transition:
        return self.report(CloseRequested(at=self.now, cause=cause))

    def daemon_restarts(self) -> Transition:
        return self.report(DaemonRestarted(at=self.now))

    def is_delivered(self, *, merged: bool = True) -> None:
        """The last two steps; a run without a winner has only the second."""
        for job in list(self.jobs.values()):
            if isinstance(job, Deliver):
                delivery = Delivery(merged=merged, mode="auto", reason="merged")
                self.report(Delivered(at=self.now, step=job.step, delivery=delivery))
        close = next(step for step, job in self.jobs.items())
        self.report(Closed(at=self.now, step=close))
