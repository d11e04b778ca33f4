"""A queue against a plain list: no loss, no duplicate, by priority, and first in first out."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker_stub.amqp.message_format import Envelope
from broker_stub.queueing.message import Consumer, Message
from broker_stub.queueing.queue import Queue


class Taker:
    def __init__(self, machine: QueueMachine, remainder: int | None = None) -> None:
        self.machine = machine
        self.remainder = remainder
        """The remainder by 3 of the numbers that it selects, ``None`` for all."""
        self.credit = 0
        self.held: list[Message] = []
        self.consumer: Consumer | None = None

    def capacity(self) -> int:
        return self.credit

    def idle(self) -> None: ...

    def selects(self, message: Message) -> bool:
        return self.remainder is None or int(message.data) % 3 == self.remainder

    def takes(self, number: int) -> bool:
        """Return whether the consumer takes a message, by the model."""
        selected = self.remainder is None or number % 3 == self.remainder
        return selected and self not in self.machine.refused.get(number, ())

    def deliver(self, message: Message) -> None:
        assert self.credit > 0, "delivered without credit"
        assert self.takes(int(message.data)), "not selected, or refused"
        self.credit -= 1
        self.machine.given(message)
        self.held.append(message)


class QueueMachine(RuleBasedStateMachine):
    """``model`` maps the number of every expected message to its expiry."""

    @initialize()
    def start(self) -> None:
        self.now = 0.0
        self.queue = Queue("q", lambda: self.now)
        self.takers: list[Taker] = []
        self.available: dict[int, float | None] = {}
        self.acquired: dict[int, float | None] = {}
        self.sent = 0
        self.refused: dict[int, set[Taker]] = {}
        self.priorities: dict[int, int] = {}

    def given(self, message: Message) -> None:
        number = int(message.data)
        assert number in self.available, "gone, held by somebody, or never sent"
        expires_at = self.available[number]
        assert expires_at is None or expires_at > self.now, "expired"
        # A message that some consumers refuse may have been skipped while no other had capacity.
        skipped = [n for n in self.live() if self.first(n) < self.first(number) and self.for_all(n)]
        assert not skipped, "an earlier one was passed over"
        self.acquired[number] = self.available.pop(number)

    def first(self, number: int) -> tuple[int, int]:
        return -self.priorities[number], number

    def for_all(self, number: int) -> bool:
        return all(taker.takes(number) for taker in self.takers)

    def live(self) -> list[int]:
        return [n for n, at in self.available.items() if at is None or at > self.now]

    def back(self, taker: Taker, message: Message) -> None:
        taker.held.remove(message)
        number = int(message.data)
        self.available[number] = self.acquired.pop(number)

    @rule(lifetime=st.none() | st.integers(1, 5), priority=st.sampled_from([4, 4, 4, 0, 7]))
    def send(self, lifetime: int | None, priority: int) -> None:
        self.sent += 1
        self.priorities[self.sent] = priority
        self.available[self.sent] = None if lifetime is None else self.now + lifetime
        done: list[int] = []
        envelope = Envelope(priority=priority)
        self.queue.enqueue(b"%d" % self.sent, done.append, self.sent, envelope, lifetime)
        assert done == [self.sent]

    @rule(remainder=st.none() | st.integers(0, 2))
    def subscribe(self, remainder: int | None) -> None:
        taker = Taker(self, remainder)
        taker.consumer = self.queue.subscribe(taker, selects=None if remainder is None else taker.selects)
        self.takers.append(taker)

    @precondition(lambda self: self.takers)
    @rule(data=st.data(), credit=st.integers(1, 4))
    def grant(self, data: st.DataObject, credit: int) -> None:
        taker = data.draw(st.sampled_from(self.takers))
        taker.credit += credit
        self.queue.ready(taker.consumer)

    @precondition(lambda self: any(taker.held for taker in self.takers))
    @rule(data=st.data(), outcome=st.sampled_from(["accept", "reject", "release", "failed", "not here"]))
    def settle(self, data: st.DataObject, outcome: str) -> None:
        taker = data.draw(st.sampled_from([taker for taker in self.takers if taker.held]))
        message = data.draw(st.sampled_from(taker.held))
        if outcome in ("accept", "reject"):
            taker.held.remove(message)
            del self.acquired[int(message.data)]
            getattr(self.queue, outcome)(taker.consumer, message)
            return
        self.back(taker, message)
        if outcome == "not here":
            self.refused.setdefault(int(message.data), set()).add(taker)
        self.queue.modify(
            taker.consumer,
            message,
            delivery_failed=outcome == "failed",
            undeliverable_here=outcome == "not here",
        )

    @precondition(lambda self: self.takers)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        taker = data.draw(st.sampled_from(self.takers))
        self.takers.remove(taker)
        for message in tuple(taker.held):
            self.back(taker, message)
        self.queue.unsubscribe(taker.consumer, died=True)

    @rule(seconds=st.integers(1, 3), sweep=st.booleans())
    def wait(self, seconds: int, sweep: bool) -> None:
        self.now += seconds
        if sweep:
            self.queue.expire()

    @invariant()
    def everything_is_there_and_nothing_waits_beside_free_credit(self) -> None:
        if not hasattr(self, "queue"):
            return
        live = self.live()
        assert len(live) + len(self.acquired) <= self.queue.depth <= len(self.available) + len(self.acquired)
        for taker in self.takers:
            assert not taker.credit or not [n for n in live if taker.takes(n)]

    def teardown(self) -> None:
        """Drain: all messages of the model are delivered in order, once."""
        if not hasattr(self, "queue"):
            return
        for taker in tuple(self.takers):
            self.takers.remove(taker)
            for message in tuple(taker.held):
                self.back(taker, message)
            self.queue.unsubscribe(taker.consumer, died=True)
        expected = sorted(self.live(), key=self.first)
        self.refused.clear()
        last = Taker(self)
        last.consumer = self.queue.subscribe(last)
        last.credit = len(expected) + 1
        self.queue.ready(last.consumer)
        assert [int(message.data) for message in last.held] == expected


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
