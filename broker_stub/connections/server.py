"""The interface of a member that a client connection uses; ``broker.Broker`` implements it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import proton

from broker_stub.admission.auth import Auth
from broker_stub.admission.controller import AdmissionController, Decision
from broker_stub.connections.incoming_links import RequestHandler
from broker_stub.connections.limits import ConnectionLimits
from broker_stub.connections.subscriptions import Subscriptions
from broker_stub.connections.unfinished import UnfinishedMessages
from broker_stub.election.roles import Membership
from broker_stub.queueing.nodes import Addresses
from broker_stub.replication.replica_set import ReplicaSet
from broker_stub.sites.site import Site
from haclient.engine.owner import CloseReason
from haclient.telemetry.schema import Kind

if TYPE_CHECKING:
    from broker_stub.connections.connection import ClientConnection


class ConnectionServer(Protocol):
    """The member that serves a connection."""

    @property
    def auth(self) -> Auth:
        """Who its users are, and what they may do."""

    @property
    def handshake_timeout(self) -> float:
        """Seconds that a client has for its Open, and to answer a Close."""

    @property
    def limits(self) -> ConnectionLimits:
        """What one connection may use."""

    @property
    def unfinished(self) -> UnfinishedMessages:
        """The unfinished messages of all connections."""

    @property
    def subscriptions(self) -> Subscriptions:
        """Those of all connections."""

    @property
    def membership(self) -> Membership:
        """Its role in the cluster."""

    @property
    def addresses(self) -> Addresses:
        """Its queues and exchanges."""

    @property
    def site(self) -> Site:
        """Its replication between sites."""

    @property
    def replica_set(self) -> ReplicaSet | None:
        """Its backups, while it is primary."""

    @property
    def admission(self) -> AdmissionController:
        """Its parked connections and the accept rate."""

    def record(self, kind: Kind, **facts: Any) -> None:
        """Record an event in its telemetry."""

    def decide(self, request: ClientConnection) -> Decision | proton.Condition:
        """Serve, park or refuse a client that has sent its Open."""

    def open_properties(self) -> dict[str, Any]:
        """The properties of its Open."""

    def management(self, *, admin: bool, by: str) -> RequestHandler:
        """Its management node.

        :param admin: whether the cluster-admin sends the requests.
        :param by: the client, for the log.
        """

    def connection_ended(self, connection: ClientConnection, reason: CloseReason) -> None:
        """Remove a connection that has ended."""
