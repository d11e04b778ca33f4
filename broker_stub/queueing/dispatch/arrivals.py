"""Adds messages to one queue, each completely or not at all.  No I/O.

Theory of operation
-------------------
The queue checks a message before it changes anything.  Then it gives the message a position, reports it to
every observer, and makes it held or available.  It remembers the duplicate-detection id last.  If a step
raises, the queue removes the message again, informs the observers that have it (``Observer.withdrawn``), and
the producer gets the error.

Rules
-----
* A queue has a message and its duplicate-detection id, or neither.  If the first copy was not taken, the
  second copy counts as the first.
* A number is never reused, so a stale reference to a removed message finds nothing.
* Once the message is in the queue, its producer gets no error: errors of consumers, and of the callback that
  settles the producer's transfer, are logged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from broker_stub.amqp.message_format import PLAIN, Envelope
from broker_stub.queueing.dispatch.dispatcher import Dispatcher
from broker_stub.queueing.dispatch.held_messages import HeldMessages
from broker_stub.queueing.message import SAFE, Done, Guard, Message, MessageState
from broker_stub.queueing.observers import Observer, SiteEventListener
from haclient.printable.log import get_logger

if TYPE_CHECKING:
    from broker_stub.queueing.queue import Queue

logger = get_logger("broker_stub.queueing.dispatch.arrivals")


class Arrivals:
    """Adds new messages to one queue.

    :param add: gives a message its position in the queue; ``remove`` undoes this.
    :param set_times: computes when a message expires and when it is due.
    """

    __slots__ = ("_add", "_dispatcher", "_queue", "_remove", "_set_times", "held")

    def __init__(
        self,
        queue: Queue,
        dispatcher: Dispatcher,
        *,
        add: Callable[[Message], None],
        remove: Callable[[Message], None],
        set_times: Callable[[Message, float | None], None],
    ) -> None:
        self._queue = queue
        self._dispatcher = dispatcher
        self._add = add
        self._remove = remove
        self._set_times = set_times
        self.held = HeldMessages(dispatcher.append, queue.drop_expired)

    def enqueue(
        self,
        data: bytes,
        done: Done,
        token: Any,
        envelope: Envelope,
        lifetime: float | None,
        *,
        producer: str | None,
    ) -> Message | None:
        """Add a message; see ``Queue.enqueue``."""
        queue, duplicate_id = self._queue, envelope.duplicate_id
        first = None if duplicate_id is None else queue.duplicates.first_copy(duplicate_id)
        message, available = None, False
        if first is None:
            message = Message(queue.last_number + 1, data, envelope)
            message.producer = producer
            if lifetime is not None or envelope.is_timed:
                self._set_times(message, lifetime)
            self._enter(message)
            available = message.state is MessageState.AVAILABLE
        # The queue has the message now, so its producer must see no error from here on.
        try:
            self._complete(message or self._first_copy(first), done, token)
        except Exception:
            logger.exception("%s: a transfer could not be settled; its sender waits", queue.name)
        try:
            if available:
                self._dispatch()
        except Exception:
            logger.exception("%s: a consumer failed when it was given a message", queue.name)
        return message

    def _first_copy(self, number: int | None) -> Message | None:
        """Count a duplicate, and return its first copy if that is not complete yet."""
        self._queue.counters.duplicates += 1
        return None if number is None else self.held.incomplete(number)

    def hold(self, data: bytes) -> Message:
        """Add a message that is not available yet; see ``Queue.hold``."""
        message = Message(self._queue.last_number + 1, data, PLAIN)
        message.state = MessageState.HELD
        self._enter(message)
        return message

    # -- all or nothing -------------------------------------------------------------------------

    def _enter(self, message: Message) -> None:
        """Add a message; if a step raises, undo everything."""
        queue, reported = self._queue, 0
        try:
            self._add(message)
            for observer in queue.observers:
                reported += 1
                observer.enqueued(queue, message)
            if message.state is not MessageState.HELD:  # by ``hold``
                self._admit(message)
        except BaseException:
            self.withdraw(message, queue.observers[:reported])
            raise
        queue.counters.enqueued += 1

    def _admit(self, message: Message) -> None:
        queue = self._queue
        if queue.site_listener is not None:
            queue.site_listener.enqueued(queue, message)
        guard = queue.guard
        if guard is not None and (message.pending_acks or not guard.open):
            self._hold_until_complete(message, guard)
        if message.state is MessageState.AVAILABLE:
            self._dispatcher.append(message)
        if message.envelope.duplicate_id is not None:
            queue.duplicates.remember(message.envelope.duplicate_id, message.number)

    def withdraw(self, message: Message, observers: tuple[Observer, ...]) -> None:
        """Undo the arrival of a message.

        :param observers: the observers that may have the message.
        """
        queue = self._queue
        message.state = MessageState.REMOVED
        self._remove(message)
        self.held.discard(message.number)
        if message.envelope.duplicate_id is not None:
            queue.duplicates.discard(message.envelope.duplicate_id, message.number)
        reported: list[Observer | SiteEventListener] = [*observers]
        if queue.site_listener is not None:
            reported.append(queue.site_listener)
        for each in reported:
            try:
                each.withdrawn(queue, message)
            except Exception:
                logger.exception("%s: message %d could not be taken out again", queue.name, message.number)

    def _hold_until_complete(self, message: Message, guard: Guard) -> None:
        self.held.add(message, deliver=self._queue.options.deliver)
        if message.pending_acks:
            # First in the list, before the producer's callback: the guard is called only once for both.
            message.on_complete = [(self._completed, message.number), *(message.on_complete or ())]
        else:
            guard.when_complete(message, self._completed, message.number)

    def _completed(self, number: int) -> None:
        if self.held.complete(number):
            self._dispatch()

    # -- afterwards -----------------------------------------------------------------------------

    def _complete(self, message: Message | None, done: Done, token: Any) -> None:
        if self._queue.guard is None:
            done(token)
        else:
            self._queue.guard.when_complete(message or SAFE, done, token)

    def _dispatch(self) -> None:
        dispatcher = self._dispatcher
        if dispatcher.browse_consumers:
            dispatcher.feed_browse_consumers()
        if dispatcher.waiting or dispatcher.selecting:
            dispatcher.pump()
