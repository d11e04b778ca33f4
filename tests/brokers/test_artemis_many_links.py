"""A connection with links to 10,000 addresses of a replicated Artemis, whose primary is killed.

Each address gets a message before the kill and one after it, and each message arrives from its own
address. Run it with ``-s`` for the times.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from haclient import Message, aio
from haclient.events import Disconnected, Event
from tests.brokers.application import running
from tests.brokers.products.artemis import Artemis
from tests.brokers.products.artemis_config import Kind, Settings
from tests.brokers.topology import Fault, Launch

pytestmark = [pytest.mark.brokers, pytest.mark.timeout(1800)]
_ADDRESSES = 10_000
_PATIENCE = 600.0
# The limit of concurrent requests: Artemis creates a queue on the first Attach to each address.
_AT_A_TIME = 200
# MiB. With 512 MiB Artemis 2.56.0 ran out of memory at some 9,300 queues with a link each.
_HEAP = 2048

T = TypeVar("T")
R = TypeVar("R")


async def _for_each(work: Callable[[T], Awaitable[R]], items: Iterable[T]) -> list[R]:
    """Do the work for all items, a few concurrently. The first error ends it."""
    limit = asyncio.Semaphore(_AT_A_TIME)

    async def one(item: T) -> R:
        async with limit:
            return await work(item)

    async with asyncio.timeout(_PATIENCE), asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(item)) for item in items]
    return [task.result() for task in tasks]


class _Clock:
    """Prints the duration of each step."""

    def __init__(self) -> None:
        self._since = time.monotonic()

    def shows(self, what: str) -> None:
        now = time.monotonic()
        print(f"{what}: {now - self._since:.1f} s")  # noqa: T201 - what pytest -s is for
        self._since = now


class _Events:
    """Counts the events of a connection."""

    def __init__(self) -> None:
        self.seen: Counter[type[Event]] = Counter()

    def __call__(self, event: Event) -> None:
        self.seen[type(event)] += 1


async def _kill(pair: Artemis, clock: _Clock) -> None:
    await pair.whole()
    clock.shows("in sync")
    await pair.inject(Fault.KILL)
    await pair.serving()
    clock.shows("from the kill until a primary accepts")


async def test_ten_thousand_senders_and_then_receivers_are_attached_again(tmp_path: Path) -> None:
    names = [f"address.{number}" for number in range(_ADDRESSES)]
    # With a heartbeat of 10 s the client dropped a busy Artemis that was creating 10,000 queues.
    connect = partial(aio.connect, call_timeout=_PATIENCE, send_timeout=_PATIENCE, heartbeat=60.0)
    clock, events = _Clock(), _Events()
    async with AsyncExitStack() as stack:
        pair = await stack.enter_async_context(
            running("artemis-locked", Artemis(Kind.LOCKED, Launch(tmp_path), Settings(heap=_HEAP)))
        )
        async with connect(pair.url, on_event=events) as connection:

            async def send(sender: aio.Sender, word: str) -> None:
                await sender.send(Message(body=f"{sender.address} {word}"))

            senders = await _for_each(
                lambda name: connection.create_sender(name, capabilities=("queue",)), names
            )
            clock.shows("senders attached")
            await _for_each(lambda sender: send(sender, "before"), senders)
            clock.shows("a message to each")
            await _kill(pair, clock)
            await _for_each(lambda sender: send(sender, "after"), senders)
            clock.shows("from there until a message to each was settled")
        assert events.seen[Disconnected] == 1, events.seen

        events = _Events()
        async with connect(pair.url, on_event=events) as connection:

            async def take(receiver: aio.Receiver) -> str:
                await receiver.add_credit(1)
                delivery = await receiver.receive(timeout=_PATIENCE)
                await delivery.accept()
                return str(delivery.message.body)

            receivers = await _for_each(
                lambda name: connection.create_receiver(name, credit=0, capabilities=("queue",)), names
            )
            clock.shows("receivers attached")
            assert await _for_each(take, receivers) == [f"{name} before" for name in names]
            clock.shows("a message from each")
            await _kill(pair, clock)
            assert await _for_each(take, receivers) == [f"{name} after" for name in names]
            clock.shows("from there until a message from each")
        assert events.seen[Disconnected] == 1, events.seen
