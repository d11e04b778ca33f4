"""Dead letters without sockets: moved messages, the removal of the original, and its state meanwhile."""

from __future__ import annotations

from typing import Any
from unittest import mock

import proton
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_stub.amqp.message_format import header_end, inspect, inspect_new
from broker_stub.queueing.dead_letters import dead_letter
from broker_stub.queueing.exchanges import ExchangeType
from broker_stub.queueing.message import DeadLetterReason, Message
from broker_stub.queueing.nodes import Addresses, AddressRefusedError
from broker_stub.queueing.options import QueueOptions
from broker_stub.queueing.queue import Queue
from broker_stub.queueing.queue_limits import QueueLimits
from tests.broker_stub.queueing.takers import Taker, decoded

LIMITED = QueueOptions(max_delivery_count=2, dead_letter_address="dead")
FAILED = {"delivery_failed": True}


class LateGuard:
    """Completes when the test says so."""

    open = True

    def __init__(self) -> None:
        self.waiting: list[tuple[Any, Any]] = []

    def when_complete(self, message: Message, done: Any, token: Any) -> None:
        self.waiting.append((done, token))

    def acknowledged(self, message: Message) -> None: ...

    def complete(self) -> None:
        waiting, self.waiting = self.waiting, []
        for done, token in waiting:
            done(token)


def make(options: QueueOptions = LIMITED, **settings: Any) -> tuple[Addresses, Queue]:
    addresses = Addresses(lambda: 0.0, **settings)
    return addresses, addresses.declare("orders", options=options)


def put(queue: Queue, body: Any, **fields: Any) -> None:
    data = bytes(proton.Message(body=body, **fields).encode())
    queue.enqueue(data, lambda _: None, None, inspect_new(data))


def annotations_of(data: bytes) -> dict[str, Any]:
    found = decoded(data).annotations or {}
    return {str(key): value for key, value in found.items() if str(key) != "x-opt-dead-letter-id"}


def test_a_rejected_message_goes_to_the_dead_letter_address_with_where_it_was_and_why() -> None:
    addresses, queue = make()
    put(queue, "bad", annotations={proton.symbol("x-mine"): 1}, properties={"a": 2}, ttl=50.0, durable=True)
    taker = Taker(queue)
    queue.reject(taker.consumer, taker.got[0], "no such customer")
    assert queue.depth == 0
    [letter] = Taker(addresses.queue("dead")).got
    assert annotations_of(letter.data) == {
        "x-mine": 1,
        "x-opt-ORIG-ADDRESS": "orders",
        "x-opt-ORIG-QUEUE": "orders",
        "x-opt-dead-letter-reason": "rejected",
        "x-opt-dead-letter-description": "no such customer",
        "x-opt-delivery-count": 0,
    }
    message = decoded(letter.data)
    assert (message.body, message.properties, message.durable, message.ttl) == ("bad", {"a": 2}, True, 0)
    assert (queue.counters.rejected, queue.counters.dead_lettered) == (1, 1)


def test_a_message_with_annotations_that_cannot_be_read_is_moved_without_them() -> None:
    addresses, queue = make()
    encoded = bytes(proton.Message(body="bad").encode())
    data = b"\x00\x53\x72\xc1\x04\x02\xa3\xffx" + encoded[header_end(encoded) :]
    queue.enqueue(data, lambda _: None, None, inspect_new(data))
    taker = Taker(queue)
    queue.reject(taker.consumer, taker.got[0], "unreadable")
    assert queue.depth == 0
    [letter] = Taker(addresses.queue("dead")).got
    assert decoded(letter.data).body == "bad"
    assert annotations_of(letter.data)["x-opt-dead-letter-reason"] == "rejected"


@pytest.mark.parametrize("gone", [True, False], ids=["the consumer died", "modified"])
def test_a_message_that_failed_as_often_as_allowed_is_a_dead_letter(*, gone: bool) -> None:
    addresses, queue = make()
    put(queue, "poison")
    put(queue, "good")
    counts = []
    for _ in range(2):
        taker = Taker(queue, credit=1)
        counts.append(taker.got[0].delivery_count)
        assert taker.bodies == ["poison"]
        if gone:
            queue.unsubscribe(taker.consumer, died=True)
        else:
            queue.modify(taker.consumer, taker.got[0], **FAILED)
            queue.unsubscribe(taker.consumer)
    assert counts == [0, 1]
    assert Taker(queue).bodies == ["good"]
    [letter] = Taker(addresses.queue("dead")).got
    assert annotations_of(letter.data)["x-opt-dead-letter-reason"] == "max-delivery-count"
    assert annotations_of(letter.data)["x-opt-delivery-count"] == 2
    assert decoded(letter.data).delivery_count == 0


def test_what_was_released_has_not_failed() -> None:
    _, queue = make()
    put(queue, "x")
    for _ in range(5):
        taker = Taker(queue, credit=1)
        queue.release(taker.consumer, taker.got[0])
        queue.unsubscribe(taker.consumer)
    assert Taker(queue).bodies == ["x"]


def test_a_message_that_was_delivered_too_often_before_a_failover_is_not_delivered_again() -> None:
    addresses, queue = make()
    data = bytes(proton.Message(body="poison").encode())
    queue.insert(1, data, inspect(data), 2, 0)
    assert Taker(queue).bodies == []
    assert Taker(addresses.queue("dead")).bodies == ["poison"]


def test_without_an_address_a_message_at_the_limit_is_dropped_and_counted() -> None:
    _, queue = make(QueueOptions(max_delivery_count=1))
    put(queue, "x")
    taker = Taker(queue)
    queue.modify(taker.consumer, taker.got[0], **FAILED)
    assert (queue.depth, queue.counters.dropped, queue.counters.dead_lettered) == (0, 1, 0)


def test_the_message_leaves_when_its_copy_is_complete_and_nobody_gets_it_meanwhile() -> None:
    addresses, queue = make()
    guard = addresses.queue("dead").guard = LateGuard()
    put(queue, "x")
    taker = Taker(queue)
    queue.reject(taker.consumer, taker.got[0])
    assert (queue.depth, addresses.queue("dead").depth) == (1, 1)
    assert Taker(queue).bodies == []
    guard.complete()
    assert (queue.depth, queue.counters.dead_lettered) == (0, 1)


def test_a_rejection_can_be_confirmed_when_the_message_has_left() -> None:
    addresses, queue = make()
    guard = addresses.queue("dead").guard = LateGuard()
    put(queue, "x")
    taker = Taker(queue)
    gone: list[int] = []
    for number in (1, 2):  # the second time it is settled already
        queue.reject(taker.consumer, taker.got[0], "", lambda number=number: gone.append(number))
    assert gone == [2]
    guard.complete()
    assert (gone, queue.depth) == ([2, 1], 0)


def test_a_move_that_a_failover_interrupted_is_made_again_and_the_copy_is_recognised() -> None:
    """The new primary has both; here it is the same member, in another generation."""
    addresses, queue = make()
    dead = addresses.queue("dead")
    guard = dead.guard = LateGuard()
    put(queue, "x")
    taker = Taker(queue)
    queue.reject(taker.consumer, taker.got[0])
    queue.unsubscribe(taker.consumer)
    for each in (queue, dead):
        each.start_generation(1)
    again = Taker(queue)
    assert again.bodies == ["x"]
    queue.reject(again.consumer, again.got[0])
    guard.complete()
    assert (queue.depth, dead.depth) == (0, 1)


@given(st.integers(1, 2**62), st.text(max_size=300), st.text(min_size=1, max_size=30))
def test_the_id_of_a_dead_letter_is_read_back_from_its_bytes_but_not_from_a_client(
    number: int, description: str, body: str
) -> None:
    queue = Queue("orders", lambda: 0.0)
    data = bytes(proton.Message(body=body, properties={"_AMQ_DUPL_ID": "own"}).encode())
    letter = dead_letter(queue, Message(number, data, inspect(data)), DeadLetterReason.REJECTED, description)
    assert (
        inspect(letter).duplicate_id
        == b"\xa1" + bytes([len(f"{queue.identity}:{number}")]) + f"{queue.identity}:{number}".encode()
    )
    assert inspect_new(letter).duplicate_id == b"\xa1\x03own"
    assert decoded(letter).body == body


def test_two_messages_with_one_duplicate_detection_id_are_two_dead_letters() -> None:
    addresses, queue = make()
    other = addresses.declare("others", options=LIMITED)
    for each in (queue, other):
        put(each, each.name, properties={"_AMQ_DUPL_ID": "same"})
        taker = Taker(each)
        each.reject(taker.consumer, taker.got[0])
    assert Taker(addresses.queue("dead")).bodies == ["orders", "others"]


# -- dead-letter addresses that take nothing --------------------------------------------------------


def test_dead_letters_wait_for_a_queue_that_is_not_there() -> None:
    addresses, queue = make(auto_create=False)
    put(queue, "x")
    taker = Taker(queue)
    queue.reject(taker.consumer, taker.got[0])
    addresses.expire()
    assert queue.depth == 1
    assert Taker(queue).bodies == []
    addresses.declare("dead")
    addresses.expire()
    assert (queue.depth, Taker(addresses.queue("dead")).bodies) == (0, ["x"])


def test_dead_letters_wait_while_their_queue_is_full_and_not_while_all_together_are() -> None:
    addresses, queue = make(limits=QueueLimits(messages=2))
    addresses.total._high = 1
    for number in range(3):
        put(queue, number)
    taker = Taker(queue)
    for message in taker.got:
        queue.reject(taker.consumer, message)
    dead = addresses.queue("dead")
    assert (queue.depth, dead.depth) == (1, 2)
    reader = Taker(dead)
    dead.accept(reader.consumer, reader.got[0])
    addresses.expire()
    assert (queue.depth, reader.bodies) == (0, [0, 1, 2])


def test_dead_letters_wait_while_nothing_more_can_be_stored() -> None:
    addresses, queue = make()
    put(queue, "bad")
    addresses.intake.set(full=True, stopped=True)
    taker = Taker(queue)
    queue.reject(taker.consumer, taker.got[0])
    addresses.expire()
    assert queue.depth == 1
    assert "dead" not in [each.name for each in addresses]
    addresses.intake.set(full=True, stopped=False)
    addresses.expire()
    assert queue.depth == 0
    assert Taker(addresses.queue("dead")).bodies == ["bad"]


def test_dead_letters_go_through_an_exchange_and_wait_for_a_binding() -> None:
    addresses, queue = make(QueueOptions(dead_letter_address="errors"))
    exchange = addresses.declare_exchange("errors", ExchangeType.FANOUT)
    put(queue, "x")
    taker = Taker(queue)
    queue.reject(taker.consumer, taker.got[0])
    assert queue.depth == 1
    bound = [addresses.declare(name) for name in ("one", "two")]
    for each in bound:
        addresses.bind(exchange, each)
    addresses.expire()
    assert [queue.depth, *(each.depth for each in bound)] == [0, 1, 1]


def test_what_waits_is_forgotten_with_its_queue() -> None:
    addresses, queue = make(auto_create=False)
    put(queue, "x")
    taker = Taker(queue)
    queue.reject(taker.consumer, taker.got[0])
    addresses.delete(queue)
    addresses.declare("dead")
    addresses.expire()
    assert addresses.queue("dead").depth == 0


def test_a_dead_letter_may_die_again_and_two_queues_may_be_each_other_s() -> None:
    addresses, queue = make(QueueOptions(dead_letter_address="dead"))
    dead = addresses.declare("dead", options=QueueOptions(dead_letter_address="orders"))
    put(queue, "x")
    for each in (queue, dead) * 3:
        taker = Taker(each)
        each.reject(taker.consumer, taker.got[0])
        each.unsubscribe(taker.consumer)
    assert (queue.depth, dead.depth) == (1, 0)


@pytest.mark.parametrize("address", ["orders", "$management", "temporary/x", "site-replication", "x" * 1025])
def test_an_address_that_cannot_take_dead_letters_is_refused(address: str) -> None:
    with pytest.raises(AddressRefusedError):
        make(QueueOptions(dead_letter_address=address))


@pytest.mark.parametrize(
    "given",
    [
        {"x-max-delivery-count": -1},
        {"x-max-delivery-count": 2**32},
        {"x-max-delivery-count": True},
        {"x-max-delivery-count": "3"},
        {"x-dead-letter-address": 7},
    ],
)
def test_an_option_with_another_value_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="x-"):
        QueueOptions.of(given)


@given(st.integers(0, 2**32 - 1), st.text())
def test_options_are_what_was_written(count: int, address: str) -> None:
    options = QueueOptions(max_delivery_count=count, dead_letter_address=address)
    assert QueueOptions.of(options.plain()) == options


def test_a_dead_letter_that_cannot_be_copied_waits_and_is_tried_again() -> None:
    addresses, queue = make()
    put(queue, "bad")
    taker = Taker(queue)
    with mock.patch.object(Queue, "enqueue", side_effect=OSError("out of order")):
        queue.reject(taker.consumer, taker.got[0])
        addresses._dead_letters.retry()
    assert (queue.depth, len(addresses._dead_letters)) == (1, 1)
    addresses._dead_letters.retry()
    assert (queue.depth, addresses.queue("dead").depth) == (0, 1)
