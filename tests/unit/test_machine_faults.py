"""Faults that this machine once had, each told as the promise that it broke."""

from __future__ import annotations

import pytest

from massgend.domain.effects import FreezeSnapshot, PublishBranch
from massgend.domain.events import (
    BranchPublished,
    ChecksFinished,
    Clock,
    HandedIn,
    Prepared,
    PrepareFailed,
    SnapshotFailed,
    SnapshotRefused,
    SnapshotTaken,
    TurnEnd,
    TurnEnded,
    TurnStarted,
)
from massgend.domain.facts import RunEnded
from massgend.domain.run import (
    AnswerId,
    BaseRecord,
    Cause,
    NewAnswer,
    Phase,
    SnapshotRecord,
    Stage,
    Status,
)
from massgend.domain.task import CheckSpec, Limits
from tests.support.machine_reports import T0
from tests.support.machine_story import Story

UNIT = CheckSpec(name="unit", run="pytest -q")
KEPT = SnapshotRecord(ref="r", commit="c", git_tree="t", changed_files=1)


@pytest.mark.parametrize(
    "event",
    [
        TurnStarted(at=T0, agent="nobody", step=2),
        HandedIn(at=T0, agent="nobody", step=2, choice=NewAnswer(summary="x")),
        TurnEnded(at=T0, agent="nobody", step=2, end=TurnEnd.FAILED),
        SnapshotTaken(at=T0, agent="nobody", step=2, snapshot=KEPT),
        SnapshotRefused(at=T0, agent="nobody", step=2, reason="x"),
        SnapshotFailed(at=T0, agent="nobody", step=2, reason="x"),
        BranchPublished(at=T0, agent="nobody", branch="massgend/r1/nobody"),
    ],
    ids=lambda event: event.type,
)
def test_a_report_of_an_unknown_agent_changes_nothing(event: TurnStarted) -> None:
    Story().nudge(event)


def test_the_winner_s_branch_is_part_of_the_result_beside_the_agents_branches() -> None:
    story = Story(1)
    story.answers("ada")
    story.report(BranchPublished(at=T0, agent="ada", branch="massgend/r1/ada"))
    story.report(BranchPublished(at=T0, agent="winner", branch="massgend/r1/winner"))
    assert story.run.branches == {"ada": "massgend/r1/ada", "winner": "massgend/r1/winner"}


def test_a_late_preparation_cannot_stop_a_cancelled_run_from_closing() -> None:
    story = Story(prepared=False)
    story.closes(Cause.CANCELLED)
    close = next(iter(set(story.jobs) - {1}))
    base = BaseRecord(commit="late", source_commit=None, branch=None, bare="b")
    story.nudge(Prepared(at=T0, step=1, base=base))
    story.nudge(Prepared(at=T0, step=close, base=base))
    story.nudge(PrepareFailed(at=T0, step=close, reason="late"))
    del story.jobs[1]
    story.is_delivered()
    assert story.run.outcome is Status.CANCELLED


def test_work_interrupted_for_news_is_kept_when_the_run_closes_before_the_next_turn() -> None:
    story = Story(2, checks=(UNIT,), limits=Limits(first_turn_protection_s=0))
    story.starts("ada", "bob")
    story.answers("ada")
    story.is_checked("ada", True)
    assert story.phase("bob") is Phase.STOPPING
    story.submits("ada", "second")
    story.ends("ada")
    story.is_saved("ada")
    story.stops("bob")
    assert story.phase("bob") is Phase.HELD
    story.closes(Cause.RUN_LIMIT)
    story.is_checked("ada", True)
    assert story.freeze("bob").name == "unfinished"


@pytest.mark.parametrize("last", ["news", "daemon", TurnEnd.INTERRUPTED, TurnEnd.DECIDED])
def test_work_of_an_agent_whose_last_turn_ended_undecided_is_kept(last: str) -> None:
    story = Story(2, limits=Limits(turns=1, first_turn_protection_s=0, answers=1))
    story.starts("ada", "bob")
    if last == "daemon":
        story.daemon_restarts()
        assert [agent.phase for agent in story.run.agents.values()] == [Phase.SPENT, Phase.SPENT]
        assert {job.agent for job in story.jobs.values() if isinstance(job, FreezeSnapshot)} == {"ada", "bob"}
        return
    story.answers("ada")
    story.ends("bob", TurnEnd.INTERRUPTED if last == "news" else TurnEnd(last))
    assert story.phase("bob") is Phase.SPENT
    assert story.freeze("bob").name == "unfinished"


def test_a_vote_is_a_decision_so_an_earlier_interruption_costs_no_snapshot_at_the_end() -> None:
    story = Story(2, limits=Limits(first_turn_protection_s=0))
    story.answers("ada")
    story.stops("bob")
    story.votes("ada", "ada")
    story.votes("bob", "ada")
    assert story.stage() is Stage.DELIVERING


def test_a_branch_whose_publication_was_lost_is_published_again_at_the_newest_commit() -> None:
    story = Story(2)
    story.answers("ada")
    story.report(BranchPublished(at=T0, agent="ada", branch="massgend/r1/ada"))
    story.answers("ada", "better")
    effects = story.daemon_restarts().effects
    assert PublishBranch(agent="ada", commit="ada-2") in effects


def test_a_branch_with_unfinished_work_is_not_set_back_after_a_restart() -> None:
    story = Story(2, limits=Limits(max_failures=1))
    story.answers("ada")
    story.votes("ada", "ada")
    story.ends("bob", TurnEnd.FAILED, "crash")
    story.is_saved("bob")
    assert story.stage() is Stage.DELIVERING
    effects = story.daemon_restarts().effects
    assert [e.commit for e in effects if isinstance(e, PublishBranch)] == ["ada-1", "bob-unfinished"]


def test_the_wrap_up_notice_of_the_run_survives_a_restart_of_the_daemon() -> None:
    story = Story(2)
    story.daemon_restarts()
    assert story.timers[Clock.RUN_WRAP_UP, None, None] == T0 + 7200 - 120
    story.now = T0 + 7190
    story.daemon_restarts()
    assert (Clock.RUN_WRAP_UP, None, None) not in story.timers, "it is in the new turns' contexts by then"


def test_a_wait_that_a_provider_asked_for_is_honoured_after_a_restart_of_the_daemon() -> None:
    story = Story(1)
    story.ends("ada", TurnEnd.FAILED, "rate limited", retry_after_s=600)
    story.now = T0 + 100
    story.daemon_restarts()
    assert [due for (clock, *_), due in story.timers.items() if clock is Clock.BACKOFF] == [T0 + 600]
    story.now = T0 + 700
    story.daemon_restarts()
    assert [due for (clock, *_), due in story.timers.items() if clock is Clock.BACKOFF] == [T0 + 700]


def test_an_answer_saved_at_the_second_try_is_not_told_as_a_failure() -> None:
    story = Story(2)
    story.submits("ada")
    story.ends("ada")
    story.cannot_be_saved("ada")
    story.time_is_up(Clock.BACKOFF, "ada")
    story.is_saved("ada")
    assert story.turn("ada").effect.context.notice is None


def test_protection_counts_from_the_moment_the_agent_really_works() -> None:
    story = Story(2, limits=Limits(first_turn_protection_s=300))
    story.answers("ada")
    story.now = T0 + 200  # a slow container
    story.starts("bob")
    story.time_is_up(Clock.PROTECTION, "bob")
    assert story.phase("bob") is Phase.WORKING
    story.time_is_up(Clock.PROTECTION, "bob")
    assert (story.agent("bob").phase, story.now) == (Phase.STOPPING, T0 + 500)


def test_a_cancel_while_unfinished_work_is_being_saved_stops_the_delivery() -> None:
    story = Story(2, limits=Limits(max_failures=1))
    story.ends("bob", TurnEnd.FAILED, "crash")
    story.answers("ada")
    story.votes("ada", "ada")
    assert story.stage() is Stage.KEEPING
    story.closes(Cause.CANCELLED)
    story.is_saved("bob")
    assert story.stage() is Stage.CLOSING
    story.is_delivered()
    assert story.run.outcome is Status.CANCELLED


def test_a_required_check_that_was_not_run_has_not_passed() -> None:
    story = Story(2, checks=(UNIT,))
    story.answers("ada")
    step = next(step for step in story.jobs)
    story.report(ChecksFinished(at=T0, step=step, results=()))
    [checked] = story.run.answers
    assert checked.fails_required
    assert [(check.name, check.exit_code) for check in checked.checks or ()] == [("unit", None)]


def test_a_snapshot_that_fails_while_the_run_closes_is_not_promised_another_try() -> None:
    story = Story(2)
    story.answers("bob")
    story.submits("ada")
    story.ends("ada")
    story.closes(Cause.BUDGET)
    story.stops("bob")
    step = story.cannot_be_saved("ada")
    assert not [fact for fact in step.facts if fact.type == "turn_failed"]
    assert not [key for key in story.timers if key[0] is Clock.BACKOFF]
    assert story.freeze("ada").name == "unfinished"


def test_a_superseded_answer_does_not_win_before_its_author_s_newer_one() -> None:
    story = Story(2, checks=(UNIT,))
    story.answers("ada")
    story.is_checked("ada", True)
    story.answers("ada", "better")
    story.is_checked("ada", True)
    story.answers("bob")
    story.is_checked("bob", False)
    story.stops("ada")
    story.votes("ada", "bob")
    story.votes("bob", "bob")
    assert story.run.decision is not None
    assert story.run.decision.overruled
    assert story.run.decision.winner == AnswerId(agent="ada", number=2)


def test_unfinished_work_over_the_budget_of_a_snapshot_is_told_as_trouble() -> None:
    story = Story(2, limits=Limits(max_failures=1))
    story.ends("bob", TurnEnd.FAILED, "crash")
    story.answers("ada")
    story.votes("ada", "ada")
    story.is_refused("bob", "it is 3 GB")
    assert story.run.trouble == ("bob: its unfinished work stays in its workspace: it is 3 GB",)


def test_an_answer_refused_for_its_size_is_unfinished_work_when_the_run_closes() -> None:
    story = Story(2)
    story.answers("ada")
    story.submits("bob")
    story.ends("bob")
    story.closes(Cause.BUDGET)
    story.is_refused("bob", "it is 3 GB")
    story.stops("ada")
    story.is_refused("ada")
    story.is_refused("bob", "it is 3 GB")
    assert story.run.trouble == ("bob: its unfinished work stays in its workspace: it is 3 GB",)


def test_a_run_whose_only_work_could_not_be_saved_does_not_say_that_nothing_changed() -> None:
    story = Story(2)
    story.time_is_up(Clock.RUN_LIMIT)
    story.stops("ada", "bob")
    story.is_refused("ada", "it is 3 GB")
    story.is_refused("bob")
    story.is_delivered()
    ended = story.told[-1]
    assert isinstance(ended, RunEnded)
    assert ended.reason == "The time limit was reached and the work of ada could not be saved."
    assert "ada: its unfinished work stays in its workspace: it is 3 GB" in ended.trouble


def test_a_turn_that_failed_has_shown_nothing_for_certain_and_one_that_went_well_has() -> None:
    story = Story(2, limits=Limits(first_turn_protection_s=0))
    story.answers("ada")
    story.starts("ada")
    story.ends("ada", TurnEnd.FAILED, "crash")
    story.time_is_up(Clock.BACKOFF, "ada")
    assert [view.seen for view in story.turn("ada").effect.context.answers] == [False]
    story.starts("ada")
    story.answers("bob")
    story.stops("ada")
    views = story.turn("ada").effect.context.answers
    assert {(view.label, view.seen) for view in views} == {("newt", True), ("kite", False)}
