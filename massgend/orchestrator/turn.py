"""One turn, from mounts to the moment when nothing of it runs any more. Must not decide anything about the run."""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path, PurePosixPath

from watchfiles import DefaultFilter, awatch

from massgend.agents.agent import (
    GATEWAY,
    HOME,
    WORKSPACE,
    AgentTurn,
    NeedsOfSandbox,
    OutcomeKind,
    SandboxNeeds,
    TurnOutcome,
)
from massgend.agents.prompt import peer_path
from massgend.domain.effects import StartTurn
from massgend.domain.events import Event, TurnEnd, TurnEnded, TurnStarted
from massgend.domain.run import Choice, Run
from massgend.gateway.turn_gateway import TurnServices, open_gateway
from massgend.orchestrator.output import OutputLog, plain_line
from massgend.orchestrator.ports import Ports, base_of, log_path, owner, workspace_id
from sandboxes.errors import EngineUnreachable, SandboxError, SandboxGone
from sandboxes.sandbox import BindMount, Chunk, Limits, Mount, OverlayMount, Sandbox, SandboxSpec
from snapshots.errors import SnapshotError
from snapshots.snapshot import Snapshot, View, Workspace

log = logging.getLogger(__name__)

ENGINE_PATIENCE_S = 600.0
ENGINE_LOOK_S = 2.0
DISK_LOOK_S = 2.0
MAX_COUNTED = 10_000
"""Changed files in one turn that are told apart; more are not counted."""

Post = Callable[[Event], Awaitable[None]]
HandIn = Callable[[str, int, Choice], Awaitable[str | None]]


class LiveTurn:
    """The handle of a running turn: the machine's effects speak to it, the adapter's desk listens."""

    def __init__(self, run: Run, effect: StartTurn, hand_in: HandIn, services: TurnServices) -> None:
        self.run = run
        self.effect = effect
        self.services = services
        self._hand_in = hand_in
        self._decided = asyncio.Event()
        self._notices: asyncio.Queue[str] = asyncio.Queue()
        self._stop = asyncio.Event()
        self.log: OutputLog | None = None

    # -- the desk's side

    async def hand_in(self, choice: Choice) -> str | None:
        refusal = await self._hand_in(self.effect.agent, self.effect.step, choice)
        if refusal is None:
            self._decided.set()
        return refusal

    def show(self, chunk: Chunk) -> None:
        if self.log is not None:
            self.log.take(chunk)

    @property
    def decided(self) -> bool:
        return self._decided.is_set()

    async def wait_decided(self) -> None:
        await self._decided.wait()

    async def next_notice(self) -> str:
        return await self._notices.get()

    # -- the effects' side

    def notify(self, text: str) -> None:
        self._notices.put_nowait(text)

    def end(self) -> None:
        """The decision is in: the adapter sees it and ends by itself, soon."""
        self._decided.set()

    def stop(self) -> None:
        self._stop.set()

    @property
    def stopped(self) -> bool:
        return self._stop.is_set()

    async def wait_stopped(self) -> None:
        await self._stop.wait()


async def run_turn(ports: Ports, live: LiveTurn, post: Post, *, ended: Callable[[], None]) -> None:
    """Carry out StartTurn. Posts TurnStarted and, whatever happens, TurnEnded: nothing of the turn runs then.

    `ended` is called just before: what the turn has used is reported while it still counts as the turn's.

    Cancelled (the daemon goes down): ends the turn likewise, and posts nothing.
    """
    run, effect = live.run, live.effect
    try:
        outcome = await _attempt(ports, live, post)
    except (SandboxError, SnapshotError, OSError) as error:
        outcome = await _failed(ports, live, error)
    except ExceptionGroup as group:
        known, unknown = group.split((SandboxError, SnapshotError, OSError))
        if unknown is not None or known is None:
            raise
        outcome = await _failed(ports, live, _first(known))
    ended()
    end = TurnEnd.INTERRUPTED if outcome is None else TurnEnd(outcome.kind.value)
    await post(
        TurnEnded(
            at=ports.chance.now(),
            agent=effect.agent,
            step=effect.step,
            end=end,
            reason=outcome.reason if outcome is not None else "",
            retry_after_s=outcome.retry_after_s if outcome is not None else None,
        )
    )
    await ports.store.close_views(run.id, run.agents[effect.agent].label, effect.context.turn)


async def _failed(ports: Ports, live: LiveTurn, error: BaseException) -> TurnOutcome:
    """An engine that is away is nobody's failure yet: it is waited for, so that no agent is out because of it."""
    if isinstance(error, EngineUnreachable):
        log.warning("run %s, %s: the engine does not answer; waiting for it", live.run.id, live.effect.agent)
        deadline = time.monotonic() + ENGINE_PATIENCE_S
        while time.monotonic() < deadline and not live.stopped:
            await asyncio.sleep(ENGINE_LOOK_S)
            try:
                await ports.provider.list_ours(ports.instance, live.run.id)
                break
            except SandboxError:
                continue
    return TurnOutcome(kind=OutcomeKind.FAILED, reason=str(error))


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first


async def _attempt(ports: Ports, live: LiveTurn, post: Post) -> TurnOutcome | None:
    """The adapter's outcome; None when the turn was interrupted."""
    run, effect = live.run, live.effect
    label = run.agents[effect.agent].label
    async with AsyncExitStack() as stack:
        gateway = _make_gateway_folder(ports)
        stack.callback(shutil.rmtree, gateway, ignore_errors=True)
        live.log = OutputLog(log_path(ports, run.id, label), ports.feeds.of(run.id), effect.agent)
        stack.callback(live.log.close)
        live.log.note(f"turn {effect.context.turn} begins")
        if effect.context.notice:
            live.log.note(plain_line(effect.context.notice))
        token = ports.chance.new_token()
        await stack.enter_async_context(
            open_gateway(gateway, token=token, uid=ports.uid, gid=ports.gid, take=live.hand_in, services=live.services)
        )
        workspace = await ports.store.create_workspace(
            base_of(ports, run), workspace_id(run, effect.agent), f"massgend/{label}"
        )
        writable = await writable_views(ports)
        mounts = await _mounts(ports, run, effect, workspace, gateway, writable=writable)
        spec = next(spec for spec in run.task.agents if spec.name == effect.agent)
        adapter = ports.agents[spec.kind]
        needs = adapter.needs(spec) if isinstance(adapter, NeedsOfSandbox) else SandboxNeeds()
        sandbox = await ports.provider.start(_spec(ports, run, effect, mounts, needs))
        stack.push_async_callback(remove_for_certain, sandbox)
        await post(TurnStarted(at=ports.chance.now(), agent=effect.agent, step=effect.step))
        turn = AgentTurn(
            spec=spec,
            context=effect.context,
            gateway=gateway,
            peers_writable=writable,
            egress=bool(run.task.egress),
        )
        return await _work(ports, live, sandbox, turn, workspace)


async def remove_for_certain(sandbox: Sandbox) -> None:
    """Also when the turn is cancelled: whoever ends a turn waits until its container is gone."""
    removing = asyncio.ensure_future(sandbox.remove())
    try:
        await asyncio.shield(removing)
    except asyncio.CancelledError:
        await removing
        raise


def _make_gateway_folder(ports: Ports) -> Path:
    folder = ports.sockets / "t" / ports.chance.new_token()[:16]
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    return folder


async def _mounts(
    ports: Ports, run: Run, effect: StartTurn, workspace: Workspace, gateway: Path, *, writable: bool
) -> tuple[Mount, ...]:
    mounts: list[Mount] = [
        BindMount(source=workspace.path, target=WORKSPACE),
        BindMount(source=workspace.home, target=HOME),
        BindMount(source=gateway, target=GATEWAY, read_only=True),
    ]
    for shown in effect.context.answers:
        view = await ports.store.open_view(
            await find_snapshot(ports, run, shown.id.agent, run.answer(shown.id).snapshot.ref),
            run=run.id,
            agent=run.agents[effect.agent].label,
            turn=effect.context.turn,
            label=shown.label,
        )
        mounts.append(view_mount(view, peer_path(shown.label), writable=writable))
    return tuple(mounts)


async def find_snapshot(ports: Ports, run: Run, agent: str, ref: str) -> Snapshot:
    """The snapshot under `ref`, from the store. Raises SnapshotError when it is gone."""
    for snapshot in await ports.store.snapshots(base_of(ports, run), workspace_id(run, agent)):
        if snapshot.ref == ref:
            return snapshot
    raise SnapshotError(f"the snapshot {ref} is not in the store any more")


async def writable_views(ports: Ports) -> bool:
    """Can views have a private scratch on top here? Cheap: the provider remembers."""
    return (await ports.provider.check_engine()).overlay_volumes


def view_mount(view: View, target: PurePosixPath, *, writable: bool) -> Mount:
    """A view of an immutable tree: with a private scratch on top, or read-only where overlays are not to be had."""
    if writable:
        return OverlayMount(lower=view.lower, upper=view.upper, work=view.work, target=target)
    return BindMount(source=view.lower, target=target, read_only=True)


def _spec(ports: Ports, run: Run, effect: StartTurn, mounts: tuple[Mount, ...], needs: SandboxNeeds) -> SandboxSpec:
    settings = run.task.sandbox
    return SandboxSpec(
        name=f"massgend-{run.id}-{effect.agent}-{effect.step}",
        owner=owner(ports, run, effect.agent, effect.step),
        image=settings.image,
        uid=ports.uid,
        gid=ports.gid,
        mounts=(*mounts, *needs.mounts),
        env={**needs.env, "MASSGEND_SOCKET": f"{GATEWAY}/s.sock", "MASSGEND_TOKEN_FILE": f"{GATEWAY}/token"},
        workdir=WORKSPACE,
        limits=sandbox_limits(run),
        runtime=settings.runtime,
    )


def sandbox_limits(run: Run) -> Limits:
    settings = run.task.sandbox
    return Limits(memory_bytes=settings.memory_bytes, cpus=settings.cpus, pids=settings.pids)


async def _work(
    ports: Ports, live: LiveTurn, sandbox: Sandbox, turn: AgentTurn, workspace: Workspace
) -> TurnOutcome | None:
    """The adapter, beside the watcher of changed files, until it ends or the turn is stopped."""
    async with asyncio.TaskGroup() as tasks:
        working = tasks.create_task(ports.agents[turn.spec.kind].take_turn(turn, sandbox, live))
        stopping = tasks.create_task(live.wait_stopped())
        watching = tasks.create_task(_watch(ports, live, workspace))
        guarding = tasks.create_task(_guard_disk(ports))
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        for task in (stopping, watching, guarding, working):
            if task is not working or not working.done():
                task.cancel()
    if working.cancelled():
        return None
    outcome = working.result()
    if outcome.kind is OutcomeKind.FAILED and not (await sandbox.describe()).running:
        raise SandboxGone(f"its container ended: {outcome.reason}")
    return outcome


async def _guard_disk(ports: Ports) -> None:
    """Raises OSError when the disk is nearly full, so that the turn ends while the daemon can still write it down."""
    while True:
        free = await asyncio.to_thread(lambda: shutil.disk_usage(ports.state).free)
        if free < ports.min_free_bytes:
            mib = 1024**2
            raise OSError(
                f"only {free // mib} MiB are free where massgend keeps its work, {ports.min_free_bytes // mib} are the "
                "least: free some (massgend gc), or set MASSGEND_MIN_FREE_MB",
            )
        await asyncio.sleep(DISK_LOOK_S)


async def _watch(ports: Ports, live: LiveTurn, workspace: Workspace) -> None:
    """Count changed files for the user's view: hints only, bursts may be missed, and it never ends a turn.

    The watcher gives up on names that are not UTF-8, and where the host's limits on watches are reached.
    """
    try:
        await _count_changes(ports, live, workspace)
    except (RuntimeError, OSError) as error:
        log.info("changed files of %s in run %s are not counted: %s", live.effect.agent, live.run.id, error)


async def _count_changes(ports: Ports, live: LiveTurn, workspace: Workspace) -> None:
    feed = ports.feeds.of(live.run.id)
    changed: set[str] = set()
    async for changes in awatch(
        workspace.path,
        watch_filter=DefaultFilter(),
        debounce=200,
        step=50,
        recursive=True,
        ignore_permission_denied=True,
    ):
        if len(changed) < MAX_COUNTED:
            changed.update(path for _, path in changes)
        feed.show(live.effect.agent, at=ports.chance.now(), changed_files=len(changed))
