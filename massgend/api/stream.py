"""A run's events as server-sent events: journalled facts with ids, activities without, the result last."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event

from massgend.api.schemas import Activity
from massgend.api.views import run_view
from massgend.domain.run import Stage
from massgend.orchestrator.service import Runs

KEEPALIVE_S = 15.0


async def stream(runs: Runs, run_id: str, after: int) -> AsyncIterator[bytes]:
    """Everything after fact number `after`, then live, until the run has ended."""
    ports = runs.ports
    feed = ports.feeds.of(run_id)
    shown = 0
    while True:
        version = feed.version
        run = await runs.get(run_id)
        while facts := await ports.journal.facts(run_id, after=after):
            for fact in facts:
                after = fact.seq
                body = json.dumps({"run": run_id, **json.loads(fact.body)}, ensure_ascii=False)
                yield format_sse_event(data_str=body, event=fact.type, id=str(fact.seq))
        for doing in sorted(feed.doing.values(), key=lambda one: one.version):
            if doing.version > shown:
                activity = Activity(at=doing.at, agent=doing.agent, line=doing.line, changed_files=doing.changed_files)
                yield format_sse_event(data_str=activity.model_dump_json(), event=activity.type)
        shown = version
        if run.stage is Stage.DONE:
            view = run_view(run, ports.state)
            yield format_sse_event(data_str=view.model_dump_json(), event=view.type)
            return
        if not await feed.wait(version, KEEPALIVE_S):
            yield KEEPALIVE_COMMENT
