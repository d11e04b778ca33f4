"""What the links of a connection need of the member that serves them; ``broker.Broker`` has it."""

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
    """The member, for the links of a client."""

    @property
    def auth(self) -> Auth:
        """Who its users are, and what they may do."""

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

    def management(self, *, admin: bool, by: str) -> RequestHandler:
        """Its management node.

        :param admin: whether the cluster-admin sends the requests.
        :param by: the client, for the log.
        """


class ReplicaServer(Protocol):
    """The member, for the links of a backup."""

    @property
    def replica_set(self) -> ReplicaSet | None:
        """Its backups, while it is primary."""

    def open_properties(self) -> dict[str, Any]:
        """The properties of its Open."""
