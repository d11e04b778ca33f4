"""A new member for each input, in a loop that never waits, for the targets that talk to one."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar
from unittest import mock

from broker_stub.admission.listener import Listener
from broker_stub.broker import Broker, BrokerOptions
from broker_stub.election.roles import Membership, Role
from broker_stub.queueing.exchanges import ExchangeType
from broker_stub.queueing.queue_limits import QueueLimits
from broker_stub.queueing.site_state import SiteMode
from tests.fuzz.wire import DefectLog, Loop

T = TypeVar("T")

OPTIONS = BrokerOptions(
    limits=QueueLimits(messages=50, size=100_000),
    max_message_size=20_000,
    membership=Membership(role=Role.PRIMARY, generation=1),
)
_COLLECT_EVERY = 500


class OneMember:
    """Makes members, and checks each for errors."""

    def __init__(self, options: BrokerOptions = OPTIONS) -> None:
        self._options = options
        self.loop = Loop()
        self._log = DefectLog()
        self._made = 0
        asyncio.set_event_loop(self.loop)
        # No socket listens, but the status needs a port.
        self._port = mock.patch.object(Listener, "port", 5672)
        self._port.start()

    def make(self) -> Broker:
        """Return a primary without backups."""
        return self.make_by(_member(self._options))

    def make_by(self, making: Coroutine[Any, Any, T]) -> T:
        """Return the result of a coroutine that does not wait for anything external."""
        self._made += 1
        if not self._made % _COLLECT_EVERY:
            gc.collect()
        return self.loop.run_until_complete(making)

    def call(self, function: Callable[[], None]) -> None:
        """Call a function within the loop."""
        self.loop.run_until_complete(_within(function))

    def end(self) -> None:
        """Drop the last member's pending work.

        :raises Defect: if an exception was logged with a traceback, or not caught.
        """
        loop = self.loop
        loop.turn()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.turn()
        for timer in loop._scheduled:  # type: ignore[attr-defined]
            timer.cancel()
        loop._scheduled.clear()  # type: ignore[attr-defined]
        loop.wires.clear()
        self._log.check(loop)

    def close(self) -> None:
        """Release all resources."""
        self._port.stop()
        self._log.close()
        self.loop.close()


async def _member(options: BrokerOptions) -> Broker:
    broker = Broker(options)
    furnish(broker)
    broker.site.became(serves=True)
    return broker


def furnish(broker: Broker) -> None:
    """Give a member an exchange that routes to a queue, and a queue with events for another site."""
    exchange = broker.addresses.declare_exchange("topics", ExchangeType.TOPIC)
    broker.addresses.bind(exchange, broker.addresses.declare("orders"), "a.#")
    broker.addresses.declare("sited", site=SiteMode.ALL)


async def _within(function: Callable[[], None]) -> None:
    function()
