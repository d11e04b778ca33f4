"""Subscriptions at a replicated Artemis across kills: every settled message arrives, and none twice.

Rules
-----
* Each subscription is checked separately. One has a receiver all the time. One has none until the bare
  client drains it: Artemis keeps it as the queue ``topic::client_id.name``.
* A duplicate of an accepted message is allowed only across a kill: its accept was lost with the primary.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from haclient import aio
from haclient.errors import ReceiveTimeout, StaleDelivery
from tests.brokers.application import running
from tests.brokers.products.artemis import Artemis
from tests.brokers.products.artemis_config import Kind
from tests.brokers.products.flow import Flow, flowing
from tests.brokers.topology import Fault, Launch

pytestmark = [pytest.mark.brokers, pytest.mark.timeout(900)]
TOPIC = "news"
_KILLS = 3
# Small, so that few accepts are in flight.
_CREDIT = 20
_PATIENCE = 120.0
# Seconds. A stored message arrives far sooner.
_QUIET = 3.0


class Kill(NamedTuple):
    """The time from a kill until messages flowed again, in seconds of the monotonic clock."""

    began: float
    ended: float


class Reader:
    """Accepts a receiver's messages.

    :ivar accepted: the moments of acceptance, by body.
    """

    def __init__(self) -> None:
        self.accepted: dict[str, list[float]] = defaultdict(list)

    async def read(self, receiver: aio.Receiver, *, until_quiet: bool = False) -> None:
        """Read forever, or until no message arrives for ``_QUIET`` seconds."""
        while True:
            try:
                delivery = await receiver.receive(timeout=_QUIET if until_quiet else None)
            except ReceiveTimeout:
                return
            body = delivery.message.body
            assert isinstance(body, str)
            try:
                await delivery.accept()
            except StaleDelivery:
                continue  # its connection is lost: the message will be redelivered
            self.accepted[body].append(time.monotonic())

    async def has(self, bodies: set[str]) -> None:
        """Wait until all of these bodies were accepted."""
        async with asyncio.timeout(_PATIENCE):
            while not bodies <= self.accepted.keys():  # noqa: ASYNC110 - the reader signals nothing
                await asyncio.sleep(0.05)

    def check(self, kills: list[Kill]) -> int:
        """Return the number of duplicates, each of which must span a kill."""
        copies = 0
        for body, times in self.accepted.items():
            for first, again in itertools.pairwise(times):
                assert any(first <= kill.ended and kill.began <= again for kill in kills), (
                    f"{body} came twice"
                )
                copies += 1
        return copies


@asynccontextmanager
async def reading(*receivers: aio.Receiver) -> AsyncIterator[list[Reader]]:
    """Run a reader for each receiver until the block ends."""
    readers = [Reader() for _ in receivers]
    tasks = [asyncio.create_task(each.read(one)) for each, one in zip(readers, receivers, strict=True)]
    try:
        yield readers
    finally:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(each, asyncio.CancelledError) for each in ended), ended


async def kill_under(flow: Flow, pair: Artemis) -> list[Kill]:
    """Kill the primary ``_KILLS`` times while messages flow."""
    kills = []
    for _ in range(_KILLS):
        await flow.goes_on()
        began = await pair.inject(Fault.KILL)
        await flow.goes_on()
        kills.append(Kill(began, time.monotonic()))
    return kills


async def drained(pair: Artemis, queue: str) -> Counter[object]:
    """Return the messages that the bare client finds in a subscription's queue."""
    return Counter(stored.body for stored in await pair.drain(f"{TOPIC}::{queue}"))


async def test_a_durable_subscription_has_everything_once_after_three_kills(tmp_path: Path) -> None:
    async with running("artemis-locked", Artemis(Kind.LOCKED, Launch(tmp_path))) as pair:
        async with AsyncExitStack() as stack:
            publisher = await stack.enter_async_context(aio.connect(pair.url))
            me = await stack.enter_async_context(aio.connect(pair.url, client_id="me", credit=_CREDIT))
            for name in ("kept", "away"):
                await (await me.subscribe(TOPIC, name=name, durable=True)).close()
            live = await me.subscribe(TOPIC, name="live", durable=True)
            (reader,) = await stack.enter_async_context(reading(live))
            async with flowing(publisher, TOPIC, "topic") as flow:
                kills = await kill_under(flow, pair)
            await reader.has(flow.settled)
        copies = reader.check(kills)
        async with aio.connect(pair.url, client_id="me") as again:
            late = Reader()
            await late.read(await again.subscribe(TOPIC, name="away", durable=True), until_quiet=True)
        assert flow.settled <= late.accepted.keys()
        assert late.check([]) == 0
        kept = await drained(pair, "me.kept")
        assert flow.settled <= kept.keys()
        assert set(kept.values()) == {1}
        assert await drained(pair, "me.live") == {}
        async with aio.connect(pair.url, client_id="me") as last:
            await last.unsubscribe("live")
    print(f"{len(flow.settled)} settled, {_KILLS} kills, {copies} accepted again across a kill")  # noqa: T201


@pytest.mark.parametrize("client_id", ["me", None], ids=["of one client", "of all clients"])
async def test_a_shared_durable_subscription_gives_each_message_to_one_after_three_kills(
    tmp_path: Path, client_id: str | None
) -> None:
    """Two receivers share it: on one connection, or on two connections without a client id."""
    async with running("artemis-locked", Artemis(Kind.LOCKED, Launch(tmp_path))) as pair:
        async with AsyncExitStack() as stack:
            publisher = await stack.enter_async_context(aio.connect(pair.url))
            mine = [
                await stack.enter_async_context(aio.connect(pair.url, client_id=client_id, credit=_CREDIT))
            ]
            if client_id is None:
                mine.append(await stack.enter_async_context(aio.connect(pair.url, credit=_CREDIT)))
            await (await mine[0].subscribe(TOPIC, name="kept", durable=True, shared=True)).close()
            receivers = [
                await each.subscribe(TOPIC, name="team", durable=True, shared=True)
                for each in (mine[0], mine[-1])
            ]
            readers = await stack.enter_async_context(reading(*receivers))
            async with flowing(publisher, TOPIC, "topic") as flow:
                kills = await kill_under(flow, pair)
            team = Reader()
            async with asyncio.timeout(_PATIENCE):
                while not flow.settled <= {body for each in readers for body in each.accepted}:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
        for each in readers:
            assert each.accepted, "one of two receivers got nothing"
            for body, times in each.accepted.items():
                team.accepted[body] = sorted((*team.accepted[body], *times))
        copies = team.check(kills)
        suffix, prefix = (":global", "") if client_id is None else ("", "me.")
        kept = await drained(pair, f"{prefix}kept{suffix}")
        assert flow.settled <= kept.keys()
        assert set(kept.values()) == {1}
        assert await drained(pair, f"{prefix}team{suffix}") == {}
    print(f"{len(flow.settled)} settled, {_KILLS} kills, {copies} accepted again across a kill")  # noqa: T201
