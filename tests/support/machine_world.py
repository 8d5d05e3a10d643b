"""A simulated world around the pure machine: holds what the machine asked for, reports on it, and checks the promises.

`World.report` is for reports of outstanding work; `World.nudge` for events that must change nothing. Both raise
AssertionError, with the promise as text, when the machine breaks one. The world keeps books of its own (ballots,
accepted answers, who has unsaved work) and compares; it never asks the machine what is right.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import replace
from random import Random

from massgend.domain.draft import Transition
from massgend.domain.effects import (
    Close,
    Deliver,
    Effect,
    EndTurn,
    FreezeSnapshot,
    InterruptTurn,
    Notify,
    PublishBranch,
    RunChecks,
    SetTimer,
    StartTurn,
)
from massgend.domain.events import (
    BranchPublished,
    ChecksFinished,
    Clock,
    Closed,
    DaemonRestarted,
    Delivered,
    Event,
    HandedIn,
    Prepared,
    PrepareFailed,
    RunRequested,
    SnapshotFailed,
    SnapshotRefused,
    SnapshotTaken,
    TimerFired,
    TurnEnded,
    TurnStarted,
)
from massgend.domain.facts import AnswerAccepted, AnswerSubmitted, PresentationBegan, RunDecided, VoteCast
from massgend.domain.machine import advance, begin, replay
from massgend.domain.run import (
    IN_TURN,
    PRESENTED,
    AnswerId,
    Cause,
    CheckResult,
    DecidedBy,
    Decision,
    Phase,
    Stage,
)
from tests.support.machine_reports import Job, LiveTurn, job_reports, most_steps, turn_reports

WELL = 0.8  # how often things go well in a fair world; otherwise anything may happen
TimerKey = tuple[Clock, str | None, int | None]


class World:
    def __init__(self, asked: RunRequested) -> None:
        self.now = asked.at
        self.journal: list[Event] = [asked]
        self.turns: dict[int, LiveTurn] = {}
        self.jobs: dict[int, Job] = {}
        self.timers: dict[TimerKey, float] = {}
        self.unpublished: list[PublishBranch] = []
        self.heads: dict[str, str] = {}
        self.accepted: list[AnswerId] = []
        self.failing: set[AnswerId] = set()
        self.checked: set[AnswerId] = set()
        self.ballots: dict[str, tuple[AnswerId, frozenset[AnswerId]]] = {}
        self.unsaved: set[str] = set()
        self.decided_as: Decision | None = None
        self.results: dict[AnswerId, tuple[CheckResult, ...]] = {}
        self.presented: AnswerId | None = None
        self.untold: set[str] = set()
        first = begin(asked)
        self.run = first.run
        self._absorb(first.effects)
        self._check()

    def fork(self) -> World:
        other = copy.copy(self)
        for name, value in vars(self).items():
            if isinstance(value, dict | list | set):
                setattr(other, name, copy.copy(value))
        return other

    # -- events in ---------------------------------------------------------------------------------------------------

    def report(self, event: Event) -> Transition:
        """Something outstanding has happened (or a cancel, a budget, a restart of the daemon)."""
        self.now = max(self.now, event.at)
        before = self.run
        self._consume(event)
        step = advance(before, event)
        self.journal.append(event)
        self.run = step.run
        self._note(event, step)
        self._absorb(step.effects)
        self._check()
        return step

    def nudge(self, event: Event) -> None:
        """An event that does not fit: unknown, stale, or twice."""
        step = advance(self.run, event)
        self.journal.append(event)
        assert step == Transition(run=self.run), f"an event that does not fit changes nothing: {event}"

    def _consume(self, event: Event) -> None:
        match event:
            case TurnStarted():
                self.turns[event.step] = replace(self.turns[event.step], started=True)
            case TurnEnded():
                if not self.turns.pop(event.step).decided:
                    self.unsaved.add(event.agent)
            case SnapshotTaken() | SnapshotRefused() | SnapshotFailed():
                self._consume_snapshot(event)
            case Prepared() | PrepareFailed() | ChecksFinished() | Delivered() | Closed():
                self._check_results(self.jobs.pop(event.step), event)
            case TimerFired():
                del self.timers[event.clock, event.agent, event.step]
            case BranchPublished():
                self.unpublished = [p for p in self.unpublished if p.agent != event.agent]
            case DaemonRestarted():
                self.unsaved |= {turn.effect.agent for turn in self.turns.values() if not turn.decided}
                self.turns, self.jobs, self.timers, self.unpublished = {}, {}, {}, []
            case _:
                pass

    def _consume_snapshot(self, event: SnapshotTaken | SnapshotRefused | SnapshotFailed) -> None:
        job = self.jobs.pop(event.step)
        not_saved = isinstance(event, SnapshotFailed) or (isinstance(event, SnapshotRefused) and not event.unchanged)
        if event.agent in self.run.keeping:
            self.unsaved.discard(event.agent)
            if not_saved:
                self.untold.add(event.agent)
        elif not_saved:
            self.unsaved.add(event.agent)
        elif isinstance(job, FreezeSnapshot) and job.name == PRESENTED:
            self.unsaved.discard(event.agent)
            if isinstance(event, SnapshotTaken) and self.decided_as is not None:
                self.presented = replace(self.decided_as.winner, presented=True)

    def _check_results(self, job: Job, event: Event) -> None:
        if isinstance(job, RunChecks) and isinstance(event, ChecksFinished):
            self.checked.add(job.answer)
            self.results[job.answer] = event.results
            if any(check.required and not check.passed for check in event.results):
                self.failing.add(job.answer)

    def _note(self, event: Event, step: Transition) -> None:
        """Keep the world's own books on what the machine told."""
        if isinstance(event, HandedIn) and event.step in self.turns:
            turn = self.turns[event.step]
            taken = any(isinstance(effect, EndTurn) for effect in step.effects)
            self.turns[event.step] = replace(turn, decided=turn.decided or taken, tries=turn.tries + 1)
        for fact in step.facts:
            match fact:
                case AnswerSubmitted() if self.decided_as is None:
                    self.ballots.pop(fact.agent, None)
                case AnswerAccepted():
                    self.accepted.append(AnswerId(agent=fact.agent, number=fact.number))
                    self.ballots.clear()
                    self.unsaved.discard(fact.agent)
                case VoteCast():
                    self._note_vote(fact)
                case RunDecided():
                    assert self.decided_as is None, "a run is decided once"
                    self.decided_as = fact.decision
                    self._check_decision(fact.decision)
                case PresentationBegan():
                    self._check_presentation(fact)
                case _:
                    pass

    def _note_vote(self, fact: VoteCast) -> None:
        turn = next(turn for turn in self.turns.values() if turn.effect.agent == fact.agent)
        current = turn.context == self.newest()
        assert fact.valid is current, "a vote counts exactly when it was cast with every current answer in view"
        if current:
            self.ballots[fact.agent] = (AnswerId(agent=fact.votes_for, number=fact.number), turn.context)
            self.unsaved.discard(fact.agent)

    def _check_presentation(self, fact: PresentationBegan) -> None:
        task, decided = self.run.task, self.decided_as
        assert task.presentation or task.planning, "nobody presents who was not asked to"
        assert decided is not None, "what is presented was decided"
        assert (fact.agent, fact.number) == (decided.winner.agent, decided.winner.number), "the winner presents"
        assert decided.by is not DecidedBy.FORCED_AT_LIMIT, "what was recorded by force is not presented"
        assert self.run.cause not in (Cause.CANCELLED, Cause.BUDGET), "no presentation of a cancelled or spent run"

    def newest(self) -> frozenset[AnswerId]:
        return frozenset({which.agent: which for which in self.accepted}.values())

    # -- effects out -------------------------------------------------------------------------------------------------

    def _absorb(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case StartTurn():
                    self._start(effect)
                case InterruptTurn():
                    turn = self.turns[effect.step]
                    assert not turn.decided, "no agent is interrupted between its hand-in and the end of its snapshot"
                    self.turns[effect.step] = replace(turn, stopping=True)
                case EndTurn():
                    assert self.turns[effect.step].decided, "a turn is ended for its decision"
                case Notify():
                    assert effect.step in self.turns, "only a running turn is told something"
                case FreezeSnapshot():
                    assert not self._turns_of(effect.agent), "nothing can still write while a snapshot is taken"
                    self.jobs[effect.step] = effect
                case PublishBranch():
                    self.unpublished.append(effect)
                    self.heads[effect.agent] = effect.commit
                case SetTimer():
                    self.timers[effect.clock, effect.agent, effect.step] = effect.due_at
                case Deliver() | Close():
                    self._close_for_good(effect)
                case _:
                    self.jobs[effect.step] = effect

    def _start(self, effect: StartTurn) -> None:
        assert not self._turns_of(effect.agent), "an agent has one turn at a time"
        frozen = [job for job in self.jobs.values() if isinstance(job, FreezeSnapshot) and job.agent == effect.agent]
        assert not frozen, "no turn starts while the agent's snapshot is being taken"
        turn = LiveTurn(effect=effect)
        if effect.context.presentation:
            self._check_presenter(effect)
        else:
            assert self.decided_as is None, "what is decided is not worked on any more, but by its presenter"
            assert turn.context == self.newest(), "a turn sees the newest answer of every agent, checked"
        assert effect.context.planning is (self.run.task.planning and not effect.context.presentation), "planned until"
        assert not self.run.task.checks or turn.context <= self.checked, "no answer is seen before it is checked"
        self.turns[effect.step] = turn

    def _check_presenter(self, effect: StartTurn) -> None:
        assert self.decided_as is not None, "what is presented was decided"
        assert effect.agent == self.decided_as.winner.agent, "the winner presents"
        assert not self.unsaved - {effect.agent}, "the others' work is saved before the presentation"
        others = {which for which in self.newest() if which.agent != effect.agent}
        seen = {view.id for view in effect.context.answers}
        assert seen == others | {self.decided_as.winner}, "the presenter sees what won and every other newest answer"

    def _close_for_good(self, effect: Deliver | Close) -> None:
        assert not self.turns, "nothing is delivered or closed while a turn runs"
        saving = [job for job in self.jobs.values() if isinstance(job, FreezeSnapshot)]
        assert not saving, "nothing is delivered or closed while work is being saved"
        if self.run.base is not None:
            assert not self.unsaved, f"no work is discarded: {self.unsaved}"
        if isinstance(effect, Deliver):
            assert self.decided_as is not None, "what is delivered was decided"
            assert effect.answer in (self.decided_as.winner, self.presented), "the winner is delivered"
            if effect.answer == self.presented:
                self._check_nothing_broken(self.decided_as.winner, effect.answer)
        self.jobs[effect.step] = effect

    def _check_nothing_broken(self, voted: AnswerId, presented: AnswerId) -> None:
        before, after = (
            {check.name for check in self.results.get(which, ()) if check.passed} for which in (voted, presented)
        )
        required = {check.name for check in self.run.task.checks if check.required}
        assert not self.run.task.checks or presented in self.checked, "what is delivered was checked"
        assert before & required <= after, "no presentation is delivered that breaks what is required"
        assert len(after) >= len(before), "no presentation is delivered that passes fewer checks"

    def _turns_of(self, agent: str) -> list[LiveTurn]:
        return [turn for turn in self.turns.values() if turn.effect.agent == agent]

    # -- promises ----------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        run = self.run
        assert run.steps <= most_steps(run.task), "the machine stays within its bound"
        for agent in self.untold:
            assert any(line.startswith(f"{agent}: ") for line in run.trouble), "work that could not be saved is told of"
        assert [answer.id for answer in run.answers] == self.accepted, "an accepted answer is never lost"
        votes = {agent.name: agent.vote.answer for agent in run.agents.values() if agent.vote is not None}
        assert votes == {voter: ballot[0] for voter, ballot in self.ballots.items()}, "the votes that count are kept"
        if run.stage is Stage.DONE:
            self._check_done()
            return
        assert self.can_move(), f"a run that is not done has something outstanding: {run}"
        for agent in run.agents.values():
            if agent.phase in IN_TURN:
                assert agent.step in self.turns, f"{agent.name} waits for a turn that nobody runs"
            elif agent.phase is Phase.FREEZING:
                assert agent.step in self.jobs, f"{agent.name} waits for a snapshot that nobody takes"
            elif agent.phase is Phase.BACKOFF:
                assert (Clock.BACKOFF, agent.name, agent.step) in self.timers, f"{agent.name} waits for no timer"
            elif agent.phase is Phase.HELD:
                assert any(isinstance(job, RunChecks) for job in self.jobs.values()), f"{agent.name} is held for ever"
        assert set(run.keeping.values()) <= set(self.jobs), "what is being kept is being saved"

    def can_move(self) -> bool:
        """Is something outstanding that moves the run on by itself, the run's own time limit not counted?"""
        return bool(self.turns or self.jobs or any(clock is Clock.BACKOFF for clock, _, _ in self.timers))

    def _check_done(self) -> None:
        run = self.run
        closed_early = run.cause is Cause.CANCELLED or run.failure is not None
        assert closed_early or not self.accepted or run.decision is not None, "answers give a result"
        cancelled = run.cause is Cause.CANCELLED
        assert run.decision == (None if cancelled else self.decided_as), "the decision stands, unless cancelled"

    def _check_decision(self, decision: Decision) -> None:
        counted = {line.answer: line.votes for line in decision.tally}
        wanted = [answer for answer, _ in self.ballots.values()]
        assert all(votes == wanted.count(answer) for answer, votes in counted.items()), "the tally counts valid votes"
        assert sum(counted.values()) == len(wanted), "no vote is left out of the tally"
        assert not self.turns, "nothing runs when it is decided"
        assert not any(isinstance(job, FreezeSnapshot | RunChecks) for job in self.jobs.values()), "all work is in"
        passing = set(self.accepted) - self.failing
        assert decision.winner not in self.failing or not passing, "no failing answer wins while one passes"
        most = max(wanted.count(answer) for answer in passing or self.accepted)
        assert wanted.count(decision.winner) == most, "most votes win"
        if decision.by is DecidedBy.CONSENSUS:
            presenting = (
                {decision.winner.agent} if self.run.stage is Stage.PRESENTING else set()
            )  # began with the decision, whatever it was before
            live = {agent.name for agent in self.run.agents.values() if agent.live}
            assert set(self.ballots) - presenting == live - presenting, "consensus: every live agent has voted"
            assert all(seen == self.newest() for _, seen in self.ballots.values()), "every vote saw every answer"

    # -- what outstanding work can report ----------------------------------------------------------------------------

    def reports(self) -> list[Event]:
        """Every report that outstanding work could make next; timers and branches apart."""
        found: list[Event] = []
        for turn in self.turns.values():
            found += turn_reports(turn, self.now)
        for job in self.jobs.values():
            found += job_reports(job, self.now, self.run.task)
        return found

    def firing(self, key: TimerKey, *, early: bool = False) -> TimerFired:
        clock, agent, step = key
        at = self.now if early else max(self.now, self.timers[key])
        return TimerFired(at=at, clock=clock, agent=agent, step=step)

    def published(self) -> list[Event]:
        return [
            BranchPublished(at=self.now, agent=effect.agent, branch=f"massgend/r1/{effect.agent}")
            for effect in self.unpublished
        ]

    def _goes_well(self, event: Event) -> bool:
        if isinstance(event, TurnEnded):
            return self.turns[event.step].decided or self.turns[event.step].stopping
        return isinstance(event, HandedIn | SnapshotTaken | ChecksFinished | Prepared)

    def finish_fairly(self, random: Random) -> None:
        """From now on everything outstanding completes, in an order and a way of its own; the run must end in bound."""
        timers = 2 + len(self.timers) + most_steps(self.run.task) * (3 + len(self.run.agents))
        left = 5 * most_steps(self.run.task) + timers
        while self.run.stage is not Stage.DONE:
            assert left, "a fair world ends the run within the bound"
            left -= 1
            options = self.reports() + self.published() + [self.firing(key) for key in self.timers]
            going_well = [event for event in options if self._goes_well(event)]
            self.report(random.choice(going_well if going_well and random.random() < WELL else options))
        assert replay(self.journal) == self.run, "replaying the journal gives the same run and winner"
