"""The memory of a queue for confirmed accepts, and the time of each confirmation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from broker_stub.amqp.message_format import PLAIN
from broker_stub.durability.guard import Guard
from broker_stub.queueing.confirmations import owner_of
from broker_stub.queueing.message import Message
from broker_stub.queueing.queue import Queue
from broker_stub.queueing.site_state import SiteMode

OWNER, OTHER = owner_of("container", b"link"), owner_of("container", b"other")
ACCEPTED, REJECTED = 0x24, 0x25


class Sink:
    """Takes everything."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    def capacity(self) -> int:
        return 100

    def deliver(self, message: Message) -> None:
        self.messages.append(message)

    def queue_deleted(self) -> None: ...


class Store:
    """An observer that acknowledges on request."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.waiting: list[Message] = []

    def enqueued(self, queue: Queue, message: Message) -> None: ...

    def acquired(self, queue: Queue, message: Message) -> None: ...

    def dequeued(self, queue: Queue, message: Message) -> None:
        self.calls.append(("dequeued", message.number))

    def confirmed(self, queue: Queue, numbers: Sequence[int], owner: bytes, completion: Message) -> None:
        self.calls.append(("confirmed", (tuple(numbers), owner)))
        completion.pending_acks += 1
        self.waiting.append(completion)

    def annotated(self, queue: Queue, message: Message) -> None: ...

    def progress_changed(self, queue: Queue, completion: Message) -> None: ...


class Listener:
    """Makes events that are complete on request."""

    def __init__(self) -> None:
        self.events: list[Message] = []

    def enqueued(self, queue: Queue, message: Message) -> None: ...

    def dequeued(self, queue: Queue, message: Message) -> None: ...

    def record(self) -> Message:
        event = Message(0, b"", PLAIN)
        event.pending_acks = 1
        self.events.append(event)
        return event


def made(count: int) -> tuple[Queue, Guard, Store, Any, list[Message]]:
    queue, guard, store, sink = Queue("q", lambda: 0.0), Guard(), Store(), Sink()
    queue.guard = guard
    queue.observe(store)
    for _ in range(count):
        queue.enqueue(b"data", lambda _: None, None)
    consumer = queue.subscribe(sink)
    queue.ready(consumer)
    return queue, guard, store, consumer, sink.messages


def tag(queue: Queue, message: Message) -> bytes:
    return message.number.to_bytes(8, "little") + queue.confirmations.scope


def test_a_consumer_is_told_when_everyone_has_it_and_the_guard_is_open() -> None:
    queue, guard, store, consumer, messages = made(3)
    done: list[str] = []
    queue.confirmations.accept(consumer, messages[:2], OWNER, done.append, "two")
    numbers = tuple(message.number for message in messages[:2])
    assert store.calls == [*(("dequeued", number) for number in numbers), ("confirmed", (numbers, OWNER))]
    assert (queue.depth, done) == (1, [])
    queue.unsubscribe(consumer, died=True)
    assert queue.depth == 1  # the accepted message is not requeued with the consumer's other ones
    guard.suspend("a test")
    guard.acknowledged(store.waiting.pop())
    assert done == []
    guard.resume("a test")
    assert done == ["two"]


def test_what_became_of_a_message_depends_on_who_asks() -> None:
    queue, _, _, consumer, messages = made(3)
    queue.confirmations.accept(consumer, messages[:1], OWNER, lambda _: None, None)
    tags = [tag(queue, message) for message in messages]
    unknown = [(999).to_bytes(8, "little") + queue.confirmations.scope]
    assert queue.confirmations.resolve(tags + unknown, OWNER) == {tags[0]: ACCEPTED, unknown[0]: REJECTED}
    assert queue.confirmations.resolve(tags, OTHER) == {tags[0]: REJECTED}
    elsewhere = Queue("q", lambda: 0.0).confirmations
    assert elsewhere.resolve(tags, OWNER) == {}


def test_the_oldest_leave_a_full_window() -> None:
    queue = Queue("q", lambda: 0.0)
    queue.confirmations.size = 3
    for number in range(1, 6):
        queue.confirmations.add(OWNER, number)
    queue.confirmations.add(OWNER, 5)
    assert queue.confirmations.pairs() == [(OWNER, 3), (OWNER, 4), (OWNER, 5)]


@pytest.mark.parametrize("site", list(SiteMode))
def test_the_window_is_written_after_the_event_for_another_site(site: SiteMode) -> None:
    queue, guard, store, consumer, messages = made(2)
    listener = Listener()
    queue.site, queue.site_listener = site, listener
    done: list[str] = []
    queue.confirmations.accept(consumer, messages[:1], OWNER, done.append, "one")
    queue.confirmations.when_recorded(done.append, "barrier")
    if site is SiteMode.ALL:
        assert [call for call, _ in store.calls] == ["dequeued"]
        for event in listener.events:
            guard.acknowledged(event)
    assert [call for call, _ in store.calls] == ["dequeued", "confirmed", "confirmed"]
    for completion in store.waiting:
        guard.acknowledged(completion)
    assert done == ["one", "barrier"]


def test_a_new_link_of_an_owner_ends_the_former_one() -> None:
    ended: list[str] = []

    class Link:
        def __init__(self, name: str) -> None:
            self.name = name

        def steal(self) -> None:
            ended.append(self.name)
            confirmations.ended(OWNER, self)

    confirmations = Queue("q", lambda: 0.0).confirmations
    first, second = Link("first"), Link("second")
    confirmations.take_over(OWNER, first)
    confirmations.take_over(OTHER, Link("other"))
    confirmations.take_over(OWNER, second)
    confirmations.ended(OWNER, first)
    confirmations.steal(OWNER)
    confirmations.steal(OWNER)
    assert ended == ["first", "second"]
