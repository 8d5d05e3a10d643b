"""Readers are woken, never queued for."""

from __future__ import annotations

import asyncio

import pytest

from massgend.orchestrator.feed import Feed, Feeds

pytestmark = pytest.mark.anyio


async def test_a_reader_that_is_behind_does_not_wait() -> None:
    feed = Feed()
    feed.ring()

    assert await feed.wait(0, timeout_s=0) is True


async def test_a_waiting_reader_is_woken_by_the_next_news() -> None:
    feed = Feed()
    waiting = asyncio.create_task(feed.wait(feed.version, timeout_s=5))
    await asyncio.sleep(0)
    feed.ring()

    assert await waiting is True


async def test_without_news_a_reader_gets_its_time_out() -> None:
    assert await Feed().wait(0, timeout_s=0.01) is False


async def test_an_activity_replaces_the_agents_last_one_and_keeps_what_is_not_told() -> None:
    feed = Feed()
    feed.show("a", at=1.0, line="reading")
    feed.show("a", at=2.0, changed_files=3)

    assert len(feed.doing) == 1
    assert (feed.doing["a"].line, feed.doing["a"].changed_files) == ("reading", 3)


async def test_forgetting_a_run_wakes_its_readers() -> None:
    feeds = Feeds()
    feed = feeds.of("r")
    waiting = asyncio.create_task(feed.wait(feed.version, timeout_s=5))
    await asyncio.sleep(0)
    feeds.forget("r")

    assert await waiting is True
    assert feeds.of("r") is not feed
