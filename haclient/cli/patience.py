"""Time limits and rates for commands that receive messages.

A lost connection is not silence.  ``--timeout`` counts from the last message, or from the return of the
connection.  If a connection does not return within ``--reconnect-timeout``, the command ends with the exit
code for no primary.
"""

from __future__ import annotations

import asyncio
from typing import Any

import click

from haclient import State, aio, events
from haclient.cli.exit_codes import NoPrimaryError
from haclient.errors import ReceiveTimeout
from haclient.events.event_log import AsyncEvents

# Default of ``--reconnect-timeout`` with ``--timeout``: as long as a first connect (``startup_deadline``).
_RECONNECT_TIMEOUT = 60.0

# Seconds of delay that a pace may make up for, because timers are not exact.
_CATCH_UP = 0.1

COUNT = click.option("-n", "--count", type=click.IntRange(min=1), help="End after so many messages.")
TIMEOUT = click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    help="End when no message has come for so many seconds over a live connection.",
)
RECONNECT_TIMEOUT = click.option(
    "--reconnect-timeout",
    type=click.FloatRange(min=0, min_open=True),
    help="End with code 4 when a lost connection is not back after so many seconds; "
    f"with --timeout: {_RECONNECT_TIMEOUT:g} by default.",
)


RATE = click.option("--rate", type=click.FloatRange(min=0, min_open=True), help="Messages a second, at most.")


def with_default_reconnect_timeout(given: dict[str, Any]) -> None:
    """Set the default of ``--reconnect-timeout`` if only ``--timeout`` is given."""
    if given["timeout"] is not None and given["reconnect_timeout"] is None:
        given["reconnect_timeout"] = _RECONNECT_TIMEOUT


def has_end(done: int, count: int | None, timeout: float | None) -> bool:
    """Test if ``--count`` or ``--timeout`` would still have ended the command.

    :param done: messages so far.
    """
    return timeout is not None if count is None else done < count


async def watch_downtime(subscription: AsyncEvents, reconnect_timeout: float | None) -> None:
    """Watch the losses and returns of a connection until it is closed.

    :param reconnect_timeout: longest downtime, in seconds; ``None`` for no limit.
    :raises NoPrimaryError: if the connection is down for longer.
    """
    limit: float | None = None
    while True:
        try:
            async with asyncio.timeout_at(limit):
                event = await anext(subscription, None)
        except TimeoutError:
            raise _no_connection(reconnect_timeout) from None
        if event is None:
            return
        if isinstance(event, events.Disconnected):
            limit = None if reconnect_timeout is None else event.stamp.monotonic + reconnect_timeout
        elif isinstance(event, events.Reconnected):
            limit = None


def _no_connection(reconnect_timeout: float | None) -> NoPrimaryError:
    return NoPrimaryError(f"no connection for {reconnect_timeout:g} s")


class Patience:
    """Waits for messages within the limits of the arguments.

    :param timeout: seconds of silence on a live connection; ``None`` for no limit.
    :param reconnect_timeout: seconds without a connection; ``None`` for no limit.
    :ivar losses: number of times that the connection was lost.
    """

    def __init__(
        self, connection: aio.Connection, timeout: float | None, reconnect_timeout: float | None
    ) -> None:
        self.losses = 0
        self._connection = connection
        self._timeout = timeout
        self._reconnect_timeout = reconnect_timeout
        self._loop = asyncio.get_running_loop()
        self._silent_since = 0.0
        self._lost_at: float | None = None
        self._limit: asyncio.Timeout | None = None

    async def watch(self, subscription: AsyncEvents) -> None:
        """Watch the losses and returns of the connection until it is closed."""
        async for event in subscription:
            if isinstance(event, events.Disconnected):
                self._lost_at = event.stamp.monotonic
                self.losses += 1
            elif isinstance(event, events.Reconnected):
                self._lost_at, self._silent_since = None, self._loop.time()
            if self._limit is not None and not self._limit.expired():
                self._limit.reschedule(self._until())

    async def receive(self, receiver: aio.Receiver) -> aio.Delivery:
        """Return the next message.

        :raises ReceiveTimeout: if none arrives within ``timeout`` over a live connection.
        :raises NoPrimaryError: if there is no connection for longer than ``reconnect_timeout``.
        """
        self._silent_since = self._loop.time()
        while True:
            self._limit = limit = asyncio.timeout_at(self._until())
            try:
                async with limit:
                    return await receiver.receive()
            except TimeoutError:
                if not limit.expired():
                    raise
                if self._lost_at is not None:
                    raise _no_connection(self._reconnect_timeout) from None
                if self._connection.state is State.CONNECTED:
                    raise ReceiveTimeout(f"no message for {self._timeout:g} s") from None
                await asyncio.sleep(0)  # lets `watch` process the loss, which is in the subscription already
            finally:
                self._limit = None

    def _until(self) -> float | None:
        if self._lost_at is not None:
            return None if self._reconnect_timeout is None else self._lost_at + self._reconnect_timeout
        return None if self._timeout is None else self._silent_since + self._timeout


class Pace:
    """A limit on messages a second.

    :param rate: ``None`` for no limit.
    """

    def __init__(self, rate: float | None) -> None:
        self._interval = 1 / rate if rate else 0.0
        self._due = 0.0

    async def wait(self) -> None:
        """Wait until the next message is due."""
        if not self._interval:
            return
        now = asyncio.get_running_loop().time()
        self._due = max(self._due + self._interval, now - _CATCH_UP)
        if self._due > now:
            await asyncio.sleep(self._due - now)
