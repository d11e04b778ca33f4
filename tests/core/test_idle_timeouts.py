"""A peer that wants to hear something every millisecond costs a core, so a client refuses it."""

from __future__ import annotations

import asyncio

import pytest
from proton import uint

from haclient import aio
from haclient.discovery.evidence import FailureReason
from haclient.errors import ConnectionGaveUp
from haclient.testing.peers.listening import listening
from tests.peers import url
from tests.peers.odd import CLOSE, OPEN, OddPeer


class Impatient(OddPeer):
    """A primary with an idle-time-out of its own, which writes down the bytes that it gets."""

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
