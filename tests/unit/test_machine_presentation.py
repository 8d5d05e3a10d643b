"""The final presentation and planning (rules 12 and 14 of docs/coordination.md), each promise as a story."""

from __future__ import annotations

import pytest

from massgend.domain.effects import Deliver, InterruptTurn, Notify, PublishBranch, RunChecks, StartTurn
from massgend.domain.events import Clock, TurnEnd
from massgend.domain.facts import (
    AnswerAccepted,
    PresentationBegan,
    PresentationEnded,
    RunDecided,
    RunEnded,
    TurnFailed,
    WorkKept,
)
from massgend.domain.hand_in import refusal
from massgend.domain.machine import replay
from massgend.domain.presentation import MAX_STARTS
from massgend.domain.run import AnswerId, Cause, DecidedBy, NewAnswer, Phase, Stage, Status, StopReason, VoteFor
from massgend.domain.task import CheckSpec, Disclosure, Limits
from tests.support.machine_reports import T0
from tests.support.machine_story import Story

UNIT = CheckSpec(name="unit", run="pytest -q")
LINT = CheckSpec(name="lint", run="ruff check", required=False)
AT_ONCE = Limits(first_turn_protection_s=0)
ADA1 = AnswerId(agent="ada", number=1)
POLISHED = AnswerId(agent="ada", number=1, presented=True)


def presenting(*, planning: bool = False, disclose: Disclosure | None = None) -> Story:
    """Two agents agreed on ada's answer; ada presents it."""
    story = Story(2, limits=AT_ONCE, presentation=not planning, planning=planning, disclose=disclose)
    story.agrees_on("ada")
    assert story.stage() is Stage.PRESENTING
    return story


def presenting_checked(*passed: bool) -> Story:
    """One agent's answer was checked with these results; it presents it and hands in."""
    story = Story(1, checks=(UNIT, LINT), presentation=True)
    story.answers("ada")
    story.is_checked("ada", *passed)
    story.answers("ada", "polished")
    return story


def delivered(story: Story) -> AnswerId:
    [deliver] = story.effects(Deliver)
    return deliver.answer


def result(story: Story) -> tuple[AnswerId, bool, str]:
    assert story.run.presented is not None
    return delivered(story), story.run.presented.delivered, story.run.presented.reason


# -- who presents, and what it sees ----------------------------------------------------------------------------------


def test_nobody_presents_unless_the_task_asks_for_it() -> None:
    story = Story(2, limits=AT_ONCE)
    story.agrees_on("ada")
    assert story.stage() is Stage.DELIVERING
    assert story.run.presented is None


def test_the_winner_gets_one_more_turn_with_all_answers_votes_and_reasons() -> None:
    story = Story(3, limits=AT_ONCE, presentation=True)
    for name in ("ada", "bob"):
        story.answers(name)
    story.stops("ada", "cyd")
    story.picks("ada", "bob", "it is shorter")
    story.ends("ada")
    story.votes("bob", "ada")
    story.picks("cyd", "ada", "it runs")
    story.ends("cyd")

    context = story.turn("ada").effect.context
    assert (context.presentation, context.may_vote, context.answers_left) == (True, False, 1)
    assert [(view.label, view.mine) for view in context.answers] == [("kite", False), ("newt", True)]
    assert [(vote.voter, vote.label, vote.reason) for vote in context.votes_cast] == [
        ("newt", "kite", "it is shorter"),
        ("kite", "newt", "better"),
        ("moth", "newt", "it runs"),
    ]
    assert [(fact.agent, fact.number) for fact in story.facts(PresentationBegan)] == [("ada", 1)]


def test_voters_are_labels_unless_the_run_discloses_names() -> None:
    assert {vote.voter_agent for vote in presenting().turn("ada").effect.context.votes_cast} == {None}
    named = presenting(disclose=Disclosure(identities=True)).turn("ada").effect.context
    assert {vote.voter_agent for vote in named.votes_cast} == {"ada", "bob"}


def test_the_presenter_sees_the_answer_that_won_and_not_its_later_one() -> None:
    story = Story(2, checks=(UNIT,), presentation=True)
    story.answers("ada")
    story.is_checked("ada", True)
    story.answers("ada", "worse")
    story.is_checked("ada", False)
    story.ends("bob", TurnEnd.FAILED)
    story.time_is_up(Clock.RUN_LIMIT)
    story.stops("ada")
    story.is_refused("ada")
    story.is_refused("bob")
    assert story.decision().winner == ADA1
    assert story.sees("ada") == {"ada.1"}


def test_unfinished_work_is_saved_before_the_presentation() -> None:
    story = Story(2, limits=Limits(max_failures=1), presentation=True)
    story.ends("bob", TurnEnd.FAILED, "crash")
    story.answers("ada")
    story.votes("ada", "ada")
    assert (story.stage(), story.freeze("bob").name) == (Stage.KEEPING, "unfinished")
    story.is_saved("bob")
    assert story.stage() is Stage.PRESENTING


@pytest.mark.parametrize("by", [DecidedBy.VOTES_AT_LIMIT, DecidedBy.NEWEST_AT_LIMIT])
def test_a_winner_at_the_run_s_limit_presents_within_one_turn_s_time(by: DecidedBy) -> None:
    story = Story(2, limits=Limits(run_s=7200, turn_s=1800, first_turn_protection_s=0), presentation=True)
    story.answers("ada")
    story.stops("bob")
    if by is DecidedBy.VOTES_AT_LIMIT:
        story.votes("bob", "ada")
    story.time_is_up(Clock.RUN_LIMIT)
    story.now += 100
    for name in ("ada", "bob"):
        if story.phase(name) is Phase.STOPPING:
            story.stops(name)
    while story.stage() is Stage.KEEPING:
        story.is_refused(next(iter(story.run.keeping)))
    assert story.decision().by is by
    assert story.turn("ada").effect.context.seconds_left == 1700
    story.starts("ada")
    story.time_is_up(Clock.TURN_LIMIT, "ada")
    assert story.now == T0 + 7200 + 1800
    story.stops("ada")
    story.is_refused("ada")
    assert delivered(story) == ADA1


def test_an_answer_recorded_by_force_is_not_presented() -> None:
    story = Story(1, presentation=True)
    story.time_is_up(Clock.RUN_LIMIT)
    story.stops("ada")
    story.is_saved("ada")
    assert result(story) == (
        ADA1,
        False,
        "ada did not present its answer: it was recorded by force. The answer that won is delivered as it was.",
    )
    assert story.facts(PresentationBegan) == []


def test_a_winner_that_had_failed_too_often_does_not_present() -> None:
    story = Story(2, limits=Limits(max_failures=1, first_turn_protection_s=0), presentation=True)
    story.answers("ada")
    story.stops("bob")
    story.ends("ada", TurnEnd.FAILED, "no key")
    story.ends("bob", TurnEnd.FAILED, "no key")
    story.is_refused("ada")
    story.is_refused("bob")
    assert "it had failed too often" in result(story)[2]
    assert story.phase("ada") is Phase.OUT


def test_a_used_up_budget_pays_no_presentation() -> None:
    story = Story(1, checks=(UNIT,), presentation=True)
    story.answers("ada")
    story.closes(Cause.BUDGET)
    story.is_checked("ada", True)
    assert "the budget is used up" in result(story)[2]


def test_a_budget_used_up_while_work_is_being_saved_pays_no_presentation_either() -> None:
    story = Story(2, limits=Limits(max_failures=1), presentation=True)
    story.ends("bob", TurnEnd.FAILED, "crash")
    story.answers("ada")
    story.votes("ada", "ada")
    story.closes(Cause.BUDGET)
    story.is_saved("bob")
    assert "the budget is used up" in result(story)[2]


# -- how it ends -----------------------------------------------------------------------------------------------------


def test_a_presentation_ends_with_an_answer_and_a_vote_is_refused() -> None:
    story = presenting()
    step = story.turn("ada").effect.step
    assert "your answer has won" in (refusal(story.run, "ada", step, VoteFor(label="newt", reason="")) or "")
    assert refusal(story.run, "ada", step, NewAnswer(summary="polished")) is None
    assert "needs a summary" in (refusal(story.run, "ada", step, NewAnswer(summary=" ")) or "")


def test_an_agent_without_answers_left_may_present_all_the_same() -> None:
    story = Story(1, limits=Limits(answers=1), presentation=True)
    story.answers("ada")
    story.answers("ada", "polished")
    assert delivered(story) == POLISHED


def test_the_presented_snapshot_is_published_and_delivered_and_the_decision_stays() -> None:
    story = presenting()
    before = story.decision()
    story.submits("ada", "polished")
    story.ends("ada")
    assert story.freeze("ada").name == "presented"
    story.is_saved("ada")

    assert delivered(story) == POLISHED
    assert story.run.answer(delivered(story)).snapshot.commit == "ada-presented"
    assert story.effects(PublishBranch)[-1] == PublishBranch(agent="ada", commit="ada-presented")
    assert story.decision() == before
    assert len(story.facts(RunDecided)) == len(story.facts(AnswerAccepted)) == 1
    assert {agent.vote.answer for agent in story.run.agents.values() if agent.vote} == {ADA1}, "the votes stay counted"
    [ended] = story.facts(PresentationEnded)
    assert (ended.kept, ended.commit) == (True, "ada-presented")
    story.is_delivered()
    assert story.facts(RunEnded)[0].reason.endswith("ada presented its answer, and that is what is delivered.")


@pytest.mark.parametrize(
    ("voted", "presented", "kept", "why"),
    [
        ((True, True), (True, True), True, "that is what is delivered"),
        ((True, False), (True, True), True, "that is what is delivered"),
        ((False, True), (True, False), True, "that is what is delivered"),
        ((False, False), (False, False), True, "that is what is delivered"),
        ((True, True), (False, True), False, "the required check unit passed before and fails now"),
        ((True, False), (False, True), False, "the required check unit passed before and fails now"),
        ((True, True), (True, False), False, "it passes 1 checks, and the voted answer 2"),
    ],
)
def test_checks_run_again_and_a_polish_that_breaks_what_passed_is_not_delivered(
    voted: tuple[bool, ...], presented: tuple[bool, ...], kept: bool, why: str
) -> None:
    story = presenting_checked(*voted)
    assert story.effects(RunChecks)[-1].answer == POLISHED
    story.is_checked("ada", *presented)
    assert result(story)[:2] == (POLISHED if kept else ADA1, kept)
    assert why in result(story)[2]
    assert [check.passed for check in story.facts(PresentationEnded)[0].checks] == list(presented)
    assert story.run.heads["ada"] == "ada-presented", "the polish is on the agent's branch in any case"
    story.is_delivered()
    assert why in story.facts(RunEnded)[0].reason


def test_a_presentation_that_changes_nothing_delivers_what_was_voted() -> None:
    story = presenting()
    story.submits("ada")
    story.ends("ada")
    story.is_refused("ada")
    assert result(story) == (
        ADA1,
        False,
        "ada changed nothing more. The answer that won is delivered as it was.",
    )


def test_a_presentation_that_cannot_be_saved_delivers_what_was_voted_and_the_trouble_is_told() -> None:
    story = presenting()
    story.submits("ada")
    story.ends("ada")
    story.is_refused("ada", "it is 3 GB")
    assert story.freeze("ada").name == "unfinished-presentation"
    story.is_refused("ada", "it is 3 GB")
    assert delivered(story) == ADA1
    assert story.run.trouble == ("ada: its unfinished work stays in its workspace: it is 3 GB",)


def test_a_snapshot_of_a_presentation_that_fails_is_tried_once_more() -> None:
    story = presenting()
    story.submits("ada", "polished")
    story.ends("ada")
    story.cannot_be_saved("ada")
    story.time_is_up(Clock.BACKOFF, "ada")
    assert (story.freeze("ada").name, story.freeze("ada").summary) == ("presented", "polished")
    story.is_saved("ada")
    assert delivered(story) == POLISHED


def test_an_undecided_presentation_is_not_tried_again_and_its_work_is_kept() -> None:
    story = presenting()
    story.ends("ada", TurnEnd.UNDECIDED)
    assert story.freeze("ada").name == "unfinished-presentation"
    story.is_saved("ada")
    assert result(story)[:2] == (ADA1, False)
    assert "without handing in" in result(story)[2]
    assert story.facts(WorkKept)[-1].commit == "ada-unfinished-presentation"


def test_a_failed_presentation_is_tried_once_more_then_the_voted_answer_is_delivered() -> None:
    story = presenting()
    story.ends("ada", TurnEnd.FAILED, "overloaded", retry_after_s=60)
    assert [(fact.failures, fact.retry_in_s) for fact in story.facts(TurnFailed)] == [(1, 60)]
    story.time_is_up(Clock.BACKOFF, "ada")
    context = story.turn("ada").effect.context
    assert context.presentation
    assert "overloaded" in (context.notice or "")
    story.ends("ada", TurnEnd.FAILED, "overloaded")
    story.is_saved("ada")
    assert "ada's presentation failed: overloaded." in result(story)[2]
    assert delivered(story) == ADA1


def test_no_failed_presentation_waits_beyond_its_time() -> None:
    story = presenting()
    story.ends("ada", TurnEnd.FAILED, "rate limited", retry_after_s=36_000)
    story.is_saved("ada")
    assert delivered(story) == ADA1


def test_time_limits_of_all_tries_together_are_one_turn() -> None:
    story = Story(1, limits=Limits(turn_s=600, wrap_up_s=60), presentation=True)
    story.answers("ada")
    began = story.now
    story.starts("ada")
    story.now += 500
    story.ends("ada", TurnEnd.FAILED, "crash")
    story.time_is_up(Clock.BACKOFF, "ada")
    story.starts("ada")
    story.time_is_up(Clock.TURN_LIMIT, "ada")
    assert story.now == began + 600
    story.submits("ada", "in time")
    story.ends("ada")
    story.is_saved("ada")
    assert delivered(story) == POLISHED, "handed in within the grace"


def test_the_run_s_own_limit_neither_ends_a_presentation_nor_is_announced_in_it() -> None:
    story = presenting()
    story.starts("ada")
    story.time_is_up(Clock.RUN_WRAP_UP)
    story.time_is_up(Clock.RUN_LIMIT)
    assert story.phase("ada") is Phase.WORKING
    assert story.run.cause is None
    assert [note for note in story.effects(Notify) if "run ends" in note.text] == []


# -- cancelled, out of budget, the daemon dies -----------------------------------------------------------------------


def test_a_cancel_ends_the_presentation_keeps_its_work_and_shows_no_winner() -> None:
    story = presenting()
    story.starts("ada")
    story.closes(Cause.CANCELLED)
    assert story.effects(InterruptTurn)[-1].why is StopReason.CLOSING
    story.stops("ada")
    story.is_saved("ada")
    story.is_delivered()
    assert story.run.status is Status.CANCELLED
    assert (story.run.decision, story.run.result, story.effects(Deliver)) == (None, None, [])
    assert story.run.heads["ada"] == "ada-unfinished-presentation"
    assert replay(story.journal) == story.run


def test_a_cancel_while_a_presentation_is_checked_does_not_wait_for_the_checks() -> None:
    story = presenting_checked(True, True)
    story.closes(Cause.CANCELLED)
    assert story.stage() is Stage.CLOSING
    assert story.run.heads["ada"] == "ada-presented"


def test_a_cancel_while_a_presentation_is_being_saved_keeps_it() -> None:
    story = presenting()
    story.submits("ada")
    story.closes(Cause.CANCELLED)
    story.ends("ada")
    story.is_saved("ada")
    assert story.stage() is Stage.CLOSING
    assert story.run.heads["ada"] == "ada-presented"
    assert story.effects(Deliver) == []


def test_a_cancel_after_the_decision_shows_no_winner() -> None:
    story = Story(2, limits=Limits(max_failures=1))
    story.ends("bob", TurnEnd.FAILED, "crash")
    story.answers("ada")
    story.votes("ada", "ada")
    assert story.run.decision is not None
    story.closes(Cause.CANCELLED)
    assert story.run.decision is None


def test_a_budget_used_up_in_the_presentation_ends_it_and_delivers_what_was_voted() -> None:
    story = presenting()
    story.starts("ada")
    story.closes(Cause.BUDGET)
    story.stops("ada")
    story.is_saved("ada")
    assert delivered(story) == ADA1
    assert "the budget is used up" in result(story)[2]


def test_the_daemon_s_restart_starts_the_presentation_again_within_its_bounds() -> None:
    story = presenting()
    for _ in range(MAX_STARTS - 1):
        story.daemon_restarts()
        assert story.turn("ada").effect.context.presentation
    story.daemon_restarts()
    story.is_saved("ada")
    assert delivered(story) == ADA1


def test_a_daemon_away_for_longer_than_the_presentation_may_take_delivers_what_was_voted() -> None:
    story = presenting()
    story.now += 1801
    story.daemon_restarts()
    story.is_saved("ada")
    assert delivered(story) == ADA1


def test_after_a_crash_the_saving_checking_and_delivering_of_a_presentation_go_on() -> None:
    story = presenting_checked(True, True)
    assert story.effects(RunChecks)[-1] in story.daemon_restarts().effects
    story.is_checked("ada", True, True)
    assert story.effects(Deliver)[-1] in story.daemon_restarts().effects
    story = presenting()
    story.submits("ada")
    story.ends("ada")
    assert story.freeze("ada") in story.daemon_restarts().effects


# -- rule 14: planning -----------------------------------------------------------------------------------------------


def test_planned_runs_say_so_in_every_turn_but_the_presentation_which_is_part_of_them() -> None:
    story = presenting(planning=True)
    starts = [effect.context for effect in story.effects(StartTurn)]
    assert [(one.presentation, one.planning) for one in starts[:-1]] == [(False, True)] * (len(starts) - 1)
    assert (starts[-1].presentation, starts[-1].planning) == (True, False)


def test_a_planned_run_whose_presentation_failed_says_that_nothing_was_carried_out_for_certain() -> None:
    story = presenting(planning=True)
    story.ends("ada", TurnEnd.UNDECIDED)
    story.is_refused("ada")
    assert result(story)[2].endswith("What was planned outside the sandbox was not carried out, or only in part.")


def test_a_planned_run_whose_presenter_only_acted_outside_does_not_say_that_it_did_not() -> None:
    story = presenting(planning=True)
    story.submits("ada", "deployed")
    story.ends("ada")
    story.is_refused("ada")
    assert "carried out" not in result(story)[2]
