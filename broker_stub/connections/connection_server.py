"""What a client connection needs of its member; ``broker.Broker`` has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import proton

from broker_stub.admission.controller import AdmissionController, Decision
from broker_stub.connections.link_server import LinkServer, ReplicaServer
from broker_stub.election.roles import Membership
from haclient.engine.owner import CloseReason

if TYPE_CHECKING:
    from broker_stub.connections.connection import ClientConnection


class AdmissionTelemetry(Protocol):
    """Records how clients were admitted."""

    def admitted(self, client_id: str | None, membership: Membership) -> None:
        """A client was admitted."""

    def refused(self, client_id: str | None, membership: Membership, condition: proton.Condition) -> None:
        """A client was refused or redirected at its Open."""

    def parked(self, client_id: str | None, membership: Membership) -> None:
        """A client is parked until it can be served here or elsewhere."""

    def unparked(
        self, client_id: str | None, membership: Membership, condition: proton.Condition | None
    ) -> None:
        """A client is no longer parked: it is served, closed, or disconnected."""


class ConnectionServer(LinkServer, ReplicaServer, Protocol):
    """The member that serves a connection and its links."""

    @property
    def handshake_timeout(self) -> float:
        """Seconds that a client has for its Open, and to answer a Close."""

    @property
    def admission(self) -> AdmissionController:
        """Its parked connections and the accept rate."""

    @property
    def telemetry(self) -> AdmissionTelemetry:
        """Records how clients were admitted."""

    def decide(self, request: ClientConnection) -> Decision | proton.Condition:
        """Serve, park or refuse a client that has sent its Open."""

    def connection_ended(self, connection: ClientConnection, reason: CloseReason) -> None:
        """Remove a connection that has ended."""
