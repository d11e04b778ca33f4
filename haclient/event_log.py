"""Event subscriptions: callbacks, iterators and log lines.  Publishing never waits for a subscriber.

Rules
-----
* Publishing never blocks and never raises: a callback runs on a thread of its own, an iterator
  reads from a bounded queue of its own.
* A subscriber that falls behind loses its oldest events; ``dropped`` counts them.
* A callback that raises is logged and called again for the next event.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol

from haclient import events
from haclient.events import Event

logger = logging.getLogger("haclient")

# An hour of a client that cannot connect, at the longest backoff, several times over.
QUEUE_SIZE = 10_000
# Long enough to run what is queued at a clean exit, short enough not to hold one up.
_JOIN_TIMEOUT = 0.2


class Subscription(Protocol):
    """What events are published to."""

    def put(self, event: Event) -> None:
        """Take one event."""

    def close(self) -> None:
        """Close: no more events follow."""


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
            if self._thread is None or not self._thread.is_alive():  # it did not survive a fork
                self._thread = threading.Thread(target=self._run, name="haclient events", daemon=True)
                self._thread.start()
            self._ready.notify()

    def close(self) -> None:
        """Let the queued events run, but do not wait long for them."""
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


class AsyncEvents:
    """An asynchronous iterator over events; ends when the connection is closed."""

    def __init__(self) -> None:
        self.dropped: int = 0
        self._queue: deque[Event] = deque()
        self._ready = asyncio.Event()
        self._closed = False

    def put(self, event: Event) -> None:
        """Queue an event (on the event loop's thread)."""
        if self._closed:
            return
        if len(self._queue) >= QUEUE_SIZE:
            self._queue.popleft()
            self.dropped += 1
        self._queue.append(event)
        self._ready.set()

    def close(self) -> None:
        """Close: no more events follow."""
        self._closed = True
        self._ready.set()

    def __aiter__(self) -> AsyncEvents:
        return self

    async def __anext__(self) -> Event:
        while not self._queue:
            if self._closed:
                raise StopAsyncIteration
            self._ready.clear()
            await self._ready.wait()
        return self._queue.popleft()


class BlockingEvents:
    """An iterator over events, for another thread than the one that publishes."""

    def __init__(self) -> None:
        self.dropped: int = 0
        self._queue: deque[Event] = deque()
        self._ready = threading.Condition()
        self._closed = False

    def put(self, event: Event) -> None:
        """Queue an event."""
        with self._ready:
            if self._closed:
                return
            if len(self._queue) >= QUEUE_SIZE:
                self._queue.popleft()
                self.dropped += 1
            self._queue.append(event)
            self._ready.notify()

    def close(self) -> None:
        """Close: no more events follow."""
        with self._ready:
            self._closed = True
            self._ready.notify_all()

    def __iter__(self) -> BlockingEvents:
        return self

    def __next__(self) -> Event:
        with self._ready:
            while not self._queue:
                if self._closed:
                    raise StopIteration
                self._ready.wait()
            return self._queue.popleft()


class LogSubscription:
    """Writes the events that an operator should see to the ``haclient`` logger, one line each."""

    def put(self, event: Event) -> None:
        """Log an event."""
        prefix = event.stamp.connection_name
        match event:
            case events.Connected():
                logger.info("%s: connected to %s after %d attempts", prefix, event.endpoint, event.attempts)
            case events.Reconnected():
                text = "%s: reconnected to %s after %.3f s, %d messages sent again"
                logger.warning(text, prefix, event.endpoint, event.duration, event.replayed)
            case events.Disconnected():
                logger.warning(
                    "%s: lost %s (%s), %d unsettled", prefix, event.endpoint, event.reason, event.unsettled
                )
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
            case events.LinkRetrying():
                level = logging.WARNING if event.refusals == 1 else logging.INFO
                text = "%s: the primary refuses the link %s to %r (%s: %s), attached again in %.3f s"
                where = event.link, event.address
                logger.log(level, text, prefix, *where, event.condition, event.reason, event.delay)
            case events.GaveUp():
                logger.error("%s: gave up: %s", prefix, event.reason)
            case _:
                logger.debug("%s: %s", prefix, type(event).__name__)

    def close(self) -> None:
        """Nothing is queued."""
