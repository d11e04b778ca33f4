"""The idle-time-outs of both sides.

A peer that asks for a frame every millisecond costs a core, so the client refuses it.  RabbitMQ 4 accepts no
Open with an idle-time-out below a second: it is silent for three seconds, and resets the connection.
"""

from __future__ import annotations

import asyncio
import random

import pytest
from proton import uint

from haclient import aio, events
from haclient.discovery.evidence import FailureReason
from haclient.errors import ConnectionGaveUp
from haclient.testing.peers.listening import listening
from tests.broker_stub.raw_client import BEGIN
from tests.hostile.broker.connection import AMQP, Arrival, HostileConnection
from tests.hostile.broker.listening import HostileBrokers
from tests.peers import url
from tests.peers.odd import CLOSE, OPEN, OddPeer


class Impatient(OddPeer):
    """A primary with its own idle-time-out, which records the bytes that it receives."""

    def __init__(self, idle_ms: int | None, heard: bytearray, ended: asyncio.Event) -> None:
        super().__init__({} if idle_ms is None else {OPEN: {4: uint(idle_ms)}}, None)
        self._heard = heard
        self._ended = ended

    def data_received(self, data: bytes) -> None:
        self._heard += data
        super().data_received(data)

    def connection_lost(self, _: Exception | None) -> None:
        self._ended.set()


@pytest.mark.parametrize("idle_ms", [1, 2, 50, 99])
async def test_a_peer_that_asks_for_less_than_100_ms_is_refused_with_a_reason(idle_ms: int) -> None:
    heard, ended = bytearray(), asyncio.Event()
    async with listening(lambda _: Impatient(idle_ms, heard, ended)) as peer:
        with pytest.raises(ConnectionGaveUp) as caught:
            await aio.connect(url(peer, max_attempts=1))
        await asyncio.wait_for(ended.wait(), 20)
    (attempt,) = caught.value.attempts
    assert attempt.failure.kind is FailureReason.ENDED
    assert attempt.failure.detail == f"idle-time-out is {idle_ms} ms, and the least is 100 ms"
    close = heard[heard.index(bytes((0x00, 0x53, CLOSE))) :]
    assert b"amqp:invalid-field" in close
    assert f"idle-time-out is {idle_ms} ms".encode() in close


@pytest.mark.parametrize("idle_ms", [None, 0, 100, 2**32 - 1])
async def test_any_other_is_accepted(idle_ms: int | None) -> None:
    async with (
        listening(lambda _: Impatient(idle_ms, bytearray(), asyncio.Event())) as peer,
        aio.connect(url(peer, max_attempts=1)) as connection,
    ):
        assert connection.endpoint is not None


class AtLeastASecond(HostileConnection):
    """Never answers an Open with an idle-time-out below a second, as RabbitMQ 4.

    :ivar announced: the idle-time-outs.
    """

    def __init__(self, announced: list[int | None], *, stops: bool = False) -> None:
        super().__init__(HostileBrokers(0, ()), random.Random())
        self._announced, self._stops = announced, stops
        self._by_the_book = self._answers[AMQP]
        self.instead[AMQP] = lambda _: None
        self.then[OPEN].append(self._opened)

    def _opened(self, what: Arrival) -> None:
        idle = what.get(4)
        self._announced.append(None if idle is None else int(idle))
        if idle is None or int(idle) >= 1000:
            self._by_the_book(what)
            if self._stops:
                self.then[BEGIN].append(lambda _: setattr(self, "is_silent", True))
        else:
            self.is_silent = True


@pytest.mark.parametrize(
    ("heartbeat", "announced"),
    [(0, None), (1, 1000), (1.25, 1000), (2, 1000), (2.5, 1250), (86400, 43_200_000)],
)
async def test_a_second_is_the_least_that_is_announced(heartbeat: float, announced: int | None) -> None:
    heard: list[int | None] = []
    async with (
        listening(lambda _: AtLeastASecond(heard)) as peer,
        aio.connect(url(peer, heartbeat=heartbeat, max_attempts=1)),
    ):
        assert heard == [announced]


@pytest.mark.parametrize(("heartbeat", "announced"), [(0.99, 495), (0.2, 100), (0.01, 5)])
async def test_a_shorter_heartbeat_announces_half_of_it(heartbeat: float, announced: int) -> None:
    heard: list[int | None] = []
    async with listening(lambda _: AtLeastASecond(heard)) as peer:
        with pytest.raises(ConnectionGaveUp, match=f"silent for {heartbeat:g} s"):
            await aio.connect(url(peer, heartbeat=heartbeat, max_attempts=1))
    assert heard == [announced]


async def test_a_peer_that_is_silent_for_a_second_is_lost_then() -> None:
    async with (
        listening(lambda _: AtLeastASecond([], stops=True)) as peer,
        aio.connect(url(peer, heartbeat=1)) as connection,
        asyncio.timeout(20),
    ):
        async for event in connection.events():
            if isinstance(event, events.Disconnected):
                break
    assert "silent for 1 s" in str(event.reason)
