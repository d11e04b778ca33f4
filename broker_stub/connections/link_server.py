"""The interfaces of a member that the links of a connection use; ``broker.Broker`` implements them."""

from __future__ import annotations

from typing import Any, Protocol

from broker_stub.admission.auth import Auth
from broker_stub.connections.incoming_links import RequestHandler
from broker_stub.connections.limits import ConnectionLimits
from broker_stub.connections.subscriptions import Subscriptions
from broker_stub.connections.unfinished import UnfinishedMessages
from broker_stub.election.roles import Membership
from broker_stub.queueing.nodes import Addresses
from broker_stub.replication.replica_set import ReplicaSet
from broker_stub.sites.site import Site


class LinkServer(Protocol):
    """The member, as the links of a client see it."""

    @property
    def auth(self) -> Auth:
        """The users of the member and their permissions."""

    @property
    def limits(self) -> ConnectionLimits:
        """The limits of one connection."""

    @property
    def unfinished(self) -> UnfinishedMessages:
        """The unfinished messages of all connections."""

    @property
    def subscriptions(self) -> Subscriptions:
        """The subscriptions of all connections."""

    @property
    def membership(self) -> Membership:
        """The role of the member in the cluster."""

    @property
    def addresses(self) -> Addresses:
        """The queues and exchanges, by address."""

    @property
    def site(self) -> Site:
        """The replication between sites."""

    def management(self, *, admin: bool, by: str) -> RequestHandler:
        """Return the management node for one client.

        :param admin: true if the cluster-admin sends the requests.
        :param by: the client, for the log.
        """


class ReplicaServer(Protocol):
    """The member, as the links of a backup see it."""

    @property
    def replica_set(self) -> ReplicaSet | None:
        """The backups; ``None`` on a member that is not primary."""

    def open_properties(self) -> dict[str, Any]:
        """Return the properties of the member's Open."""
