"""A replication exchange applies any events it is sent, and no event blocks it."""

from __future__ import annotations

import contextlib
import itertools
import logging
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from unittest import mock

import proton
import pytest

from broker_stub.amqp.message_format import MalformedMessageError
from broker_stub.broker import Broker
from broker_stub.queueing.duplicate_detection import DuplicateWindow
from broker_stub.queueing.exchanges import Exchange, ExchangeType, Route, UnroutableError
from broker_stub.queueing.nodes import AddressRefusedError
from broker_stub.queueing.queue import Queue
from broker_stub.queueing.site_state import SiteMode
from broker_stub.sites.event import Encoder, Numbers, Op, origin_of
from broker_stub.sites.inbound import APPLYING, KEEP, MISSING
from haclient import aio
from haclient.errors import LinkRefused, MessageNotAccepted
from tests.broker_stub.clients import running
from tests.broker_stub.connections.faulty_calls import Fault, FaultyCalls
from tests.broker_stub.sites.watching import PATIENCE


class Other:
    """The other site: makes events, and has them applied."""

    def __init__(self, broker: Broker, **options: Any) -> None:
        self.broker = broker
        self.exchange: Exchange = broker.addresses.declare_exchange(
            "from-a", ExchangeType.REPLICATION, options=options
        )
        self.settled: list[int] = []
        self._stream, self._queue_id = uuid.uuid4().bytes, uuid.uuid4().bytes
        self._sequences = itertools.count(1)

    def event(
        self, op: Op, position: int, message: proton.Message | None = None, **facts: Any
    ) -> tuple[int, bytes]:
        sequence = facts.get("sequence") or next(self._sequences)
        encoder = Encoder(
            facts.get("queue", "orders"),
            self._queue_id,
            facts.get("mode", SiteMode.ALL),
            self._stream,
        )
        numbers = Numbers(sequence, position, self.broker.now_ms(), facts.get("expires_at_ms", 0))
        return sequence, encoder.encode(op, numbers, b"" if message is None else bytes(message.encode()))

    def apply_event(self, event: tuple[int, bytes]) -> None:
        sequence, data = event
        Route(self.exchange).enqueue(data, self.settled.append, sequence)

    def enqueue(self, position: int, body: Any = None, **facts: Any) -> tuple[int, bytes]:
        event = self.event(Op.ENQUEUE, position, proton.Message(body=body), **facts)
        self.apply_event(event)
        return event

    def dequeue(self, position: int, **facts: Any) -> tuple[int, bytes]:
        event = self.event(Op.DEQUEUE, position, **facts)
        self.apply_event(event)
        return event

    @property
    def orders(self) -> Queue:
        return self.broker.addresses.queue("orders")

    @property
    def facts(self) -> dict[str, Any]:
        [facts] = self.broker.site.status()["links"]
        return dict(facts)

    def places(self) -> list[int]:
        """Return the positions in the queue."""
        found = []
        for number in self.orders.ids():
            message = self.orders.message(number)
            origin = None if message is None else origin_of(message.data)
            assert origin is not None
            found.append(origin.position)
        return found


@asynccontextmanager
async def other_site(**options: Any) -> AsyncIterator[Other]:
    async with running() as broker:
        yield Other(broker, **options)


async def test_it_puts_in_what_came_and_takes_out_what_left() -> None:
    async with other_site() as other:
        for position in range(1, 6):
            other.enqueue(position)
        other.dequeue(2)
        other.dequeue(5)
        assert other.places() == [1, 3, 4]
        assert other.settled == list(range(1, 8))
        assert other.facts["applied"] == 7


async def test_an_event_that_comes_again_is_dropped_and_settled() -> None:
    async with other_site() as other:
        events = [other.enqueue(1), other.enqueue(2), other.dequeue(1)]
        for event in events:
            other.apply_event(event)
        assert other.places() == [2]
        assert other.settled == [1, 2, 3, 1, 2, 3]
        assert other.facts["duplicates"] == 3


async def test_a_gap_is_counted_and_what_follows_is_carried_out() -> None:
    async with other_site() as other:
        other.enqueue(1, sequence=7)
        other.enqueue(5, sequence=11)
        assert other.places() == [1, 5]
        assert (other.facts["gaps"], other.facts["missing"]) == (1, 3)
        other.enqueue(6, sequence=12)
        assert other.facts["gaps"] == 1
        other.enqueue(8, sequence=14)
        assert (other.facts["gaps"], other.facts["missing"]) == (2, 4)


async def test_a_missing_queue_is_made() -> None:
    async with other_site() as other:
        other.enqueue(1)
        assert other.facts["created"] == 1
        assert other.places() == [1]


async def test_or_its_events_are_parked_until_it_is_made() -> None:
    async with other_site(**{MISSING: KEEP}) as other:
        events = [other.enqueue(1, "a"), other.enqueue(2, "b"), other.dequeue(1)]
        other.enqueue(9, queue="invoices")
        other.apply_event(events[1])
        assert other.broker.addresses.find_queue("orders") is None
        assert other.facts["parked"] == 4
        other.broker.addresses.declare("orders")
        assert other.places() == [2]
        other.enqueue(3)
        other.apply_event(events[2])
        assert other.places() == [2, 3]
        assert other.facts["duplicates"] == 2
        assert other.broker.addresses.queue("from-a.parked").depth == 1


async def test_a_position_that_is_taken_stays_as_it_is() -> None:
    async with other_site() as other:
        other.enqueue(1, "first")
        other.enqueue(1, "second")
        assert other.places() == [1]
        assert other.facts["taken"] == 1
        assert other.settled == [1, 2]


async def test_a_position_that_is_gone_is_left_gone() -> None:
    async with other_site() as other:
        other.enqueue(1)
        other.dequeue(2)
        other.dequeue(1)
        other.dequeue(1)
        assert other.places() == []
        assert other.facts["gone"] == 2


async def test_a_second_copy_is_known_by_its_duplicate_detection_id() -> None:
    async with other_site() as other:
        message = proton.Message(body="x", properties={"_AMQ_DUPL_ID": "one"})
        for position in (1, 2):
            other.apply_event(other.event(Op.ENQUEUE, position, message, mode=SiteMode.ENQUEUES))
        assert other.places() == [1]
        assert other.facts["copies"] == 1


async def test_in_mode_all_both_copies_are_there_as_they_are_at_the_source() -> None:
    async with other_site() as other:
        message = proton.Message(body="x", properties={"_AMQ_DUPL_ID": "one"})
        for position in (1, 2):
            other.apply_event(other.event(Op.ENQUEUE, position, message))
        assert other.places() == [1, 2]
        other.dequeue(1)
        assert other.places() == [2]
        assert (other.facts["copies"], other.settled) == (0, [1, 2, 3])


async def test_a_message_expires_when_it_would_have_at_the_source() -> None:
    async with other_site() as other:
        other.enqueue(1, expires_at_ms=other.broker.now_ms() - 1)
        other.enqueue(2, expires_at_ms=other.broker.now_ms() + 3_600_000)
        other.orders.expire()
        assert other.places() == [2]


@pytest.mark.parametrize("queue", ["site-replication", "$management", "from-a", "from-a.parked"])
async def test_an_event_for_what_is_no_queue_of_applications_is_parked(queue: str) -> None:
    async with other_site() as other:
        other.enqueue(1, queue=queue)
        other.enqueue(2)
        assert other.facts["parked"] == 1
        assert other.places() == [2]
        other.broker.addresses.declare("invoices", site=SiteMode.ALL)
        other.broker.addresses.queue("invoices").enqueue(b"\x00\x53\x77\x40", lambda _: None, None)
        other.broker.addresses.temporary(other)
        assert other.broker.addresses.queue("from-a.parked").depth == 1
        assert other.broker.addresses.queue("site-replication").depth == 1


async def test_what_was_parked_is_carried_out_when_a_member_begins_to_serve() -> None:
    async with other_site(**{MISSING: KEEP}) as other:
        for position in range(1, 4):
            other.enqueue(position)
            other.enqueue(position, queue="invoices")
        await other.broker.demote()
        other.broker.addresses.declare("orders")
        assert other.orders.depth == 0
        await other.broker.promote()
        assert other.places() == [1, 2, 3]
        assert other.broker.addresses.queue("from-a.parked").depth == 3


async def test_what_is_no_event_is_rejected_and_counted() -> None:
    async with other_site() as other, aio.connect(str(other.broker.address)) as connection:
        sender = await connection.create_sender("from-a")
        with pytest.raises(MessageNotAccepted, match="decode-error"):
            await sender.send(proton.Message(body="hello"), timeout=PATIENCE)
        assert other.facts["malformed"] == 1
        with pytest.raises(MalformedMessageError):
            other.apply_event(other.event(Op.ENQUEUE, 1))


async def test_a_consumer_has_what_it_took_also_when_the_source_takes_it_out() -> None:
    async with other_site() as other, aio.connect(str(other.broker.address)) as connection:
        other.enqueue(1, "taken")
        receiver = await connection.create_receiver("orders")
        delivery = await receiver.receive(timeout=PATIENCE)
        other.dequeue(1)
        await delivery.accept()
        other.enqueue(2, "next")
        assert (await receiver.receive(timeout=PATIENCE)).message.body == "next"
        assert other.settled == [1, 2, 3]


async def test_a_site_that_was_promoted_carries_nothing_out() -> None:
    async with other_site() as other:
        other.broker.addresses.change_exchange(other.exchange, {APPLYING: False})
        with pytest.raises(UnroutableError, match="promoted"):
            other.enqueue(1)
        assert other.facts["applying"] is False


async def test_nobody_binds_to_it_or_receives_from_it() -> None:
    async with other_site() as other, aio.connect(str(other.broker.address)) as connection:
        with pytest.raises(AddressRefusedError, match="applies site events"):
            other.broker.addresses.bind(other.exchange, other.broker.addresses.declare("orders"))
        with pytest.raises(LinkRefused, match="cannot receive"):
            await connection.create_receiver("from-a")


async def test_an_event_that_could_not_be_applied_is_applied_when_it_comes_again() -> None:
    async with other_site() as other:
        other.enqueue(1)

        def fail(*_: object) -> None:
            raise OSError("out of order")

        event = other.event(Op.ENQUEUE, 2, proton.Message(properties={"_AMQ_DUPL_ID": "two"}), sequence=2)
        with mock.patch.object(DuplicateWindow, "remember", fail), pytest.raises(OSError, match="order"):
            other.apply_event(event)
        assert other.places() == [1]
        other.apply_event(event)
        assert other.places() == [1, 2]
        assert other.facts["duplicates"] == 0


async def test_whichever_call_fails_an_event_that_comes_again_has_its_effect_once() -> None:
    logging.disable()  # each fault is logged with its traceback
    try:
        for number in itertools.count():
            if not await _applied_with_a_fault(number):
                break
        assert number > 50
    finally:
        logging.disable(logging.NOTSET)


async def _applied_with_a_fault(number: int) -> bool:
    """Apply events with a fault in this call, and again; return whether there were that many calls."""
    async with other_site() as other:
        other.enqueue(1)
        message = proton.Message(properties={"_AMQ_DUPL_ID": "two"})
        events = [other.event(Op.ENQUEUE, 2, message), other.event(Op.DEQUEUE, 1)]
        faulty = FaultyCalls(number)
        with faulty.within("apply_event"), contextlib.suppress(Fault):  # the fault ends the link
            for event in events:
                other.apply_event(event)
        where = faulty.names[-1:]
        if faulty.raised:
            for event in events:
                other.apply_event(event)
        assert other.places() == [2], where
        assert len(other.orders.duplicates) == 1, where
        assert set(other.settled) == {1, 2, 3}, where
        return faulty.raised
