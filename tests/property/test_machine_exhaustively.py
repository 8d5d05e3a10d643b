"""Every reachable state of small runs, breadth first: no promise is broken in any, and every path ends.

`World` checks the promises after each event. States are compared without step numbers; agents that only swapped
places are the same. The graph has no cycle, so no order of events, fair or not, goes on for ever.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from itertools import chain, permutations, product

import pytest

from massgend.domain.effects import FreezeSnapshot, RunChecks
from massgend.domain.events import (
    Clock,
    CloseRequested,
    DaemonRestarted,
    Delivered,
    Event,
    HandedIn,
    PrepareFailed,
    SnapshotFailed,
    SnapshotRefused,
    TurnEnd,
    TurnEnded,
    TurnStarted,
)
from massgend.domain.run import Agent, Answer, Cause, DecidedBy, Presented, Stage
from massgend.domain.task import CheckSpec, Limits
from tests.support.machine_reports import Job, request
from tests.support.machine_world import TimerKey, World

SILENT = {Clock.RUN_WRAP_UP, Clock.TURN_WRAP_UP}
UNIT = CheckSpec(name="unit", run="pytest -q")
LINT = CheckSpec(name="lint", run="ruff check", required=False)


def shape(world: World) -> int:
    """What of a state makes a difference to what comes after it, the same for agents that only swapped places."""
    restarted = any(isinstance(event, DaemonRestarted) for event in world.journal)
    return min(hash((restarted, _shape(world, order))) for order in _orders(world))


def _orders(world: World) -> Iterator[tuple[str, ...]]:
    """The orders of agents that cannot be told apart at a glance; the rest of them need not be compared."""
    alike: dict[tuple[str, int, int, int, bool], list[str]] = {}
    for agent in world.run.agents.values():
        glance = (agent.phase.value, agent.turns, agent.answers, agent.failures, agent.vote is None)
        alike.setdefault(glance, []).append(agent.name)
    for groups in product(*(permutations(alike[glance]) for glance in sorted(alike))):
        yield tuple(chain.from_iterable(groups))


def _shape(world: World, order: tuple[str, ...]) -> Hashable:
    run = world.run
    place = {name: number for number, name in enumerate(order)}
    voters = sorted((agent.vote.order, place[agent.name]) for agent in run.agents.values() if agent.vote is not None)
    return (
        run.stage,
        run.cause,
        run.decision.by if run.decision else None,
        tuple(_agent(world, run.agents[name], place) for name in order),
        tuple((place[a.id.agent], a.id.number, a.visible, _passed(a)) for a in run.answers),
        tuple(number for _, number in voters),
        frozenset(_job(job, place) for job in world.jobs.values()),
        frozenset((k[0], place.get(k[1] or "")) for k in world.timers if k[0] not in SILENT and _matters(world, k)),
        frozenset(place[name] for name in world.unsaved),
        _presented(run.presented),
    )


def _presented(presented: Presented | None) -> Hashable:
    if presented is None:
        return None
    answer = presented.answer
    saved = (answer.visible, _passed(answer)) if answer is not None else None
    return presented.starts, presented.failures, presented.over, presented.delivered, saved


def _passed(answer: Answer) -> Hashable:
    return frozenset(check.name for check in answer.checks or () if check.passed)


def _job(job: Job, place: dict[str, int]) -> Hashable:
    match job:
        case FreezeSnapshot():
            return "freeze", place[job.agent], 0
        case RunChecks():
            return "checks", place[job.answer.agent], str(job.answer)
        case _:
            return type(job).__name__, 0, 0


def _agent(world: World, agent: Agent, place: dict[str, int]) -> Hashable:
    turn = world.turns.get(agent.step) if agent.step is not None else None
    return (
        agent.phase,
        agent.turns,
        agent.answers,
        agent.failures,
        agent.reminders,
        agent.pending is not None,
        (place[agent.vote.answer.agent], agent.vote.answer.number) if agent.vote is not None else None,
        agent.stop_reason,
        agent.ever_decided,
        agent.unfinished,
        frozenset((place[which.agent], which.number) for which in turn.context) if turn is not None else None,
        (turn.decided, turn.tries) if turn is not None else None,
    )


def _matters(world: World, key: TimerKey) -> bool:
    """Is the timer the run's own, or of the step that its agent waits for?"""
    return key[1] is None or world.run.agents[key[1]].step == key[2]


def moves(world: World, small: Small) -> list[Event]:
    """A reduced alphabet: containers start at once, wrap-up notices and failed clean-ups make no difference."""
    found: list[Event] = []
    for event in world.reports():
        match event:
            case TurnStarted() | PrepareFailed():
                continue
            case Delivered() if not event.delivery.merged:
                continue
            case SnapshotRefused() | SnapshotFailed() if not small.failing_saves:
                continue
            case TurnEnded():
                turn = world.turns[event.step]
                good = TurnEnd.DECIDED if turn.decided else TurnEnd.INTERRUPTED if turn.stopping else TurnEnd.FAILED
                if event.end is not good:
                    continue
            case HandedIn() if world.turns[event.step].tries:
                continue
            case _:
                pass
        found.append(event)
    silent = SILENT if small.close else SILENT | {Clock.RUN_LIMIT}
    found += [world.firing(key) for key in world.timers if key[0] not in silent and _matters(world, key)]
    if small.close and world.run.cause is not Cause.CANCELLED:
        found.append(CloseRequested(at=world.now, cause=Cause.CANCELLED))
    if small.restart and not any(isinstance(event, DaemonRestarted) for event in world.journal):
        found.append(DaemonRestarted(at=world.now))
    return found


def explore(small: Small) -> tuple[int, Counter[DecidedBy | None], Counter[bool | None]]:
    """Every state and its successors. Raises AssertionError on a broken promise, a dead end or a cycle."""
    start = small.world()
    first = shape(start)
    seen: dict[int, set[int]] = {first: set()}
    ends: Counter[DecidedBy | None] = Counter()
    delivered: Counter[bool | None] = Counter()
    todo = deque([(first, start)])
    while todo:
        key, world = todo.popleft()
        if world.run.stage is Stage.DONE:
            ends[world.run.decision.by if world.run.decision else None] += 1
            delivered[world.run.presented.delivered if world.run.presented else None] += 1
            continue
        for event in moves(world, small):
            after = world.fork()
            after.report(event)
            next_key = shape(after)
            if next_key == key and isinstance(event, CloseRequested):
                continue  # too late to cancel
            seen[key].add(next_key)
            if next_key not in seen:
                seen[next_key] = set()
                todo.append((next_key, after))
    _assert_every_path_ends(seen)
    return len(seen), ends, delivered


def _assert_every_path_ends(graph: dict[int, set[int]]) -> None:
    """Kahn's algorithm: states are taken away once all their successors are; what is left lies on or before a cycle."""
    left = {state: len(after) for state, after in graph.items()}
    before: dict[int, list[int]] = {state: [] for state in graph}
    for state, after in graph.items():
        for successor in after:
            before[successor].append(state)
    ready = [state for state, count in left.items() if not count]
    gone = 0
    while ready:
        gone += 1
        for state in before[ready.pop()]:
            left[state] -= 1
            if not left[state]:
                ready.append(state)
    assert gone == len(graph), f"{len(graph) - gone} states can go on for ever"


@dataclass(frozen=True, kw_only=True)
class Small:
    """One bounded world; the flags add to the alphabet."""

    agents: int
    answers: int = 1
    turns: int = 2
    failures: int = 1
    checks: tuple[CheckSpec, ...] = ()
    allow_self_vote: bool = True
    close: bool = False
    restart: bool = False
    failing_saves: bool = False
    presentation: bool = False
    planning: bool = False

    def world(self) -> World:
        limits = Limits(answers=self.answers, turns=self.turns, max_failures=self.failures, max_reminders=0)
        return World(
            request(
                self.agents,
                limits=limits,
                checks=self.checks,
                allow_self_vote=self.allow_self_vote,
                presentation=self.presentation,
                planning=self.planning,
            )
        )


WORLDS = {
    "one agent, all that can happen": Small(
        agents=1, answers=2, turns=3, failures=2, checks=(UNIT,), close=True, restart=True, failing_saves=True
    ),
    "two agents, cut off or cancelled at any moment": Small(agents=2, close=True),
    "two agents, the daemon restarts, saving fails": Small(agents=2, failures=2, restart=True, failing_saves=True),
    "two agents, checks": Small(agents=2, checks=(UNIT,)),
    "two agents, checks, cut off or cancelled at any moment": Small(agents=2, checks=(UNIT,), close=True),
    "two agents, two answers each": Small(agents=2, answers=2, turns=3),
    "two agents, none votes for itself": Small(agents=2, turns=3, allow_self_vote=False),
    "three agents": Small(agents=3),
    "three agents, none votes for itself": Small(agents=3, allow_self_vote=False),
    "one agent presents, all that can happen": Small(
        agents=1, checks=(UNIT,), close=True, restart=True, failing_saves=True, presentation=True
    ),
    "one agent presents, two checks": Small(agents=1, checks=(UNIT, LINT), failing_saves=True, presentation=True),
    "two agents, the winner presents, checks": Small(agents=2, checks=(UNIT,), presentation=True),
    "two agents plan, cut off or cancelled at any moment": Small(agents=2, close=True, planning=True),
    "two agents, the winner presents, the daemon restarts": Small(agents=2, restart=True, presentation=True),
}


@pytest.mark.parametrize("small", WORLDS.values(), ids=WORLDS)
def test_no_reachable_state_breaks_a_promise_and_every_path_ends(small: Small) -> None:
    states, ends, delivered = explore(small)
    assert states > 100, "the exploration went somewhere"
    decided = {DecidedBy.ONLY_AGENT if small.agents == 1 else DecidedBy.CONSENSUS, DecidedBy.FORCED_AT_LIMIT}
    assert decided <= set(ends), "agreement and disagreement are both reached"
    presents = small.presentation or small.planning
    assert {True, False} <= set(delivered) if presents else set(delivered) == {None}, "it is presented well and badly"
