"""Consumers whose accepts are confirmed: hand-written frames, and haclient, against one member."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import proton
import pytest
from proton import Described, ubyte, uint, ulong

from broker_stub.broker import Broker
from broker_stub.durability.guard import Guard
from broker_stub.queueing.queue import Queue
from haclient import aio
from haclient.errors import LinkClosed, StaleDelivery
from tests.broker_stub import raw_client as raw
from tests.broker_stub.clients import running, until
from tests.engine.wire.test_attach_frame import fields

SECOND = ubyte(1)
ACCEPTED, REJECTED, RELEASED, MODIFIED = range(0x24, 0x28)


def attach(name: str, unsettled: Mapping[Any, Any] | None = None, *, handle: int = 0) -> bytes:
    """Encode the Attach of a receiver from ``orders``."""
    ends = [Described(ulong(0x28), ["orders"]), Described(ulong(0x29), [])]
    return raw.frame(raw.ATTACH, [name, uint(handle), True, None, SECOND, *ends, unsettled])


def outcome(code: int, first: int, last: int | None = None, *, settled: bool = False) -> bytes:
    ids = [uint(first), uint(first if last is None else last)]
    return raw.frame(raw.DISPOSITION, [True, *ids, settled, Described(ulong(code), [])])


def accepted(tags: Iterable[bytes]) -> dict[bytes, Described]:
    return {tag: Described(ulong(ACCEPTED), []) for tag in tags}


class Consumer:
    """A raw connection with one receiver in mode second."""

    def __init__(self, client: raw.RawClient) -> None:
        self.client = client
        self.tags: list[bytes] = []

    async def attach(
        self,
        unsettled: Mapping[Any, Any] | None = None,
        *,
        container: str = "consumer",
        name: str = "r",
        credit: int = 1000,
    ) -> dict[bytes, int]:
        """Attach; return the states of the tags in the answer."""
        await self.client.open(raw.begin(), container=container)
        await self.client.write(attach(name, unsettled), raw.credit(0, credit))
        return await self.answer()

    async def _next(self, code: int) -> list[Any]:
        async with asyncio.timeout(20):
            while (found := await self.client.read_frame())[6] != code:
                pass
        return fields((len(found) + 4).to_bytes(4) + found)

    async def answer(self) -> dict[bytes, int]:
        answer = await self._next(raw.ATTACH)
        assert answer[4] == 1, "the mode is mirrored"
        states = answer[7] if len(answer) > 7 else None
        return {tag: state.descriptor for tag, state in (states or {}).items()}

    async def receive(self, count: int) -> list[bytes]:
        """Return the tags of the next deliveries."""
        return [(await self._next(raw.TRANSFER))[2] for _ in range(count)]

    async def settled(self, count: int) -> dict[int, int]:
        """Return the next deliveries that the member settles, with their states."""
        found: dict[int, int] = {}
        while len(found) < count:
            role, first, last, is_settled, state = (await self.client.next(raw.DISPOSITION)).fields[:5]
            assert (role, is_settled) == (False, True)
            found |= dict.fromkeys(range(first, (first if last is None else last) + 1), int(state.descriptor))
        return found


@asynccontextmanager
async def consuming(broker: Broker) -> AsyncIterator[Consumer]:
    async with raw.raw_client(broker.address) as client:
        yield Consumer(client)


def filled(broker: Broker, count: int = 3) -> Queue:
    queue = broker.addresses.declare("orders")
    queue.guard = Guard()  # a member without a cluster needs no guard
    for number in range(count):
        queue.enqueue(bytes(proton.Message(body=number).encode()), lambda _: None, None)
    return queue


def guard_of(queue: Queue) -> Guard:
    assert isinstance(queue.guard, Guard)
    return queue.guard


async def test_an_accept_is_settled_when_the_dequeue_is_complete_and_not_before() -> None:
    async with running() as broker, consuming(broker) as consumer:
        queue = filled(broker)
        assert await consumer.attach() == {}
        await consumer.receive(3)
        guard = guard_of(queue)
        guard.suspend("a test")
        await consumer.client.write(outcome(ACCEPTED, 0, 1))
        await until(lambda: queue.depth == 1)
        await until(lambda: guard._suspended)
        queue.enqueue(bytes(proton.Message(body="next").encode()), lambda _: None, None)
        guard.resume("a test")
        assert await consumer.settled(2) == {0: ACCEPTED, 1: ACCEPTED}
        assert queue.counters.dequeued == 2


async def test_after_the_step_down_nothing_is_settled() -> None:
    async with running() as broker, consuming(broker) as consumer:
        queue = filled(broker)
        await consumer.attach()
        await consumer.receive(3)
        guard = guard_of(queue)
        guard.finish()
        await consumer.client.write(outcome(ACCEPTED, 0))
        await until(lambda: queue.depth == 2)
        # A release waits for no replica: its answer is the next frame.
        await consumer.client.write(outcome(RELEASED, 1))
        assert await consumer.settled(1) == {1: RELEASED}


async def test_the_other_outcomes_take_effect_and_are_settled_in_kind() -> None:
    async with running() as broker, consuming(broker) as consumer:
        queue = filled(broker, 1)
        await consumer.attach()
        (first,) = await consumer.receive(1)
        await consumer.client.write(outcome(RELEASED, 0))
        assert await consumer.settled(1) == {0: RELEASED}
        assert await consumer.receive(1) == [first]  # the same message, and the same tag
        await consumer.client.write(outcome(MODIFIED, 1))
        assert await consumer.settled(1) == {1: MODIFIED}
        assert await consumer.receive(1) == [first]
        await consumer.client.write(outcome(REJECTED, 2))
        assert await consumer.settled(1) == {2: REJECTED}
        assert (queue.depth, queue.counters.rejected, len(queue.confirmations)) == (0, 1, 0)


async def test_what_the_client_settles_itself_is_dequeued_as_well() -> None:
    async with running() as broker, consuming(broker) as consumer:
        queue = filled(broker, 2)
        await consumer.attach()
        await consumer.receive(2)
        await consumer.client.write(outcome(ACCEPTED, 0, 1, settled=True))
        await until(lambda: queue.depth == 0)


async def test_a_dequeue_that_is_on_its_way_completes_although_the_connection_dies() -> None:
    async with running() as broker, consuming(broker) as survivor:
        queue = filled(broker, 2)
        guard = guard_of(queue)
        async with consuming(broker) as consumer:
            await consumer.attach()
            tags = await consumer.receive(2)
            guard.suspend("a test")
            await consumer.client.write(outcome(ACCEPTED, 0))
            await until(lambda: queue.depth == 1)
        await survivor.client.open(raw.begin(), container="consumer")
        await survivor.client.write(attach("r", accepted(tags)), raw.credit(0, 10))
        await asyncio.sleep(0)
        guard.resume("a test")
        assert await survivor.answer() == {tags[0]: ACCEPTED}
        assert await survivor.receive(1) == [tags[1]]


async def test_an_attach_resolves_every_doubt() -> None:
    async with running() as broker:
        queue = filled(broker, 4)
        async with consuming(broker) as consumer, consuming(broker) as other:
            await consumer.attach(credit=3)
            tags = await consumer.receive(3)
            await other.attach(container="another")
            tags += await other.receive(1)
            await consumer.client.write(outcome(ACCEPTED, 0))
            assert await consumer.settled(1) == {0: ACCEPTED}
            await other.client.write(outcome(ACCEPTED, 0))
            await other.settled(1)
        await until(lambda: queue.consumers == 0)
        async with consuming(broker) as consumer:
            # Accepted; redelivered; redelivered; accepted by another consumer.
            assert await consumer.attach(accepted(tags)) == {tags[0]: ACCEPTED, tags[3]: REJECTED}
            assert await consumer.receive(2) == tags[1:3]


async def test_nobody_else_learns_that_a_message_was_accepted() -> None:
    async with running() as broker:
        filled(broker, 1)
        async with consuming(broker) as consumer:
            await consumer.attach()
            tags = await consumer.receive(1)
            await consumer.client.write(outcome(ACCEPTED, 0))
            await consumer.settled(1)
        for container, name in (("consumer", "s"), ("consumers", "r"), ("consume", "rr")):
            async with consuming(broker) as other:
                assert await other.attach(accepted(tags), container=container, name=name) == {
                    tags[0]: REJECTED
                }


async def test_a_queue_of_the_same_name_is_another_one() -> None:
    async with running() as broker:
        queue = filled(broker, 1)
        async with consuming(broker) as consumer:
            await consumer.attach()
            (first,) = await consumer.receive(1)
            await consumer.client.write(outcome(ACCEPTED, 0))
            await consumer.settled(1)
        broker.addresses.delete(queue)
        filled(broker, 1)
        async with consuming(broker) as consumer:
            assert await consumer.attach(accepted([first])) == {}
            (second,) = await consumer.receive(1)
            assert second[:8] == first[:8]
            assert second != first


async def test_an_attach_of_the_same_link_ends_the_former_and_takes_its_messages() -> None:
    async with running() as broker, consuming(broker) as former:
        queue = filled(broker, 1)
        await former.attach()
        tags = await former.receive(1)
        async with consuming(broker) as consumer:
            assert await consumer.attach(accepted(tags)) == {}
            assert await consumer.receive(1) == tags
            found = await former.client.next(raw.DETACH)
            assert found.condition == "amqp:link:stolen"
            await former.client.write(outcome(ACCEPTED, 0))  # too late: the message was redelivered
            await consumer.client.write(outcome(ACCEPTED, 0))
            assert await consumer.settled(1) == {0: ACCEPTED}
            assert (queue.depth, queue.counters.dequeued) == (0, 1)


async def test_the_window_has_a_bound_and_what_left_it_is_gone_in_another_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running() as broker:
        queue = filled(broker, 5)
        queue.confirmations.size = 2
        async with consuming(broker) as consumer:
            await consumer.attach()
            tags = await consumer.receive(5)
            for number in range(5):
                await consumer.client.write(outcome(ACCEPTED, number))
                await consumer.settled(1)
        assert len(queue.confirmations) == 2
        async with consuming(broker) as consumer:
            states = await consumer.attach(accepted(tags))
            assert [states[tag] for tag in tags] == [REJECTED] * 3 + [ACCEPTED] * 2


LIES: dict[str, Mapping[Any, Any]] = {
    "text": {"tag": None, "other": Described(ulong(ACCEPTED), [])},
    "numbers": {uint(1): uint(2)},
    "short tags": accepted(bytes(size) for size in (0, 1, 7, 8, 9, 15, 17, 32)),
    "long tags": accepted([bytes(1000)]),
    "any state": {bytes(16): Described(ulong(2**63), [uint(1)]), bytes(15): [1, 2]},
    "many": accepted(number.to_bytes(16) for number in range(2500)),
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
async def test_a_peer_that_lies_learns_nothing_and_is_served(lie: Mapping[Any, Any]) -> None:
    async with running() as broker, consuming(broker) as consumer:
        filled(broker, 1)
        assert await consumer.attach(lie) == {}
        assert len(await consumer.receive(1)) == 1


async def test_an_answer_fits_into_the_clients_frames() -> None:
    async with running() as broker:
        queue = filled(broker, 100)
        async with consuming(broker) as consumer:
            await consumer.attach()
            tags = await consumer.receive(100)
            await consumer.client.write(outcome(ACCEPTED, 0, 99))
            await consumer.settled(100)
        await until(lambda: queue.consumers == 0)
        async with raw.raw_client(broker.address) as client:
            await client.write(raw.frame(raw.OPEN, ["consumer", None, uint(512)]))
            await client.write(raw.begin(), attach("r", accepted(tags)))
            async with asyncio.timeout(20):
                while (found := await client.read_frame())[6] != raw.ATTACH:
                    pass
            assert len(found) <= 508
            answer = fields((len(found) + 4).to_bytes(4) + found)
            assert 10 < len(answer[7]) < 25
            assert answer[8] is True


async def test_a_receiver_of_haclient_has_its_accepts_confirmed() -> None:
    async with running() as broker, aio.connect(str(broker.address)) as connection:
        queue = filled(broker, 10)
        receiver = await connection.create_receiver("orders", confirm=True)
        first = await receiver.receive(timeout=10)
        await first.accept(confirm=True)
        assert queue.depth == 9
        batch = await receiver.receive_many(9, timeout=10, min_count=9)
        assert await receiver.accept_many(batch, confirm=True) == []
        assert queue.depth == 0


async def test_a_receiver_of_a_dynamic_node_has_its_accepts_confirmed_until_the_node_is_another() -> None:
    async with running() as broker, aio.connect(str(broker.address), backoff_base=0.001) as connection:
        receiver = await connection.create_receiver(None, dynamic=True, confirm=True)
        sender = await connection.create_sender(receiver.address)
        for number in range(2):
            await sender.send(number)
        one, other = await receiver.receive_many(2, timeout=10, min_count=2)
        await one.accept(confirm=True)
        queue = broker.addresses.find_queue(str(receiver.address))
        assert queue is not None
        queue.guard = guard = Guard()  # a temporary queue has none, since it ends with its connection
        guard.suspend("a test")
        accepting = asyncio.ensure_future(other.accept(confirm=True))
        await until(lambda: queue.depth == 0)
        (client,) = broker._connections
        client.abort("a test")
        with pytest.raises(StaleDelivery):
            await accepting


async def test_a_browser_may_ask_and_what_it_accepts_stays() -> None:
    async with running() as broker, aio.connect(str(broker.address)) as connection:
        queue = filled(broker, 1)
        receiver = await connection.create_receiver("orders", browse=True, confirm=True)
        await (await receiver.receive(timeout=10)).accept(confirm=True)
        assert queue.depth == 1


async def test_a_message_that_is_sent_settled_is_confirmed_at_once() -> None:
    async with running() as broker, aio.connect(str(broker.address)) as connection:

        def configure(link: proton.Receiver) -> None:
            link.snd_settle_mode = proton.Link.SND_SETTLED

        filled(broker, 1)
        receiver = await connection.create_receiver("orders", confirm=True, configure=configure)
        await (await receiver.receive(timeout=10)).accept(confirm=True)


async def test_two_receivers_of_one_name_on_two_connections_are_one_link() -> None:
    async with running() as broker:
        filled(broker, 1)
        factory = aio.ConnectionFactory(str(broker.address), client_id="mine")
        async with factory, factory.connect() as one, factory.connect() as two:
            first = await one.create_receiver("orders", name="mine", confirm=True)
            await two.create_receiver("orders", name="mine", confirm=True)
            await until(lambda: first._core.error is not None)
            with pytest.raises(LinkClosed, match="amqp:link:stolen"):
                first._core.check_open()


async def test_a_sender_that_asks_for_it_has_its_answer_and_is_settled_at_once() -> None:
    """Some senders refuse another answer; some that ask for it, such as uAMQP, wait to be settled."""
    async with running() as broker, raw.raw_client(broker.address) as client:
        ends = [Described(ulong(0x28), []), Described(ulong(0x29), ["orders"])]
        await client.open(raw.begin())
        fields_of_attach = ["s", uint(0), False, None, SECOND, *ends, None, None, uint(0)]
        await client.write(raw.frame(raw.ATTACH, fields_of_attach))
        assert (await client.next(raw.ATTACH)).fields[4] == 1
        await client.next(raw.FLOW)
        await client.write(raw.transfer(0, 0, raw.message(10)), raw.transfer(0, 1, raw.message(10)))
        seen: dict[int, tuple[bool, int]] = {}
        while len(seen) < 2:
            role, first, last, settled, state = (await client.next(raw.DISPOSITION)).fields[:5]
            assert role is True
            ids = range(first, (first if last is None else last) + 1)
            seen |= dict.fromkeys(ids, (bool(settled), int(state.descriptor)))
        assert seen == {0: (True, ACCEPTED), 1: (True, ACCEPTED)}
