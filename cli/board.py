"""Where each agent stands at this moment, folded from the stream: what the live view draws. PURE."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from cli.text import clean
from cli.usage import tokens_in, total_cost
from massgend.api.schemas import Activity, RunView
from massgend.domain.facts import (
    AgentInterrupted,
    AgentRetired,
    AnswerAccepted,
    AnswerRefused,
    AnswerSubmitted,
    ClosingBegan,
    RunCreated,
    RunDecided,
    RunDelivered,
    RunEnded,
    RunStarted,
    TurnBegan,
    TurnFailed,
    TurnRequested,
    UsageUpdated,
    VoteCast,
)
from massgend.domain.facts import Fact as _Fact
from massgend.domain.run import StopReason

_WHY: dict[str, str] = {
    StopReason.NEWS: "a new answer came",
    StopReason.TURN_LIMIT: "its turn's time is up",
    StopReason.CLOSING: "the run is ending",
}
AT_WORK = frozenset({"starting", "working", "stopping", "saving"})


@dataclass(frozen=True, kw_only=True)
class Used:
    """`cost_usd` None: unknown."""

    tokens: int
    cost_usd: float | None


@dataclass(frozen=True, kw_only=True)
class AgentRow:
    """`since`: when its turn began, None when it is in none. `used` None: it asked no model yet."""

    name: str
    state: str = "waiting"
    answers: int = 0
    doing: str = ""
    changed_files: int | None = None
    since: float | None = None
    used: Used | None = None


@dataclass(frozen=True, kw_only=True)
class Board:
    """`answer_limit` None: not known (a run that somebody else started)."""

    run_id: str
    state: str = "preparing"
    began: float | None = None
    scripted: bool = False
    answer_limit: int | None = None
    rows: dict[str, AgentRow] = field(default_factory=dict)

    @property
    def used(self) -> Used | None:
        """By all agents."""
        each = [row.used for row in self.rows.values() if row.used is not None]
        if not each:
            return None
        return Used(tokens=sum(one.tokens for one in each), cost_usd=total_cost(one.cost_usd for one in each))

    def after(self, event: _Fact | Activity | RunView) -> Board:
        match event:
            case RunView():
                return self
            case RunCreated():
                rows = {name: AgentRow(name=name) for name in event.agents}
                return replace(self, began=event.at, scripted=event.scripted, rows=rows)
            case RunStarted():
                return replace(self, state="running")
            case ClosingBegan():
                return replace(self, state="ending")
            case RunDecided():
                return self._decided(event)
            case RunDelivered() | RunEnded():
                return replace(self, state="finishing")
            case Activity():
                return self._active(event)
            case _:
                return self._of_agent(event)

    def _active(self, event: Activity) -> Board:
        """What comes late, when the agent has decided already, would hide what it decided."""
        row = self.rows.get(event.agent)
        if row is not None and row.state not in AT_WORK:
            return self
        return self._row(event.agent, doing=clean(event.line), changed_files=event.changed_files)

    def _of_agent(self, event: _Fact) -> Board:
        match event:
            case TurnRequested():
                return self._row(event.agent, state="starting", doing="", changed_files=None, since=event.at)
            case TurnBegan():
                return self._row(event.agent, state="working", since=event.at)
            case AgentInterrupted():
                return self._row(event.agent, state="stopping", doing=_WHY.get(event.why, clean(event.why)))
            case AnswerSubmitted():
                return self._row(event.agent, state="saving")
            case AnswerAccepted():
                board = self._votes_void() if event.votes_voided else self
                return board._row(event.agent, state="answered", answers=event.number, doing="", since=None)
            case AnswerRefused():
                return self._row(event.agent, state="refused", since=None)
            case VoteCast():
                state = "voted" if event.valid else "void vote"
                return self._row(event.agent, state=state, doing=f"for {event.votes_for}.{event.number}", since=None)
            case TurnFailed():
                state = "out" if event.retry_in_s is None else "retrying"
                return self._row(event.agent, state=state, doing=clean(event.reason), since=None)
            case UsageUpdated() if event.usage.calls:
                tokens = tokens_in(event.usage) + event.usage.output_tokens
                return self._row(event.agent, used=Used(tokens=tokens, cost_usd=event.cost_usd))
            case AgentRetired():
                return self._row(event.agent, state="out", doing=clean(event.reason), since=None)
            case _:
                return self

    def _votes_void(self) -> Board:
        rows = {
            name: replace(row, state="void vote") if row.state == "voted" else row for name, row in self.rows.items()
        }
        return replace(self, rows=rows)

    def _decided(self, event: RunDecided) -> Board:
        winner = event.decision.winner.agent
        rows = {
            name: replace(row, state="winner" if name == winner else "done", since=None)
            for name, row in self.rows.items()
        }
        return replace(self, state="decided", rows=rows)

    def _row(self, name: str, **changes: object) -> Board:
        row = self.rows.get(name, AgentRow(name=name))
        return replace(self, rows={**self.rows, name: replace(row, **changes)})  # type: ignore[arg-type]
