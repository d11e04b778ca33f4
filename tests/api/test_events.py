"""The iterator over a connection's events can be closed, and is a context manager."""

from __future__ import annotations

import asyncio
import threading

import haclient
from haclient import aio
from haclient.events import Disconnected, Event, Reconnected
from haclient.events.event_log import BlockingEvents
from haclient.testing.threads import in_thread
from tests.peers import primary, url

FAST = {"backoff_base": 0.001, "backoff_max": 0.01}


async def test_the_end_of_the_block_ends_the_iteration() -> None:
    async with primary() as peer, aio.connect(url(peer, **FAST)) as connection:
        async with connection.events() as events:
            peer.drop()
            async for event in events:
                if isinstance(event, Reconnected):
                    break
        assert [each async for each in events] == []
        peer.drop()  # events are no longer collected for it
        async with connection.events() as others:
            peer.drop()
            assert isinstance(await anext(others), Disconnected)
        assert not events._queue


async def test_closing_ends_an_iteration_that_waits() -> None:
    async with primary() as peer, aio.connect(url(peer)) as connection:
        events = connection.events()
        waiting = [asyncio.ensure_future(anext(events, None)) for _ in range(2)]
        await asyncio.sleep(0)
        await events.close()
        await events.close()
        assert await asyncio.wait_for(asyncio.gather(*waiting), 10) == [None, None]
        assert len(connection.factory._core._events._iterators) == 1
        peer.drop()
        async with connection.events() as others:
            await anext(others)
        assert len(connection.factory._core._events._iterators) <= 1, "a closed one is forgotten"


async def test_what_is_queued_when_it_is_closed_is_dropped() -> None:
    async with primary() as peer, aio.connect(url(peer, **FAST)) as connection:
        events, others = connection.events(), connection.events()
        peer.drop()
        async for event in others:
            if isinstance(event, Reconnected):
                break
        await events.close()
        assert [each async for each in events] == []


def test_the_end_of_the_block_ends_the_blocking_iteration() -> None:
    with in_thread(primary()) as peer, haclient.connect(url(peer, **FAST)) as connection:
        with connection.events() as events:
            connection.create_sender("q")  # a round trip: it has begun
            engine = next(iter(peer.engines))
            engine._loop.call_soon_threadsafe(peer.drop)
            for event in events:
                if isinstance(event, Reconnected):
                    break
        assert list(events) == []


def test_closing_ends_a_blocking_iteration_that_waits_on_other_threads() -> None:
    with in_thread(primary()) as peer, haclient.connect(url(peer)) as connection:
        events = connection.events()
        ended: list[list[Event]] = []
        threads = [threading.Thread(target=lambda: ended.append(list(events))) for _ in range(2)]
        for thread in threads:
            thread.start()
        events.close()
        for thread in threads:
            thread.join(10)
        assert ended == [[], []]
        assert isinstance(events, BlockingEvents)
