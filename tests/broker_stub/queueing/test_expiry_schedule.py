"""A tick examines only the queues in which a message expires."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from broker_stub.amqp.message_format import Envelope
from broker_stub.queueing.dispatch.ready_list import SLACK
from broker_stub.queueing.expiry_schedule import ExpirySchedule
from broker_stub.queueing.message import Message
from broker_stub.queueing.nodes import Addresses
from broker_stub.queueing.queue import Queue


class Clock:
    """A clock that advances when a test says so."""

    def __init__(self) -> None:
        self.now = 100.25

    def __call__(self) -> float:
        return self.now


def put(queue: Queue, lifetime: float | None) -> None:
    queue.enqueue(b"x", lambda _: None, None, Envelope(), lifetime)


class Looked(Queue):
    """A queue that counts its examinations."""

    looks = 0

    def expire(self) -> int:
        self.looks += 1
        return super().expire()


def test_a_tick_looks_at_no_queue_in_which_nothing_expires_now(monkeypatch: Any) -> None:
    monkeypatch.setattr("broker_stub.queueing.nodes.Queue", Looked)
    clock = Clock()
    addresses = Addresses(clock)
    queues: list[Any] = [addresses.declare(f"q{number}") for number in range(100)]
    for queue in queues[:50]:
        put(queue, None)
    put(queues[50], 3600.0)
    put(queues[51], 1.5)
    for _ in range(10):
        clock.now += 1
        addresses.expire()
    assert (queues[50].depth, queues[51].depth) == (1, 0)
    assert sum(queue.looks for queue in queues) == queues[51].looks <= 2


def test_a_message_in_the_second_of_a_tick_is_looked_at_again() -> None:
    clock = Clock()
    addresses = Addresses(clock)
    queue = addresses.declare("q")
    put(queue, 0.5)
    addresses.expire()
    assert queue.depth == 1
    clock.now += 1
    addresses.expire()
    assert queue.depth == 0


def test_a_temporary_queue_expires_its_messages_and_a_deleted_one_is_forgotten() -> None:
    clock = Clock()
    addresses = Addresses(clock)
    temporary, deleted = addresses.temporary(object()), addresses.declare("q")
    put(temporary, 1.0)
    put(deleted, 1.0)
    addresses.delete(deleted)
    assert len(addresses._expiring._at) == 1
    clock.now += 2
    addresses.expire()
    assert temporary.depth == 0


def test_messages_that_left_before_their_time_are_not_kept() -> None:
    clock = Clock()
    queue = Addresses(clock).declare("q")
    taken: list[Message] = []

    class Sink:
        def capacity(self) -> int:
            return 1

        def deliver(self, message: Message) -> None:
            taken.append(message)

    queue.ready(queue.subscribe(Sink(), settles=True))
    for _ in range(3 * SLACK):
        put(queue, 86_400.0)
    assert len(taken) == 3 * SLACK
    assert len(queue.expiry._soonest) <= SLACK + 2


def test_seconds_that_are_gone_are_not_kept() -> None:
    schedule = ExpirySchedule()
    for second in range(3 * SLACK):
        queue = Queue("q", lambda: 0.0)
        schedule.note(queue, 1e6 + second)
        schedule.discard(queue)
    assert (len(schedule._at), len(schedule._queues)) == (0, 0)
    assert len(schedule._seconds) <= SLACK + 2


class Model(RuleBasedStateMachine):
    """Compares with queues that are all examined in every tick."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.addresses = Addresses(self.clock)
        self.queues = [self.addresses.declare(f"q{number}") for number in range(3)]
        self.ends: list[list[float]] = [[], [], []]

    @rule(queue=st.integers(0, 2), lifetime=st.floats(0.01, 10))
    def put(self, queue: int, lifetime: float) -> None:
        put(self.queues[queue], lifetime)
        self.ends[queue].append(self.clock.now + lifetime)

    @rule(seconds=st.floats(0.01, 5))
    def tick(self, seconds: float) -> None:
        self.clock.now += seconds
        self.addresses.expire()
        self.ends = [[end for end in ends if end > self.clock.now] for ends in self.ends]

    @invariant()
    def nothing_is_late_and_nothing_is_early(self) -> None:
        assert [queue.depth for queue in self.queues] == [len(ends) for ends in self.ends]


TestModel = Model.TestCase
