"""The link to another site, whose primary lies: it takes events or starts over, and ends when stopped.

Rules: no traceback is logged, and no exception stays uncaught. No queue has more messages than there
were events. The link survives any data, and disappears with its exchange.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack
from typing import Any
from unittest import mock

from broker_stub.broker import Broker
from broker_stub.queueing.exchanges import Exchange, ExchangeType
from broker_stub.queueing.queue import Queue
from broker_stub.queueing.site_state import REPLICATION_QUEUE, SiteMode
from broker_stub.sites.inbound import Inbound
from broker_stub.sites.site_link import STOPPED
from broker_stub.sites.source_config import FROM
from haclient.events import Event
from haclient.events.event_log import CallbackSubscription
from tests.fuzz.members import OneMember
from tests.fuzz.script import parse
from tests.fuzz.target import Defect, Target
from tests.fuzz.wire import fixed_names

NAME = "from-a"
_SOURCE = "amqp://127.0.0.1"
_SMALLEST_EVENT = 8


class SourceLink(Target):
    name = "site_link"
    scripted = True

    def __init__(self) -> None:
        self._members = OneMember()
        self._patches = ExitStack()
        self._patches.enter_context(fixed_names())
        # Its thread would deliver events at varying times, so that an input's effect would vary.
        self._patches.enter_context(mock.patch.object(CallbackSubscription, "put", _at_once))

    def run(self, data: bytes) -> None:
        loop = self._members.loop
        loop.wires.clear()
        broker = self._members.make()
        self._members.call(lambda: follow(broker, _SOURCE))
        loop.turn()
        if not loop.wires:
            raise Defect("the link has not dialled")
        loop.wires[0].say(parse(data))
        self._check(broker, len(data))
        loop.wires[0].drop()
        loop.advance(10)
        self._check(broker, len(data))
        if len(loop.wires) < 2 and broker.site.status()["links"][0]["state"] != STOPPED:
            raise Defect("the link does not go on")
        exchange = broker.addresses.find_exchange(NAME)
        assert exchange is not None
        self._members.call(lambda: broker.addresses.delete_exchange(exchange))
        for wire in loop.wires:
            wire.drop()
        loop.advance(10)
        if broker.site._ending:
            raise Defect("the link does not end")
        broker._listener.close()
        self._members.end()

    @staticmethod
    def _check(broker: Broker, size: int) -> None:
        broker.site.status()
        for queue in broker.addresses:
            if queue.name != REPLICATION_QUEUE and len(queue.ids()) > size // _SMALLEST_EVENT:
                raise Defect(f"{queue.name!r} has {len(queue.ids())} messages of an input of {size} bytes")

    def planted(self) -> AbstractContextManager[object]:
        """An invalid event raises an error in the member."""
        original = Inbound._report

        def wrong(self: Inbound, case: str, *args: Any, **more: Any) -> None:
            if case == "malformed":
                raise KeyError(case)
            original(self, case, *args, **more)

        return mock.patch.object(Inbound, "_report", wrong)

    def close(self) -> None:
        self._patches.close()
        self._members.close()


def follow(broker: Broker, source: str) -> Exchange:
    """Give a member a link to another site."""
    return broker.addresses.declare_exchange(NAME, ExchangeType.REPLICATION, options={FROM: source})


def feed(broker: Broker) -> Queue:
    """Give a member a queue that another site follows completely."""
    return broker.addresses.declare("followed", site=SiteMode.ALL)


def _at_once(self: CallbackSubscription, event: Event) -> None:
    self._callback(event)


TARGET = SourceLink
