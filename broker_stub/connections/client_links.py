"""The links of one client connection to queues, exchanges and the management node.

Rules
-----
* The member accepts a link with its actual terminus, or refuses it with a condition and a reason.
* A receiver from an exchange has its own queue, which is deleted with the link (``targets``), or the queue of
  a subscription (``subscriptions``).
* When a link ends, its pending waits are cancelled and its unsettled messages return to the queue.
* An Attach with an unsettled map asks for the outcome of deliveries. It is answered only when every dequeue
  of the queue is complete, so that the answer stays valid (``queueing.confirmations``).

Source: AMQP 1.0 part 3, sections 3.5.3 and 3.5.4 (source and target).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Protocol

import proton
from proton import Terminus

from broker_stub.amqp.conditions import NOT_IMPLEMENTED
from broker_stub.amqp.message_format import inspect_new
from broker_stub.connections import terminus
from broker_stub.connections.credit import CreditWindow
from broker_stub.connections.filters import Filters, filters
from broker_stub.connections.incoming_links import (
    CREDIT,
    AnonymousIncomingLink,
    IncomingLink,
    Inspect,
    RequestLink,
    inspect_of,
)
from broker_stub.connections.link_server import LinkServer
from broker_stub.connections.outgoing_links import OutgoingLink
from broker_stub.connections.subscriptions import (
    GLOBAL,
    SHARED,
    TOPIC,
    SubscriptionRequest,
    requested_subscription,
)
from broker_stub.connections.targets import Client, Targets
from broker_stub.management import claims
from broker_stub.queueing.confirmations import owner_of
from broker_stub.queueing.exchanges import Route
from broker_stub.queueing.node_lifetime import LifetimePolicy
from broker_stub.queueing.nodes import AddressRefusedError
from broker_stub.queueing.queue import Queue
from broker_stub.queueing.site_state import REPLICATION_QUEUE
from haclient.engine import peer_fields, unsettled
from haclient.engine.links import ReceiverLink, SenderLink
from haclient.engine.protocol import Engine
from haclient.engine.wire import attach_frame

_TOPIC = terminus.NodeFacts(frozenset((TOPIC, SHARED, GLOBAL)))
Incoming = IncomingLink | AnonymousIncomingLink | RequestLink


class LinkClient(Client, Protocol):
    """The connection that owns the links and carries their messages."""

    congested: bool

    @property
    def client_id(self) -> str:
        """The container id."""

    def sent(self, size: int) -> None:
        """Count bytes given to proton."""

    def link_failed(self) -> None:
        """Drop this connection after an error, so that other connections are unaffected."""

    def link_closed(self, owner: OutgoingLink | Incoming) -> None:
        """Handle a link that the client closed."""


class ClientLinks:
    """The links of one connection.

    :ivar uses_queues: true once a link was attached to a queue that outlives the connection.
    """

    __slots__ = (
        "_client",
        "_ended",
        "_ends",
        "_exchange_queues",
        "_incoming",
        "_outgoing",
        "_server",
        "_subscribed",
        "_targets",
        "_unfinished",
        "uses_queues",
    )

    def __init__(self, server: LinkServer, client: LinkClient) -> None:
        self.uses_queues = False
        self._ended = False
        self._server = server
        self._client = client
        self._targets = Targets(server, client)
        self._incoming: set[Incoming] = set()
        self._outgoing: set[OutgoingLink] = set()
        self._unfinished = server.unfinished.of_connection()
        self._exchange_queues: dict[OutgoingLink, Queue] = {}
        """The temporary queues of receivers from exchanges."""
        self._ends: dict[OutgoingLink | Incoming, Callable[[], None]] = {}
        """Callbacks for the end of links to queues with a lifetime policy."""
        self._subscribed: dict[OutgoingLink, Queue] = {}
        """The subscription queues of receivers."""

    def accept(self, engine: Engine, link: SenderLink | ReceiverLink) -> None:
        """Answer a client's Attach.

        :raises AddressRefusedError: if the link is refused.
        """
        if self._client.must_claim:
            claims.check_node(link)
        if isinstance(link, ReceiverLink):
            self._accept_incoming(engine, link)
        elif (queue := self._resumed(link)) is not None:
            queue.confirmations.steal(owner_of(self._client.client_id, peer_fields.link_name(link)))
            queue.confirmations.when_recorded(self._resume, (engine, link))
        else:
            self._accept_outgoing(engine, link)

    def _resumed(self, link: SenderLink) -> Queue | None:
        """Return the queue of a link that asks for outcomes of deliveries, or ``None`` for other links."""
        source = link.endpoint.remote_source
        if not link.peer_unsettled or source.dynamic or not self._server.membership.role.serves:
            return None
        request = self._requested_subscription(link)
        return self._server.addresses.find_queue(source.address or "" if request is None else request.name)

    def _owner(self, link: SenderLink) -> bytes | None:
        """Return the owner of accepts over a link, or ``None`` if it asks for no confirmations."""
        return (
            owner_of(self._client.client_id, peer_fields.link_name(link))
            if link.is_asked_to_confirm
            else None
        )

    def _requested_subscription(self, link: SenderLink) -> SubscriptionRequest | None:
        is_exchange = self._targets.is_exchange(link.endpoint.remote_source.address)
        return requested_subscription(link, self._client.client_id, is_exchange=is_exchange)

    def _resume(self, waiting: tuple[Engine, SenderLink]) -> None:
        engine, link = waiting
        if self._ended or link.dead or link.owner is not None:
            return
        try:
            self._accept_outgoing(engine, link)
        except AddressRefusedError as refused:
            engine.refuse(link, proton.Condition(refused.condition, refused.description))
        if isinstance(link.owner, OutgoingLink):
            link.owner.credit_given(link)  # the flow arrived before the link had an owner

    def resume(self) -> None:
        """Deliver again: the connection is no longer congested."""
        for outgoing in tuple(self._outgoing):
            outgoing.resume()

    def closed(self, owner: OutgoingLink | Incoming) -> None:
        """Forget a closed link."""
        owner.link.owner = None
        if isinstance(owner, OutgoingLink):
            self._outgoing.discard(owner)
            self._end_exchange_queue(owner)
            self._end_subscription(owner)
        else:
            owner.end()
            self._incoming.discard(owner)
        self._detached(owner)

    def end(self, *, died: bool) -> None:
        """End all links and return their unsettled messages."""
        self._ended = True
        for owner in (*self._incoming, *self._outgoing):
            owner.link.owner = None
        for outgoing in self._outgoing:
            outgoing.end(died=died)
            self._end_exchange_queue(outgoing)
            self._end_subscription(outgoing)
        for incoming in self._incoming:
            incoming.end()
        self._outgoing.clear()
        self._incoming.clear()
        for owner in tuple(self._ends):
            self._detached(owner)

    def _dynamic(self, policy: LifetimePolicy) -> Queue:
        return self._targets.temporary_queue(policy)

    def _attached(self, owner: OutgoingLink | Incoming, node: Queue | Route, *, is_creator: bool) -> None:
        """Count a link to a queue whose lifetime may depend on its links."""
        lifetime = self._server.addresses.lifetimes.get(node) if isinstance(node, Queue) else None
        if lifetime is not None:
            lifetime.attached()
            self._ends[owner] = functools.partial(lifetime.detached, is_creator=is_creator)

    def _detached(self, owner: OutgoingLink | Incoming) -> None:
        end = self._ends.pop(owner, None)
        if end is not None:
            end()

    def delete_temporary_queues(self) -> None:
        """Delete the temporary queues of an ended connection."""
        self._targets.delete_temporary()

    def _end_exchange_queue(self, outgoing: OutgoingLink) -> None:
        queue = self._exchange_queues.pop(outgoing, None)
        if queue is not None:
            self._server.addresses.delete(queue)

    def _accept_incoming(self, engine: Engine, link: ReceiverLink) -> None:
        endpoint = link.endpoint
        remote = endpoint.remote_target
        if remote.type == Terminus.COORDINATOR:
            raise AddressRefusedError(NOT_IMPLEMENTED, "transactions are not supported")
        incoming: Incoming
        intake = self._server.addresses.intake
        if remote.type == Terminus.TARGET and not remote.dynamic and not remote.address:
            resolve = self._targets.to_send
            incoming = AnonymousIncomingLink(
                link, self._client, resolve, self._window(), intake, inspect=self._inspect()
            )
            terminus.answer_target(link, None, terminus.NodeFacts())
        else:
            policy = terminus.lifetime_policy(remote) if remote.dynamic else None
            target = (
                self._targets.to_send(remote.address, terminus.node_properties(remote))
                if policy is None
                else self._dynamic(policy)
            )
            if isinstance(target, Queue | Route):
                self.uses_queues |= isinstance(target, Route) or not target.temporary
                incoming = IncomingLink(
                    link, self._client, target, self._window(), intake, inspect=self._inspect()
                )
                terminus.answer_target(link, target.name, terminus.node_facts(target, policy))
                self._attached(incoming, target, is_creator=policy is not None)
            else:
                incoming = RequestLink(link, self._client, target)
                terminus.answer_target(link, remote.address, terminus.NodeFacts())
        self._incoming.add(incoming)
        link.owner = incoming
        link.on_unfinished = self._unfinished.changed
        engine.attach(link)
        incoming.start()

    def _inspect(self) -> Inspect:
        user = self._client.user
        return inspect_of(user) if self._server.auth.checks_user_id(user) else inspect_new

    def _window(self) -> CreditWindow:
        return CreditWindow(CREDIT, self._server.limits.credit_size)

    def _accept_outgoing(self, engine: Engine, link: SenderLink) -> None:
        endpoint = link.endpoint
        remote = endpoint.remote_source
        found = filters(remote, self._client.client_id)
        request = self._requested_subscription(link)
        receive = self._receive if request is None else functools.partial(self._subscribe, request)
        outgoing = receive(link, found)
        self._outgoing.add(outgoing)
        link.owner = outgoing
        unsettled.attach(engine, link, outgoing.resolve(attach_frame.states(link.peer_unsettled)))

    def _receive(self, link: SenderLink, found: Filters) -> OutgoingLink:
        remote = link.endpoint.remote_source
        terminus.check_is_topic(remote, is_exchange=self._targets.is_exchange(remote.address))
        policy = terminus.lifetime_policy(remote) if remote.dynamic else None
        target = (
            self._targets.to_receive(remote.address, terminus.node_properties(remote))
            if policy is None
            else self._dynamic(policy)
        )
        queue = self._targets.queue_of(target, found.options)
        self.uses_queues |= not queue.temporary
        browsing = remote.distribution_mode == Terminus.DIST_MODE_COPY and queue is target
        facts = terminus.node_facts(target, policy)
        terminus.answer_source(link, target.name, facts, browsing=browsing, filters=found.asked)
        # A filter applies when the exchange fills the queue, so the link need not apply it again.
        selects = found.selects if queue is target else None
        outgoing = OutgoingLink(
            link, queue, self._client, browsing=browsing, selects=selects, owner=self._owner(link)
        )
        self._attached(outgoing, queue, is_creator=policy is not None)
        if queue.name == REPLICATION_QUEUE and not browsing:
            self._server.site.read_by(outgoing)
        if queue is not target:
            self._exchange_queues[outgoing] = queue
        return outgoing

    def _subscribe(self, request: SubscriptionRequest, link: SenderLink, found: Filters) -> OutgoingLink:
        queue, topic = self._targets.subscription(request, link.endpoint.remote_source, found.options)
        self.uses_queues |= not queue.temporary
        durable = request.durable
        terminus.answer_source(link, topic, _TOPIC, browsing=False, filters=found.asked, durable=durable)
        outgoing = OutgoingLink(link, queue, self._client, browsing=False, owner=self._owner(link))
        self._server.subscriptions.attached(queue, outgoing, shared=request.shared)
        self._subscribed[outgoing] = queue
        return outgoing

    def _end_subscription(self, outgoing: OutgoingLink) -> None:
        queue = self._subscribed.pop(outgoing, None)
        if queue is not None:
            self._server.subscriptions.detached(queue, outgoing, closed=outgoing.link.closed_by_peer)
