"""The hostile broker sends valid AMQP, equal for equal seeds; without a behaviour it serves correctly."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from proton import Data, symbol

from haclient import aio
from haclient.testing.peers.listening import Peer
from tests.broker_stub import raw_client as raw
from tests.hostile.broker import BEHAVIOURS, HostileBrokers, hostile_brokers
from tests.hostile.broker.connection import AMQP_HEADER, SASL_HEADER

_SEEDS = range(12)
_PERFORMATIVES = frozenset({*range(0x10, 0x19), *range(0x40, 0x45)})
_TURNS = 30


class _Socket(asyncio.Transport):
    """Records the written bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()

    def write(self, data: Any) -> None:
        self.written += data[: 200_000 - len(self.written)] if len(self.written) < 200_000 else b""

    def is_closing(self) -> bool:
        return False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def close(self) -> None: ...

    def abort(self) -> None: ...

    def pause_reading(self) -> None: ...


# All that a client sends: first a sender, a receiver and a message, then the end.
_FIRST = (
    SASL_HEADER,
    raw.frame(0x41, [symbol("ANONYMOUS")], kind=1),
    AMQP_HEADER,
    raw.frame(raw.OPEN, ["client"]),
    raw.begin(),
    raw.attach_sender("s", 0, "q"),
    raw.attach_receiver("r", 1, "q"),
    raw.credit(1, 1),
    raw.transfer(0, 0, raw.message(10)),
)
_THEN = (raw.detach(0), raw.end(), raw.frame(raw.CLOSE, []))


async def _written(behaviours: tuple[str, ...], seed: int) -> bytes:
    """Return the bytes that a broker writes to that client."""
    brokers = HostileBrokers(seed, behaviours, peers=[Peer("127.0.0.1", 5672)])
    connection = brokers.serve(brokers.peers[0])
    transport = _Socket()
    connection.connection_made(transport)
    for part in (_FIRST, _THEN):
        connection.data_received(b"".join(part))
        for _ in range(_TURNS):
            await asyncio.sleep(0)
    connection.connection_lost(None)
    return bytes(transport.written)


def _frames(data: bytes) -> list[tuple[bytes, bytes]]:
    """Return the headers and bodies of the frames, without an incomplete last one."""
    found = []
    position = 0
    while position + 8 <= len(data):
        if data.startswith(b"AMQP", position):
            position += 8
            continue
        size = int.from_bytes(data[position : position + 4])
        assert size >= 8
        if position + size > len(data):
            break
        found.append((data[position : position + 8], data[position + 8 : position + size]))
        position += size
    return found


@pytest.mark.parametrize("name", BEHAVIOURS)
async def test_every_frame_of_a_behaviour_is_one_of_amqp(name: str) -> None:
    for seed in _SEEDS:
        for header, body in _frames(await _written((name,), seed)):
            assert header[4] == 2
            assert header[5] in (0, 1)
            if not body:
                continue
            performative = Data()
            performative.decode(body)
            performative.rewind()
            performative.next()
            assert performative.is_described()
            performative.enter()
            performative.next()
            assert performative.get_ulong() in _PERFORMATIVES


async def test_a_seed_draws_the_same_numbers_and_another_one_others() -> None:
    def drawn(seed: int) -> list[str]:
        brokers = HostileBrokers(seed, tuple(BEHAVIOURS), peers=[Peer("127.0.0.1", 5672)])
        for _ in range(5):
            brokers.serve(brokers.peers[0])
        return brokers.drawn

    assert drawn(7) == drawn(7)
    assert drawn(7) != drawn(8)


async def test_without_a_behaviour_a_broker_serves() -> None:
    async with hostile_brokers(1, ()) as brokers, aio.connect(brokers.url()) as connection:
        sender = await connection.create_sender("q")
        await sender.send("one", timeout=10)
        receiver = await connection.create_receiver("q", credit=10)
        for _ in range(15):
            delivery = await receiver.receive(timeout=10)
            assert delivery.message.body == "hello"
            await delivery.accept()


async def test_it_sends_more_than_its_credit() -> None:
    """The peer is a script that grants one message, and gets several."""
    name = "more than its credit"
    counts = [
        sum(body.startswith(b"\x00\x53\x14") for _, body in _frames(await _written((name,), seed)))
        for seed in _SEEDS
    ]
    assert max(counts) > 10
