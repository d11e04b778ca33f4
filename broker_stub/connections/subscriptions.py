"""Subscriptions to an exchange that outlive their link, or that several links share.

Theory of operation
-------------------
A subscription is a queue, bound to its exchange with the key in the source's address. Its name consists of
the link's name and the container id, so that the same or another client finds it again. Like any queue, it is
replicated, bounded and listed.

Rules (of Qpid JMS, which Apache Artemis and the Qpid brokers understand)
-----
* The name of the subscription is the link's name up to ``|``. It belongs to the container id, unless it is
  shared and ``global``.
* A durable subscription is kept when its link is detached or lost. It is deleted when its last link is
  closed. A shared, nondurable subscription ends with its last link and is not replicated.
* A subscription that is not shared has one link: a second link takes over.
* If a client attaches with another address or filter, the subscription is replaced, unless it is in use.
* A null source means the durable subscription of the link's name; this allows a client to close it.

Sources: AMQP 1.0 part 2, section 2.6.6 (detached and closed), part 3, section 3.5.3 (source); Apache Qpid
JMS, ``AmqpSubscriptionTracker``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import proton

from broker_stub.amqp.conditions import INVALID_FIELD, NOT_ALLOWED, NOT_FOUND
from broker_stub.connections.outgoing_links import OutgoingLink
from broker_stub.queueing.exchanges import Binding, Route
from broker_stub.queueing.nodes import Addresses, AddressRefusedError
from broker_stub.queueing.options import QueueOptions
from broker_stub.queueing.queue import Queue
from haclient.engine import peer_fields
from haclient.engine.links import SenderLink
from haclient.printable.log import get_logger

logger = get_logger("broker_stub.connections.subscriptions")

TOPIC, SHARED, GLOBAL = "topic", "shared", "global"
PREFIX = "subscription/"
_DELIMITER = "|"


@dataclass(frozen=True, slots=True)
class SubscriptionRequest:
    """The subscription that an Attach requests.

    :param name: name of the subscription's queue.
    :param durable: true if it outlives its links.
    :param shared: true if it may have several links.
    :param is_lookup: true if the source is null: the subscription must exist.
    """

    name: str
    durable: bool
    shared: bool
    is_lookup: bool = False


def requested_subscription(
    link: SenderLink, container: str, *, is_exchange: bool
) -> SubscriptionRequest | None:
    """Return the subscription that an Attach requests.

    ``None`` means a queue, or a subscription that ends with its link.

    :param is_exchange: true if the source's address is an exchange.
    :raises AddressRefusedError: if the link has no name.
    """
    source = link.endpoint.remote_source
    asked = peer_fields.capabilities(source)
    if source.type == proton.Terminus.UNSPECIFIED and not source.dynamic and source.address is None:
        return SubscriptionRequest(_name(link, container), durable=True, shared=False, is_lookup=True)
    shared = SHARED in asked
    # A queue keeps its messages, whether or not the source is durable.
    durable = _is_durable(source) and (shared or TOPIC in asked or is_exchange)
    if not shared and not durable:
        return None
    name = _name(link, "" if shared and GLOBAL in asked else container)
    return SubscriptionRequest(name if durable else f"{name}{_DELIMITER}volatile", durable, shared)


def _is_durable(source: proton.Terminus) -> bool:
    return bool(source.durability) and source.expiry_policy == proton.Terminus.EXPIRE_NEVER


def _name(link: SenderLink, scope: str) -> str:
    name = link.endpoint.name.partition(_DELIMITER)[0]
    if not name:
        raise AddressRefusedError(INVALID_FIELD, "a subscription has the name of its link, and that has none")
    return f"{PREFIX}{scope}/{name}"


class Subscriptions:
    """All subscriptions of a member, and the links that use them."""

    def __init__(self, addresses: Addresses) -> None:
        self._addresses = addresses
        self._links: dict[Queue, dict[OutgoingLink, None]] = {}

    def open(self, request: SubscriptionRequest, route: Route, key: str, options: QueueOptions) -> Queue:
        """Return the queue of a subscription, created if necessary.

        :param key: key of the binding.
        :param options: options of the queue, which contain the filters.
        :raises AddressRefusedError: if the name is in use for another subscription, or the queue cannot be
            created.
        """
        queue = self._addresses.find_queue(request.name)
        if queue is not None:
            bound = route.exchange.binding(queue, key)
            if bound is not None and queue.options == options:
                return queue
            if self._links.get(queue):
                raise AddressRefusedError(
                    NOT_ALLOWED, f"{queue.name!r} is in use, with another address or selector"
                )
            self._addresses.delete(queue)
        if request.durable:
            queue = self._addresses.declare(request.name, replicate=route.exchange.replicate, options=options)
        else:
            queue = self._addresses.temporary(None, name=request.name, options=options)
        self._addresses.bind(route.exchange, queue, key)
        return queue

    def find(self, request: SubscriptionRequest) -> tuple[Queue, str]:
        """Return the queue of an existing durable subscription, and its topic.

        :raises AddressRefusedError: if the subscription does not exist or is in use.
        """
        queue = self._addresses.find_queue(request.name)
        if queue is None:
            raise AddressRefusedError(NOT_FOUND, f"there is no subscription {request.name!r}")
        if self._links.get(queue):
            raise AddressRefusedError(NOT_ALLOWED, f"{request.name!r} is in use")
        binding = next(iter(self._bindings(queue)), None)
        return queue, "" if binding is None else Route(binding.exchange, binding.key or None).name

    def _bindings(self, queue: Queue) -> Iterable[Binding]:
        return (each for exchange in self._addresses.exchanges for each in exchange.bindings_of(queue))

    def attached(self, queue: Queue, owner: OutgoingLink, *, shared: bool) -> None:
        """Add a link to a subscription; if it is not shared, close its other links."""
        if not shared:
            for other in tuple(self._links.get(queue, ())):
                other.steal()
        self._links.setdefault(queue, {})[owner] = None

    def detached(self, queue: Queue, owner: OutgoingLink, *, closed: bool) -> None:
        """Remove a link from a subscription.

        :param closed: true if the client closed the link, which ends the subscription.
        """
        links = self._links.get(queue)
        if links is None or owner not in links:
            return
        del links[owner]
        if not links:
            del self._links[queue]
            if (closed or queue.temporary) and not queue.deleted:
                logger.info("%r is removed with its last link", queue.name)
                self._addresses.delete(queue)
