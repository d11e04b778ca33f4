"""The queue by itself: no sockets, and a clock that stands still."""

from __future__ import annotations

from typing import Any

import pytest

from broker_stub.amqp.message_format import Envelope
from broker_stub.queueing.message import Consumer, Message
from broker_stub.queueing.queue import Queue
from broker_stub.queueing.queue_limits import QueueLimits
from tests.broker_stub.queueing.takers import Taker


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def make(clock: Clock | None = None, **limits: Any) -> Queue:
    return Queue("q", clock or Clock(), limits=QueueLimits(**limits))


def put(queue: Queue, *bodies: bytes, **options: Any) -> list[object]:
    done: list[object] = []
    for body in bodies:
        queue.enqueue(body, done.append, body, **options)
    return done


def take(queue: Queue, credit: int, **options: Any) -> tuple[Taker, Consumer]:
    taker = Taker(queue, credit, **options)
    return taker, taker.consumer


def test_messages_come_out_in_the_order_they_came_in() -> None:
    queue = make()
    put(queue, b"1", b"2")
    taker, _ = take(queue, 3)
    put(queue, b"3", b"4")
    assert taker.contents == [b"1", b"2", b"3"]


def test_a_transfer_completes_at_once_or_when_the_guard_lets_go() -> None:
    queue = make()
    assert put(queue, b"1") == [b"1"]
    held: list[tuple[int, Any, Any]] = []

    class Holder:
        open = True

        def when_complete(self, message: Message, done: Any, token: Any) -> None:
            held.append((message.number, done, token))

    queue.guard = Holder()
    done = put(queue, b"2")
    assert done == []
    number, call, token = held[0]
    call(token)
    assert (number, done) == (2, [b"2"])


def test_consumers_with_room_take_turns() -> None:
    queue = make()
    one, _ = take(queue, 2)
    two, _ = take(queue, 10)
    put(queue, b"1", b"2", b"3", b"4", b"5", b"6")
    assert one.contents == [b"1", b"3"]
    assert two.contents == [b"2", b"4", b"5", b"6"]


def test_an_accepted_message_leaves_and_a_second_settlement_changes_nothing() -> None:
    queue = make()
    put(queue, b"1")
    taker, consumer = take(queue, 1)
    for _ in range(2):
        queue.accept(consumer, taker.got[0])
        queue.release(consumer, taker.got[0])
    assert (queue.depth, queue.size, queue.counters.dequeued) == (0, 0, 1)


@pytest.mark.parametrize(
    ("settle", "count", "depth"),
    [
        (lambda queue, consumer, message: queue.release(consumer, message), 0, 1),
        (lambda queue, consumer, message: queue.modify(consumer, message), 0, 1),
        (lambda queue, consumer, message: queue.modify(consumer, message, delivery_failed=True), 1, 1),
        (lambda queue, consumer, message: queue.reject(consumer, message), 0, 0),
    ],
    ids=["released", "modified", "modified with delivery-failed", "rejected"],
)
def test_an_outcome_decides_what_becomes_of_a_message(settle: Any, count: int, depth: int) -> None:
    queue = make()
    put(queue, b"1")
    taker, consumer = take(queue, 1)
    settle(queue, consumer, taker.got[0])
    assert queue.depth == depth
    if depth:
        again, _ = take(queue, 1)
        assert (again.contents, again.got[0].delivery_count) == ([b"1"], count)


def test_a_returned_message_stands_before_the_ones_behind_it() -> None:
    queue = make()
    put(queue, b"1", b"2", b"3", b"4")
    taker, consumer = take(queue, 3)
    queue.release(consumer, taker.got[2])
    queue.release(consumer, taker.got[0])
    other, _ = take(queue, 9)
    assert other.contents == [b"1", b"3", b"4"]


@pytest.mark.parametrize("died", [True, False])
def test_what_a_gone_consumer_held_is_delivered_again_in_order(died: bool) -> None:
    queue = make()
    put(queue, b"1", b"2", b"3")
    _, consumer = take(queue, 2)
    queue.unsubscribe(consumer, died=died)
    other, _ = take(queue, 9)
    assert other.contents == [b"1", b"2", b"3"]
    assert [message.delivery_count for message in other.got] == [died, died, 0]


def test_a_message_undeliverable_here_goes_to_somebody_else_or_waits_for_one() -> None:
    queue = make()
    put(queue, b"1", b"2")
    taker, consumer = take(queue, 1)
    taker.credit = 9
    queue.modify(consumer, taker.got[0], undeliverable_here=True)
    queue.ready(consumer)
    assert taker.contents == [b"1", b"2"]
    assert queue.depth == 2
    other, _ = take(queue, 9)
    assert other.contents == [b"1"]


def test_a_browser_sees_what_is_available_and_takes_nothing() -> None:
    queue = make()
    put(queue, b"1", b"2", b"3")
    take(queue, 1)
    browser, consumer = take(queue, 9, browsing=True)
    assert browser.contents == [b"2", b"3"]
    assert queue.idle_for(consumer)
    put(queue, b"4")
    assert browser.contents == [b"2", b"3", b"4"]
    queue.accept(consumer, browser.got[0])
    assert queue.depth == 4


def test_a_browser_gets_no_more_than_its_credit() -> None:
    queue = make()
    put(queue, b"1", b"2", b"3")
    browser, consumer = take(queue, 1, browsing=True)
    assert not queue.idle_for(consumer)
    browser.credit = 1
    queue.ready(consumer)
    assert browser.contents == [b"1", b"2"]


def generations(*bodies: bytes) -> Queue:
    """Make a queue with these messages in each of three generations."""
    queue = make()
    for generation in (1, 2, 3):
        queue.start_generation(generation)
        put(queue, *bodies)
    return queue


def test_a_browser_passes_from_one_generation_to_the_next_and_over_every_hole() -> None:
    queue = generations(b"1", b"2", b"3", b"4")
    taker, consumer = take(queue, 12)
    for place in (1, 3, 4, 5, 6, 7, 10):
        queue.accept(consumer, taker.got[place])
    queue.unsubscribe(consumer)
    browser, browsing = take(queue, 2, browsing=True)
    queue.discard([taker.got[8].number])
    browser.credit = 9
    queue.ready(browsing)
    assert [message.number for message in browser.got] == [taker.got[place].number for place in (0, 2, 9, 11)]
    queue.start_generation(4)
    put(queue, b"new")
    queue.start_generation(5)
    assert queue.idle_for(browsing)
    put(queue, b"newest")
    assert browser.contents[-2:] == [b"new", b"newest"]


def test_a_browser_gets_what_came_after_the_numbers_ahead_were_noted() -> None:
    queue = generations(b"1")
    browser, browsing = take(queue, 1, browsing=True)
    put(queue, b"2")
    queue.start_generation(7)
    put(queue, b"3")
    queue.discard(queue.ids()[1:3])
    browser.credit = 9
    queue.ready(browsing)
    assert browser.contents == [b"1", b"2", b"3"]
    assert [message.number for message in browser.got] == queue.ids()


def test_at_most_once_messages_are_gone_when_they_are_handed_over() -> None:
    queue = make()
    put(queue, b"1")
    taker, consumer = take(queue, 1, settles=True)
    queue.unsubscribe(consumer, died=True)
    assert (taker.contents, queue.depth) == ([b"1"], 0)


def test_an_expired_message_is_never_delivered() -> None:
    clock = Clock()
    queue = make(clock)
    put(queue, b"1", lifetime=1.0)
    put(queue, b"2")
    clock.now += 1.0
    browser, _ = take(queue, 9, browsing=True)
    taker, _ = take(queue, 9)
    assert (browser.contents, taker.contents) == ([b"2"], [b"2"])
    assert queue.counters.expired == 1


def test_expired_messages_are_dropped_without_anyone_asking() -> None:
    clock = Clock()
    queue = make(clock)
    put(queue, b"1", b"2", lifetime=1.0)
    put(queue, b"3", lifetime=5.0)
    clock.now += 2.0
    assert queue.expire() == 2
    assert queue.depth == 1


def test_a_message_that_expires_while_it_is_acquired_is_settled_or_dropped_on_return() -> None:
    clock = Clock()
    queue = make(clock)
    put(queue, b"1", b"2", lifetime=1.0)
    taker, consumer = take(queue, 2)
    clock.now += 2.0
    assert queue.expire() == 0
    queue.accept(consumer, taker.got[0])
    queue.release(consumer, taker.got[1])
    assert queue.depth == 0
    assert (queue.counters.dequeued, queue.counters.expired) == (1, 1)


def test_a_second_copy_completes_and_is_dropped() -> None:
    queue = make()
    envelope = Envelope(duplicate_id=b"\xa1\x01a")
    assert put(queue, b"1", b"1 again", envelope=envelope) == [b"1", b"1 again"]
    assert (queue.depth, queue.counters.duplicates) == (1, 1)


def test_a_second_copy_is_dropped_even_when_the_first_is_consumed() -> None:
    queue = make()
    envelope = Envelope(duplicate_id=b"\xa1\x01a")
    put(queue, b"1", envelope=envelope)
    taker, consumer = take(queue, 1)
    queue.accept(consumer, taker.got[0])
    put(queue, b"1", envelope=envelope)
    assert queue.depth == 0


@pytest.mark.parametrize("limits", [{"messages": 10}, {"size": 10}])
def test_a_full_queue_calls_back_when_it_is_below_its_low_watermark(limits: dict[str, int]) -> None:
    queue = make(**limits, low_watermark=0.5)
    put(queue, *[b"x"] * 9)
    assert not queue.full
    put(queue, b"x")
    assert queue.full
    calls: list[int] = []
    queue.when_not_full(lambda: calls.append(queue.depth))
    taker, consumer = take(queue, 10)
    for message in taker.got:
        queue.accept(consumer, message)
    assert calls == [5]


def test_who_waits_for_room_is_called_when_the_queue_is_deleted() -> None:
    queue = make(messages=1)
    put(queue, b"1")
    calls: list[bool] = []
    queue.when_not_full(lambda: calls.append(queue.deleted))
    queue.close()
    assert calls == [True]
    assert not queue.full


class Watcher:
    """Records the notifications of an observer."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int]] = []

    def enqueued(self, _queue: Queue, message: Message) -> None:
        self.seen.append(("in", message.number))

    def dequeued(self, _queue: Queue, message: Message) -> None:
        self.seen.append(("out", message.number))

    def acquired(self, _queue: Queue, message: Message) -> None:
        self.seen.append(("given", message.number))

    def annotated(self, _queue: Queue, message: Message) -> None:
        self.seen.append(("annotated", message.number))

    def confirmed(self, _queue: Queue, numbers: Any, owner: bytes, completion: Message) -> None: ...

    def progress_changed(self, _queue: Queue, completion: Message) -> None:
        self.seen.append(("marked", completion.number))


def test_an_observer_learns_of_every_message_that_comes_and_goes() -> None:
    queue, watcher = make(), Watcher()
    queue.observe(watcher)
    put(queue, b"1", b"2")
    taker, consumer = take(queue, 2)
    queue.reject(consumer, taker.got[1])
    queue.accept(consumer, taker.got[0])
    queue.record_progress()
    assert watcher.seen[:4] == [("in", 1), ("in", 2), ("given", 1), ("given", 2)]
    assert watcher.seen[4:] == [("out", 2), ("out", 1), ("marked", 0)]


def test_an_observer_that_was_taken_away_learns_nothing_more_and_the_others_do() -> None:
    queue, one, other = make(), Watcher(), Watcher()
    queue.observe(one)
    queue.observe(other)
    put(queue, b"1")
    queue.unobserve(one)
    put(queue, b"2")
    assert (one.seen, other.seen) == ([("in", 1)], [("in", 1), ("in", 2)])


def test_what_is_held_is_observed_at_once_and_given_to_no_consumer_before_it_is_published() -> None:
    queue, watcher = make(), Watcher()
    queue.observe(watcher)
    taker, _ = take(queue, 9)
    browser, _ = take(queue, 9, browsing=True)
    held_message = queue.hold(b"1")
    put(queue, b"2")
    assert (taker.contents, browser.contents) == ([b"2"], [])
    assert (watcher.seen[0], queue.depth) == (("in", 1), 2)
    for _ in range(2):
        queue.publish(held_message)
    assert (taker.contents, browser.contents) == ([b"2", b"1"], [b"1"])


def test_consumers_and_browsers_are_counted_and_so_is_what_they_did() -> None:
    queue = make()
    put(queue, b"1", b"2")
    queue.hold(b"3")
    taker, consumer = take(queue, 2)
    _, browser = take(queue, 1, browsing=True)
    assert queue.consumers == 2
    queue.reject(consumer, taker.got[0])
    queue.accept(consumer, taker.got[1])
    queue.unsubscribe(browser)
    assert queue.consumers == 1
    counted = queue.counters
    assert (counted.enqueued, counted.acquired, counted.rejected, counted.dequeued) == (3, 2, 1, 1)
