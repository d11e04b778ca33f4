"""Resolves the addresses of one connection's links, and checks its user's permissions.

Rules
-----
* A passive member serves only the management node and the connection's own temporary queues.
* A receiver from an exchange gets its own temporary queue, bound with the key in its address
  ``exchange/key``. Without a key, the binding is ``#`` for a topic exchange and empty for a fanout exchange;
  a direct exchange requires a key. The queue ends with the link, so this receiver misses the messages between
  a failover and its new attach. If an application needs them, it binds a queue.
* Clients cannot lock out the cluster-admin by creating queues. Even at the limit of all queues, the admin
  gets queues for the responses to its requests.
"""

from __future__ import annotations

from typing import Protocol

from proton import Terminus

from broker_stub.amqp.conditions import (
    ILLEGAL_STATE,
    INVALID_FIELD,
    NOT_ALLOWED,
    NOT_IMPLEMENTED,
    RESOURCE_LIMIT_EXCEEDED,
    UNAUTHORIZED_ACCESS,
)
from broker_stub.amqp.node_names import MANAGEMENT
from broker_stub.connections.incoming_links import RequestHandler
from broker_stub.connections.link_server import LinkServer
from broker_stub.connections.subscriptions import SubscriptionRequest
from broker_stub.connections.terminus import NO_NODE_PROPERTIES, NodeProperties
from broker_stub.management import claims
from broker_stub.queueing.exchanges import ExchangeType, Route
from broker_stub.queueing.node_lifetime import LifetimePolicy
from broker_stub.queueing.nodes import AddressRefusedError
from broker_stub.queueing.options import QueueOptions
from broker_stub.queueing.queue import Queue
from haclient.engine.sasl.users import TokenOwner

# A management connection has one.
_ADMIN_TEMPORARY_QUEUES = 16
_DEFAULT_KEYS = {ExchangeType.TOPIC: "#", ExchangeType.FANOUT: ""}


class Client(Protocol):
    """The connection whose links are resolved."""

    user: str | None
    admin: bool
    must_claim: bool

    def claimed(self, owner: TokenOwner) -> str:
        """Take the identity in a token; return why it is refused, or nothing."""

    @property
    def description(self) -> str:
        """The client, for the log."""


class Targets:
    """The nodes that one connection uses; every method raises ``AddressRefusedError``."""

    __slots__ = ("_client", "_responses", "_server", "_temporary")

    def __init__(self, server: LinkServer, client: Client) -> None:
        self._server = server
        self._client = client
        self._temporary: set[Queue] = set()
        self._responses: Queue | None = None
        """The queue of the responses of ``$cbs``."""

    def temporary_queue(self, policy: LifetimePolicy) -> Queue:
        """Create a queue that ends with the connection, or earlier.

        :param policy: see ``node_lifetime``.
        """
        self._temporary = {queue for queue in self._temporary if not queue.deleted}
        self._check_temporary()
        exempt = self._client.admin and len(self._temporary) < _ADMIN_TEMPORARY_QUEUES
        queue = self._server.addresses.temporary(self._client, policy, limited=not exempt)
        self._temporary.add(queue)
        return queue

    def _check_temporary(self) -> None:
        limit = self._server.limits.links_of(admin=self._client.admin)
        if len(self._temporary) >= limit:
            raise AddressRefusedError(
                RESOURCE_LIMIT_EXCEEDED, f"a connection may have {limit} temporary queues"
            )

    def delete_temporary(self) -> None:
        """Delete the temporary queues of the connection."""
        self._server.addresses.delete_temporary(self._client, self._temporary)

    def to_send(
        self, address: str | None, wanted: NodeProperties = NO_NODE_PROPERTIES
    ) -> Queue | Route | RequestHandler:
        """Return the node that the client sends to."""
        self._check_may_use(address)
        if address == MANAGEMENT:
            return self._server.management(admin=self._client.admin, by=self._client.description)
        if (tokens := self._server.auth.claimable) is not None and address == claims.NODE:
            return claims.ClaimsNode(self._client, tokens, lambda: self._responses)
        if self._server.site.owns(address):
            raise AddressRefusedError(NOT_ALLOWED, f"only the site itself sends to {address!r}")
        target = self._server.addresses.resolve(address, **wanted)
        if isinstance(target, Route) and target.exchange.type is ExchangeType.REPLICATION:
            self._check_may_send_site_events(target)
        return target

    def to_receive(self, address: str | None, wanted: NodeProperties) -> Queue | Route:
        """Return the node that the client receives from."""
        self._check_may_use(address)
        if self._server.auth.claimable is not None and address == claims.NODE:
            if self._responses is None or self._responses.deleted:
                self._responses = self.temporary_queue(LifetimePolicy.DELETE_ON_CLOSE)
            return self._responses
        self._check_may_receive_site_events(address)
        return self._server.addresses.resolve(address, **wanted)

    def is_exchange(self, address: str | None) -> bool:
        """Return whether the address is an exchange, with or without a key."""
        return bool(address) and self._server.addresses.find_route(str(address)) is not None

    def queue_of(self, target: Queue | Route, options: QueueOptions) -> Queue:
        """Return the queue to receive from: the target, or a temporary queue bound to an exchange.

        :param options: options of the temporary queue.
        """
        queue = self._bound_queue(target, options) if isinstance(target, Route) else target
        if queue.exclusive_to not in (None, self._client):
            raise AddressRefusedError(UNAUTHORIZED_ACCESS, f"{queue.name} belongs to another connection")
        return queue

    def subscription(
        self, request: SubscriptionRequest, source: Terminus, options: QueueOptions
    ) -> tuple[Queue, str]:
        """Return the queue of a subscription, and its topic.

        :param options: options of the queue, if it is new.
        """
        subscriptions = self._server.subscriptions
        if request.is_lookup:
            self._check_may_use(None)
            return subscriptions.find(request)
        route = (
            self.to_receive(source.address, NO_NODE_PROPERTIES) if self.is_exchange(source.address) else None
        )
        if not isinstance(route, Route):
            raise AddressRefusedError(
                NOT_IMPLEMENTED, f"{source.address!r} is no exchange, and a queue has no subscriptions"
            )
        return subscriptions.open(request, route, self._binding_key(route), options), route.name

    def _bound_queue(self, route: Route, options: QueueOptions) -> Queue:
        key = self._binding_key(route)
        queue = self._server.addresses.temporary(self._client, options=options)
        self._server.addresses.bind(route.exchange, queue, key)
        return queue

    @staticmethod
    def _binding_key(route: Route) -> str:
        if route.exchange.type is ExchangeType.REPLICATION:
            raise AddressRefusedError(NOT_ALLOWED, f"clients cannot receive from {route.exchange.name!r}")
        key = _DEFAULT_KEYS.get(route.exchange.type) if route.key is None else route.key
        if key is None:
            address = f"{route.exchange.name}/key"
            raise AddressRefusedError(INVALID_FIELD, f"a direct exchange requires an address {address}")
        return key

    # -- permissions ----------------------------------------------------------------------------

    def _check_may_use(self, address: str | None) -> None:
        if address == MANAGEMENT:
            if not self._client.admin:
                raise AddressRefusedError(UNAUTHORIZED_ACCESS, f"{address} is for the cluster-admin")
        elif not self._server.membership.role.serves and not self._owns(address):
            raise AddressRefusedError(ILLEGAL_STATE, "this member is passive")

    def _owns(self, address: str | None) -> bool:
        return any(queue.name == address for queue in self._temporary)

    def _check_may_send_site_events(self, route: Route) -> None:
        if not self._server.auth.may_send_site_events(self._client.user):
            raise AddressRefusedError(
                UNAUTHORIZED_ACCESS, f"{route.name} is for its link and the cluster-admin"
            )

    def _check_may_receive_site_events(self, address: str | None) -> None:
        allowed = self._server.auth.may_receive_site_events
        if self._server.site.owns(address) and not allowed(self._client.user):
            raise AddressRefusedError(
                UNAUTHORIZED_ACCESS,
                f"{address} is for the cluster-admin and the link users (serve --link-user)",
            )
