"""No consumer gets a message before its producer could get the outcome."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import proton
import pytest

from broker_stub.amqp.message_format import PLAIN, Envelope
from broker_stub.durability.committed_delivery import CommittedDelivery
from broker_stub.durability.guard import Guard
from broker_stub.durability.persister import Persister
from broker_stub.election.roles import Role
from broker_stub.queueing.duplicate_detection import DEFAULT_WINDOW
from broker_stub.queueing.exchanges import ExchangeType, Route
from broker_stub.queueing.message import Message, Replicate
from broker_stub.queueing.nodes import Addresses
from broker_stub.queueing.options import DELIVER, Deliver, QueueOptionError, QueueOptions
from broker_stub.queueing.queue import Queue
from tests.broker_stub.clients import until
from tests.broker_stub.member.parts import Disk, Parts
from tests.broker_stub.queueing.takers import Taker

pytestmark = pytest.mark.timeout(60)


class Replica:
    """An observer that acknowledges a message when a test says so."""

    def __init__(self, guard: Guard, *queues: Queue) -> None:
        self.guard = guard
        self.waited_for: list[Message] = []
        for queue in queues:
            queue.observe(self)

    def enqueued(self, _queue: Queue, message: Message) -> None:
        message.pending_acks += 1
        self.waited_for.append(message)

    def dequeued(self, _queue: Queue, _message: Message) -> None: ...

    def acquired(self, _queue: Queue, _message: Message) -> None: ...

    def annotated(self, _queue: Queue, message: Message) -> None: ...

    def progress_changed(self, _queue: Queue, _completion: Message) -> None: ...

    def has(self, *places: int) -> None:
        for message in [self.waited_for[place] for place in places]:
            self.guard.acknowledged(message)


class Kept:
    """The queues of a primary, with a store that commits when it does not hang."""

    def __init__(self) -> None:
        self.store, self.guard, self.now = Disk(duplicates=DEFAULT_WINDOW), Guard(), 0.0
        self.persister = Persister(self.store, self.guard)
        self.addresses = Addresses(lambda: self.now)
        self.addresses.watcher = self.persister
        self.delivery = CommittedDelivery(self.addresses, self.guard, self.persister)
        self.queue = self.addresses.declare("q")
        self.told: list[bytes] = []

    def send(self, *bodies: bytes, to: Queue | None = None, **options: Any) -> None:
        for body in bodies:
            (to or self.queue).enqueue(body, self.told.append, body, **options)

    async def committed(self) -> None:
        """Wait until the store has committed its writes."""
        self.store.hangs = False
        self.store._commit()
        await self.store.when_committed(self.store.sequence)


async def test_a_consumer_gets_what_the_store_and_every_replica_have_and_nothing_else() -> None:
    kept = Kept()
    replicas = [Replica(kept.guard, kept.queue) for _ in range(2)]
    taker, browser = Taker(kept.queue), Taker(kept.queue, browsing=True)
    kept.send(b"1", b"2")
    await kept.committed()
    replicas[0].has(0, 1)
    assert (taker.contents, browser.contents, kept.told) == ([], [], [])
    assert (kept.queue.depth, kept.queue.held) == (2, 2)
    replicas[1].has(0)
    assert (taker.contents, browser.contents, kept.told) == ([b"1"], [b"1"], [b"1"])
    replicas[1].has(1)
    assert (taker.contents, browser.contents, kept.told) == ([b"1", b"2"], [b"1", b"2"], [b"1", b"2"])
    assert kept.queue.held == 0


async def test_a_consumer_that_settles_what_it_is_sent_waits_as_well() -> None:
    kept = Kept()
    taker = Taker(kept.queue, settles=True)
    kept.send(b"1")
    assert (taker.contents, kept.queue.depth) == ([], 1)
    await kept.committed()
    assert (taker.contents, kept.queue.depth) == ([b"1"], 0)


async def test_what_is_sent_settled_is_delivered_when_it_is_safe() -> None:
    """The producer gets no outcome, but the message must not vanish after its delivery."""
    kept = Kept()
    taker = Taker(kept.queue)
    kept.queue.enqueue(b"at most once", lambda _: None, None)
    assert taker.contents == []
    await kept.committed()
    assert taker.contents == [b"at most once"]


@pytest.mark.parametrize("replicate", Replicate)
async def test_a_queue_that_is_kept_waits_for_the_store_and_a_temporary_one_for_nobody(
    replicate: Replicate,
) -> None:
    kept = Kept()
    stored, temporary = kept.addresses.declare("s", replicate=replicate), kept.addresses.temporary(object())
    kept.store.hangs = True
    takers = {queue: Taker(queue) for queue in (stored, temporary)}
    for queue in takers:
        kept.send(b"x", to=queue)
    await asyncio.sleep(0)
    assert [taker.contents for taker in takers.values()] == [[], [b"x"]]
    await kept.committed()
    assert [taker.contents for taker in takers.values()] == [[b"x"], [b"x"]]


async def test_each_copy_of_an_exchange_is_delivered_when_it_is_safe() -> None:
    kept = Kept()
    other = kept.addresses.declare("other")
    exchange = kept.addresses.declare_exchange("e", ExchangeType.FANOUT)
    for queue in (kept.queue, other):
        kept.addresses.bind(exchange, queue)
    replica = Replica(kept.guard, other)
    first, second = Taker(kept.queue), Taker(other)
    Route(exchange).enqueue(bytes(proton.Message(body="x").encode()), kept.told.append, b"x", PLAIN)
    assert (first.contents, second.contents) == ([], [])
    await kept.committed()
    assert (len(first.contents), second.contents, kept.told) == (1, [], [])
    replica.has(0)
    assert (len(second.contents), kept.told) == (1, [b"x"])


async def test_a_replica_that_acknowledges_in_any_order_changes_none() -> None:
    kept = Kept()
    replica = Replica(kept.guard, kept.queue)
    taker, browser = Taker(kept.queue), Taker(kept.queue, browsing=True)
    kept.send(b"1", b"2", b"3", b"4")
    await kept.committed()
    replica.has(2, 1)
    assert (kept.told, taker.contents, browser.contents) == ([b"3", b"2"], [], [])
    replica.has(0)
    assert (taker.contents, browser.contents) == ([b"1", b"2", b"3"],) * 2
    replica.has(3)
    assert (taker.contents, browser.contents) == ([b"1", b"2", b"3", b"4"],) * 2


async def test_while_the_in_sync_set_shrinks_what_was_complete_before_is_delivered_and_nothing_else() -> None:
    """Messages sent after the drop do not wait for the dropped replica, and are complete first."""
    kept = Kept()
    replica = Replica(kept.guard, kept.queue)
    kept.send(b"1", b"2", b"3")
    await kept.committed()
    replica.has(0)
    kept.guard.suspend("shrinking")
    kept.queue.unobserve(replica)
    taker = Taker(kept.queue)
    assert taker.contents == [b"1"]
    kept.send(b"4")
    await kept.committed()
    assert (taker.contents, kept.told) == ([b"1"], [b"1"])
    replica.has(1, 2)
    kept.guard.resume("shrinking")
    assert taker.contents == [b"1", b"2", b"3", b"4"]
    assert sorted(kept.told) == [b"1", b"2", b"3", b"4"]


async def test_a_message_that_nobody_waits_for_is_held_while_the_guard_is_suspended() -> None:
    kept = Kept()
    kept.queue.unobserve(kept.persister)
    kept.guard.suspend("shrinking")
    taker = Taker(kept.queue)
    kept.send(b"1")
    assert (taker.contents, kept.told, kept.queue.held) == ([], [], 1)
    kept.guard.resume("shrinking")
    assert (taker.contents, kept.told, kept.queue.held) == ([b"1"], [b"1"], 0)


async def test_a_second_copy_of_a_held_message_completes_with_it_and_is_not_delivered() -> None:
    kept = Kept()
    taker, envelope = Taker(kept.queue), Envelope(duplicate_id=b"\xa1\x01a")
    kept.send(b"1", b"1 again", envelope=envelope)
    assert (taker.contents, kept.told) == ([], [])
    await kept.committed()
    assert (taker.contents, kept.told) == ([b"1"], [b"1", b"1 again"])


async def test_what_expires_or_is_removed_while_it_is_held_is_not_delivered() -> None:
    kept = Kept()
    replica, taker = Replica(kept.guard, kept.queue), Taker(kept.queue)
    kept.send(b"old", lifetime=1.0)
    kept.send(b"removed", b"discarded", b"stays")
    await kept.committed()
    kept.now = 2.0
    removed = kept.queue.message(2)
    assert removed is not None
    kept.queue.remove(removed)
    kept.queue.discard([3])
    replica.has(0, 1, 2, 3)
    assert taker.contents == [b"stays"]
    assert kept.told == [b"old", b"removed", b"discarded", b"stays"]
    assert (kept.queue.ids(), kept.queue.held, kept.queue.counters.expired) == ([4], 0, 1)


async def test_to_a_consumer_that_drains_a_held_message_is_not_there_yet() -> None:
    kept = Kept()
    kept.send(b"1")
    asking, browsing = Taker(kept.queue), Taker(kept.queue, browsing=True)
    assert kept.queue.idle_for(asking.consumer)
    assert kept.queue.idle_for(browsing.consumer)
    await kept.committed()
    assert (asking.contents, browsing.contents) == ([b"1"], [b"1"])


async def test_what_a_consumer_gives_back_is_delivered_again_while_others_are_held() -> None:
    kept = Kept()
    replica, first = Replica(kept.guard, kept.queue), Taker(kept.queue)
    kept.send(b"1", b"2")
    await kept.committed()
    replica.has(0)
    kept.queue.unsubscribe(first.consumer, died=True)
    second = Taker(kept.queue)
    assert second.contents == [b"1"]
    replica.has(1)
    assert second.contents == [b"1", b"2"]


# -- a member -----------------------------------------------------------------------------------


async def test_a_member_that_steps_down_delivers_nothing_more_and_all_of_it_when_it_leads_again() -> None:
    parts = Parts()
    await parts.member.start()
    queue = parts.addresses.declare("q")
    await parts.member.promote()
    taker = Taker(queue)
    queue.enqueue(b"1", lambda _: None, None)
    await parts.store.when_committed(parts.store.sequence)
    assert taker.contents == [b"1"]
    queue.release(taker.consumer, taker.got[0])
    parts.store.hangs = True
    queue.enqueue(b"2", lambda _: None, None)
    queue.enqueue(b"3", lambda _: None, None)
    parts.member.step_down("a test wants it so")
    parts.store.hangs = False
    parts.store._commit()
    late = Taker(queue)
    queue.ready(late.consumer)
    assert (taker.contents, late.contents, queue.held) == ([b"1", b"1"], [], 3)
    queue.unsubscribe(taker.consumer)
    queue.unsubscribe(late.consumer)
    await until(lambda: parts.role is Role.CONNECTING)
    queue.insert(queue.last_number + 1, b"5", PLAIN, 0, 0)
    await parts.member.promote()
    await parts.store.when_committed(parts.store.sequence)
    again = Taker(queue)
    assert (again.contents, queue.held) == ([b"1", b"2", b"3", b"5"], 0)
    await parts.member.stop()


async def test_what_a_new_primary_inherits_is_delivered_after_it_has_recovered() -> None:
    parts = Parts(backup_timeout=0.5)
    await parts.member.start()
    queue = parts.addresses.declare("q")
    queue.insert(1, b"tail", PLAIN, 0, 0)
    parts.member.others = ("another",)
    await parts.member.promote()
    assert parts.role is Role.RECOVERING
    taker, browser, told = Taker(queue), Taker(queue, browsing=True), list[bytes]()
    queue.enqueue(b"new", told.append, b"new")
    for _ in range(10):
        await asyncio.sleep(0)
    assert (taker.contents, browser.contents, told) == ([], [], [])
    await until(lambda: parts.role is Role.PRIMARY)
    assert (taker.contents, browser.contents, told) == ([b"tail", b"new"], [b"tail", b"new"], [b"new"])
    await parts.member.stop()


async def test_what_the_store_of_a_new_primary_has_not_yet_is_not_delivered() -> None:
    """One case is a message restored from a site event when the member becomes primary."""
    parts = Parts()
    await parts.member.start()
    queue = parts.addresses.declare("q")

    def reconcile(*_: object) -> None:
        queue.insert(1, b"restored", PLAIN, 0, 0)
        parts.store.hangs = True
        parts.store.put_message(parts.store.queue_key(_uuid(queue)), 1, b"restored")

    parts.member._site = type("Steps", (), {"reconcile": staticmethod(reconcile)})()  # type: ignore[assignment]
    await parts.member.promote()
    assert parts.role is Role.PRIMARY
    taker = Taker(queue)
    await asyncio.sleep(0)
    assert taker.contents == []
    parts.store.hangs = False
    parts.store._commit()
    await parts.store.when_committed(parts.store.sequence)
    assert taker.contents == [b"restored"]
    await parts.member.stop()


def _uuid(queue: Queue) -> uuid.UUID:
    return uuid.UUID(queue.identity)


async def test_what_was_held_in_an_earlier_term_holds_up_nothing_in_the_next_one() -> None:
    kept = Kept()
    replica = Replica(kept.guard, kept.queue)
    kept.send(b"1", envelope=Envelope(duplicate_id=b"\xa1\x01a"))
    await kept.committed()
    kept.delivery.finish()
    replica.has(0)
    kept.queue.unobserve(replica)
    kept.delivery.begin()
    kept.delivery.recover()
    taker = Taker(kept.queue)
    kept.delivery.recovered()
    kept.send(b"1 again", envelope=Envelope(duplicate_id=b"\xa1\x01a"))
    kept.send(b"2")
    await kept.committed()
    assert (taker.contents, kept.told) == ([b"1", b"2"], [b"1 again", b"2"])


async def test_an_end_that_is_late_opens_no_later_term() -> None:
    kept = Kept()
    kept.store.hangs = True
    kept.queue.insert(1, b"1", PLAIN, 0, 0)
    kept.store.put_message(kept.store.queue_key(_uuid(kept.queue)), 1, b"1")
    kept.delivery.begin()
    kept.delivery.recover()
    kept.delivery.recovered()
    kept.delivery.finish()
    kept.delivery.begin()
    await kept.committed()
    taker = Taker(kept.queue)
    assert taker.contents == []
    kept.delivery.recover()
    assert taker.contents == []
    kept.delivery.recovered()
    assert taker.contents == [b"1"]


async def test_the_temporary_queues_of_a_member_that_stepped_down_deliver_on() -> None:
    """An operator's connection stays, and has a temporary queue for its answers."""
    kept = Kept()
    answers = kept.addresses.temporary(object())
    taker = Taker(answers)
    kept.delivery.finish()
    kept.send(b"answer", to=answers)
    assert taker.contents == [b"answer"]


# -- deliver=early ------------------------------------------------------------------------------


async def test_a_queue_that_delivers_early_gives_a_message_at_once_and_settles_it_as_late_as_any() -> None:
    kept = Kept()
    early = kept.addresses.declare("early", options=QueueOptions(deliver=Deliver.EARLY))
    replica = Replica(kept.guard, early)
    taker, browser = Taker(early), Taker(early, browsing=True)
    kept.send(b"1", b"2", to=early, envelope=Envelope(duplicate_id=b"\xa1\x01a"))
    assert (taker.contents, browser.contents, kept.told) == ([b"1"], [b"1"], [])
    assert (early.depth, early.held) == (1, 0)
    await kept.committed()
    assert kept.told == [], "nor the second copy, which completes with the first"
    replica.has(0)
    assert kept.told == [b"1", b"2"]
    kept.send(b"3", to=early)
    assert taker.contents == [b"1", b"3"]


async def test_what_a_new_primary_inherits_waits_in_a_queue_that_delivers_early_too() -> None:
    kept = Kept()
    early = kept.addresses.declare("early", options=QueueOptions(deliver=Deliver.EARLY))
    early.insert(1, b"1", PLAIN, 0, 0)
    kept.delivery.begin()
    kept.delivery.recover()
    taker = Taker(early)
    await kept.committed()
    assert taker.contents == []
    kept.delivery.recovered()
    assert taker.contents == [b"1"]


async def test_when_a_queue_delivers_is_one_of_its_options_and_outlives_a_restart() -> None:
    parts = Parts()
    await parts.member.start()
    parts.addresses.declare("early", options=QueueOptions.of({DELIVER: "early"}))
    parts.addresses.declare("other")
    await parts.store.when_committed(parts.store.sequence)
    written = {
        stored.record.name: dict(stored.record.arguments) for stored in (await parts.store.load()).queues
    }
    assert written == {"early": {DELIVER: "early"}, "other": {}}, "as a version without the option wrote it"
    await parts.member.stop()
    again = Parts(parts)
    await again.member.start()
    options = {queue.name: queue.options.deliver for queue in again.addresses}
    assert options == {"early": Deliver.EARLY, "other": Deliver.COMMITTED}
    await again.member.stop()
    for wrong in ("late", 1, True, b"early", ["early"]):
        with pytest.raises(QueueOptionError, match="x-deliver is committed, early, and not"):
            QueueOptions.of({DELIVER: wrong})
