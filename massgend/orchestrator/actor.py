"""One run's mailbox: each event goes through the machine, into the journal, and its effects are started, in order."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from massgend.domain.draft import Transition
from massgend.domain.effects import Close, Effect, EndTurn, InterruptTurn, Notify, Prepare, RunChecks, SetTimer
from massgend.domain.events import Event, HandedIn, RunRequested, UsageReported
from massgend.domain.hand_in import refusal
from massgend.domain.machine import advance, begin
from massgend.domain.run import Choice, Run, Stage
from massgend.journal import RunSummary, storable
from massgend.orchestrator.effects import EffectRunner
from massgend.orchestrator.ports import Ports

log = logging.getLogger(__name__)

CUT_SHORT = (Prepare, RunChecks, SetTimer, InterruptTurn, Notify, EndTurn)
"""Effects that nobody waits for once a run closes."""


@dataclass(frozen=True, kw_only=True)
class _Letter:
    event: Event
    reply: asyncio.Future[str | None] | None = None


class RunActor:
    """Owns one run's value. `run_until_done` is its task; everybody else posts."""

    def __init__(self, ports: Ports, run: Run, *, events: int, facts: int) -> None:
        self.run = run
        self._ports = ports
        self._events = events
        self._facts = facts
        self._mailbox: asyncio.Queue[_Letter] = asyncio.Queue()
        self._effects = EffectRunner(ports, lambda: self.run, self.post, self._hand_in)
        self._tasks: dict[asyncio.Task[None], Effect] = {}
        self._first: tuple[Effect, ...] = ()

    @classmethod
    async def request(cls, ports: Ports, event: RunRequested) -> RunActor:
        """A new run, journalled; its effects start with `run_until_done`."""
        transition = begin(event)
        actor = cls(ports, transition.run, events=0, facts=0)
        await actor._record(event, transition)
        actor._first = transition.effects
        return actor

    def post_soon(self, event: Event) -> None:
        """Put an event into the mailbox."""
        self._mailbox.put_nowait(_Letter(event=event))

    async def post(self, event: Event) -> None:
        self.post_soon(event)

    async def _hand_in(self, agent: str, step: int, choice: Choice) -> str | None:
        reply: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        event = HandedIn(at=self._ports.chance.now(), agent=agent, step=step, choice=choice)
        self._mailbox.put_nowait(_Letter(event=event, reply=reply))
        return await reply

    async def run_until_done(self) -> None:
        """Until the run has ended. Cancelled: turns are ended, and the run is taken up by the next daemon."""
        share = self._ports.models.share(self.run, self.post_soon, self._ports.chance.now)
        try:
            async with share as self._effects.share, asyncio.TaskGroup() as tasks:
                for effect in self._first:
                    self._start(tasks, effect)
                while self.run.stage is not Stage.DONE:
                    await self._handle(tasks, await self._mailbox.get())
                for task in self._tasks:
                    task.cancel()
        finally:
            await self._record_usage()
        while not self._mailbox.empty():
            _refuse(self._mailbox.get_nowait())

    async def _record_usage(self) -> None:
        """What was used up to the end counts against the budget also when the run goes on under another daemon."""
        letters = [self._mailbox.get_nowait() for _ in range(self._mailbox.qsize())]
        for letter in letters:
            if isinstance(letter.event, UsageReported) and self.run.stage is not Stage.DONE:
                await self._record(letter.event, advance(self.run, letter.event))
            else:
                self._mailbox.put_nowait(letter)

    async def _handle(self, tasks: asyncio.TaskGroup, letter: _Letter) -> None:
        event = storable(letter.event)
        if isinstance(event, HandedIn) and letter.reply is not None:
            why_not = refusal(self.run, event.agent, event.step, event.choice)
            if why_not is not None:
                _answer(letter, why_not)
                return
        transition = advance(self.run, event)
        if transition.run is not self.run or transition.effects or transition.facts:
            await self._record(event, transition)
        for effect in transition.effects:
            self._start(tasks, effect)
        _answer(letter, None)

    async def _record(self, event: Event, transition: Transition) -> None:
        self._events += 1
        await self._ports.journal.append(
            summarise(transition.run), self._events, event, self._facts + 1, transition.facts
        )
        self._facts += len(transition.facts)
        self.run = transition.run
        self._ports.feeds.of(self.run.id).ring()

    def _start(self, tasks: asyncio.TaskGroup, effect: Effect) -> None:
        if isinstance(effect, Close):
            task = tasks.create_task(self._close(effect, dict(self._tasks)))
        else:
            task = tasks.create_task(self._effects.carry_out(effect))
        self._tasks[task] = effect
        task.add_done_callback(self._tasks.pop)

    async def _close(self, effect: Close, others: dict[asyncio.Task[None], Effect]) -> None:
        """Closing comes last: whoever is still at work is cut short or waited for."""
        for task, what in others.items():
            if isinstance(what, CUT_SHORT):
                task.cancel()
        if others:
            await asyncio.wait(others)
        await self._effects.carry_out(effect)


def _answer(letter: _Letter, reply: str | None) -> None:
    if letter.reply is not None and not letter.reply.done():
        letter.reply.set_result(reply)


def _refuse(letter: _Letter) -> None:
    _answer(letter, "The run has ended; nothing was taken.")


def summarise(run: Run) -> RunSummary:
    """The run's line in lists."""
    return RunSummary(
        run_id=run.id,
        status=run.status.value,
        open=run.stage is not Stage.DONE,
        requested_at=run.requested_at,
        ended_at=run.ended_at,
        task=run.task.text,
        agents=tuple(run.agents),
        winner=run.decision.winner.agent if run.decision is not None else None,
        repository=str(run.task.repository) if run.task.repository is not None else None,
    )
