"""A queue against a plain list: nothing lost, nothing twice, first in first out."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker_stub.queueing.message import Consumer, Message
from broker_stub.queueing.queue import Queue


class Taker:
    def __init__(self, machine: QueueMachine) -> None:
        self.machine = machine
        self.credit = 0
        self.held: list[Message] = []
        self.consumer: Consumer | None = None

    def capacity(self) -> int:
        return self.credit

    def deliver(self, message: Message) -> None:
        assert self.credit > 0, "delivered without credit"
        self.credit -= 1
        self.machine.given(message)
        self.held.append(message)


class QueueMachine(RuleBasedStateMachine):
    """``model`` maps the number of every message that must be there to its expiry."""

    @initialize()
    def start(self) -> None:
        self.now = 0.0
        self.queue = Queue("q", lambda: self.now)
        self.takers: list[Taker] = []
        self.available: dict[int, float | None] = {}
        self.acquired: dict[int, float | None] = {}
        self.sent = 0
        self.refused: dict[int, set[Taker]] = {}

    def given(self, message: Message) -> None:
        number = int(message.data)
        assert number in self.available, "gone, held by somebody, or never sent"
        expires_at = self.available[number]
        assert expires_at is None or expires_at > self.now, "expired"
        skipped = [n for n in self.live() if n < number and not self.refused.get(n)]
        assert not skipped, "an earlier one was passed over"
        self.acquired[number] = self.available.pop(number)

    def live(self) -> list[int]:
        return [n for n, at in self.available.items() if at is None or at > self.now]

    def back(self, taker: Taker, message: Message) -> None:
        taker.held.remove(message)
        number = int(message.data)
        self.available[number] = self.acquired.pop(number)

    @rule(lifetime=st.none() | st.integers(1, 5))
    def send(self, lifetime: int | None) -> None:
        self.sent += 1
        self.available[self.sent] = None if lifetime is None else self.now + lifetime
        done: list[int] = []
        self.queue.enqueue(b"%d" % self.sent, done.append, self.sent, lifetime=lifetime)
        assert done == [self.sent]

    @rule()
    def subscribe(self) -> None:
        taker = Taker(self)
        taker.consumer = self.queue.subscribe(taker)
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
            assert not taker.credit or not [n for n in live if taker not in self.refused.get(n, ())]

    def teardown(self) -> None:
        """Drain: what the model has comes out, in order, once."""
        if not hasattr(self, "queue"):
            return
        for taker in tuple(self.takers):
            self.takers.remove(taker)
            for message in tuple(taker.held):
                self.back(taker, message)
            self.queue.unsubscribe(taker.consumer, died=True)
        expected = sorted(self.live())
        self.refused.clear()
        last = Taker(self)
        last.consumer = self.queue.subscribe(last)
        last.credit = len(expected) + 1
        self.queue.ready(last.consumer)
        assert [int(message.data) for message in last.held] == expected


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
