"""A queue with its guard: deliveries are a subset of the completed messages, in order, in every case.

Stores and replicas acknowledge in any order. Replicas join and drop, the guard is suspended and
resumed, and the member steps down and leads again. Messages expire, are removed, arrive twice and are
requeued.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker_stub.amqp.message_format import PLAIN, Envelope
from broker_stub.durability.guard import Guard
from broker_stub.queueing.message import Consumer, Message
from broker_stub.queueing.queue import Queue

_SHRINKING, _RECOVERING = "shrinking", "recovering"


class Waiter:
    """A store or a replica: messages wait for it until it acknowledges them."""

    def __init__(self) -> None:
        self.waited_for: list[Message] = []

    def enqueued(self, _queue: Queue, message: Message) -> None:
        message.pending_acks += 1
        self.waited_for.append(message)

    def dequeued(self, _queue: Queue, _message: Message) -> None: ...

    def acquired(self, _queue: Queue, _message: Message) -> None: ...

    def annotated(self, _queue: Queue, message: Message) -> None: ...

    def progress_changed(self, _queue: Queue, _completion: Message) -> None: ...


class Taker:
    def __init__(self, given: Callable[[Taker, Message], None]) -> None:
        self.given = given
        self.credit = 0
        self.held: list[Message] = []
        self.passed = 0
        self.consumer: Consumer | None = None

    def capacity(self) -> int:
        return self.credit

    def deliver(self, message: Message) -> None:
        self.credit -= 1
        self.given(self, message)


class GuardedQueue(RuleBasedStateMachine):
    """``told`` has the numbers of completed messages, and the messages at the start of the term as
    primary.
    """

    @initialize()
    def start(self) -> None:
        self.now = 0.0
        self.queue = Queue("q", lambda: self.now)
        self.guard = self.queue.guard = Guard()
        self.waiters = [Waiter()]
        self.queue.observe(self.waiters[0])
        self.orphans: list[Message] = []
        self.takers: list[Taker] = []
        self.told: set[int] = set()
        self.delivered: set[int] = set()
        self.first = 0
        self.wrong: list[str] = []
        self.removed: set[int] = set()
        self.leads, self.shrinking, self.recovering = True, False, False
        self.sent = 0

    # -- checks -------------------------------------------------------------------------------------

    def given(self, taker: Taker, message: Message) -> None:
        """Record a delivery to a consumer; an error raised here would end in the guard's log."""
        self._look_at(message)
        if message.number not in self.delivered:
            self._require(message.number > self.first, "in order")
            self.first = message.number
        self.delivered.add(message.number)
        taker.held.append(message)

    def seen(self, taker: Taker, message: Message) -> None:
        """Record a delivery to a browse consumer."""
        self._look_at(message)
        self._require(message.number > taker.passed, "in order")
        taker.passed = message.number
        self.delivered.add(message.number)

    def _look_at(self, message: Message) -> None:
        self._require(self.leads, "by a member that leads")
        self._require(not self.recovering, "after the member has recovered")
        self._require(not message.pending_acks, "when everybody has it")
        self._require(message.number not in self.removed, "before it is removed")
        self._require(
            not self.shrinking or message.number in self.told, "while the guard is suspended, if it was told"
        )

    def _require(self, holds: bool, what: str) -> None:
        if not holds:
            self.wrong.append(f"a message is delivered {what}")

    @invariant()
    def what_is_delivered_was_told(self) -> None:
        if hasattr(self, "queue"):
            assert not self.wrong
            assert self.delivered <= self.told

    @invariant()
    def what_is_held_waits_for_something(self) -> None:
        if hasattr(self, "queue") and self.leads and not self.recovering:
            held = self.queue._held._order
            assert not held or held[0].pending_acks or self.shrinking, "it is complete, and the first"

    # -- producers ------------------------------------------------------------------------------

    @precondition(lambda self: self.leads)
    @rule(count=st.integers(1, 3), lifetime=st.none() | st.integers(1, 4), again=st.booleans())
    def send(self, count: int, lifetime: int | None, again: bool) -> None:
        for _ in range(count):
            self.sent += 1
            envelope = Envelope(duplicate_id=b"%d" % self.sent)
            number = self.queue.last_number + 1
            for _ in range(1 + again):
                self.queue.enqueue(b"x", self.told.add, number, envelope, lifetime)

    # -- stores and replicas --------------------------------------------------------------------

    @precondition(lambda self: any(waiter.waited_for for waiter in self.waiters))
    @rule(data=st.data(), count=st.integers(1, 4))
    def acknowledge(self, data: st.DataObject, count: int) -> None:
        waiter = data.draw(st.sampled_from([each for each in self.waiters if each.waited_for]))
        for _ in range(min(count, len(waiter.waited_for))):
            place = data.draw(st.integers(0, min(2, len(waiter.waited_for) - 1)))
            self.guard.acknowledged(waiter.waited_for.pop(place))

    @precondition(lambda self: len(self.waiters) < 3)
    @rule()
    def join(self) -> None:
        waiter = Waiter()
        self.waiters.append(waiter)
        self.queue.observe(waiter)

    @precondition(lambda self: len(self.waiters) > 1)
    @rule(ready=st.booleans())
    def drop(self, ready: bool) -> None:
        waiter = self.waiters.pop()
        self.queue.unobserve(waiter)
        if ready and self.leads:
            self.shrinking = True
            self.guard.suspend(_SHRINKING)
            self.orphans += waiter.waited_for
        else:
            for message in waiter.waited_for:
                self.guard.acknowledged(message)

    @precondition(lambda self: self.shrinking)
    @rule()
    def shrink(self) -> None:
        orphans, self.orphans = self.orphans, []
        for message in orphans:
            self.guard.acknowledged(message)
        self.shrinking = False
        self.guard.resume(_SHRINKING)

    # -- the member -----------------------------------------------------------------------------

    @precondition(lambda self: self.leads)
    @rule()
    def step_down(self) -> None:
        self.leads = self.shrinking = self.recovering = False
        self.guard.finish()
        self.queue.suspend_delivery()
        for taker in tuple(self.takers):
            self.die(taker)
        for waiter in self.waiters[1:]:
            self.queue.unobserve(waiter)
            self.orphans += waiter.waited_for
        del self.waiters[1:]
        for message in self.orphans:
            self.guard.acknowledged(message)
        self.orphans = []

    @precondition(lambda self: not self.leads)
    @rule(cut=st.integers(0, 3), more=st.integers(0, 3))
    def follow(self, cut: int, more: int) -> None:
        """Another primary discards the tail and sends messages of its own."""
        tail = self.queue.ids()[-cut:] if cut else []
        self.removed |= set(tail)
        self.queue.discard(tail)
        self.queue.start_generation((self.queue.last_number >> 40) + 1)
        for _ in range(more):
            self.queue.insert(self.queue.last_number + 1, b"x", PLAIN, 0, 0)

    @precondition(lambda self: not self.leads and not self.waiters[0].waited_for)
    @rule()
    def lead(self) -> None:
        self.queue.start_generation((self.queue.last_number >> 40) + 1)
        self.queue.suspend_delivery()
        self.guard.begin()
        self.guard.suspend(_RECOVERING)
        self.leads = self.recovering = True
        self.told |= set(self.queue.ids())

    @precondition(lambda self: self.recovering)
    @rule()
    def recover(self) -> None:
        self.recovering = False
        self.queue.resume_delivery()
        self.guard.resume(_RECOVERING)

    # -- consumers ------------------------------------------------------------------------------

    @precondition(lambda self: self.leads and len(self.takers) < 4)
    @rule(browsing=st.booleans(), credit=st.integers(0, 20))
    def subscribe(self, browsing: bool, credit: int) -> None:
        taker = Taker(self.seen if browsing else self.given)
        taker.credit = credit
        taker.consumer = self.queue.subscribe(taker, browsing=browsing)
        self.takers.append(taker)
        self.queue.ready(taker.consumer)

    @precondition(lambda self: self.takers)
    @rule(data=st.data(), credit=st.integers(1, 5))
    def grant(self, data: st.DataObject, credit: int) -> None:
        taker = data.draw(st.sampled_from(self.takers))
        taker.credit += credit
        self.queue.ready(self._of(taker))

    @precondition(lambda self: any(taker.held for taker in self.takers))
    @rule(data=st.data(), accepted=st.booleans())
    def settle(self, data: st.DataObject, accepted: bool) -> None:
        taker = data.draw(st.sampled_from([taker for taker in self.takers if taker.held]))
        message = taker.held.pop()
        if accepted:
            self.removed.add(message.number)
            self.queue.accept(self._of(taker), message)
        else:
            self.queue.release(self._of(taker), message)

    @precondition(lambda self: self.takers)
    @rule(data=st.data())
    def disconnect(self, data: st.DataObject) -> None:
        self.die(data.draw(st.sampled_from(self.takers)))

    def die(self, taker: Taker) -> None:
        self.takers.remove(taker)
        self.queue.unsubscribe(self._of(taker), died=True)

    @staticmethod
    def _of(taker: Taker) -> Consumer:
        assert taker.consumer is not None
        return taker.consumer

    # -- operators and time ---------------------------------------------------------------------

    @rule(data=st.data())
    def purge(self, data: st.DataObject) -> None:
        numbers = self.queue.ids()
        if self.leads and numbers:
            message = self.queue.message(data.draw(st.sampled_from(numbers)))
            assert message is not None
            self.removed.add(message.number)
            self.queue.remove(message)
            for taker in self.takers:
                taker.held = [each for each in taker.held if each is not message]

    @rule(seconds=st.integers(1, 3))
    def wait(self, seconds: int) -> None:
        self.now += seconds
        self.queue.expire()

    def teardown(self) -> None:
        """Let all acknowledge: no message stays held, and all are delivered in order."""
        if not hasattr(self, "queue"):
            return
        for waiter in self.waiters:
            for message in waiter.waited_for:
                self.guard.acknowledged(message)
            waiter.waited_for.clear()
        if not self.leads:
            self.lead()
        if self.shrinking:
            self.shrink()
        if self.recovering:
            self.recover()
        for taker in tuple(self.takers):
            self.die(taker)
        assert self.queue.held == 0
        got: list[Any] = []
        last = Taker(lambda _taker, message: got.append(message.number))
        last.consumer = self.queue.subscribe(last)
        last.credit = 10_000
        self.queue.ready(last.consumer)
        assert not self.wrong
        assert got == self.queue.ids()
        assert set(got) <= self.told


TestGuardedQueue = GuardedQueue.TestCase
TestGuardedQueue.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
