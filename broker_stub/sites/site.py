"""A member's events for another site, and its links from other sites.

Rule: only a primary makes events, applies events and has links.  Queues, exchanges and links that are made on
a backup start when it becomes primary.
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
    """The link over which another site receives the events."""

    @property
    def closed(self) -> bool:
        """True if the link has ended."""

    def steal(self) -> None:
        """Close the link because another receiver takes over; requeue the unsettled messages."""


class Site:
    """The site's part in one member (``nodes.SiteWatcher``).

    :param now_ms: milliseconds since the epoch.
    :param put_site_progress: writes the site progress of a queue.
    :param report: called with anomalies, after they are logged.
    :param at_limit: the reaction of links when there is no capacity for an event.
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
        """Start when the member becomes primary; stop when it no longer is."""
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
        """Stop: return when all links have ended.  Later changes by clients still make events."""
        for exchange in tuple(self._links):
            self._stop_link(exchange)
        self.tick()
        if self._ending:
            await asyncio.wait(self._ending)

    # -- as the source --------------------------------------------------------------------------

    def queue_added(self, queue: Queue) -> None:
        """Start making events for a new queue, and apply waiting events to it."""
        if self._serves:
            self._outbound.begin(queue)
            for inbound in self._inbounds.values():
                inbound.queue_added(queue)

    def queue_changed(self, queue: Queue) -> None:
        """Switch a queue to its new site mode."""
        if self._serves:
            self._outbound.change(queue)

    def read_by(self, reader: EventReader) -> None:
        """Let a link receive the events from now on; the former link ends."""
        former, self._reader = self._reader, reader
        if former is not None and not former.closed:
            former.steal()

    def owns(self, name: str | None) -> bool:
        """Return True if a queue of this name holds events; no client may send to it."""
        return name == REPLICATION_QUEUE or any(
            name == each.unroutable_queue for each in self._inbounds.values()
        )

    # -- as the target --------------------------------------------------------------------------

    def exchange_added(self, exchange: Exchange) -> None:
        """Start a new ``replication`` exchange, or restart it with new options."""
        if exchange.type is not ExchangeType.REPLICATION:
            return
        if exchange not in self._inbounds:
            self._inbounds[exchange] = Inbound(exchange, self._addresses, self._now_ms, self._report_anomaly)
        if self._serves:
            self._begin_exchange(exchange)

    def exchange_deleted(self, exchange: Exchange) -> None:
        """Stop a deleted ``replication`` exchange."""
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
        """Report the anomalies of the last second."""
        for inbound in self._inbounds.values():
            inbound.anomalies.tick()

    def _report_anomaly(self, anomaly: Anomaly) -> None:
        times = "" if anomaly.count == 1 else f" ({anomaly.count} times)"
        logger.warning("%s: %s%s: %s", anomaly.link, anomaly.case, times, anomaly.description)
        self._report(anomaly)

    # -- status ---------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """Return the site's part of the status; empty if there is no other site."""
        source = self._outbound.status()
        links = [self._link_status(exchange, inbound) for exchange, inbound in self._inbounds.items()]
        return {
            **({} if source is None else {"source": source}),
            **({"links": links} if links else {}),
        }

    def followed_queues(self) -> list[tuple[str, str]]:
        """Return pairs of a link's name and a queue that it has filled; none on a backup."""
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
    """Return the source of an exchange's link, or the error: an older version allowed more options."""
    try:
        return SourceConfig.of(exchange.options), ""
    except SourceConfigError as error:
        return None, str(error)
