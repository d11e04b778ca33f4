"""A receiver of a stream continues at its position over new connections.

The peer serves a stream as RabbitMQ 4.0.5 does: each receiver begins where its filter says, and by default
behind the last message; each message has its offset; an outcome changes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import proton
import pytest
from hypothesis import given
from hypothesis import strategies as st
from proton import Described, symbol, timestamp, ubyte, ulong

from haclient import Message, aio
from haclient.core.attach.streams import OFFSET, StreamPosition, check_offset, offset_of
from haclient.errors import StaleDelivery
from haclient.testing.peers.listening import Peer, listening, url
from tests.broker_stub.raw_client import ATTACH, FLOW, OPEN
from tests.hostile.broker.connection import Arrival, HostileConnection
from tests.hostile.broker.listening import HostileBrokers

_PROPERTIES, _SOURCE, _FILTER = 9, 5, 7
_SOURCE_CODE = 0x28
_ANNOTATION = symbol("x-stream-offset")
OTHER = "rabbitmq:stream-match-unfiltered"


@dataclass
class Stream:
    """The messages, and the filters of receivers.

    :ivar annotated: True if messages have their offset; False in a queue.
    :ivar filters: of each Attach.
    """

    product: str = "RabbitMQ"
    annotated: bool = True
    settled: bool = False
    length: int = 0
    filters: list[dict[str, Any]] = field(default_factory=list)
    connections: list[StreamConnection] = field(default_factory=list)
    accepted: asyncio.Queue[StreamConnection] = field(default_factory=asyncio.Queue)

    def publish(self, count: int) -> None:
        self.length += count
        for each in self.connections:
            each.deliver()

    async def lose(self) -> None:
        """End the connection of the receiver, when there is one."""
        (await self.accepted.get()).transport.abort()


class StreamConnection(HostileConnection):
    """Serves the stream to one receiver."""

    def __init__(self, stream: Stream) -> None:
        super().__init__(HostileBrokers(0, ()), random.Random())
        self.fields[OPEN] = {_PROPERTIES: {symbol("product"): stream.product, symbol("version"): "4.0.5"}}
        self.instead[ATTACH] = self._echo
        self.instead[FLOW] = self._granted
        self._stream, self._next, self._allowed = stream, 0, 0
        stream.connections.append(self)

    def _echo(self, what: Arrival) -> None:
        source = list(what.get(_SOURCE).value)
        asked = (source[_FILTER] if len(source) > _FILTER else None) or {}
        filters = {str(name): each.value for name, each in asked.items()}
        self._stream.filters.append(filters)
        begin = filters.get(OFFSET, "next")
        self._next = {"first": 0, "next": self._stream.length}.get(begin, begin)
        self.fields[ATTACH] = {_SOURCE: Described(ulong(_SOURCE_CODE), source)}
        self.answer(what)
        self._stream.accepted.put_nowait(self)

    def _granted(self, what: Arrival) -> None:
        if what.get(4) is not None:
            self._allowed = int(what.get(5) or 0) + int(what.get(6))
            self.deliver()

    def deliver(self) -> None:
        """Send as many messages as the credit allows."""
        link = self.link(sends=True)
        while link is not None and link.count < self._allowed and self._next < self._stream.length:
            annotations = {_ANNOTATION: ulong(self._next)} if self._stream.annotated else None
            message = proton.Message(body=self._next, annotations=annotations)
            self.message(link, message.encode(), settled=self._stream.settled)
            self._next += 1


@contextlib.asynccontextmanager
async def serving(stream: Stream) -> AsyncIterator[Peer]:
    async with listening(lambda _: StreamConnection(stream)) as peer:
        yield peer


async def take(receiver: aio.Receiver, count: int) -> list[aio.Delivery]:
    return [await receiver.receive(timeout=10) for _ in range(count)]


async def handle(receiver: aio.Receiver, count: int) -> list[int]:
    """Receive and accept ``count`` messages; return their bodies."""
    taken = await take(receiver, count)
    for each in taken:
        await each.accept()
    return [each.body for each in taken]


def by_hand(receiver: proton.Receiver) -> None:
    receiver.source.filter.put_object({symbol(OFFSET): Described(symbol(OFFSET), "next")})


BEGINNINGS: dict[str, tuple[dict[str, Any], int]] = {
    "first": ({"filters": {OFFSET: "first"}}, 0),
    "next": ({"filters": {OFFSET: "next"}}, 20),
    "an offset": ({"filters": {OFFSET: ulong(7)}}, 7),
    "by hand": ({"configure": by_hand}, 20),
    "no filter": ({}, 20),
}


@pytest.mark.parametrize("beginning", BEGINNINGS)
async def test_each_message_comes_once_over_losses(beginning: str) -> None:
    arguments, first = BEGINNINGS[beginning]
    stream = Stream(length=20)
    async with serving(stream) as peer, await aio.connect(url(peer, backoff_base=0.01)) as connection:
        receiver = await connection.create_receiver("s", **arguments)
        stream.publish(10)
        got = await handle(receiver, stream.length - first)
        for _ in range(3):
            await stream.lose()
            stream.publish(10)  # in between
            got += await handle(receiver, 10)
    assert got == list(range(first, stream.length))


async def test_what_was_not_settled_comes_again() -> None:
    stream = Stream(length=6)
    async with serving(stream) as peer, await aio.connect(url(peer, backoff_base=0.01)) as connection:
        receiver = await connection.create_receiver("s", filters={OFFSET: "first"}, credit=10)
        taken = await take(receiver, 6)
        await taken[0].accept()
        await taken[1].release()
        await taken[3].accept()
        await stream.lose()
        assert [each.body for each in await take(receiver, 4)] == [2, 3, 4, 5]
        await stream.lose()  # no delivery of it was settled
        assert await handle(receiver, 4) == [2, 3, 4, 5]


@pytest.mark.parametrize("credit", [1, 2, 100])
async def test_however_it_is_handled_no_message_is_missed(credit: int) -> None:
    stream, handled, rng = Stream(length=60), set[int](), random.Random()
    async with serving(stream) as peer, await aio.connect(url(peer, backoff_base=0.01)) as connection:
        receiver = await connection.create_receiver("s", filters={OFFSET: "first"}, credit=credit)
        for _ in range(6):
            taken = await take(receiver, rng.randint(1, 5))
            for each in rng.sample(taken, rng.randint(0, len(taken))):
                with contextlib.suppress(StaleDelivery):
                    await each.accept()
                    handled.add(each.body)
            await stream.lose()
        while len(handled) < stream.length:
            with contextlib.suppress(StaleDelivery):
                handled.update(await handle(receiver, 1))


async def test_the_other_filters_stay() -> None:
    stream = Stream(length=3)
    async with serving(stream) as peer, await aio.connect(url(peer, backoff_base=0.01)) as connection:
        filters = {OFFSET: "first", OTHER: True}
        receiver = await connection.create_receiver("s", filters=filters)
        await handle(receiver, 3)
        await stream.lose()
        stream.publish(1)
        await handle(receiver, 1)
    assert stream.filters == [filters, {OFFSET: 3, OTHER: True}]


@pytest.mark.parametrize("stream", [Stream("Some broker"), Stream(annotated=False)], ids=["product", "queue"])
async def test_a_receiver_of_no_stream_is_attached_as_before(stream: Stream) -> None:
    async with serving(stream) as peer, await aio.connect(url(peer, backoff_base=0.01)) as connection:
        receiver = await connection.create_receiver("s")
        stream.publish(2)
        await handle(receiver, 2)
        await stream.lose()
        while len(stream.filters) < 2:
            await connection.create_receiver("t")
    assert not any(stream.filters)


async def test_messages_that_were_sent_settled_do_not_come_again() -> None:
    stream = Stream(length=5, settled=True)
    async with serving(stream) as peer, await aio.connect(url(peer, backoff_base=0.01)) as connection:
        receiver = await connection.create_receiver("s", filters={OFFSET: "first"})
        await take(receiver, 5)
        await stream.lose()
        stream.publish(1)
        assert [each.body for each in await take(receiver, 1)] == [5]


@given(st.data())
def test_a_place_has_everything_before_it_settled_and_nothing_else_left_out(data: st.DataObject) -> None:
    position, settled, at = StreamPosition(), set[int](), 0
    for _ in range(data.draw(st.integers(1, 5))):
        count = data.draw(st.integers(0, 10))
        delivered = list(range(at, at + count))
        for offset in delivered:
            position.delivered(offset)
        now = data.draw(st.permutations(delivered))[: data.draw(st.integers(0, count))]
        for offset in now:
            position.settled(offset)
        position.session_ended()
        settled.update(now)
        at = min({*delivered} - {*now}, default=at + count)
        assert (position.begin or 0) == at
        assert settled.issuperset(range(at))


@pytest.mark.parametrize("value", [-1, 2**64 - 1, "5", True, None, 1.5, [1], {"a": 1}])
def test_an_offset_that_cannot_be_used_is_none(value: object) -> None:
    message = Message(body="x", annotations={_ANNOTATION: ulong(value) if value == 2**64 - 1 else value})
    assert offset_of(bytes(message.encode())) is None


@given(st.binary(max_size=60))
def test_no_bytes_of_a_peer_break_the_reading(data: bytes) -> None:
    offset_of(data)


@given(st.integers(0, 2**64 - 2))
def test_an_offset_is_read(offset: int) -> None:
    message = Message(body="x", annotations={_ANNOTATION: ulong(offset)})
    assert offset_of(bytes(message.encode())) == offset


@pytest.mark.parametrize(
    "value", ["first", "last", "next", "1h", "90s", "007D", 0, 7, ulong(2**64 - 1), ubyte(1), timestamp(0)]
)
def test_an_offset_that_rabbitmq_knows_is_taken(value: Any) -> None:
    check_offset(value)


@pytest.mark.parametrize(
    "value",
    ["", "FIRST", "first ", "5", "1x", "0s", "1hh", "h", "\u0661h", "1h\n", -1, True, 1.5, symbol("first")],
)
async def test_an_offset_that_rabbitmq_does_not_know_never_leaves(value: Any) -> None:
    stream = Stream(length=1)
    async with serving(stream) as peer, await aio.connect(url(peer, backoff_base=0.01)) as connection:
        with pytest.raises(ValueError, match="'first', 'last' or 'next'"):
            await connection.create_receiver("s", filters={OFFSET: value})
    assert not stream.filters


async def test_an_offset_by_hand_that_rabbitmq_does_not_know_never_leaves() -> None:
    def wrong(receiver: proton.Receiver) -> None:
        receiver.source.filter.put_object({symbol(OFFSET): Described(symbol(OFFSET), "1x")})

    stream = Stream(length=1)
    async with serving(stream) as peer, await aio.connect(url(peer)) as connection:
        with pytest.raises(ValueError, match="'first', 'last' or 'next'"):
            await connection.create_receiver("s", configure=wrong)
        assert not stream.filters
        await handle(await connection.create_receiver("s", filters={OFFSET: "first"}), 1)
