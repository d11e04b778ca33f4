"""Event subscriptions: callbacks, iterators and log lines.  Publishing never waits for a subscriber.

Rules
-----
* Publishing never blocks and never raises: a callback runs on a thread of its own, an iterator reads from a
  bounded queue of its own.
* A subscriber that falls behind loses its oldest events; ``dropped`` counts them.
* A callback that raises is logged, and called again for the next event.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol, Self

from haclient import events
from haclient.events import Event
from haclient.printable.log import get_logger

logger = get_logger("haclient")

# Several hours of a client that cannot connect, at the longest backoff.
QUEUE_SIZE = 10_000
# Long enough to run the queued callbacks at a clean exit, short enough not to delay it.
_JOIN_TIMEOUT = 0.2


class Subscription(Protocol):
    """Interface of a receiver of events."""

    def put(self, event: Event) -> None:
        """Take one event."""

    def end(self) -> None:
        """End: no more events follow."""


class CallbackSubscription:
    """Calls a function for each event, on one thread, in order.

    :ivar dropped: events lost because the function was too slow.
    """

    def __init__(self, callback: Callable[[Event], object]) -> None:
        self.dropped: int = 0
        self._callback = callback
        self._queue: deque[Event] = deque()
        self._ready = threading.Condition()
        self._closed = False
        self._thread: threading.Thread | None = None

    def put(self, event: Event) -> None:
        """Queue an event; the thread starts with the first one."""
        with self._ready:
            if self._closed:
                return
            if len(self._queue) >= QUEUE_SIZE:
                self._queue.popleft()
                self.dropped += 1
            self._queue.append(event)
            if self._thread is None or not self._thread.is_alive():  # a fork does not copy the thread
                self._thread = threading.Thread(target=self._run, name="haclient events", daemon=True)
                self._thread.start()
            self._ready.notify()

    def end(self) -> None:
        """Accept no more events, and wait a moment for the queued ones."""
        with self._ready:
            self._closed = True
            self._ready.notify()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(_JOIN_TIMEOUT)

    def _run(self) -> None:
        while True:
            with self._ready:
                while not self._queue:
                    if self._closed:
                        return
                    self._ready.wait()
                event = self._queue.popleft()
            try:
                self._callback(event)
            except Exception:
                logger.exception(
                    "%s: an event callback failed on %s", event.stamp.connection_name, type(event).__name__
                )


def _anywhere() -> None:
    """Allow a call on any event loop: ``put`` runs on the waiter's loop."""


class AsyncEvents:
    """An asynchronous iterator over the events of a connection, until either is closed.

    As a context manager it closes at the end of the block.  It keeps its connection alive.

    :ivar dropped: events lost because they were not read in time.
    :param name: name of the connection in log lines.
    :param connection: the connection to keep alive.
    :param check: raises if the call is not made on the event loop of the connection.
    """

    def __init__(
        self, name: str = "", connection: object = None, check: Callable[[], None] = _anywhere
    ) -> None:
        self.dropped: int = 0
        self.closed: bool = False
        self._name = name
        self._connection = connection
        self._check = check
        self._queue: deque[Event] = deque()
        self._ready = asyncio.Event()
        self._ended = False

    def put(self, event: Event) -> None:
        """Queue an event (on the event loop's thread)."""
        if self._ended:
            return
        if len(self._queue) >= QUEUE_SIZE:
            self._queue.popleft()
            self.dropped += 1
        self._queue.append(event)
        self._ready.set()

    def end(self) -> None:
        """End after the queued events."""
        self._ended = True
        self._ready.set()

    async def close(self) -> None:
        """Close: end the iteration, even one that waits, and drop the queued events.

        :raises WrongThread: on another event loop than the connection's.
        """
        self._check()
        self.closed = True
        self._queue.clear()
        self.end()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        self._check()  # ``put`` sets the event on the connection's loop, and wakes no waiter of another one
        while not self._queue:
            if self._ended:
                raise StopAsyncIteration
            self._ready.clear()
            await self._ready.wait()
        return self._queue.popleft()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return _describe("haclient.aio", self._name, len(self._queue), self.dropped, closed=self._ended)


class BlockingEvents:
    """An iterator over the events of a connection, until either is closed.  Thread-safe.

    As a context manager it closes at the end of the block.  It keeps its connection alive.

    :ivar dropped: events lost because they were not read in time.
    :param name: name of the connection in log lines.
    :param connection: the connection to keep alive.
    """

    def __init__(self, name: str = "", connection: object = None) -> None:
        self.dropped: int = 0
        self.closed: bool = False
        self._name = name
        self._connection = connection
        self._queue: deque[Event] = deque()
        self._ready = threading.Condition()
        self._ended = False

    def put(self, event: Event) -> None:
        """Queue an event."""
        with self._ready:
            if self._ended:
                return
            if len(self._queue) >= QUEUE_SIZE:
                self._queue.popleft()
                self.dropped += 1
            self._queue.append(event)
            self._ready.notify()

    def end(self) -> None:
        """End after the queued events."""
        with self._ready:
            self._ended = True
            self._ready.notify_all()

    def close(self) -> None:
        """Close: end the iteration, even one that waits, and drop the queued events."""
        with self._ready:
            self.closed = self._ended = True
            self._queue.clear()
            self._ready.notify_all()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        with self._ready:
            while not self._queue:
                if self._ended:
                    raise StopIteration
                self._ready.wait()
            return self._queue.popleft()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return _describe("haclient", self._name, len(self._queue), self.dropped, closed=self._ended)


def _describe(package: str, name: str, queued: int, dropped: int, *, closed: bool) -> str:
    state = "closed" if closed else "open"
    return f"<{package} events of {name}: {state}, queued={queued} dropped={dropped}>"


class LogSubscription:
    """Writes the events that an operator should see to the ``haclient`` logger, one line each."""

    def put(self, event: Event) -> None:  # noqa: C901 - one case for each
        """Log an event."""
        prefix = event.stamp.connection_name
        match event:
            case events.Connected():
                logger.info("%s: connected to %s after %d attempts", prefix, event.endpoint, event.attempts)
            case events.Reconnected():
                level = logging.INFO if event.planned else logging.WARNING
                text = "%s: reconnected to %s after %.3f s, %d messages sent again"
                logger.log(level, text, prefix, event.endpoint, event.duration, event.replayed)
            case events.Disconnected():
                level = logging.INFO if event.kind is events.LossKind.RENEWAL else logging.WARNING
                text = "%s: lost %s (%s), %d unsettled"
                logger.log(level, text, prefix, event.endpoint, event.reason, event.unsettled)
            case events.AttemptFailed():
                failure = event.record.failure
                logger.info(
                    "%s: %s: %s %s", prefix, event.record.endpoint, failure.kind.value, failure.detail
                )
            case events.Parked():
                logger.info("%s: %s parks the connection until it serves", prefix, event.endpoint)
            case events.Redirected():
                logger.info("%s: %s redirects to %s %s", prefix, event.by, event.target, event.detail)
            case events.BackingOff():
                logger.info("%s: no primary in round %d, next in %.3f s", prefix, event.round, event.delay)
            case events.LinkRetrying() | events.Unsettled() | events.DeliveryStale():
                _log_link(prefix, event)
            case events.GenerationsForgotten():
                text = "%s: only stale primaries have served for long, %s with generation %s of cluster %r: "
                text += "the client forgets generation %s, and may use one of them"
                facts = event.endpoint, event.generation, event.cluster, event.highest
                logger.warning(text, prefix, *facts)
            case events.Blocked() | events.Unblocked():
                _log_block(prefix, event)
            case events.GaveUp():
                logger.error("%s: gave up: %s", prefix, event.reason)
            case _:
                logger.debug("%s: %s", prefix, type(event).__name__)

    def end(self) -> None:
        """Do nothing: no event is queued."""


def _log_block(prefix: str, event: events.Blocked | events.Unblocked) -> None:
    if isinstance(event, events.Blocked):
        text = "%s: %s takes no messages: its session window is closed, as in a memory or disk alarm"
        logger.warning(text, prefix, event.endpoint)
    else:
        logger.warning("%s: %s takes messages again, after %.3f s", prefix, event.endpoint, event.duration)


def _log_link(prefix: str, event: events.LinkRetrying | events.Unsettled | events.DeliveryStale) -> None:
    if isinstance(event, events.DeliveryStale):
        logger.info("%s: a delivery from %r was not settled: %s", prefix, event.address, event.reason)
        return
    if isinstance(event, events.Unsettled):
        what = f"the sender to {event.address!r}" if event.link else "the connection"
        text = "%s: %s ended, and %d messages have no outcome: %s"
        logger.warning(text, prefix, what, event.count, event.reason)
        return
    level = logging.WARNING if event.refusals == 1 else logging.INFO
    text = "%s: the primary refuses the link %s to %r (%s: %s), attached again in %.3f s"
    where = event.link, event.address
    logger.log(level, text, prefix, *where, event.condition, event.reason, event.delay)
