"""A run's events from the first to the result, also when the daemon is restarted meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import cache
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from cli.client import Client, Event
from cli.errors import ConnectionLost, DaemonDown, Refused
from massgend.api.schemas import Activity, RunView
from massgend.domain.facts import Fact

PATIENCE_S = 60.0
_PAUSES_S = (0.2, 0.5, 1.0, 2.0)

Known = Fact | Activity | RunView


@cache
def _known() -> TypeAdapter[Known]:
    """Made at the first use: it takes a while, and JSON lines do without."""
    return TypeAdapter(Annotated[Known, Field(discriminator="type")])


def read_event(event: Event) -> Known | None:
    """The event as a value; None for one that this version does not know, which is then passed over."""
    content = {name: value for name, value in event.content.items() if name != "run"}
    try:
        return _known().validate_python({**content, "type": event.type})
    except ValidationError:
        return None


def follow_events(
    client: Client,
    run_id: str,
    *,
    note: Callable[[str], None],
    patience_s: float = PATIENCE_S,
    pause: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Event]:
    """Ends after the event of type `result`. Raises ConnectionLost when the daemon stays away for `patience_s`."""
    last: str | None = None
    broken_at: float | None = None
    tries = 0
    while True:
        try:
            for event in client.events(run_id, after=last):
                if broken_at is not None:
                    note("Connected again.")
                broken_at, tries = None, 0
                last = event.id or last
                yield event
                if event.type == "result":
                    return
        except DaemonDown:
            pass
        except Refused as refusal:
            if refusal.status < 500:
                raise
        now = clock()
        if broken_at is None:
            broken_at = now
            note("The connection to massgend broke; trying again...")
        if now - broken_at > patience_s:
            raise ConnectionLost(
                f"massgend has not come back for {patience_s:.0f} s; the run goes on with it: "
                f"massgend up, then massgend attach {run_id}"
            )
        pause(_PAUSES_S[min(tries, len(_PAUSES_S) - 1)])
        tries += 1
