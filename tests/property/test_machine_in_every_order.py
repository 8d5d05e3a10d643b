"""The machine driven with every event in every order: whatever happens, it keeps its promises (docs/coordination.md).

The promises themselves are checked by `World` after every single event.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TypedDict, TypeVar

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from massgend.domain.events import (
    BranchPublished,
    ChecksFinished,
    Clock,
    Closed,
    CloseRequested,
    DaemonRestarted,
    Delivered,
    Event,
    HandedIn,
    Prepared,
    PrepareFailed,
    SnapshotFailed,
    SnapshotRefused,
    SnapshotTaken,
    TimerFired,
    TurnEnd,
    TurnEnded,
    TurnStarted,
)
from massgend.domain.run import BaseRecord, Cause, Delivery, NewAnswer, SnapshotRecord, Stage, VoteFor
from massgend.domain.task import CheckSpec, Limits
from tests.support.machine_reports import NAMES, job_reports, request
from tests.support.machine_world import World

E = TypeVar("E")


class Presents(TypedDict, total=False):
    presentation: bool
    planning: bool


PRESENTS: list[Presents] = [{}, {"presentation": True}, {"planning": True}]
PICK = st.integers(0, 999)
TINY = Limits(answers=1, turns=2, max_failures=1, max_reminders=0, first_turn_protection_s=0.0)
SMALL = Limits(answers=2, turns=4, max_failures=2, max_reminders=1)
NOTHING = Limits(answers=0, turns=1)
UNIT = CheckSpec(name="unit", run="pytest -q")
LINT = CheckSpec(name="lint", run="ruff check", required=False)
BASE = BaseRecord(commit="late", source_commit=None, branch=None, bare="late")
KEPT = SnapshotRecord(ref="late", commit="late", git_tree="late", changed_files=1)
ONCE = (TurnStarted, HandedIn, TurnEnded, SnapshotTaken, SnapshotRefused, SnapshotFailed, ChecksFinished, Prepared)


def misfits(at: float, agent: str, step: int) -> list[Event]:
    """One of every kind of report, none of which anything waits for."""
    return [
        Prepared(at=at, step=step, base=BASE),
        PrepareFailed(at=at, step=step, reason="late"),
        TurnStarted(at=at, agent=agent, step=step),
        HandedIn(at=at, agent=agent, step=step, choice=NewAnswer(summary="late")),
        HandedIn(at=at, agent=agent, step=step, choice=VoteFor(label="newt", reason="late")),
        *(TurnEnded(at=at, agent=agent, step=step, end=end, reason="late") for end in TurnEnd),
        SnapshotTaken(at=at, agent=agent, step=step, snapshot=KEPT),
        SnapshotRefused(at=at, agent=agent, step=step, reason="late"),
        SnapshotFailed(at=at, agent=agent, step=step, reason="late"),
        ChecksFinished(at=at, step=step, results=()),
        *(TimerFired(at=at, clock=clock, agent=agent, step=step) for clock in Clock if not clock.startswith("run")),
        Delivered(at=at, step=step, delivery=Delivery(merged=True, mode="auto", reason="late")),
        Closed(at=at, step=step),
    ]


class EveryOrder(RuleBasedStateMachine):
    @initialize(
        agents=st.integers(1, 4),
        checks=st.sampled_from([(), (UNIT,), (UNIT, LINT)]),
        limits=st.sampled_from([TINY, SMALL, Limits(), NOTHING]),
        allow_self_vote=st.booleans(),
        presents=st.sampled_from(PRESENTS),
        quiet_for=st.sampled_from([0, 10, 30, 60, 1000]),
        seed=st.integers(0, 2**32),
    )
    def begin(
        self,
        agents: int,
        checks: tuple[CheckSpec, ...],
        limits: Limits,
        allow_self_vote: bool,
        presents: Presents,
        quiet_for: int,
        seed: int,
    ) -> None:
        asked = request(agents, checks=checks, limits=limits, allow_self_vote=allow_self_vote, **presents)
        self.world = World(asked)
        self.quiet_for = quiet_for
        self.random = Random(seed)
        if quiet_for:
            self.world.report(self.world.reports()[0])

    @property
    def running(self) -> bool:
        return self.world.run.stage is not Stage.DONE

    def pick(self, options: Sequence[Event], pick: int) -> None:
        if options:
            self.world.report(options[pick % len(options)])

    @precondition(lambda self: self.running)
    @rule(pick=PICK)
    def something_outstanding_reports(self, pick: int) -> None:
        self.pick(self.world.reports(), pick)

    @precondition(lambda self: self.world.turns)
    @rule(pick=PICK)
    def an_agent_decides(self, pick: int) -> None:
        self.pick([event for event in self.world.reports() if isinstance(event, HandedIn)], pick)

    @precondition(lambda self: self.world.turns)
    @rule(pick=PICK)
    def an_agent_votes(self, pick: int) -> None:
        decisions = [event for event in self.world.reports() if isinstance(event, HandedIn)]
        self.pick([event for event in decisions if isinstance(event.choice, VoteFor)], pick)

    @precondition(lambda self: self.world.turns)
    @rule(pick=PICK)
    def a_decided_or_interrupted_turn_ends(self, pick: int) -> None:
        over = {step for step, turn in self.world.turns.items() if turn.decided or turn.stopping}
        self.pick([e for e in self.world.reports() if isinstance(e, TurnEnded) and e.step in over], pick)

    @precondition(lambda self: self.world.turns)
    @rule(pick=PICK, vote=st.booleans())
    def an_agent_decides_and_all_goes_well(self, pick: int, vote: bool) -> None:
        turns = list(self.world.turns.values())
        agent = turns[pick % len(turns)].effect.agent
        kind = VoteFor if vote else NewAnswer
        self.pick([e for e in self.reports_of(agent, HandedIn) if isinstance(e.choice, kind)], pick)
        self.pick([e for e in self.reports_of(agent, TurnEnded) if e.end is TurnEnd.DECIDED], 0)
        self.pick(self.reports_of(agent, SnapshotTaken), 0)

    def reports_of(self, agent: str, kind: type[E]) -> list[E]:
        return [e for e in self.world.reports() if isinstance(e, kind) and getattr(e, "agent", None) == agent]

    @precondition(lambda self: self.world.jobs)
    @rule(pick=PICK)
    def a_job_succeeds(self, pick: int) -> None:
        good = (SnapshotTaken, ChecksFinished, Prepared)
        self.pick([event for event in self.world.reports() if isinstance(event, good)], pick)

    @precondition(lambda self: self.running and self.world.timers)
    @rule(pick=PICK, early=st.booleans())
    def a_timer_fires(self, pick: int, early: bool) -> None:
        keys = [key for key in self.world.timers if key[0] is not Clock.RUN_LIMIT or self.may_close]
        if keys:
            self.world.report(self.world.firing(keys[pick % len(keys)], early=early))

    @rule(seconds=st.floats(0, 4000))
    def time_passes(self, seconds: float) -> None:
        self.world.now += seconds

    @precondition(lambda self: self.running and self.world.unpublished)
    @rule(pick=PICK)
    def a_branch_is_published(self, pick: int) -> None:
        self.pick(self.world.published(), pick)

    @property
    def may_close(self) -> bool:
        return len(self.world.journal) > self.quiet_for

    @precondition(lambda self: self.running and self.may_close)
    @rule(cause=st.sampled_from([Cause.CANCELLED, Cause.BUDGET]))
    def the_run_is_cancelled_or_the_budget_is_used_up(self, cause: Cause) -> None:
        self.world.report(CloseRequested(at=self.world.now, cause=cause))

    @precondition(lambda self: self.running and self.may_close)
    @rule()
    def the_daemon_restarts(self) -> None:
        self.world.report(DaemonRestarted(at=self.world.now))

    @rule(pick=PICK, kind=st.integers(0, 4), agent=st.sampled_from(NAMES))
    def something_comes_that_fits_nothing(self, pick: int, kind: int, agent: str) -> None:
        """One rule for all kinds, so that they do not crowd out what makes a run go on."""
        kinds = (self.not_awaited, self.of_nobody, self.of_another_kind, self.twice, self.unknown_label)
        options = kinds[kind](pick, agent)
        if options:
            self.world.nudge(options[pick % len(options)])

    def not_awaited(self, pick: int, agent: str) -> Sequence[Event]:
        steps = [step for step in range(self.world.run.steps + 4) if not self.awaited(step)]
        return misfits(self.world.now, agent, steps[pick % len(steps)])

    def of_nobody(self, pick: int, _: str) -> Sequence[Event]:
        steps = range(self.world.run.steps + 1)
        reports = [e for e in misfits(self.world.now, "nobody", steps[pick % len(steps)]) if hasattr(e, "agent")]
        return [*reports, BranchPublished(at=self.world.now, agent="nobody", branch="massgend/r1/nobody")]

    def of_another_kind(self, pick: int, agent: str) -> Sequence[Event]:
        """Its step is awaited, but for another report."""
        jobs = list(self.world.jobs.values())
        if not jobs:
            return []
        job = jobs[pick % len(jobs)]
        mine = {type(event) for event in job_reports(job, self.world.now, self.world.run.task)}
        return [event for event in misfits(self.world.now, agent, job.step) if type(event) not in mine]

    def twice(self, _: int, __: str) -> Sequence[Event]:
        return [e for e in self.world.journal if isinstance(e, ONCE) and not self.awaited(e.step)]

    def unknown_label(self, _: int, __: str) -> Sequence[Event]:
        choice = VoteFor(label="nobody", reason="better")
        turns = [turn.effect for turn in self.world.turns.values()]
        return [HandedIn(at=self.world.now, agent=turn.agent, step=turn.step, choice=choice) for turn in turns]

    def awaited(self, step: int) -> bool:
        waiting = {key[2] for key in self.world.timers}
        return step in self.world.turns or step in self.world.jobs or step in waiting

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.finish_fairly(self.random)


EveryOrder.TestCase.settings = settings(
    max_examples=150, stateful_step_count=60, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestEveryOrder = EveryOrder.TestCase


@settings(max_examples=200, deadline=None)
@given(
    agents=st.integers(2, 4),
    checks=st.sampled_from([(), (UNIT,), (UNIT, LINT)]),
    limits=st.sampled_from([TINY, SMALL, Limits()]),
    allow_self_vote=st.booleans(),
    presents=st.sampled_from(PRESENTS),
    seed=st.integers(0, 2**32),
)
def test_a_run_in_a_fair_world_ends_within_the_bound_and_is_replayed_to_the_same_end(
    agents: int, checks: tuple[CheckSpec, ...], limits: Limits, allow_self_vote: bool, presents: Presents, seed: int
) -> None:
    """Long runs with many answers and votes, which the rules above seldom reach."""
    world = World(request(agents, checks=checks, limits=limits, allow_self_vote=allow_self_vote, **presents))
    world.finish_fairly(Random(seed))
