"""What a member does for another site, and with another site's events.

Rule: a member that does not serve makes no events, applies none and has no link.  Queues, exchanges and links
that are made meanwhile start when it serves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Protocol

from broker_stub.queueing.exchanges import Exchange, ExchangeType
from broker_stub.queueing.nodes import Addresses
from broker_stub.queueing.queue import Queue
from broker_stub.queueing.site_state import REPLICATION_QUEUE
from broker_stub.sites.anomalies import Anomaly, ReportAnomaly
from broker_stub.sites.at_limit import AtLimit
from broker_stub.sites.inbound import Inbound
from broker_stub.sites.outbound import Outbound
from broker_stub.sites.password_file import PasswordFiles
from broker_stub.sites.site_link import STOPPED, SiteLink
from broker_stub.sites.source_config import SourceConfig, SourceConfigError
from haclient.printable.log import get_logger

logger = get_logger("broker_stub.sites")


class EventReader(Protocol):
    """The link of another site that receives the events."""

    @property
    def closed(self) -> bool:
        """Whether the link has ended."""

    def steal(self) -> None:
        """Close the link because another receiver takes over; requeue the unsettled messages."""


class Site:
    """The site's part in one member (``nodes.SiteWatcher``).

    :param now_ms: milliseconds since the epoch.
    :param put_site_progress: writes the site progress of a queue.
    :param report: gets the anomalies, after the log.
    :param password_files: what links may read.
    :param at_limit: what links do while there is no room for an event.
    """

    def __init__(
        self,
        addresses: Addresses,
        now_ms: Callable[[], int],
        put_site_progress: Callable[[Queue], object],
        report: ReportAnomaly,
        password_files: PasswordFiles,
        *,
        at_limit: AtLimit = AtLimit.HOLD,
    ) -> None:
        self._addresses = addresses
        self._now_ms = now_ms
        self._report = report
        self._password_files = password_files
        self._at_limit = at_limit
        self._outbound = Outbound(addresses, now_ms, put_site_progress)
        self._serves = False
        self._reader: EventReader | None = None
        self._inbounds: dict[Exchange, Inbound] = {}
        self._links: dict[Exchange, SiteLink] = {}
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
        self._outbound.publish()
        for queue in self._addresses:
            self._outbound.begin(queue)
        for exchange in self._inbounds:
            self._begin_exchange(exchange)

    def _end(self) -> None:
        for exchange in self._inbounds:
            exchange.apply_event = None
            self._stop_link(exchange)
        for queue in self._addresses:
            self._outbound.end(queue)

    async def close(self) -> None:
        """The member stops: its links have ended when this returns.  What clients still do has its events."""
        for exchange in tuple(self._links):
            self._stop_link(exchange)
        self.tick()
        if self._ending:
            await asyncio.wait(self._ending)

    # -- the source -----------------------------------------------------------------------------

    def queue_added(self, queue: Queue) -> None:
        """A queue is new."""
        if self._serves:
            self._outbound.begin(queue)
            for inbound in self._inbounds.values():
                inbound.queue_added(queue)

    def queue_changed(self, queue: Queue) -> None:
        """Another site gets more or less of a queue than before."""
        if self._serves:
            self._outbound.change(queue)

    def read_by(self, reader: EventReader) -> None:
        """A link takes the events from now on; the one before does no more."""
        former, self._reader = self._reader, reader
        if former is not None and not former.closed:
            former.steal()

    def owns(self, name: str | None) -> bool:
        """Whether a queue of that name holds events: no client may send to it."""
        return name == REPLICATION_QUEUE or any(
            name == each.unroutable_queue for each in self._inbounds.values()
        )

    # -- the other side -------------------------------------------------------------------------

    def exchange_added(self, exchange: Exchange) -> None:
        """An exchange is new, or its options are."""
        if exchange.type is not ExchangeType.REPLICATION:
            return
        if exchange not in self._inbounds:
            self._inbounds[exchange] = Inbound(exchange, self._addresses, self._now_ms, self._report_anomaly)
        if self._serves:
            self._begin_exchange(exchange)

    def exchange_deleted(self, exchange: Exchange) -> None:
        """An exchange is gone."""
        inbound = self._inbounds.pop(exchange, None)
        if inbound is not None:
            self._stop_link(exchange)
            inbound.anomalies.tick()

    def _begin_exchange(self, exchange: Exchange) -> None:
        inbound = self._inbounds[exchange]
        if exchange.apply_event is None:
            exchange.apply_event = inbound.apply_event
            inbound.begin()
        self._stop_link(exchange)
        source, error = _source_config(exchange)
        if error:
            logger.error("link %s cannot start: %s", exchange.name, error)
        elif source is not None and inbound.applying:
            self._links[exchange] = SiteLink(
                exchange,
                source,
                self._password_files,
                intake=self._addresses.intake,
                at_limit=self._at_limit,
                report=inbound.anomalies.record,
            )

    def _stop_link(self, exchange: Exchange) -> None:
        link = self._links.pop(exchange, None)
        if link is not None:
            task = link.stop()
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    # -- anomalies ------------------------------------------------------------------------------

    def tick(self) -> None:
        """A second has passed: report the anomalies in it."""
        for inbound in self._inbounds.values():
            inbound.anomalies.tick()

    def _report_anomaly(self, anomaly: Anomaly) -> None:
        times = "" if anomaly.count == 1 else f" ({anomaly.count} times)"
        logger.warning("%s: %s%s: %s", anomaly.link, anomaly.case, times, anomaly.description)
        self._report(anomaly)

    # -- status ---------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """What an operator wants to know; empty where there is no other site."""
        source = self._outbound.status()
        links = [self._link_status(exchange, inbound) for exchange, inbound in self._inbounds.items()]
        return {
            **({} if source is None else {"source": source}),
            **({"links": links} if links else {}),
        }

    def followed_queues(self) -> list[tuple[str, str]]:
        """The names of the links, each with the name of a queue that it has filled; none on a backup."""
        if not self._serves:
            return []
        return [(e.name, queue) for e, inbound in self._inbounds.items() for queue in inbound.targets()]

    def _link_status(self, exchange: Exchange, inbound: Inbound) -> dict[str, Any]:
        link, (source, error) = self._links.get(exchange), _source_config(exchange)
        return {
            "name": exchange.name,
            "from": None if source is None else str(source),
            "password_file": None if source is None else source.password_file,
            "applying": inbound.applying,
            "state": STOPPED if link is None else link.state,
            "error": error if link is None else link.error,
            "last_sequence": dict(inbound.last),
            "delay_seconds": None if inbound.delay_ms is None else inbound.delay_ms / 1000,
            **asdict(inbound.counts),
        }


def _source_config(exchange: Exchange) -> tuple[SourceConfig | None, str]:
    """The way of an exchange's link, or why there is none: an older version stored more than is allowed."""
    try:
        return SourceConfig.of(exchange.options), ""
    except SourceConfigError as error:
        return None, str(error)
