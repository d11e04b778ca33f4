"""The interface of a member that a client connection uses; ``broker.Broker`` implements it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import proton

from broker_stub.admission.controller import AdmissionController, Decision
from broker_stub.admission.user_connections import UserConnections
from broker_stub.connections.link_server import LinkServer, ReplicaServer
from haclient.engine.owner import CloseReason
from haclient.telemetry.schema import Kind

if TYPE_CHECKING:
    from broker_stub.connections.connection import ClientConnection


class ConnectionServer(LinkServer, ReplicaServer, Protocol):
    """The member that serves a connection and its links."""

    user_connections: UserConnections

    @property
    def handshake_timeout(self) -> float:
        """Seconds that a client has to send its Open, and to answer a Close."""

    @property
    def admission(self) -> AdmissionController:
        """The parked connections and the accept rate."""

    def record(self, kind: Kind, **facts: Any) -> None:
        """Record an event in the telemetry of the member."""

    def decide(self, request: ClientConnection) -> Decision | proton.Condition:
        """Decide whether to serve, park or refuse a client that has sent its Open."""

    def connection_ended(self, connection: ClientConnection, reason: CloseReason) -> None:
        """Remove an ended connection."""
