"""What happened in a run, one plain line a fact: for people, so with names and votes. PURE."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from cli.text import clean, first_line, plural
from massgend.domain.facts import (
    AgentInterrupted,
    AgentRetired,
    AnswerAccepted,
    AnswerChecked,
    AnswerRefused,
    AnswerSubmitted,
    BranchUpdated,
    BudgetReached,
    ClosingBegan,
    Fact,
    PresentationBegan,
    PresentationEnded,
    RunCreated,
    RunDecided,
    RunDelivered,
    RunEnded,
    RunRecovered,
    RunStarted,
    TurnBegan,
    TurnFailed,
    TurnRequested,
    UsageUpdated,
    VoteCast,
    WorkKept,
)
from massgend.domain.run import CheckResult


class Tone(StrEnum):
    PLAIN = "plain"
    QUIET = "quiet"
    GOOD = "good"
    CAREFUL = "careful"
    BAD = "bad"


@dataclass(frozen=True, kw_only=True)
class Line:
    """`agent` None: about the run. `text` is clean, of any length."""

    at: float
    text: str
    agent: str | None = None
    tone: Tone = Tone.PLAIN


def tell(fact: Fact) -> tuple[Line, ...]:
    """Nothing for what the live view shows as a state anyway."""
    match fact:
        case RunCreated() | RunStarted() | ClosingBegan() | RunDecided() | RunDelivered() | RunRecovered() | RunEnded():
            return _of_run(fact)
        case AnswerAccepted():
            lacks = (Line(at=fact.at, agent=fact.agent, text=clean(one), tone=Tone.QUIET) for one in fact.about)
            return (_of_decision(fact), *lacks)
        case AnswerRefused() | AnswerChecked() | VoteCast():
            return (_of_decision(fact),)
        case TurnRequested():
            return _of_turn(fact)
        case TurnFailed():
            text = f"failed: {first_line(fact.reason)}"
            if fact.retry_in_s is not None:
                text += f" (tries again in {fact.retry_in_s:.0f} s)"
            return (Line(at=fact.at, agent=fact.agent, text=text, tone=Tone.BAD),)
        case AgentRetired():
            text = f"is out: {first_line(fact.reason)}"
            return (Line(at=fact.at, agent=fact.agent, text=text, tone=Tone.BAD),)
        case WorkKept():
            text = f"unfinished work kept, {plural(fact.changed_files, 'file')} changed"
            return (Line(at=fact.at, agent=fact.agent, text=text),)
        case PresentationBegan():
            return (Line(at=fact.at, agent=fact.agent, text=f"presents its answer {fact.number}"),)
        case PresentationEnded():
            tone = Tone.GOOD if fact.kept else Tone.CAREFUL
            return (Line(at=fact.at, agent=fact.agent, text=clean(fact.reason), tone=tone),)
        case BudgetReached():
            return (Line(at=fact.at, agent=fact.agent, text=clean(fact.reason), tone=Tone.CAREFUL),)
        case BranchUpdated() if fact.problem is not None:
            text = f"branch {clean(fact.branch)} not updated: {first_line(fact.problem)}"
            return (Line(at=fact.at, agent=fact.agent, text=text, tone=Tone.BAD),)
        case AgentInterrupted() | TurnBegan() | AnswerSubmitted() | BranchUpdated() | UsageUpdated():
            return ()


def _of_run(
    fact: RunCreated | RunStarted | ClosingBegan | RunDecided | RunDelivered | RunRecovered | RunEnded,
) -> tuple[Line, ...]:
    match fact:
        case RunCreated():
            count = plural(len(fact.agents), "scripted agent" if fact.scripted else "agent")
            return (Line(at=fact.at, text=clean(f"{count}: {', '.join(fact.agents)}")),)
        case RunStarted():
            on = f"{clean(fact.branch)} at " if fact.branch else ""
            warnings = (Line(at=fact.at, text=clean(one), tone=Tone.CAREFUL) for one in fact.warnings)
            return (Line(at=fact.at, text=f"from {on}{fact.base_commit[:10]}", tone=Tone.QUIET), *warnings)
        case ClosingBegan():
            return (Line(at=fact.at, text=f"ending the run: {_cause(fact.cause)}", tone=Tone.CAREFUL),)
        case RunDecided():
            return (Line(at=fact.at, text=clean(fact.decision.reason), tone=Tone.GOOD),)
        case RunDelivered():
            tone = Tone.GOOD if fact.delivery.merged else Tone.CAREFUL
            return (Line(at=fact.at, text=clean(fact.delivery.reason), tone=tone),)
        case RunRecovered():
            return (Line(at=fact.at, text="massgend was restarted; the run goes on", tone=Tone.CAREFUL),)
        case RunEnded():
            return ()


def _of_decision(fact: AnswerAccepted | AnswerRefused | AnswerChecked | VoteCast) -> Line:
    match fact:
        case AnswerAccepted():
            notes = [plural(fact.changed_files, "file")]
            if fact.forced:
                notes.append("taken as it stood")
            if fact.votes_voided:
                notes.append(f"{plural(fact.votes_voided, 'vote')} void")
            text = f"answer {fact.number} ({', '.join(notes)}): {first_line(fact.summary)}"
            return Line(at=fact.at, agent=fact.agent, text=text, tone=Tone.GOOD)
        case AnswerRefused():
            text = f"answer refused: {first_line(fact.reason)}"
            return Line(at=fact.at, agent=fact.agent, text=text, tone=Tone.CAREFUL)
        case AnswerChecked():
            failed = any(check.required and not check.passed for check in fact.checks)
            text = f"checks of answer {fact.number}: {shown_checks(fact.checks)}"
            tone = Tone.BAD if failed else Tone.QUIET
            return Line(at=fact.at, agent=fact.agent, text=text, tone=tone)
        case VoteCast():
            voted = f"{fact.votes_for}.{fact.number}"
            text = f"votes for {voted}: {first_line(fact.reason)}"
            if not fact.valid:
                text = f"vote for {voted} is void: a newer answer came"
            return Line(at=fact.at, agent=fact.agent, text=text, tone=Tone.PLAIN if fact.valid else Tone.QUIET)


def _of_turn(fact: TurnRequested) -> tuple[Line, ...]:
    if fact.turn == 1:
        return ()
    sees = f", sees {', '.join(fact.sees)}" if fact.sees else ""
    return (Line(at=fact.at, agent=fact.agent, text=f"turn {fact.turn}{sees}", tone=Tone.QUIET),)


def shown_checks(checks: tuple[CheckResult, ...]) -> str:
    return ", ".join(f"{clean(check.name)} {'passed' if check.passed else 'FAILED'}" for check in checks) or "none"


def _cause(cause: str) -> str:
    words = {
        "run_limit": "its time is up",
        "budget": "its budget is spent",
        "cancelled": "cancelled",
        "all_out": "all agents are out",
    }
    return words.get(cause, clean(cause))
