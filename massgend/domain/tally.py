"""Who wins and why (rules 7, 8, 9). PURE."""

from __future__ import annotations

from massgend.domain.run import Answer, AnswerId, DecidedBy, Decision, Run, TallyLine, Vote


def valid_votes(run: Run) -> tuple[Vote, ...]:
    """The votes that count, in the order they were cast. The machine keeps only valid ones."""
    votes = (agent.vote for agent in run.agents.values())
    return tuple(sorted((vote for vote in votes if vote is not None), key=lambda vote: vote.order))


def decide(run: Run, by: DecidedBy) -> Decision | None:
    """The winner among the visible answers; None when there is none.

    An answer that fails a required check cannot win while one that passes exists. Then: most votes, more checks
    passed, voted for first, earliest answer; without any vote the newest instead of the earliest.
    """
    candidates = [answer for answer in run.answers if answer.visible]
    if not candidates:
        return None
    votes = valid_votes(run)
    passing = [answer for answer in candidates if not answer.fails_required]
    eligible = passing or candidates
    ranked = sorted(eligible, key=lambda answer: _rank(run, answer, votes))
    winner = ranked[0]
    favourite = min(candidates, key=lambda answer: _rank(run, answer, votes))
    overruled = favourite.id != winner.id and _votes_for(votes, favourite.id) > _votes_for(votes, winner.id)
    listed = {answer.id for answer in run.newest(visible_only=True)} | {winner.id}
    return Decision(
        winner=winner.id,
        by=by,
        reason=_reason(run, by, ranked, votes, favourite if overruled else None),
        tally=tuple(
            TallyLine(
                answer=answer.id,
                votes=_votes_for(votes, answer.id),
                checks_passed=answer.checks_passed,
                eligible=answer in eligible,
            )
            for answer in candidates
            if answer.id in listed
        ),
        overruled=overruled,
    )


def _votes_for(votes: tuple[Vote, ...], which: AnswerId) -> int:
    return sum(vote.answer == which for vote in votes)


def _first_vote(votes: tuple[Vote, ...], which: AnswerId) -> float:
    return next((float(vote.order) for vote in votes if vote.answer == which), float("inf"))


def _rank(run: Run, answer: Answer, votes: tuple[Vote, ...]) -> tuple[float, float, float, bool, int]:
    age = run.answers.index(answer)
    superseded = answer not in run.newest(visible_only=True)
    return (
        -_votes_for(votes, answer.id),
        -answer.checks_passed,
        _first_vote(votes, answer.id),
        superseded,
        age if votes else -age,
    )


def _reason(run: Run, by: DecidedBy, ranked: list[Answer], votes: tuple[Vote, ...], favourite: Answer | None) -> str:
    winner = ranked[0]
    sentences = [_headline(run, by, winner, votes)]
    tied = [a for a in ranked[1:] if votes and _votes_for(votes, a.id) == _votes_for(votes, winner.id)]
    if tied:
        sentences.append(_tie_break(winner, tied[0], votes))
    if favourite is not None:
        failed = ", ".join(check.name for check in favourite.checks or () if check.required and not check.passed)
        sentences.append(f"The votes preferred {_name(favourite)}, but it fails the required check {failed}.")
    elif winner.fails_required:
        sentences.append("No answer passes every required check.")
    return " ".join(sentences)


def _headline(run: Run, by: DecidedBy, winner: Answer, votes: tuple[Vote, ...]) -> str:
    got = f"{_votes_for(votes, winner.id)} of {len(votes)} votes"
    match by:
        case DecidedBy.CONSENSUS:
            return f"{_name(winner)} won with {got}."
        case DecidedBy.ONLY_AGENT:
            return f"{_name(winner)} is the only agent's answer; no vote was needed."
        case DecidedBy.VOTES_AT_LIMIT:
            return f"The run ended before consensus; {_name(winner)} had {got}."
        case DecidedBy.NEWEST_AT_LIMIT:
            return f"The run ended before any valid vote; {_name(winner)} is the newest with the most checks passed."
        case DecidedBy.FORCED_AT_LIMIT:
            return f"The run ended before any answer; {_name(winner)} was recorded from the workspace as it stood."


def _tie_break(winner: Answer, other: Answer, votes: tuple[Vote, ...]) -> str:
    if winner.checks_passed != other.checks_passed:
        why = "it passes more checks"
    elif _first_vote(votes, winner.id) != _first_vote(votes, other.id):
        why = "it was voted for first"
    else:
        why = "it was answered earlier"
    return f"It tied with {_name(other)}; {why}."


def _name(answer: Answer) -> str:
    return f"{answer.id.agent}'s answer {answer.id.number}"
