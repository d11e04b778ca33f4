"""The links of a backup's connection: control, data and reports (``replication.wire``).

Rules
-----
* They require the cluster-admin and a primary.
* The control link comes first. It is refused if the backup speaks another version of the wire, or has the
  name of another member.
* A report of the backup's ids is settled when the events of its queues have started, and only then renews the
  credit. So the primary starts a few hundred queues at a time, whatever their total.
* An empty report means that a large commit of the backup makes progress.
"""

from __future__ import annotations

from typing import Any, Protocol

import proton

from broker_stub.amqp.conditions import NOT_FOUND, NOT_IMPLEMENTED, RESOURCE_LOCKED, UNAUTHORIZED_ACCESS
from broker_stub.connections import terminus
from broker_stub.connections.link_server import ReplicaServer
from broker_stub.queueing.nodes import AddressRefusedError
from broker_stub.replication import wire
from broker_stub.replication.data_link import OutgoingConnection
from broker_stub.replication.replica import Replica
from broker_stub.replication.replica_set import ReplicaSet
from haclient.engine.links import DeliveryPointer, ReceiverLink, SenderLink
from haclient.engine.protocol import Engine
from haclient.printable.log import get_logger

logger = get_logger("broker_stub.connections.replica_links")

# Reports in transit, at most: each is followed by the events of its queues.
_REPORTS = 4


class BackupConnection(OutgoingConnection, Protocol):
    """The connection that the backup opened."""

    user: str | None
    admin: bool


class ReplicaLinks:
    """The links that a backup has attached (the owner of the report link)."""

    __slots__ = ("_connection", "_replica", "_server")

    def __init__(self, server: ReplicaServer, connection: BackupConnection) -> None:
        self._server = server
        self._connection = connection
        self._replica: Replica | None = None

    def pump(self) -> None:
        """Send more: the connection has capacity again."""
        if self._replica is not None:
            self._replica.pump()

    def end(self) -> None:
        """Fail the replica: its connection has ended."""
        if self._replica is not None:
            replica, self._replica = self._replica, None
            replica.fail("its connection ended")

    # -- attaching ------------------------------------------------------------------------------

    def accept(self, engine: Engine, link: SenderLink | ReceiverLink) -> None:
        """Accept a link that the backup attached.

        :raises AddressRefusedError: if the backup must not attach it, or not now.
        """
        replica_set = self._server.replica_set
        if replica_set is None or not self._connection.admin:
            raise AddressRefusedError(
                UNAUTHORIZED_ACCESS, "replication is for the cluster-admin, at the primary"
            )
        terminus.mirror(link)
        replica = self._replica
        if isinstance(link, ReceiverLink):
            if replica is not None and link.endpoint.remote_target.address == wire.HAVE:
                link.owner = self
                engine.attach(link)
                link.grant(_REPORTS)
                return
        else:
            address = link.endpoint.remote_source.address
            if replica is None and address == wire.CONTROL:
                self._join(engine, link, replica_set)
                return
            if replica is not None and address == wire.DATA:
                engine.attach(link)
                replica.data.attach(link)
                return
        raise AddressRefusedError(
            NOT_FOUND, f"a backup attaches {wire.CONTROL}, then {wire.DATA} and {wire.HAVE}"
        )

    def _join(self, engine: Engine, link: SenderLink, replica_set: ReplicaSet) -> None:
        said = terminus.properties(link)
        name, identity = (str(said.get(key) or "") for key in (wire.MEMBER_PROPERTY, wire.IDENTITY_PROPERTY))
        version = said.get(wire.VERSION_PROPERTY, 1)
        if version != wire.VERSION:
            raise AddressRefusedError(NOT_IMPLEMENTED, wire.other_version(f"the backup {name}", version))
        refusal = replica_set.refusal(name, identity)
        if refusal is not None:
            raise AddressRefusedError(RESOURCE_LOCKED, refusal)
        properties: dict[proton.symbol, Any] = {
            proton.symbol(wire.VERSION_PROPERTY): proton.uint(wire.VERSION),
            proton.symbol(wire.CLUSTER_PROPERTY): replica_set.held.cluster,
            proton.symbol(wire.GENERATION_PROPERTY): proton.ulong(replica_set.held.generation),
        }
        if advertised := self._server.open_properties().get(wire.ADDRESS_PROPERTY):
            properties[proton.symbol(wire.ADDRESS_PROPERTY)] = advertised
        link.endpoint.properties = properties
        engine.attach(link)
        self._replica = replica_set.join(name, identity, self._connection, link)

    # -- the owner of the link with the reports -------------------------------------------------

    def link_opened(self, link: ReceiverLink) -> None:
        """Ignored: the backup attached the link."""

    def link_closed(self, link: ReceiverLink, condition: proton.Condition | None) -> None:
        """Fail the replica, which needs its report link."""
        if self._replica is not None:
            self._replica.fail("it detached the link with its reports")

    def delivered(self, link: ReceiverLink, delivery: DeliveryPointer | None, data: bytes) -> None:
        """Start the events of the queues in a report."""
        replica = self._replica
        if replica is None:
            return
        try:
            report = wire.decode_have(data)
            for key, have in report:
                replica.begin_queue(key, have)
        except ValueError as error:
            replica.fail(f"it sent no report of what it has: {error}")
            return
        if not report:
            replica.commit_goes_on()
        if delivery is not None:
            link.settle(delivery)
        link.grant(1)
