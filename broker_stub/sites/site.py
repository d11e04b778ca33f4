"""What a member does for another site, and what it does with another site's events.

Rule: a member that does not serve makes no events, carries none out and has no link.  What it is told
to do then (a queue, an exchange, a link) waits until it serves.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from broker_stub.connections.outgoing_links import Subscription
from broker_stub.queueing.exchanges import Exchange, ExchangeType
from broker_stub.queueing.nodes import Addresses
from broker_stub.queueing.queue import Queue
from broker_stub.sites.anomalies import Odd, Tell
from broker_stub.sites.inbound import Applier
from broker_stub.sites.modes import REPLICATION_QUEUE
from broker_stub.sites.outbound import Source
from broker_stub.sites.site_link import Link
from broker_stub.sites.source_config import Way, WayError

logger = logging.getLogger("broker_stub.sites")


class Site:
    """The site's part in one member (``addresses.SiteWatcher``).

    :param now_ms: milliseconds since the epoch.
    :param put_marks: writes the marks of a queue down.
    :param tell: is told of events that are not as they should be, after the log.
    """

    def __init__(
        self,
        addresses: Addresses,
        now_ms: Callable[[], int],
        put_marks: Callable[[Queue], object],
        tell: Tell,
    ) -> None:
        self._addresses = addresses
        self._now_ms = now_ms
        self._tell = tell
        self._source = Source(addresses, now_ms, put_marks)
        self._serves = False
        self._reader: Subscription | None = None
        self._appliers: dict[Exchange, Applier] = {}
        self._links: dict[Exchange, Link] = {}
        self._ending: set[asyncio.Task[None]] = set()
        addresses.site = self

    # -- life -----------------------------------------------------------------------------------

    def became(self, *, serves: bool) -> None:
        """The member serves, or does not."""
        if serves == self._serves:
            return
        self._serves = serves
        if serves:
            self._begin()
        else:
            self._end()

    def _begin(self) -> None:
        self._source.hand_out()
        for queue in self._addresses:
            self._source.begin(queue)
        for exchange in self._appliers:
            self._begin_exchange(exchange)

    def _end(self) -> None:
        for exchange in self._appliers:
            exchange.carry_out = None
            self._hang_up(exchange)
        for queue in self._addresses:
            self._source.end(queue)

    async def close(self) -> None:
        """The member stops: its links have ended when this returns.  What clients still do has its events."""
        for exchange in tuple(self._links):
            self._hang_up(exchange)
        self.look()
        if self._ending:
            await asyncio.wait(self._ending)

    # -- the source -----------------------------------------------------------------------------

    def queue_added(self, queue: Queue) -> None:
        """A queue is new."""
        if self._serves:
            self._source.begin(queue)
            for applier in self._appliers.values():
                applier.queue_added(queue)

    def queue_changed(self, queue: Queue) -> None:
        """Another site gets more or less of a queue than before."""
        if self._serves:
            self._source.change(queue)

    def read_by(self, reader: Subscription) -> None:
        """A link takes the events from now on; the one before does no more."""
        former, self._reader = self._reader, reader
        if former is not None and not former.link.dead:
            former.steal()

    def owns(self, name: str | None) -> bool:
        """Whether a queue of that name holds events: nobody else puts anything into it."""
        return name == REPLICATION_QUEUE or any(name == each.parking for each in self._appliers.values())

    # -- the other side -------------------------------------------------------------------------

    def exchange_added(self, exchange: Exchange) -> None:
        """An exchange is new, or its options are."""
        if exchange.type is not ExchangeType.REPLICATION:
            return
        if exchange not in self._appliers:
            self._appliers[exchange] = Applier(exchange, self._addresses, self._now_ms, self._tell_odd)
        if self._serves:
            self._begin_exchange(exchange)

    def exchange_deleted(self, exchange: Exchange) -> None:
        """An exchange is gone."""
        applier = self._appliers.pop(exchange, None)
        if applier is not None:
            self._hang_up(exchange)
            applier.odd.look()

    def _begin_exchange(self, exchange: Exchange) -> None:
        applier = self._appliers[exchange]
        if exchange.carry_out is None:
            exchange.carry_out = applier.carry_out
            applier.begin()
        self._hang_up(exchange)
        way, error = _way(exchange)
        if error:
            logger.error("link %s cannot begin: %s", exchange.name, error)
        elif way is not None and applier.applying:
            self._links[exchange] = Link(exchange, way)

    def _hang_up(self, exchange: Exchange) -> None:
        link = self._links.pop(exchange, None)
        if link is not None:
            task = link.stop()
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    # -- odd cases ------------------------------------------------------------------------------

    def look(self) -> None:
        """A second is over: tell of the odd events in it."""
        for applier in self._appliers.values():
            applier.odd.look()

    def _tell_odd(self, odd: Odd) -> None:
        times = "" if odd.count == 1 else f" ({odd.count} times)"
        logger.warning("%s: %s%s: %s", odd.link, odd.case, times, odd.words)
        self._tell(odd)

    # -- status ---------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """What an operator wants to know; empty where there is no other site."""
        source = self._source.status()
        links = [self._link_status(exchange, applier) for exchange, applier in self._appliers.items()]
        return {
            **({} if source is None else {"source": source}),
            **({"links": links} if links else {}),
        }

    def _link_status(self, exchange: Exchange, applier: Applier) -> dict[str, Any]:
        link, (way, error) = self._links.get(exchange), _way(exchange)
        return {
            "name": exchange.name,
            "from": None if way is None else str(way),
            "password_file": None if way is None else way.password_file,
            "applying": applier.applying,
            "state": "stopped" if link is None else link.state,
            "error": error if link is None else link.error,
            "last_sequence": dict(applier.last),
            "queues": applier.targets() if self._serves else [],
            "delay_seconds": None if applier.delay_ms is None else applier.delay_ms / 1000,
            **asdict(applier.tally),
        }


def _way(exchange: Exchange) -> tuple[Way | None, str]:
    """The way of an exchange's link, or why there is none: an older version stored more than is allowed."""
    try:
        return Way.of(exchange.options), ""
    except WayError as error:
        return None, str(error)
