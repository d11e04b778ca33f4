"""Links on which clients send: to one place, or wherever each message says.

A place is a queue, or an exchange (``exchanges.Route``) that looks like one from here.

Rules
-----
* A producer is given ``CREDIT`` messages and topped up at half, unless the place is full.
* It is told that a message is safe when the place says so, not before.
* A message that an exchange has no queue for is released.
* Bytes that are no message are rejected, and the link goes on.
* What says of a message that another site's event put it here is taken off: only this site says so.

Sources: AMQP 1.0 part 2, section 2.6.7 (flow control); part 3, section 3.4; "Anonymous Terminus
for Message Routing", version 1.0.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

import proton

from broker_stub.amqp.message_format import PLAIN, Envelope, MalformedMessageError, inspect, to_address
from broker_stub.queueing.exchanges import Route, UnroutableError
from broker_stub.queueing.nodes import AddressRefusedError
from broker_stub.queueing.queue import Queue
from broker_stub.sites.event import without_origin
from haclient.engine.links import DeliveryPointer, ReceiverLink
from haclient.outcome import RELEASED, Outcome, OutcomeState

logger = logging.getLogger("broker_stub.connections.incoming_links")

# Enough to keep a link of 10 ms round trip at 100,000 messages a second.
CREDIT = 1000

# Seconds: who says "for ever" by the largest number must not run out of 63 bits.
_LONGEST_LIFE = 100 * 365 * 86400.0

WallClock = Callable[[], int]
"""Milliseconds since the epoch."""


class Router(Protocol):
    """Finds the place of a message by its ``to``; raises ``AddressRefusedError``."""

    def __call__(self, address: str | None, /) -> Queue | Route | RequestHandler:
        """The place of an address."""


class Home(Protocol):
    """The connection that a link belongs to."""

    def dropped(self, owner: Producer | AnonymousProducer | RequestLink) -> None:
        """The client closed the link."""


class RequestHandler(Protocol):
    """A node of the broker's own that takes whole messages."""

    def request(self, data: bytes) -> None:
        """Take one encoded message."""


def lifetime(envelope: Envelope, now_ms: WallClock) -> float | None:
    """Seconds that a message has to live: the header's TTL or what is left until its expiry."""
    limits = []
    if envelope.ttl_ms is not None:
        limits.append(envelope.ttl_ms / 1000)
    if envelope.expiry_ms:
        limits.append((envelope.expiry_ms - now_ms()) / 1000)
    return max(0.0, min(*limits, _LONGEST_LIFE)) if limits else None


class Producer:
    """The receiving end of a link to one place."""

    __slots__ = ("_credit", "_home", "_now_ms", "_place", "_stalled", "link")

    def __init__(self, link: ReceiverLink, home: Home, place: Queue | Route, now_ms: WallClock) -> None:
        self.link = link
        self._home = home
        self._place = place
        self._now_ms = now_ms
        self._credit = 0
        self._stalled = False

    def start(self) -> None:
        """Let the client send."""
        self._top_up()

    def link_opened(self, link: ReceiverLink) -> None:
        """The peer attached first; nothing is left to do."""

    def link_closed(self, link: ReceiverLink, condition: proton.Condition | None) -> None:
        """What was sent stays where it is."""
        self._home.dropped(self)

    def delivered(self, link: ReceiverLink, delivery: DeliveryPointer | None, data: bytes) -> None:
        """A whole message came."""
        self._credit -= 1
        try:
            envelope = inspect(data)
            data = without_origin(data)
            place = self._place
            if place.deleted:
                reject(link, delivery, "amqp:resource-deleted", f"{place.name} is gone")
            else:
                seconds = None if envelope is PLAIN else lifetime(envelope, self._now_ms)
                place.enqueue(data, self._done, delivery, envelope, seconds)
        except MalformedMessageError as error:
            reject(link, delivery, "amqp:decode-error", str(error))
        except UnroutableError as error:
            release(link, delivery, error)
        if self._credit <= CREDIT // 2:
            self._top_up()

    def _done(self, delivery: DeliveryPointer | None) -> None:
        if delivery is not None:
            self.link.settle(delivery)

    def _top_up(self) -> None:
        if self._credit < 0:
            self.link.close(proton.Condition("amqp:link:transfer-limit-exceeded", "sent without credit"))
        elif not self._place.full:
            self.link.grant(CREDIT - self._credit)
            self._credit = CREDIT
        elif not self._stalled:
            self._stalled = True
            self._place.when_room(self._room_again)

    def _room_again(self) -> None:
        self._stalled = False
        self._top_up()


class AnonymousProducer:
    """The receiving end of a link without an address: every message says where it goes."""

    __slots__ = ("_home", "_now_ms", "_route", "link")

    def __init__(self, link: ReceiverLink, home: Home, route: Router, now_ms: WallClock) -> None:
        self.link = link
        self._home = home
        self._route = route
        self._now_ms = now_ms

    def start(self) -> None:
        """Let the client send."""
        self.link.grant(CREDIT)

    def link_opened(self, link: ReceiverLink) -> None:
        """The peer attached first; nothing is left to do."""

    def link_closed(self, link: ReceiverLink, condition: proton.Condition | None) -> None:
        """What was sent stays where it is."""
        self._home.dropped(self)

    def delivered(self, link: ReceiverLink, delivery: DeliveryPointer | None, data: bytes) -> None:
        """A whole message came."""
        try:
            envelope = inspect(data)
            data = without_origin(data)
            place = self._route(to_address(data))
            if isinstance(place, Queue | Route):
                place.enqueue(data, self._done, delivery, envelope, lifetime(envelope, self._now_ms))
                if place.full:
                    place.when_room(self._next)
                    return
            else:
                self._done(delivery)
                place.request(data)
        except MalformedMessageError as error:
            reject(link, delivery, "amqp:decode-error", str(error))
        except AddressRefusedError as refused:
            reject(link, delivery, refused.condition, refused.description)
        except UnroutableError as error:
            release(link, delivery, error)
        self._next()

    def _done(self, delivery: DeliveryPointer | None) -> None:
        if delivery is not None:
            self.link.settle(delivery)

    def _next(self) -> None:
        self.link.grant(1)


class RequestLink:
    """The receiving end of a link to a node of the broker's own."""

    __slots__ = ("_handler", "_home", "link")

    def __init__(self, link: ReceiverLink, home: Home, handler: RequestHandler) -> None:
        self.link = link
        self._home = home
        self._handler = handler

    def start(self) -> None:
        """Let the client send."""
        self.link.grant(CREDIT)

    def link_opened(self, link: ReceiverLink) -> None:
        """The peer attached first; nothing is left to do."""

    def link_closed(self, link: ReceiverLink, condition: proton.Condition | None) -> None:
        """Nothing is left behind."""
        self._home.dropped(self)

    def delivered(self, link: ReceiverLink, delivery: DeliveryPointer | None, data: bytes) -> None:
        """A request came."""
        if delivery is not None:
            link.settle(delivery)
        link.grant(1)
        self._handler.request(data)


def reject(link: ReceiverLink, delivery: DeliveryPointer | None, condition: str, description: str) -> None:
    """Refuse one message; one that was sent settled is dropped with a word in the log."""
    if delivery is None:
        logger.warning("a message sent at most once was dropped: %s: %s", condition, description)
        return
    outcome = Outcome(OutcomeState.REJECTED, condition=condition, description=description)
    link.settle(delivery, outcome)


def release(link: ReceiverLink, delivery: DeliveryPointer | None, error: UnroutableError) -> None:
    """Give one message back; one that was sent settled is dropped, as nobody waits for it."""
    if delivery is None:
        logger.debug("a message sent at most once was dropped: %s", error)
    else:
        link.settle(delivery, RELEASED)
