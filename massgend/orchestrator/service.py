"""All runs of one daemon: ask for one, find one, cancel one, take up those that a dead daemon left."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from massgend.domain.events import CloseRequested, DaemonRestarted, RunRequested
from massgend.domain.machine import replay
from massgend.domain.run import Cause, Run, Stage
from massgend.domain.task import SandboxSettings, Task
from massgend.gateway.egress_rules import EgressError
from massgend.gateway.recording import RecordError
from massgend.journal import RunSummary
from massgend.orchestrator.actor import RunActor
from massgend.orchestrator.models import replayed_labels
from massgend.orchestrator.ports import Ports
from snapshots.repository import RepositoryReport

log = logging.getLogger(__name__)


class RunRefused(Exception):
    """The run cannot start; nothing was made. `code` is stable, the message is for people."""

    def __init__(self, code: str, detail: str) -> None:
        self.code = code
        super().__init__(detail)


SHUTTING_DOWN = RunRefused("shutting_down", "The daemon is shutting down: try again in a moment.")
MAX_PAUSE_S = 60.0
KEPT_RUNS = 64


class RunNotFound(Exception):
    pass


class RunAmbiguous(Exception):
    pass


@dataclass(frozen=True, kw_only=True)
class Requested:
    run: Run
    warnings: tuple[str, ...]


class Runs:
    """The orchestrator's front. `serve` owns every run's task; the other calls may come at any time while it serves."""

    def __init__(self, ports: Ports) -> None:
        self.ports = ports
        self._actors: dict[str, RunActor] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._driving: set[asyncio.Task[None]] = set()
        self._cancelling: set[str] = set()
        self._ended: dict[str, Run] = {}

    async def serve(self, stop: asyncio.Event) -> None:
        """Take up open runs, then run until `stop` is set; runs under way are left to the next daemon."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            for summary in await self.ports.journal.runs(open_only=True):
                self._start(summary.run_id, None)
            await stop.wait()
            self._tasks = None
            for task in self._driving:
                task.cancel()

    @property
    def under_way(self) -> int:
        return len(self._actors)

    async def request(self, task: Task) -> Requested:
        """Check everything that can be checked, then journal the run and start it. Raises RunRefused."""
        if self._tasks is None:
            raise SHUTTING_DOWN
        warnings = await self._preflight(task)
        event = RunRequested(
            at=self.ports.chance.now(),
            run=self.ports.chance.new_run_id(),
            task=task,
            labels=await self._labels(task),
        )
        actor = await RunActor.request(self.ports, event)
        self._start(event.run, actor)
        return Requested(run=actor.run, warnings=warnings)

    async def find(self, prefix: str) -> str:
        """The complete id. Raises RunNotFound, RunAmbiguous."""
        found = await self.ports.journal.find(prefix) if prefix else ()
        if not found:
            raise RunNotFound(f"There is no run '{prefix}': `massgend ps --all` lists them.")
        if len(found) > 1:
            raise RunAmbiguous(f"'{prefix}' is ambiguous: it could be {', '.join(sorted(found))}.")
        return found[0]

    async def get(self, run_id: str) -> Run:
        """The run as it stands; `run_id` is complete."""
        actor = self._actors.get(run_id)
        if actor is not None:
            return actor.run
        if run_id in self._ended:
            return self._ended[run_id]
        run = replay(await self.ports.journal.events(run_id))
        if run.stage is Stage.DONE:
            self._ended[run_id] = run
            while len(self._ended) > KEPT_RUNS:
                del self._ended[next(iter(self._ended))]
        return run

    async def list(self) -> tuple[RunSummary, ...]:
        return await self.ports.journal.runs()

    async def cancel(self, run_id: str) -> Run:
        """Ask the run to end; its work is kept. A run that has ended stays as it is."""
        run = await self.get(run_id)
        if run.stage is not Stage.DONE:
            self._cancelling.add(run_id)
            actor = self._actors.get(run_id)
            if actor is not None:
                await actor.post(self._cancelled())
        return run

    def _cancelled(self) -> CloseRequested:
        return CloseRequested(at=self.ports.chance.now(), cause=Cause.CANCELLED)

    async def forget(self, run_id: str) -> None:
        """Drop an ended run from the journal; its files are the caller's business."""
        await self.ports.journal.forget(run_id)
        self._ended.pop(run_id, None)
        self.ports.feeds.forget(run_id)

    async def _labels(self, task: Task) -> dict[str, str]:
        """New random ones; those of the recorded run for a replay."""
        names = [spec.name for spec in task.agents]
        fresh = dict(zip(names, self.ports.chance.new_labels(len(names)), strict=True))
        if task.replay is None:
            return fresh
        recorded = await asyncio.to_thread(replayed_labels, task.replay)
        if set(recorded) != set(names):
            raise RunRefused("replay_unusable", f"{task.replay} was recorded by {', '.join(sorted(recorded))}.")
        return recorded

    async def _preflight(self, task: Task) -> tuple[str, ...]:
        """All looks at once; the first problem in this order is the one told: engine, image, repository."""
        try:
            async with asyncio.TaskGroup() as looks:
                engine = looks.create_task(self._engine_problem(task.sandbox))
                repository = looks.create_task(self._look(task.repository))
                models = looks.create_task(self._models_problem(task))
        except ExceptionGroup as group:
            raise group.exceptions[0] from group
        if (refused := engine.result() or models.result()) is not None:
            raise refused
        report = repository.result()
        if report is None:
            await self._check_target(task)
            return ()
        if report.problem is not None:
            raise RunRefused("repository_unusable", report.problem)
        return (*report.warnings, *_notes(task, report))

    async def _engine_problem(self, wanted: SandboxSettings) -> RunRefused | None:
        engine = await self.ports.provider.check_engine()
        if engine.problem is not None:
            return RunRefused("engine_unusable", engine.problem)
        if wanted.runtime is not None and wanted.runtime not in engine.runtimes:
            known = ", ".join(engine.runtimes) or "none"
            return RunRefused("runtime_unknown", f"The engine has no runtime '{wanted.runtime}': it has {known}.")
        checked = await self.ports.provider.check_image(wanted.image)
        return RunRefused("image_unusable", checked.problem) if checked.problem is not None else None

    async def _models_problem(self, task: Task) -> RunRefused | None:
        try:
            problems = await self.ports.models.problems(task)
            if task.replay is not None:
                await asyncio.to_thread(replayed_labels, task.replay)
        except (RecordError, EgressError) as error:
            return RunRefused("models_unusable", str(error))
        if task.record is not None and task.record.exists():
            return RunRefused("record_exists", f"{task.record} exists already: choose another file for the record.")
        return RunRefused("models_unusable", problems[0]) if problems else None

    async def _check_target(self, task: Task) -> None:
        """A folder that cannot be delivered to is told before hours of work, not after."""
        if task.deliver_to is None:
            return
        problem = await self.ports.repository.check_target(task.deliver_to)
        if problem is not None:
            raise RunRefused("target_unusable", problem)

    async def _look(self, repository: Path | None) -> RepositoryReport | None:
        return await self.ports.repository.look(repository) if repository is not None else None

    def _start(self, run_id: str, actor: RunActor | None) -> None:
        if self._tasks is None:
            raise SHUTTING_DOWN
        if actor is not None:
            self._actors[run_id] = actor
        task = self._tasks.create_task(self._drive(run_id, actor))
        self._driving.add(task)
        task.add_done_callback(self._driving.discard)

    async def _drive(self, run_id: str, actor: RunActor | None) -> None:
        """Until the run has ended. What goes wrong around it (the journal, the engine) is waited out, never final."""
        pauses = backoff()
        while True:
            try:
                if actor is None:
                    actor = await self._take_up(run_id)
                    self._actors[run_id] = actor
                await actor.run_until_done()
                break
            except* Exception as group:
                pause = next(pauses)
                log.exception("run %s stopped; it is taken up again in %g s", run_id, pause, exc_info=group)
            finally:
                self._actors.pop(run_id, None)
                self.ports.feeds.of(run_id).ring()
            actor = None
            await asyncio.sleep(pause)
        self._ended[run_id] = actor.run
        self._cancelling.discard(run_id)
        self.ports.feeds.of(run_id).ring()

    async def _take_up(self, run_id: str) -> RunActor:
        """From the journal, once nothing of it runs any more. Raises what journal and engine raise."""
        events = await self.ports.journal.events(run_id)
        run = replay(events)
        await self.ports.provider.remove_ours(self.ports.instance, run_id)
        facts = await self.ports.journal.fact_count(run_id)
        actor = RunActor(self.ports, run, events=len(events), facts=facts)
        await actor.post(DaemonRestarted(at=self.ports.chance.now()))
        if run_id in self._cancelling:
            await actor.post(self._cancelled())
        log.info("run %s is taken up again", run_id)
        return actor


def _notes(task: Task, report: RepositoryReport) -> Iterator[str]:
    dirty = report.dirty_files
    if dirty and not task.include_dirty:
        what = "1 uncommitted change stays" if dirty == 1 else f"{dirty} uncommitted changes stay"
        yield f"{what} in your checkout and cannot be seen by the agents (--include-dirty takes them along)."
    if report.branch is not None and report.branch.startswith("massgend/"):
        yield f"You are on {report.branch}, a branch for review: the winner would be merged into it."


def backoff() -> Iterator[float]:
    """Seconds: 1, 2, 4 ... and then 60 again and again."""
    pause = 1.0
    while True:
        yield pause
        pause = min(MAX_PAUSE_S, 2 * pause)
