"""Faults that people met in tools of this kind and that are about coordination: each as a promise of the machine."""

from __future__ import annotations

import json
from dataclasses import asdict
from itertools import permutations

import pytest

from massgend.domain.effects import Close, Deliver, FreezeSnapshot, InterruptTurn, RunChecks, StartTurn
from massgend.domain.events import Clock, HandedIn, TimerFired, TurnEnd, TurnEnded, TurnStarted
from massgend.domain.facts import RunEnded, VoteCast, WorkKept
from massgend.domain.run import AnswerId, Cause, DecidedBy, NewAnswer, Phase, Stage, Status, StopReason
from massgend.domain.task import CheckSpec, Limits
from tests.support.machine_reports import LABELS, NAMES
from tests.support.machine_story import Story

AT_ONCE = Limits(first_turn_protection_s=0)


def test_a_time_out_gives_an_answer_whoever_was_registered_first() -> None:
    story = Story(3)
    story.answers("cyd", "the only one")
    story.time_is_up(Clock.RUN_LIMIT)
    story.stops("ada", "bob", "cyd")
    for name in ("ada", "bob", "cyd"):
        story.is_refused(name)
    story.is_delivered()
    assert story.effects(Deliver)[0].answer == AnswerId(agent="cyd", number=1)
    assert story.run.status is Status.DELIVERED


def test_a_time_out_before_any_answer_still_gives_the_work_that_there_is() -> None:
    story = Story(2)
    story.time_is_up(Clock.RUN_LIMIT)
    story.stops("ada", "bob")
    story.is_refused("ada")
    story.is_saved("bob")
    story.is_delivered()
    assert story.decision().winner == AnswerId(agent="bob", number=1)
    assert "recorded from the workspace as it stood" in story.facts(RunEnded)[0].reason


def test_a_time_out_with_nothing_changed_says_so_instead_of_delivering_nothing() -> None:
    story = Story(2)
    story.time_is_up(Clock.RUN_LIMIT)
    story.stops("ada", "bob")
    story.is_refused("ada")
    story.is_refused("bob")
    story.is_delivered()
    assert story.effects(Deliver) == []
    assert story.facts(RunEnded)[0].reason == "The time limit was reached and no agent had changed anything."


def test_agents_cut_off_in_mid_improvement_keep_their_work_beside_the_winner() -> None:
    story = Story(2)
    story.answers("ada")
    story.answers("bob")
    story.time_is_up(Clock.RUN_LIMIT)
    story.stops("ada", "bob")
    assert story.stage() is Stage.KEEPING
    story.is_saved("ada")
    story.is_saved("bob")
    assert [fact.commit for fact in story.facts(WorkKept)] == ["ada-unfinished", "bob-unfinished"]
    assert story.run.heads == {"ada": "ada-unfinished", "bob": "bob-unfinished"}
    assert [str(answer.id) for answer in story.run.answers] == ["ada.1", "bob.1"]


def test_unfinished_work_that_cannot_be_saved_stays_where_it_is_and_the_result_says_so() -> None:
    story = Story(2)
    story.answers("ada")
    story.time_is_up(Clock.RUN_LIMIT)
    story.stops("ada", "bob")
    story.is_refused("ada")
    story.cannot_be_saved("bob", "the disk is full")
    story.is_delivered()
    assert story.facts(RunEnded)[0].trouble == ("bob: its unfinished work stays in its workspace: the disk is full",)


def test_an_answer_being_saved_when_the_time_is_up_is_accepted() -> None:
    story = Story(2)
    story.submits("ada", "just in time")
    story.ends("ada")
    story.time_is_up(Clock.RUN_LIMIT)
    story.stops("bob")
    assert story.stage() is Stage.SETTLING
    story.is_saved("ada")
    assert story.decision().winner == AnswerId(agent="ada", number=1)


def test_one_cancel_ends_all_turns_at_once_keeps_the_work_and_delivers_nothing() -> None:
    story = Story(3, limits=AT_ONCE)
    story.answers("ada")
    story.closes(Cause.CANCELLED)
    stops = [stop for stop in story.effects(InterruptTurn) if stop.why is StopReason.CLOSING]
    assert [(stop.agent, stop.grace_s) for stop in stops] == [("ada", 0.0)], "bob and cyd were being stopped already"
    story.stops("ada", "bob", "cyd")
    for name in ("ada", "bob", "cyd"):
        story.is_saved(name)
    story.is_delivered()
    assert story.effects(Deliver) == []
    assert story.run.decision is None
    assert story.facts(RunEnded)[0].status is Status.CANCELLED
    assert set(story.run.heads) == {"ada", "bob", "cyd"}


@pytest.mark.parametrize("cause", [Cause.CANCELLED, Cause.BUDGET])
def test_a_run_that_is_closed_twice_closes_once(cause: Cause) -> None:
    story = Story(2)
    story.closes(cause)
    before = len(story.wanted)
    story.closes(cause)
    assert len(story.wanted) == before


def test_a_cancel_wins_over_a_limit_that_came_first() -> None:
    story = Story(2)
    story.time_is_up(Clock.RUN_LIMIT)
    story.stops("ada", "bob")
    assert story.stage() is Stage.FORCING
    story.closes(Cause.CANCELLED)
    story.is_saved("ada")
    story.is_saved("bob")
    story.is_delivered()
    assert (story.run.status, story.run.heads) == (Status.CANCELLED, {"ada": "ada-1", "bob": "bob-1"})


def test_a_cancel_before_the_workspaces_are_ready_ends_the_run() -> None:
    story = Story(2, prepared=False)
    story.closes(Cause.CANCELLED)
    assert story.effects(Close)
    assert story.effects(StartTurn) == []


def test_void_votes_are_counted_neither_in_the_tally_nor_for_consensus() -> None:
    story = Story(3, limits=AT_ONCE)
    story.answers("ada")
    story.stops("bob", "cyd")
    story.votes("ada", "ada")
    story.votes("bob", "ada")
    story.answers("cyd")
    assert story.stage() is Stage.RUNNING
    for name in ("ada", "bob", "cyd"):
        story.votes(name, "cyd")
    assert [(str(line.answer), line.votes) for line in story.decision().tally] == [("ada.1", 0), ("cyd.1", 3)]
    assert (story.run.votes_cast, story.run.votes_voided) == (5, 2)


def test_the_vote_of_the_last_agent_left_ends_the_run() -> None:
    story = Story(2, limits=Limits(max_failures=1))
    story.answers("ada")
    story.ends("bob", TurnEnd.FAILED, "crash")
    story.votes("ada", "ada")
    assert story.decision().by is DecidedBy.CONSENSUS


def test_a_voter_s_crash_of_a_peer_does_not_stall_the_run() -> None:
    story = Story(2, limits=Limits(max_failures=1))
    story.answers("ada")
    story.votes("ada", "ada")
    assert story.stage() is Stage.RUNNING
    story.ends("bob", TurnEnd.FAILED, "crash")
    assert story.decision().by is DecidedBy.CONSENSUS


def test_a_failed_turn_keeps_the_workspace_and_the_agent_is_told_so() -> None:
    story = Story(1)
    story.ends("ada", TurnEnd.FAILED, "overloaded")
    story.time_is_up(Clock.BACKOFF, "ada")
    assert "Your workspace is as you left it" in (story.turn("ada").effect.context.notice or "")
    assert story.agent("ada").unfinished


def test_rate_limited_until_a_time_waits_for_it_and_goes_on() -> None:
    story = Story(1)
    story.ends("ada", TurnEnd.FAILED, "rate limited", retry_after_s=3600)
    before = story.now
    story.time_is_up(Clock.BACKOFF, "ada")
    assert (story.now, story.phase("ada")) == (before + 3600, Phase.STARTING)


def test_the_first_failure_is_the_one_told_and_the_run_goes_on_with_the_others() -> None:
    story = Story(2, limits=Limits(max_failures=1, first_turn_protection_s=0))
    story.ends("ada", TurnEnd.FAILED, "the key is refused")
    story.answers("bob")
    story.votes("bob", "bob")
    story.is_saved("ada")
    story.is_delivered()
    assert story.agent("ada").last_failure == "the key is refused"
    assert story.run.status is Status.DELIVERED


@pytest.mark.parametrize("labels", list(permutations(LABELS[:3])))
def test_neither_labels_nor_order_in_a_context_tell_who_is_who(labels: tuple[str, ...]) -> None:
    story = Story(3, labels=dict(zip(NAMES, labels, strict=False)), limits=AT_ONCE)
    for name in ("cyd", "ada", "bob"):
        story.answers(name)
    story.stops("ada", "cyd")
    views = story.turn("ada").effect.context.answers
    assert [view.label for view in views] == sorted(labels), "the order is the labels', not the agents' or of answering"
    told = [{key: value for key, value in asdict(view).items() if key != "id"} for view in views]
    assert not [name for name in NAMES[:3] if name in json.dumps(told)]
    assert story.turn("ada").effect.context.you == labels[0]


def test_a_refused_vote_names_labels_only() -> None:
    story = Story(2, limits=AT_ONCE)
    story.answers("ada")
    story.stops("bob")
    before = len(story.facts(VoteCast))
    story.picks("bob", "bob")
    assert len(story.facts(VoteCast)) == before, "bob has no answer to vote for"


# -- the daemon dies -------------------------------------------------------------------------------------------------


def test_after_a_crash_every_turn_is_taken_up_anew_and_every_saving_goes_on() -> None:
    story = Story(3, limits=AT_ONCE)
    story.submits("ada", "saved in time")
    story.ends("ada")
    story.submits("bob")
    saving = story.freeze("ada")
    started = len(story.effects(StartTurn))
    effects = story.daemon_restarts().effects
    assert saving in effects, "the same step: saving twice comes to the same"
    assert [job.agent for job in effects if isinstance(job, FreezeSnapshot)] == ["ada", "bob"]
    assert [start.agent for start in story.effects(StartTurn)[started:]] == ["cyd"]
    story.is_saved("ada")
    story.is_saved("bob")
    assert len(story.run.answers) == 2


def test_after_a_crash_votes_and_answers_still_count() -> None:
    story = Story(2, limits=AT_ONCE)
    story.answers("ada")
    story.stops("bob")
    story.votes("ada", "ada")
    story.picks("bob", "ada")
    story.daemon_restarts()
    assert story.decision().by is DecidedBy.CONSENSUS
    assert story.effects(Deliver)[0].answer == AnswerId(agent="ada", number=1)
    again = story.daemon_restarts().effects
    assert story.effects(Deliver)[0] in again, "delivering goes on with the same step"


def test_after_a_crash_checks_that_were_under_way_are_run_again() -> None:
    story = Story(2, checks=(CheckSpec(name="unit", run="pytest -q"),))
    story.answers("ada")
    assert story.effects(RunChecks)[0] in story.daemon_restarts().effects
    assert story.phase("ada") is Phase.HELD
    story.is_checked("ada", True)
    assert story.sees("ada") == {"ada.1"}


def test_late_reports_of_an_earlier_turn_do_not_touch_the_next_one() -> None:
    story = Story(2)
    old = story.turn("ada").effect.step
    story.ends("ada", TurnEnd.FAILED, "crash")
    story.time_is_up(Clock.BACKOFF, "ada")
    story.nudge(TurnStarted(at=story.now, agent="ada", step=old))
    story.nudge(TurnEnded(at=story.now, agent="ada", step=old, end=TurnEnd.FAILED, reason="crash"))
    story.nudge(HandedIn(at=story.now, agent="ada", step=old, choice=NewAnswer(summary="late")))
    for clock in (Clock.TURN_LIMIT, Clock.TURN_WRAP_UP, Clock.PROTECTION, Clock.BACKOFF):
        story.nudge(TimerFired(at=story.now, clock=clock, agent="ada", step=old))


def test_a_run_that_is_done_hears_nothing_any_more() -> None:
    story = Story(1)
    story.answers("ada")
    story.is_delivered()
    done = story.run
    assert story.daemon_restarts().effects == ()
    assert story.closes(Cause.CANCELLED).facts == ()
    assert story.run == done
