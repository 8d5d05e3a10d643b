"""Who wins and why: every tie-break in its order, overruled votes, and decisions without votes."""

from __future__ import annotations

from massgend.domain.run import Agent, Answer, AnswerId, CheckResult, DecidedBy, Decision, Run, SnapshotRecord, Vote
from massgend.domain.tally import decide, valid_votes
from tests.support.machine_reports import request

PASS, FAIL = True, False


def answer(name: str, number: int = 1, *, required: bool | None = None, optional: tuple[bool, ...] = ()) -> Answer:
    checks = [] if required is None else [("unit", True, required)]
    checks += [(f"lint{place}", False, passed) for place, passed in enumerate(optional)]
    return Answer(
        id=AnswerId(agent=name, number=number),
        summary="done",
        snapshot=SnapshotRecord(ref="r", commit="c", git_tree="t", changed_files=1),
        accepted_at=0.0,
        checks=tuple(
            CheckResult(name=check, required=must, passed=passed, exit_code=int(not passed), duration_s=1.0)
            for check, must, passed in checks
        ),
    )


def run(answers: list[Answer], votes: str = "") -> Run:
    """`votes`: "bob>ada cyd>ada" in the order they were cast, each for the newest answer of its author."""
    newest = {a.id.agent: a.id for a in answers}
    agents = {name: Agent(name=name, label=name[::-1]) for name in ("ada", "bob", "cyd", "dan")}
    for order, pair in enumerate(votes.split(), start=1):
        voter, _, author = pair.partition(">")
        vote = Vote(voter=voter, answer=newest[author], reason="", cast_at=0.0, order=order)
        agents[voter] = Agent(name=voter, label=voter[::-1], vote=vote)
    return Run(id="r1", task=request(4).task, requested_at=0.0, agents=agents, answers=tuple(answers))


def decided(answers: list[Answer], votes: str = "", by: DecidedBy = DecidedBy.CONSENSUS) -> Decision:
    decision = decide(run(answers, votes), by)
    assert decision is not None
    return decision


def test_most_votes_win_before_everything_else() -> None:
    decision = decided(
        [answer("ada", required=PASS), answer("bob", required=PASS, optional=(PASS, PASS))], "bob>bob ada>ada cyd>ada"
    )
    assert str(decision.winner) == "ada.1"
    assert decision.reason == "ada's answer 1 won with 2 of 3 votes."


def test_a_tie_goes_to_more_checks_passed_even_when_the_other_was_voted_for_first() -> None:
    decision = decided([answer("ada", optional=(FAIL,)), answer("bob", optional=(PASS,))], "ada>ada bob>bob")
    assert str(decision.winner) == "bob.1"
    assert decision.reason.endswith("It tied with ada's answer 1; it passes more checks.")


def test_a_tie_with_equal_checks_goes_to_the_answer_voted_for_first_even_when_it_is_newer() -> None:
    decision = decided([answer("ada"), answer("bob")], "cyd>bob dan>ada")
    assert str(decision.winner) == "bob.1"
    assert decision.reason.endswith("It tied with ada's answer 1; it was voted for first.")


def test_the_order_of_casting_decides_and_not_the_order_of_agents() -> None:
    assert [vote.voter for vote in valid_votes(run([answer("ada")], "dan>ada ada>ada"))] == ["dan", "ada"]


def test_among_answers_nobody_voted_for_the_earliest_wins() -> None:
    """Possible only when the votes are overruled."""
    answers = [answer("cyd", required=FAIL), answer("bob", required=PASS), answer("ada", required=PASS)]
    decision = decided(answers, "ada>cyd bob>cyd")
    assert (str(decision.winner), decision.overruled) == ("bob.1", True)
    assert "It tied with ada's answer 1; it was answered earlier." in decision.reason


def test_an_overruled_vote_is_said_plainly_and_stands_in_the_tally() -> None:
    decision = decided([answer("ada", required=FAIL), answer("bob", required=PASS)], "ada>ada bob>bob cyd>ada")
    assert str(decision.winner) == "bob.1"
    assert decision.overruled
    assert decision.reason == (
        "bob's answer 1 won with 1 of 3 votes. "
        "The votes preferred ada's answer 1, but it fails the required check unit."
    )
    assert [(str(line.answer), line.votes, line.eligible) for line in decision.tally] == [
        ("ada.1", 2, False),
        ("bob.1", 1, True),
    ]


def test_votes_for_a_passing_answer_are_not_overruled_by_a_failing_one() -> None:
    decision = decided([answer("ada", required=FAIL), answer("bob", required=PASS)], "ada>bob bob>bob")
    assert (str(decision.winner), decision.overruled) == ("bob.1", False)


def test_a_failing_optional_check_does_not_make_an_answer_ineligible() -> None:
    decision = decided([answer("ada", required=PASS, optional=(FAIL,)), answer("bob", required=PASS)], "bob>ada")
    assert (str(decision.winner), [line.eligible for line in decision.tally]) == ("ada.1", [True, True])


def test_when_no_answer_passes_the_votes_decide_and_the_result_says_so() -> None:
    decision = decided([answer("ada", required=FAIL), answer("bob", required=FAIL)], "ada>bob bob>bob")
    assert (str(decision.winner), decision.overruled) == ("bob.1", False)
    assert decision.reason.endswith("No answer passes every required check.")


def test_an_older_answer_that_passes_wins_over_newer_ones_that_fail_and_is_listed() -> None:
    answers = [answer("ada", 1, required=PASS), answer("ada", 2, required=FAIL), answer("bob", required=FAIL)]
    decision = decided(answers, "ada>ada bob>ada")
    assert (str(decision.winner), decision.overruled) == ("ada.1", True)
    assert [str(line.answer) for line in decision.tally] == ["ada.1", "ada.2", "bob.1"]


def test_superseded_answers_are_left_out_of_the_tally() -> None:
    decision = decided([answer("ada", 1), answer("ada", 2), answer("bob")], "bob>ada")
    assert [str(line.answer) for line in decision.tally] == ["ada.2", "bob.1"]


def test_votes_at_the_limit_decide_though_not_everybody_voted() -> None:
    decision = decided([answer("ada"), answer("bob")], "cyd>ada", DecidedBy.VOTES_AT_LIMIT)
    assert (str(decision.winner), decision.by) == ("ada.1", DecidedBy.VOTES_AT_LIMIT)
    assert decision.reason == "The run ended before consensus; ada's answer 1 had 1 of 1 votes."


def test_without_votes_the_newest_wins_among_those_with_the_most_checks_passed() -> None:
    answers = [answer("ada", optional=(PASS,)), answer("bob", optional=(PASS,)), answer("cyd", optional=(FAIL,))]
    decision = decided(answers, by=DecidedBy.NEWEST_AT_LIMIT)
    assert str(decision.winner) == "bob.1"
    assert decision.reason == (
        "The run ended before any valid vote; bob's answer 1 is the newest with the most checks passed."
    )


def test_an_answer_still_being_checked_cannot_win_and_without_answers_there_is_no_decision() -> None:
    unchecked = Answer(
        id=AnswerId(agent="bob", number=1),
        summary="",
        snapshot=SnapshotRecord(ref="r", commit="c", git_tree="t", changed_files=1),
        accepted_at=0.0,
        checks=None,
    )
    assert str(decided([answer("ada", required=FAIL), unchecked], by=DecidedBy.NEWEST_AT_LIMIT).winner) == "ada.1"
    assert decide(run([unchecked]), DecidedBy.NEWEST_AT_LIMIT) is None
    assert decide(run([]), DecidedBy.NEWEST_AT_LIMIT) is None
