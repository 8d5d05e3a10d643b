"""Bounds, failures and what is disclosed (rules 9 to 11 of docs/coordination.md), each as a story."""

from __future__ import annotations

from massgend.domain.effects import (
    Notify,
)
from massgend.domain.events import Clock, TurnEnd
from massgend.domain.facts import AgentRetired, RunEnded, TurnFailed
from massgend.domain.hand_in import refusal
from massgend.domain.run import AnswerId, Cause, DecidedBy, NewAnswer, Phase, Stage, Status
from massgend.domain.task import CheckSpec, Disclosure, Limits
from tests.support.machine_reports import T0
from tests.support.machine_story import Story

UNIT = CheckSpec(name="unit", run="pytest -q")
AT_ONCE = Limits(first_turn_protection_s=0)
ADA1 = AnswerId(agent="ada", number=1)
BOB1 = AnswerId(agent="bob", number=1)


# -- rule 9: bounds --------------------------------------------------------------------------------------------------


def test_an_agent_out_of_answers_may_only_vote() -> None:
    story = Story(2, limits=Limits(answers=1))
    story.answers("ada")
    turn = story.turn("ada").effect
    assert (turn.context.answers_left, turn.context.may_vote) == (0, True)
    why = refusal(story.run, "ada", turn.step, NewAnswer(summary="more"))
    assert why == "You have submitted all your 1 answers: vote for one."


def test_an_agent_that_may_neither_answer_nor_vote_rests_until_there_is_something_to_vote_for() -> None:
    story = Story(2, limits=Limits(answers=1), allow_self_vote=False)
    story.answers("ada")
    assert story.phase("ada") is Phase.SPENT
    story.answers("bob")
    assert story.sees("ada") == {"ada.1", "bob.1"}


def test_an_agent_out_of_turns_is_not_waited_for() -> None:
    story = Story(2, limits=Limits(turns=2, first_turn_protection_s=0))
    story.answers("ada")
    story.stops("bob")
    story.answers("ada", "better")
    story.stops("bob")
    assert [fact.agent for fact in story.facts(AgentRetired)] == ["ada", "bob"]
    assert story.decision().by is DecidedBy.NEWEST_AT_LIMIT


def test_agents_are_told_before_a_turn_or_the_run_ends() -> None:
    story = Story(2, limits=Limits(turn_s=600, wrap_up_s=60))
    story.starts("ada", "bob")
    story.time_is_up(Clock.TURN_WRAP_UP, "ada")
    assert story.now == T0 + 540
    story.time_is_up(Clock.RUN_WRAP_UP)
    assert [(note.agent, note.text.split(":")[0]) for note in story.effects(Notify)] == [
        ("ada", "This turn ends in 60 seconds"),
        ("ada", "This run ends in 60 seconds"),
        ("bob", "This run ends in 60 seconds"),
    ]


def test_a_turn_over_its_limit_is_interrupted_and_counts_as_failed() -> None:
    story = Story(2, limits=Limits(turn_s=600))
    story.starts("ada")
    story.time_is_up(Clock.TURN_LIMIT, "ada")
    story.stops("ada")
    assert story.facts(TurnFailed)[0].reason == "its turn ran longer than 600 s"


def test_valid_votes_decide_at_the_limit() -> None:
    story = Story(3)
    story.answers("ada")
    story.answers("bob")
    story.stops("ada")
    story.votes("ada", "ada")
    story.time_is_up(Clock.RUN_LIMIT)
    story.stops("bob", "cyd")
    assert (story.decision().winner, story.decision().by) == (ADA1, DecidedBy.VOTES_AT_LIMIT)


def test_without_votes_the_newest_answer_with_the_most_checks_passed_wins_at_the_limit() -> None:
    story = Story(3, checks=(UNIT, CheckSpec(name="lint", run="ruff check", required=False)))
    for name, lint in (("ada", True), ("bob", True), ("cyd", False)):
        story.answers(name)
        story.is_checked(name, True, lint)
    story.closes(Cause.BUDGET)
    story.stops("ada", "bob", "cyd")
    story.is_saved("ada")
    story.is_saved("bob")
    story.is_saved("cyd")
    assert (story.decision().winner, story.decision().by) == (BOB1, DecidedBy.NEWEST_AT_LIMIT)


def test_without_any_answer_every_changed_workspace_becomes_one_and_is_checked() -> None:
    story = Story(3, checks=(UNIT,))
    story.closes(Cause.BUDGET)
    story.stops("ada", "bob", "cyd")
    assert story.stage() is Stage.FORCING
    story.is_saved("ada")
    story.is_saved("bob")
    story.is_refused("cyd")
    story.is_checked("ada", True)
    story.is_checked("bob", False)
    assert (story.decision().winner, story.decision().by) == (ADA1, DecidedBy.FORCED_AT_LIMIT)
    assert all(answer.forced for answer in story.run.answers)


# -- rule 10: failure ------------------------------------------------------------------------------------------------


def test_a_failed_turn_is_tried_again_later_and_later_and_retry_after_is_honoured() -> None:
    story = Story(2, limits=Limits(backoff_s=2, max_failures=4))
    for retry_after_s in (None, None, 600.0):
        story.ends("ada", TurnEnd.FAILED, "overloaded", retry_after_s=retry_after_s)
        story.time_is_up(Clock.BACKOFF, "ada")
    assert [fact.retry_in_s for fact in story.facts(TurnFailed)] == [2, 4, 600]
    notice = story.turn("ada").effect.context.notice
    assert notice == "Your last turn failed: overloaded. Your workspace is as you left it."


def test_agents_that_fail_together_are_not_tried_again_together() -> None:
    story = Story(4, limits=Limits(backoff_s=2, max_failures=3))
    for retry_after_s in (None, 60.0):
        for name in ("ada", "bob", "cyd", "dan"):
            story.ends(name, TurnEnd.FAILED, "overloaded", retry_after_s=retry_after_s)
        for name in ("ada", "bob", "cyd", "dan"):
            story.time_is_up(Clock.BACKOFF, name)
    waits = [fact.retry_in_s for fact in story.facts(TurnFailed)]
    assert waits[:4] == [2, 2.25, 2.5, 2.75]
    assert waits[4:] == [60, 60.5, 61, 61.5], "never before the provider's time"


def test_an_agent_that_fails_too_often_is_out_but_its_answers_stay_eligible() -> None:
    story = Story(2, limits=Limits(max_failures=1, first_turn_protection_s=0))
    story.answers("ada")
    story.ends("ada", TurnEnd.FAILED, "out of memory")
    assert story.phase("ada") is Phase.OUT
    story.stops("bob")
    story.votes("bob", "ada")
    assert story.decision().winner == ADA1


def test_a_decision_clears_earlier_failures() -> None:
    story = Story(2, limits=Limits(max_failures=2))
    story.ends("ada", TurnEnd.FAILED, "crash")
    story.time_is_up(Clock.BACKOFF, "ada")
    story.answers("ada")
    story.ends("ada", TurnEnd.FAILED, "crash")
    assert story.phase("ada") is Phase.BACKOFF


def test_when_all_are_out_and_nothing_changed_the_run_ends_with_the_reason() -> None:
    story = Story(2, limits=Limits(max_failures=1))
    story.ends("ada", TurnEnd.FAILED, "no key")
    story.ends("bob", TurnEnd.FAILED, "no model")
    story.is_refused("ada")
    story.is_refused("bob")
    story.is_delivered()
    [ended] = story.facts(RunEnded)
    assert ended.status is Status.NO_RESULT
    assert ended.reason == "No agent is left and none had changed anything (ada: no key; bob: no model)."


# -- rule 11: psychology ---------------------------------------------------------------------------------------------


def test_names_and_tallies_are_hidden_unless_the_run_discloses_them() -> None:
    for disclose in (Disclosure(), Disclosure(identities=True, votes=True)):
        story = Story(2, disclose=disclose)
        story.answers("ada")
        story.votes("ada", "ada")
        story.ends("bob", TurnEnd.FAILED, "crash")
        story.time_is_up(Clock.BACKOFF, "bob")
        [view] = story.turn("bob").effect.context.answers
        assert (view.agent, view.votes) == (("ada", 1) if disclose.votes else (None, None))
