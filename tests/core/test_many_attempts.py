"""A thousand connections of one process, and a broker that sets up some of them a second: it is not given up.

Each connection has a factory of its own, which shares nothing else with the others.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

import haclient
from haclient import aio
from haclient.discovery.evidence import FailureReason
from haclient.errors import ConnectionGaveUp
from haclient.events import AttemptStarted, Closed, Connected, GaveUp
from haclient.testing.peers.listening import Peer, listening, url
from haclient.testing.virtual_clock import virtual_time
from tests.hostile.broker.connection import HEADER, Arrival, HostileConnection
from tests.hostile.broker.listening import HostileBrokers
from tests.peers.apis import on_thread
from tests.peers.watch import Watch

CLIENTS = 60
RATE = 40
# Of the 1.5 s that the broker needs for all.
TIMEOUT = 0.5
PATIENCE = {"attempt_timeout": TIMEOUT, "backoff_base": 0.05, "backoff_max": 0.2}
# Real seconds of silence; all of these peers and clients share one event loop, so that none is still at work.
SETTLE = 0.002


class SlowBroker:
    """Sets up a fixed number of connections a second, even if their clients have already given up.

    :param in_order: in their order of arrival, or in random order.
    """

    def __init__(self, *, rate: float = RATE, in_order: bool = True) -> None:
        self.waiting: list[tuple[HostileConnection, Arrival]] = []
        self._rate = rate
        self._in_order = in_order

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[Peer]:
        async with listening(lambda _: _Waiting(self)) as peer:
            work = asyncio.create_task(self._work())
            yield peer
            work.cancel()

    async def _work(self) -> None:
        while True:
            await asyncio.sleep(1 / self._rate)
            if self.waiting:
                number = 0 if self._in_order else random.randrange(len(self.waiting))
                connection, arrival = self.waiting.pop(number)
                connection.answer(arrival)


class _Waiting(HostileConnection):
    def __init__(self, broker: SlowBroker) -> None:
        super().__init__(HostileBrokers(0, ()), random.Random())
        self.instead[HEADER] = lambda what: broker.waiting.append((self, what))


def _timed_out(watch: Watch) -> int:
    return watch.kinds().count(FailureReason.TIMED_OUT)


async def _connect_all(in_order: bool) -> int:
    """How many attempts timed out until all were connected."""
    watch = Watch()
    async with SlowBroker(in_order=in_order).listening() as peer:
        connecting = (aio.connect(url(peer, **PATIENCE), on_event=watch) for _ in range(CLIENTS))
        connections = await asyncio.wait_for(asyncio.gather(*connecting), 20)
        await watch.until(Connected, count=CLIENTS)
        for connection in connections:
            await connection.close()
    return _timed_out(watch)


# In virtual time, because a machine that stands still for half a second times all attempts out at once.
@pytest.mark.parametrize("in_order", [True, False])
def test_each_connects_although_all_together_take_longer_than_one_attempt_may(in_order: bool) -> None:
    with virtual_time(settle=SETTLE) as clock:
        timed_out = clock.run(_connect_all(in_order))
    # The oldest may be passed over where there is no order.  If each attempt had its time alone, they would
    # begin anew until the 20 s are over.
    assert timed_out <= (0 if in_order else CLIENTS)


@pytest.mark.slow  # threads live in real time: the broker needs 6 s, and the machine may stand still for 2 s
async def test_those_of_other_event_loops_count_too() -> None:
    watch = Watch()
    async with SlowBroker(rate=10).listening() as peer:
        there = url(peer, **PATIENCE | {"attempt_timeout": 2})
        calls = (on_thread(haclient.connect, there, on_event=watch) for _ in range(CLIENTS))
        connections = await asyncio.wait_for(asyncio.gather(*calls), 60)
        await watch.until(Connected, count=CLIENTS)
        for connection in connections:
            await connection.close()
    assert _timed_out(watch) <= CLIENTS


class _Hanging(HostileConnection):
    """Serves its client, or says nothing."""

    def __init__(self, served: Iterator[bool]) -> None:
        super().__init__(HostileBrokers(0, ()), random.Random())
        if not next(served):
            self.instead[HEADER] = lambda _: None


async def test_a_peer_that_answers_nobody_has_the_time_of_one_attempt() -> None:
    watch = Watch()
    async with listening(lambda _: _Hanging(itertools.repeat(False))) as peer:
        there = url(peer, **PATIENCE, max_attempts=2)
        connecting = (aio.connect(there, on_event=watch) for _ in range(5))
        results = await asyncio.gather(*connecting, return_exceptions=True)
        await watch.until(GaveUp, count=5)
    assert {type(each) for each in results} == {ConnectionGaveUp}
    assert _timed_out(watch) == 10


async def test_a_peer_that_serves_every_newer_connection_keeps_one_that_hangs_no_longer() -> None:
    watch = Watch()
    served = itertools.chain([False], itertools.repeat(True))
    async with listening(lambda _: _Hanging(served)) as peer:
        hanging = asyncio.ensure_future(aio.connect(url(peer, **PATIENCE), on_event=watch))
        await watch.until(AttemptStarted)
        async with asyncio.timeout(10):
            while not peer.accepted:  # noqa: ASYNC110 - a peer tells nobody
                await asyncio.sleep(0.001)
            while not hanging.done():
                async with await aio.connect(url(peer)):
                    await asyncio.sleep(0.02)
        await (await hanging).close()
        await watch.until(Closed)
    assert _timed_out(watch) == 1
