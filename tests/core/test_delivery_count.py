"""Credit is correct for any initial delivery-count of a peer, and after a peer that sent too much.

The peer counts as RabbitMQ 4.0.5 does: it adds link-credit to the delivery-count of every Flow, from the
first on, and ends the session if the sum lies behind its own count.  RabbitMQ 3.10 sends up to half as
many messages again as it has credit for.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import proton
import pytest
from proton import symbol, uint
from proton.handlers import MessagingHandler

from haclient import aio
from haclient.errors import ReceiveTimeout
from haclient.reactor import Container
from haclient.testing.peers.listening import Peer, listening, url
from haclient.utils import BlockingConnection
from tests.broker_stub.raw_client import ATTACH, END, FLOW, OPEN
from tests.hostile.broker.connection import Arrival, HostileConnection
from tests.hostile.broker.listening import HostileBrokers

# RabbitMQ's; the ends of the range of serial numbers, and of its halves; and any.
FIRST = [2**32 - 5, 0, 1, 2**31 - 1, 2**31, 2**32 - 1, None]
MESSAGES = 30
_INITIAL_DELIVERY_COUNT, _PROPERTIES = 9, 9


class Counting(HostileConnection):
    """Serves a queue of some messages to each receiver, and counts from a given number."""

    def __init__(self, queue: Queue, first: int | None) -> None:
        super().__init__(HostileBrokers(0, ()), random.Random())
        first = random.randrange(2**32) if first is None else first
        self._queue, self._first, self._sent_too_much = queue, first, False
        self.fields[OPEN] = {_PROPERTIES: {symbol("product"): queue.product}}
        self.fields[ATTACH] = {_INITIAL_DELIVERY_COUNT: uint(first)}
        self.then[ATTACH].append(self._attached)
        self.instead[FLOW] = self._granted

    def _attached(self, what: Arrival) -> None:
        self.links[what.channel, int(what.get(1))].count = self._first

    def _granted(self, what: Arrival) -> None:
        link = None if what.get(4) is None else self.links.get((what.channel, int(what.get(4))))
        if link is None:
            return
        count = self._first if what.get(5) is None else int(what.get(5))
        credit = (count + int(what.get(6)) - link.count) % 2**32
        behind = credit >= 2**31
        if int(what.get(6)) >= 2**31 or (behind and not self._sent_too_much):
            self._queue.ended += 1
            self.send(END, [], channel=what.channel)
        if behind:
            return
        self._queue.most = max(self._queue.most, credit)
        if credit and self._queue.beyond:
            self._sent_too_much = True
            credit, self._queue.beyond = credit + self._queue.beyond, 0
        while credit and self._queue.left:
            self.message(link, proton.Message(self._queue.left.pop(0)).encode(), settled=True)
            link.count, credit = link.count % 2**32, credit - 1


@dataclass
class Queue:
    """The messages, and the credit for them.

    :ivar beyond: how many messages to send once without credit.
    :ivar most: the most credit that a receiver had at once.
    :ivar ended: how often the count went backwards.
    """

    product: str = "RabbitMQ"
    left: list[int] = field(default_factory=lambda: list(range(MESSAGES)))
    beyond: int = 0
    most: int = 0
    ended: int = 0


@contextlib.asynccontextmanager
async def counting(queue: Queue, first: int | None) -> AsyncIterator[Peer]:
    async with listening(lambda _: Counting(queue, first)) as peer:
        yield peer


@pytest.mark.parametrize("first", FIRST)
@pytest.mark.parametrize("credit", [1, 2, 5, 6, None])
async def test_each_message_comes_once(first: int | None, credit: int | None) -> None:
    queue, credit = Queue(), credit or random.randint(7, MESSAGES)
    async with counting(queue, first) as peer, await aio.connect(url(peer)) as connection:
        receiver = await connection.create_receiver("q", credit=credit)
        got = [(await receiver.receive(timeout=10)).body for _ in range(MESSAGES)]
    assert (got, queue.most, queue.ended) == (list(range(MESSAGES)), credit, 0)


@pytest.mark.parametrize("first", FIRST)
async def test_a_receiver_that_grants_its_credit_itself_gets_no_more_than_that(first: int | None) -> None:
    queue = Queue()
    async with counting(queue, first) as peer, await aio.connect(url(peer)) as connection:
        receiver = await connection.create_receiver("q", credit=0)
        got = []
        for number in (1, 3, 2):
            await receiver.add_credit(number)
            got += [(await receiver.receive(timeout=10)).body for _ in range(number)]
        with pytest.raises(ReceiveTimeout):
            await receiver.receive(timeout=0.05)
    assert (got, queue.most, queue.ended) == (list(range(6)), 3, 0)


async def test_a_peer_that_sent_too_much_gets_no_credit_until_that_is_made_up_for() -> None:
    credit = random.randint(3, MESSAGES // 3)
    queue = Queue(beyond=random.randint(credit // 2 + 1, credit))
    async with counting(queue, None) as peer, await aio.connect(url(peer)) as connection:
        receiver = await connection.create_receiver("q", credit=credit)
        got = []
        for _ in range(MESSAGES):
            got.append((await receiver.receive(timeout=10)).body)
            await asyncio.sleep(0.01)  # only the Flow leaves
    assert (got, queue.most, queue.ended) == (list(range(MESSAGES)), credit, 0)


async def test_credit_of_the_application_is_withheld_from_a_peer_that_sent_too_much() -> None:
    queue = Queue(beyond=3)
    async with counting(queue, None) as peer, await aio.connect(url(peer)) as connection:
        receiver = await connection.create_receiver("q", credit=0)
        await receiver.add_credit(3)
        got = [(await receiver.receive(timeout=10)).body for _ in range(6)]
        for number in (1, 1, 2):  # three were sent already
            await receiver.add_credit(number)
            await asyncio.sleep(0.05)
        got.append((await receiver.receive(timeout=10)).body)
        with pytest.raises(ReceiveTimeout):
            await receiver.receive(timeout=0.05)
    assert (got, queue.most, queue.ended) == (list(range(7)), 3, 0)


@pytest.mark.parametrize("product", ["haclient-broker-stub", "apache-activemq-artemis"])
async def test_credit_goes_ahead_of_the_attach_where_counts_are_known_to_begin_at_0(product: str) -> None:
    queue, granted = Queue(product), asyncio.Event()

    class Silent(Counting):
        """Never answers an Attach."""

        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.instead[ATTACH] = lambda _: None
            self.then[ATTACH].clear()
            self.then[FLOW].append(lambda what: what.get(4) is not None and granted.set())

    async with listening(lambda _: Silent(queue, 0)) as peer, await aio.connect(url(peer)) as connection:
        creating = asyncio.ensure_future(connection.create_receiver("q"))
        async with asyncio.timeout(10):
            await granted.wait()
        creating.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await creating


class Receiving(MessagingHandler):
    """A program for proton that receives some messages; with a prefetch of 1 proton asks for a single one."""

    def __init__(self, peer: Peer, prefetch: int) -> None:
        super().__init__(prefetch=prefetch)
        self._url, self.got, self.credits = f"amqp://{peer.host}:{peer.port}", Counter[int](), list[int]()

    def on_start(self, event: proton.Event) -> None:
        self.connection = event.container.connect(self._url)
        self.receiver = event.container.create_receiver(self.connection, "q")

    def on_link_opened(self, event: proton.Event) -> None:
        self.credits.append(event.receiver.credit)

    def on_message(self, event: proton.Event) -> None:
        self.got[event.message.body] += 1
        if self.got.total() == MESSAGES:
            self.connection.close()


@pytest.mark.parametrize("first", FIRST)
@pytest.mark.parametrize("prefetch", [2, 5, None])
async def test_a_program_for_proton_gets_each_message_once(first: int | None, prefetch: int | None) -> None:
    queue, prefetch = Queue(), prefetch or random.randint(6, MESSAGES)
    async with counting(queue, first) as peer:
        program = Receiving(peer, prefetch)
        async with asyncio.timeout(20):
            await Container(program).run_async()
    assert (program.got, queue.most, queue.ended) == (Counter(range(MESSAGES)), prefetch, 0)
    assert program.credits == [prefetch]


class Granting(Receiving):
    """A program for proton that grants credit for one message at a time, after a pause."""

    def __init__(self, peer: Peer) -> None:
        super().__init__(peer, prefetch=0)

    def on_link_opened(self, event: proton.Event) -> None:
        event.receiver.flow(3)

    def on_message(self, event: proton.Event) -> None:
        super().on_message(event)
        event.container.schedule(0.02 * self.got.total(), self)

    def on_timer_task(self, event: proton.Event) -> None:
        self.receiver.flow(1)


async def test_the_credit_of_a_program_for_proton_is_withheld_from_a_peer_that_sent_too_much() -> None:
    queue = Queue(beyond=3)
    async with counting(queue, None) as peer:
        program = Granting(peer)
        async with asyncio.timeout(20):
            await Container(program).run_async()
    assert (program.got, queue.most, queue.ended) == (Counter(range(MESSAGES)), 3, 0)


async def test_a_blocking_receiver_for_proton_goes_on_after_a_peer_that_sent_too_much() -> None:
    queue = Queue(beyond=1)

    def receive(peer: Peer) -> list[int]:
        connection = BlockingConnection(f"amqp://{peer.host}:{peer.port}")
        receiver = connection.create_receiver("q")
        got = [receiver.receive(timeout=10).body for _ in range(MESSAGES)]
        connection.close()
        return got

    async with counting(queue, None) as peer:
        assert await asyncio.to_thread(receive, peer) == list(range(MESSAGES))
    assert (queue.most, queue.ended) == (1, 0)
