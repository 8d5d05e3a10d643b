"""Each rule of docs/coordination.md as a story. The world checks the general promises after every event."""

from __future__ import annotations

import pytest

from massgend.domain.effects import (
    Deliver,
    EndTurn,
    FreezeSnapshot,
    InterruptTurn,
    PublishBranch,
    RunChecks,
    StartTurn,
)
from massgend.domain.events import Clock, TurnEnd
from massgend.domain.facts import AnswerAccepted, AnswerRefused, RunEnded, TurnFailed, VoteCast
from massgend.domain.hand_in import MAX_REASON_CHARS, MAX_SUMMARY_CHARS, refusal
from massgend.domain.machine import replay
from massgend.domain.run import AnswerId, DecidedBy, NewAnswer, Phase, Stage, Status, StopReason, VoteFor
from massgend.domain.task import CheckSpec, Limits
from tests.support.machine_reports import T0
from tests.support.machine_story import Story

UNIT = CheckSpec(name="unit", run="pytest -q")
AT_ONCE = Limits(first_turn_protection_s=0)
ADA1 = AnswerId(agent="ada", number=1)
BOB1 = AnswerId(agent="bob", number=1)


# -- rules 1 and 2: parallel, context ------------------------------------------------------------------------------


def test_all_agents_start_at_once_with_an_empty_context() -> None:
    story = Story(3)
    starts = story.effects(StartTurn)
    assert [start.agent for start in starts] == ["ada", "bob", "cyd"]
    assert all(start.context.answers == () and start.context.answers_left == 3 for start in starts)


def test_a_turn_sees_the_newest_answer_of_every_agent_its_own_marked_and_the_time_left() -> None:
    story = Story(3, limits=Limits(run_s=7200, turn_s=1800))
    story.answers("ada", "first")
    story.now = T0 + 6000
    story.answers("ada", "second")
    story.answers("bob", "another")
    story.stops("ada")
    context = story.turn("ada").effect.context
    assert {(view.summary, view.mine) for view in context.answers} == {("second", True), ("another", False)}
    assert (context.answers_left, context.seconds_left, context.turn) == (1, 1200, 4)


# -- rule 3: a binary decision ---------------------------------------------------------------------------------------


def test_a_turn_ends_with_the_first_decision_and_a_second_one_changes_nothing() -> None:
    story = Story(2)
    story.submits("ada", "first")
    step = story.turn("ada").effect.step
    assert story.effects(EndTurn) == [EndTurn(step=step, agent="ada")]
    assert "first decision stands" in (refusal(story.run, "ada", step, NewAnswer(summary="second")) or "")
    before = story.run
    story.submits("ada", "second")
    assert story.run == before


@pytest.mark.parametrize(
    ("choice", "why"),
    [
        (NewAnswer(summary="  "), "needs a summary"),
        (NewAnswer(summary="x" * (MAX_SUMMARY_CHARS + 1)), "at most"),
        (VoteFor(label="oak", reason=""), "No answer is labelled 'oak'. The labels are: newt."),
        (VoteFor(label="newt", reason="x" * (MAX_REASON_CHARS + 1)), "at most"),
        (VoteFor(label="newt", reason=""), "switched off"),
    ],
)
def test_a_decision_that_cannot_be_taken_is_refused_with_the_reason(choice: NewAnswer | VoteFor, why: str) -> None:
    story = Story(2, allow_self_vote="switched off" not in why)
    story.answers("ada")
    assert why in (refusal(story.run, "ada", story.turn("ada").effect.step, choice) or "")


def test_nobody_can_vote_before_there_is_an_answer_in_view() -> None:
    story = Story(2)
    why = refusal(story.run, "ada", story.turn("ada").effect.step, VoteFor(label="newt", reason=""))
    assert why is not None
    assert "no answer to vote for yet" in why


def test_a_decision_of_a_turn_that_is_over_is_refused() -> None:
    story = Story(2)
    old = story.turn("ada").effect.step
    story.answers("ada")
    assert refusal(story.run, "ada", old, NewAnswer(summary="late")) == "This turn is over; nothing was taken."
    assert refusal(story.run, "nobody", old, NewAnswer(summary="x")) == "This turn is over; nothing was taken."


def test_a_turn_that_ends_undecided_counts_as_failed() -> None:
    story = Story(2)
    story.ends("ada", TurnEnd.UNDECIDED)
    [failed] = story.facts(TurnFailed)
    assert (failed.reason, failed.failures) == ("it ended without an answer or a vote", 1)


# -- rule 4: accepted means saved ------------------------------------------------------------------------------------


def test_an_answer_is_accepted_only_after_its_turn_ended_and_its_snapshot_is_recorded() -> None:
    story = Story(2)
    story.submits("ada")
    assert not story.effects(FreezeSnapshot), "the turn could still write"
    story.ends("ada")
    assert not story.facts(AnswerAccepted)
    story.is_saved("ada")
    [accepted] = story.facts(AnswerAccepted)
    assert (accepted.number, accepted.commit) == (1, "ada-1")
    assert story.effects(PublishBranch) == [PublishBranch(agent="ada", commit="ada-1")]


def test_an_unchanged_workspace_is_refused_with_the_reason_and_costs_a_reminder() -> None:
    story = Story(2, limits=Limits(max_reminders=1, max_failures=1))
    story.submits("ada")
    story.ends("ada")
    story.is_refused("ada", "your workspace has not changed")
    context = story.turn("ada").effect.context
    assert context.notice == "Your last answer was not accepted: your workspace has not changed"
    assert (context.reminders_left, context.answers_left, len(story.facts(AnswerRefused))) == (0, 3, 1)
    story.submits("ada")
    story.ends("ada")
    story.is_refused("ada")
    assert story.phase("ada") is Phase.OUT, "no reminder was left, and then no failure"


def test_a_snapshot_that_fails_is_tried_again_and_the_hand_in_is_kept() -> None:
    story = Story(2)
    story.submits("ada", "all done")
    story.ends("ada")
    story.cannot_be_saved("ada", "the disk is full")
    assert (story.phase("ada"), story.run.answers) == (Phase.BACKOFF, ())
    story.time_is_up(Clock.BACKOFF, "ada")
    assert story.freeze("ada").summary == "all done"
    story.is_saved("ada")
    assert story.run.answers[0].summary == "all done"
    assert "the disk is full" in story.run.trouble[0]


# -- rule 5: votes become void ---------------------------------------------------------------------------------------


def test_an_accepted_answer_voids_every_vote_and_the_voters_start_again_with_it_in_view() -> None:
    story = Story(3, limits=Limits(first_turn_protection_s=300))
    story.answers("ada")
    story.answers("bob")
    story.stops("ada")
    story.votes("ada", "bob")
    story.votes("bob", "bob")
    story.answers("cyd")
    assert not any(agent.vote for agent in story.run.agents.values())
    assert story.facts(AnswerAccepted)[-1].votes_voided == 2
    assert story.sees("ada") == story.sees("bob") == {"ada.1", "bob.1", "cyd.1"}


def test_a_vote_cast_without_a_newer_answer_in_view_is_void_at_once() -> None:
    story = Story(2)
    story.answers("ada")
    story.answers("bob")
    assert story.phase("ada") is Phase.STOPPING
    story.picks("ada", "ada")
    [vote] = story.facts(VoteCast)
    assert (vote.valid, story.agent("ada").vote, story.run.votes_voided) == (False, None, 1)
    story.ends("ada")
    assert story.sees("ada") == {"ada.1", "bob.1"}


def test_a_vote_is_void_at_once_while_a_newer_answer_is_still_being_checked() -> None:
    story = Story(2, checks=(UNIT,))
    story.answers("ada")
    story.is_checked("ada", True)
    story.answers("bob")
    story.votes("ada", "ada")
    assert (story.facts(VoteCast)[0].valid, story.phase("ada")) == (False, Phase.HELD)


# -- rule 6: restart -------------------------------------------------------------------------------------------------


def test_an_agent_that_has_answered_before_is_interrupted_with_grace_and_restarted_with_the_news() -> None:
    story = Story(2, limits=Limits(restart_grace_s=5))
    story.answers("ada")
    step = story.turn("ada").effect.step
    story.answers("bob")
    assert story.effects(InterruptTurn) == [InterruptTurn(step=step, agent="ada", grace_s=5, why=StopReason.NEWS)]
    story.stops("ada")
    assert story.sees("ada") == {"ada.1", "bob.1"}


def test_a_first_turn_is_protected_until_its_time_is_over() -> None:
    story = Story(2, limits=Limits(first_turn_protection_s=300))
    story.starts("ada", "bob")
    story.answers("ada")
    assert story.phase("bob") is Phase.WORKING
    story.time_is_up(Clock.PROTECTION, "bob")
    assert (story.phase("bob"), story.now) == (Phase.STOPPING, T0 + 300)


def test_a_first_turn_that_has_run_longer_than_its_protection_is_interrupted_at_once() -> None:
    story = Story(2, limits=Limits(first_turn_protection_s=300))
    story.starts("ada", "bob")
    story.now = T0 + 301
    story.answers("ada")
    assert story.phase("bob") is Phase.STOPPING


def test_an_agent_is_not_interrupted_between_its_hand_in_and_the_end_of_its_snapshot() -> None:
    story = Story(2, limits=AT_ONCE)
    story.submits("ada")
    story.answers("bob")
    assert story.phase("ada") is Phase.ENDING
    story.ends("ada")
    story.answers("bob", "better")
    assert story.phase("ada") is Phase.FREEZING
    assert not [stop for stop in story.effects(InterruptTurn) if stop.agent == "ada"]


def test_an_answer_handed_in_within_the_grace_still_counts() -> None:
    story = Story(2, limits=AT_ONCE)
    story.answers("ada")
    assert story.phase("bob") is Phase.STOPPING
    story.answers("bob", "in time")
    assert story.run.answers[-1].summary == "in time"


# -- rules 7 and 15: consensus, one agent ----------------------------------------------------------------------------


def test_the_run_is_decided_when_every_live_agent_has_a_valid_vote() -> None:
    story = Story(3, limits=AT_ONCE)
    story.answers("ada")
    story.stops("bob", "cyd")
    story.votes("ada", "ada")
    story.votes("bob", "ada")
    assert story.stage() is Stage.RUNNING
    story.votes("cyd", "ada")
    decision = story.decision()
    assert (decision.winner, decision.by) == (ADA1, DecidedBy.CONSENSUS)
    assert decision.reason == "ada's answer 1 won with 3 of 3 votes."
    story.is_delivered()
    assert (story.run.status, story.facts(RunEnded)[0].status) == (Status.DELIVERED, Status.DELIVERED)


def test_a_last_vote_does_not_decide_while_another_answer_is_being_saved() -> None:
    story = Story(3, limits=AT_ONCE)
    story.answers("ada")
    story.stops("bob", "cyd")
    story.votes("ada", "ada")
    story.submits("bob")
    story.ends("bob")
    story.votes("cyd", "ada")
    assert story.stage() is Stage.RUNNING
    story.is_saved("bob")
    assert story.run.decision is None
    assert story.sees("cyd") == {"ada.1", "bob.1"}


def test_one_agent_answers_and_is_delivered_without_a_vote() -> None:
    story = Story(1, checks=(UNIT,))
    story.answers("ada")
    assert story.stage() is Stage.RUNNING
    story.is_checked("ada", False)
    assert story.decision().by is DecidedBy.ONLY_AGENT
    assert len(story.effects(StartTurn)) == 1


# -- rule 8: evidence ------------------------------------------------------------------------------------------------


def test_an_answer_is_checked_before_anybody_sees_it_and_its_result_stands_in_the_context() -> None:
    story = Story(2, checks=(UNIT,), limits=AT_ONCE)
    story.answers("ada")
    assert story.effects(RunChecks)[0].answer == ADA1
    assert (story.phase("ada"), story.phase("bob")) == (Phase.HELD, Phase.STARTING)
    story.is_checked("ada", False)
    story.stops("bob")
    [view] = story.turn("bob").effect.context.answers
    assert [(check.name, check.passed) for check in view.checks] == [("unit", False)]


def test_the_votes_cannot_make_a_failing_answer_win_while_one_passes_and_the_result_says_so() -> None:
    story = Story(2, checks=(UNIT,))
    story.answers("ada", "long and confident")
    story.is_checked("ada", False)
    story.answers("bob", "short")
    story.is_checked("bob", True)
    story.stops("ada")
    story.votes("ada", "ada")
    story.votes("bob", "ada")
    decision = story.decision()
    assert (decision.winner, decision.overruled) == (BOB1, True)
    assert "The votes preferred ada's answer 1, but it fails the required check unit." in decision.reason
    assert story.effects(Deliver)[0].answer == BOB1


# -- the journal -----------------------------------------------------------------------------------------------------


def test_a_journal_is_replayed_to_the_same_run_and_must_begin_with_the_request() -> None:
    story = Story(2, limits=AT_ONCE)
    story.answers("ada")
    story.stops("bob")
    story.votes("ada", "ada")
    story.votes("bob", "ada")
    story.is_delivered()
    assert replay(story.journal) == story.run
    with pytest.raises(ValueError, match="begins with run_requested"):
        replay(story.journal[1:])
    with pytest.raises(ValueError, match="empty"):
        replay([])
