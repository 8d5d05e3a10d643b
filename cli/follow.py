"""Follows a run to its end: shows its events, and turns Ctrl-C into a cancel that keeps the work.

Ctrl-C once cancels and goes on showing, also when it comes before the run has an id; twice leaves at once. SIGTERM and
SIGHUP (the terminal went away) leave, and the run goes on in the daemon.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from cli.client import Client
from cli.errors import CliError, ConnectionLost, Exit, Refused
from cli.notes import say
from massgend.api.schemas import RunView
from massgend.domain.run import Status

if TYPE_CHECKING:
    from cli.screens import Screen


class Interrupts:
    """While entered, the first Ctrl-C cancels the run as soon as its id is known. For the main thread only."""

    def __init__(self, open_client: Callable[[], Client]) -> None:
        self.asked = False
        self._open_client = open_client
        self._run_id = ""
        self._note: Callable[[str], None] = say
        self._known = threading.Event()
        self._cancelling = threading.Thread(target=self._cancel, daemon=True, name="cancel")
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interrupts:
        self._before = {
            signal.SIGINT: signal.signal(signal.SIGINT, self._interrupted),
            signal.SIGTERM: signal.signal(signal.SIGTERM, _leave),
            signal.SIGHUP: signal.signal(signal.SIGHUP, _leave),
        }
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()

    def release(self) -> None:
        """Signals mean what they meant before. Idempotent."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def watch(self, run_id: str, note: Callable[[str], None]) -> None:
        """The run that Ctrl-C cancels, also one that was pressed before its id was known."""
        self._run_id, self._note = run_id, note
        self._known.set()

    def wait(self) -> None:
        """Until the daemon was told, for who does not stay to see the run's end. Only after Ctrl-C."""
        self._cancelling.join()

    def _interrupted(self, _number: int, _frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        # In a thread: a signal handler interrupts code that may hold the screen's and the client's locks.
        self._cancelling.start()

    def _cancel(self) -> None:
        if not self._known.is_set():
            say("Ctrl-C was heard: the run is cancelled as soon as it has an id. Ctrl-C again leaves at once.")
        self._known.wait()
        self._note("Cancelling: the work so far is being kept. Ctrl-C again leaves at once.")
        try:
            with self._open_client() as client:
                client.cancel(self._run_id)
        except Refused as refusal:
            if refusal.status != 409:
                self._note(f"It could not be cancelled: {refusal}")
        except CliError as error:
            self._note(f"It could not be cancelled: {error}")


def _leave(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def follow(client: Client, run_id: str, screen: Screen) -> RunView:
    """The result, once the run has ended. The screen is closed, whatever happens."""
    from cli.stream import follow_events  # after the run was asked for: it need not wait for this

    try:
        for event in follow_events(client, run_id, note=screen.note):
            screen.show(event)
            if event.type == "result":
                return RunView.model_validate(event.content)
    finally:
        screen.close()
    raise ConnectionLost(f"the stream of run {run_id} ended without a result: massgend show {run_id}")


def exit_code(view: RunView, *, interrupted: bool = False) -> Exit:
    """See docs/cli.md. A merge that was not asked for is not missing."""
    match view.status:
        case Status.DELIVERED:
            return Exit.DONE
        case Status.DECIDED:
            asked = view.merge is None or view.merge.mode in ("auto", "squash")
            return Exit.NOT_MERGED if asked else Exit.DONE
        case Status.CANCELLED:
            return Exit.INTERRUPTED if interrupted else Exit.NO_RESULT
        case Status.NO_RESULT if view.limit_reached:
            return Exit.LIMIT
        case Status.NO_RESULT | Status.FAILED | Status.PREPARING | Status.RUNNING:
            return Exit.NO_RESULT
