"""A member: listens, admits clients, and is promoted, demoted and stopped.

Rules
-----
* A member starts passive unless its options say otherwise.
* Input from a client ends at most that client's connection.
* When the role changes to passive, and at the end, the member closes its client connections. The Close is a
  redirect if the member knows the primary, else ``amqp:connection:forced``.

Sources: AMQP 1.0 part 2, sections 2.2 (versions), 2.4.1 (opening a connection), 2.8.15;
``failover-server-list`` as Qpid JMS reads it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

import proton

from broker_stub.admission import refusals
from broker_stub.admission.auth import Auth
from broker_stub.admission.controller import AdmissionController, AdmissionOptions, Decision
from broker_stub.admission.listener import Listener, most_connections
from broker_stub.admission.newcomer_scheduler import NewcomerScheduler, ScheduledProtocol
from broker_stub.admission.user_connections import UserConnections
from broker_stub.amqp.conditions import CONNECTION_FORCED
from broker_stub.amqp.endpoints import endpoint_fields
from broker_stub.connections.connection import ClientConnection
from broker_stub.connections.limits import DEFAULT_CONNECTION_LIMITS, ConnectionLimits
from broker_stub.connections.subscriptions import Subscriptions
from broker_stub.connections.unfinished import UnfinishedMessages
from broker_stub.election.roles import Membership, Role
from broker_stub.management.node import Management, ManagementLink
from broker_stub.member.member import ClusterSetup, SiteSteps
from broker_stub.queueing.message import Replicate
from broker_stub.queueing.nodes import Addresses
from broker_stub.queueing.queue import Queue
from broker_stub.queueing.queue_limits import (
    DEFAULT_LIMITS,
    DEFAULT_STORE_LIMITS,
    QueueLimits,
    StoreLimits,
)
from broker_stub.replication.replica_set import ReplicaSet
from broker_stub.replication.wire import ADDRESS_PROPERTY, MOST_OVERHEAD
from broker_stub.sites.at_limit import AtLimit
from broker_stub.sites.backup_state import BackupState
from broker_stub.sites.password_file import PasswordFiles
from broker_stub.sites.reconcile import reconcile
from broker_stub.sites.site import Site
from broker_stub.telemetry import Fact, anomaly_facts, member_telemetry, site_facts
from haclient.cluster_url.endpoint import Endpoint
from haclient.engine.owner import CloseReason
from haclient.engine.protocol import Engine
from haclient.engine.settings import (
    DEFAULT_HEARTBEAT,
    DEFAULT_MAX_FRAME_SIZE,
    DEFAULT_MAX_MESSAGE_SIZE,
    Settings,
)
from haclient.engine.tls import TlsFiles, server_context
from haclient.printable.log import get_logger
from haclient.telemetry import TelemetrySettings
from haclient.telemetry.schema import Kind
from haclient.version import package_version

logger = get_logger("broker_stub.broker")

PRODUCT = "haclient-broker-stub"
# Connections that end without an Open are logged one by one, but at most this many per second.
_MAX_LOGGED_FAILURES = 20
_TICK_INTERVAL = 1.0
# Parked clients are served before the promotion is answered. An answer with the member's status takes as long
# as serving a few of them, and is not needed between their Begins and first messages.
_HEAD_START = 0.01

ANY_PORT = Endpoint("127.0.0.1", 0)
UNKNOWN_MEMBERSHIP = Membership()
_SITE_STEPS = SiteSteps(state=BackupState, reconcile=reconcile)
DEFAULT_ADMISSION = AdmissionOptions()
NO_PASSWORD_FILES = PasswordFiles()


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerOptions:
    """The options of a member.

    :param listen: the address; port 0 takes a free one.
    :param name: the member's name in its cluster.
    :param replicate: the default replication mode of queues.
    :param members: the addresses of the cluster's members, sent to clients in the Open.
    :param advertise: the address to which backups redirect clients; ``None`` for the one at which they found
        it.
    :param handshake_timeout: seconds that a client has to send its Open, and to answer a Close.
    :param max_connections: further clients are refused.
    :param max_user_connections: further clients of one user are refused, except the cluster-admin.
    :param connection_limits: the limits of one connection.
    :param store_limits: the limits of all queues together.
    :param site_at_limit: the reaction of links from other sites when these are reached.
    :param admission: the rate of admission, and the numbers of parked and unfinished connections.
    :param max_message_size: bytes; less than a backup accepts, so that every message can be replicated.
    :param heartbeat: seconds of silence after which a client counts as lost.
    :param stop_timeout: seconds that clients have to answer the Close when the member stops.
    :param telemetry: the destination of admissions and role changes; ``None`` for no telemetry.
    :param password_files: the files from which links to other sites may read passwords.
    :param on_role: called with the new role after each change.
    """

    listen: Endpoint = ANY_PORT
    name: str = "member"
    cluster: str = "haclient"
    membership: Membership = UNKNOWN_MEMBERSHIP
    members: tuple[Endpoint, ...] = ()
    advertise: Endpoint | None = None
    auth: Auth = field(default_factory=Auth)
    tls: TlsFiles | None = None
    limits: QueueLimits = DEFAULT_LIMITS
    auto_create: bool = True
    replicate: Replicate = Replicate.ALL
    handshake_timeout: float = 10.0
    max_connections: int = 20_000
    max_user_connections: int | None = None
    connection_limits: ConnectionLimits = DEFAULT_CONNECTION_LIMITS
    store_limits: StoreLimits = DEFAULT_STORE_LIMITS
    site_at_limit: AtLimit = AtLimit.HOLD
    admission: AdmissionOptions = DEFAULT_ADMISSION
    heartbeat: float = DEFAULT_HEARTBEAT
    max_frame_size: int = DEFAULT_MAX_FRAME_SIZE
    max_message_size: int = DEFAULT_MAX_MESSAGE_SIZE - MOST_OVERHEAD
    stop_timeout: float = 2.0
    telemetry: TelemetrySettings | None = None
    password_files: PasswordFiles = NO_PASSWORD_FILES
    on_role: Callable[[Role], object] | None = None


class Broker:
    """One member of the cluster, in this process's event loop."""

    def __init__(self, options: BrokerOptions, cluster: ClusterSetup | None = None) -> None:
        self.options = options
        self.membership = options.membership
        self.members = options.members
        self._telemetry = member_telemetry(options.telemetry, cluster=options.cluster, name=options.name)
        self._loop = asyncio.get_running_loop()
        self.addresses = Addresses(
            self._loop.time,
            limits=options.limits,
            store_limits=options.store_limits,
            auto_create=options.auto_create,
            replicate=options.replicate,
            now_ms=self.now_ms,
            call_at=self._loop.call_at,
        )
        self.member = None
        if cluster is not None:
            self.member = cluster.member(self, self.addresses, _SITE_STEPS)
            self.membership = self.member.membership
        self.site = Site(
            self.addresses,
            self.now_ms,
            self._persist_site_progress,
            lambda anomaly: self.record(Kind.MEMBER_ANOMALY, **anomaly_facts(anomaly)),
            options.password_files,
            at_limit=options.site_at_limit,
        )
        self.unfinished = UnfinishedMessages(
            options.connection_limits.all_unfinished, options.connection_limits.unfinished
        )
        """The unfinished messages of all connections."""
        self.subscriptions = Subscriptions(self.addresses)
        self._management = Management(self)
        self._settings = self._connection_settings()
        self.admission = AdmissionController(options.admission, self.membership, self._loop)
        self._scheduler = NewcomerScheduler(self._loop)
        self._listener = Listener(
            self._accept_socket, self._loop, self.admission.handshakes, timeout=options.handshake_timeout
        )
        self._logged_failures = 0
        self._descriptor_limit = most_connections(options.admission.max_handshakes)
        self._connections: set[ClientConnection] = set()
        self.user_connections = UserConnections(options.max_user_connections)
        self._all_closed = asyncio.Event()
        self._stop_requested = asyncio.Event()
        self.failure = ""
        """The reason why the member stopped by itself; empty if it did not."""
        self._tick_timer: asyncio.TimerHandle | None = None
        self._started_at = self._loop.time()
        self._version = package_version()
        self._open_properties: dict[str, Any] = {}
        self._describe()

    def _connection_settings(self) -> Settings:
        options = self.options
        return Settings(
            container_id=f"{options.cluster}/{options.name}",
            heartbeat=options.heartbeat,
            max_frame_size=options.max_frame_size,
            max_message_size=options.max_message_size,
            channel_max=options.connection_limits.sessions - 1,
            tls_context=None if options.tls is None else server_context(options.tls),
            sasl_server=options.auth.sasl_server(options.tls),
        )

    # -- life -----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start listening.

        :raises OSError: if it cannot listen on the address.
        """
        if self.member is not None:
            await self.member.start()
        self.site.became(serves=self.membership.role.serves)
        self.admission.start(self._settings)
        await self._listener.listen(self.options.listen)
        if self._telemetry is not None:
            self._telemetry.listens(self.address)
        self.record(Kind.MEMBER_ROLE)
        self._tick()
        logger.info("%s listens on %s as %s", self.options.name, self.address, self.membership.role)

    @property
    def address(self) -> Endpoint:
        """The address that the member listens on."""
        return Endpoint(self.options.listen.host, self._listener.port, tls=self.options.tls is not None)

    async def run(self) -> None:
        """Serve until ``request_stop`` is called, then stop."""
        await self._stop_requested.wait()
        await self.stop()

    def give_up(self, why: str) -> None:
        """End ``run`` with an error."""
        logger.error("%s stops because of an error: %s", self.options.name, why)
        self.failure = why
        self.request_stop()

    def record(self, kind: Kind, **facts: Fact) -> None:
        """Record an event in the telemetry, if that is on."""
        if self._telemetry is not None:
            self._telemetry.record(kind, self.membership, **facts)

    def request_stop(self) -> None:
        """End ``run``."""
        self._stop_requested.set()

    async def stop(self) -> None:
        """Stop listening and close every connection."""
        self._listener.close()
        self.admission.close()
        if self._tick_timer is not None:
            self._tick_timer.cancel()
        reason = self._close_condition("the member stops")
        await self.site.close()
        if self.member is not None:
            await self.member.stop()
        for connection in tuple(self._connections):
            connection.close_with(reason)
        try:
            async with asyncio.timeout(self.options.stop_timeout):
                while self._connections:
                    self._all_closed.clear()
                    await self._all_closed.wait()
        except TimeoutError:
            for connection in tuple(self._connections):
                connection.engine.abort(reason)
        logger.info("%s stopped", self.options.name)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.stop()

    def _tick(self) -> None:
        # A backup never expires messages by its own clock: it drops the messages that its primary drops.
        if self.member is None or self.membership.role.serves:
            self.addresses.expire()
        if self.membership.role.serves and (site := self.site.status()):
            for facts in site_facts(site):
                self.record(Kind.MEMBER_SITE, **facts)
        self.site.tick()
        self._logged_failures = 0
        self._tick_timer = self._loop.call_later(_TICK_INTERVAL, self._tick)

    # -- connections ----------------------------------------------------------------------------

    def _accept_socket(self) -> ScheduledProtocol:
        connection = ClientConnection(self, self._loop)
        engine = Engine(connection, self._settings, self._loop)
        self._connections.add(connection)
        self.admission.handshakes.begin(connection, self._loop.time())
        connection.accepted(engine)
        return ScheduledProtocol(engine, self._scheduler, lambda: connection.is_established)

    def connection_ended(self, connection: ClientConnection, reason: CloseReason) -> None:
        """Remove an ended connection."""
        self._connections.discard(connection)
        self.admission.handshakes.done(connection)
        if connection.counted:
            self.user_connections.remove(connection.user)
        if not self._connections:
            self._all_closed.set()
        level = logging.DEBUG
        if connection.opened_at is None and reason.condition and self._logged_failures < _MAX_LOGGED_FAILURES:
            self._logged_failures += 1
            level = logging.INFO
        if logger.isEnabledFor(level):
            who = connection.user or "anonymous"
            logger.log(level, "connection of %s from %s ended: %s", who, connection.engine.peer, reason)

    def decide(self, request: ClientConnection) -> Decision | proton.Condition:
        """Serve, park or refuse a client that has sent its Open."""
        admission = self.admission
        admission.handshakes.opened(request, self._loop.time())
        opened = len(self._connections) - admission.handshakes.begun
        full = self.user_connections.refusal_reason(request.user)
        if opened - len(admission.parking) > self.options.max_connections or opened > self._descriptor_limit:
            full = "the limit of connections is reached"
        decision = admission.decide(request, full=full)
        if isinstance(decision, Decision) and not request.admin:
            request.counted = True
            self.user_connections.add(request.user)
        return decision

    def open_properties(self) -> dict[str, Any]:
        """Return the properties of the member's Open."""
        return {**self._open_properties, **self.admission.announcement(self.user_connections.total)}

    def _describe(self) -> None:
        options = self.options
        self._open_properties = {
            "product": PRODUCT,
            "version": self._version,
            "haclient:role": str(self.membership.role),
            "haclient:generation": proton.ulong(self.membership.generation),
            "haclient:cluster": options.cluster,
            # Durable or not, a message and its id are in the same stores, and reach a backup together.
            "haclient:ids-live-with-messages": True,
        }
        if self.members:
            self._open_properties["failover-server-list"] = list(map(endpoint_fields, self.members))
        if options.advertise is not None:
            self._open_properties[ADDRESS_PROPERTY] = str(options.advertise)

    # -- management -----------------------------------------------------------------------------

    async def promote(self, *, at_least: int = 0, force: bool = False) -> str:
        """Become the primary; return a warning about losses that force may have caused, or an empty text.

        :param at_least: the lowest generation, for a member without an arbiter.
        :param force: promote even if the store lacks messages, for a member with an arbiter.
        :raises MoveRefusedError: if the membership table or the arbiter does not allow it.
        """
        warning, parked = "", len(self.admission.parking) > 0
        if self.member is not None:
            warning = await self.member.promote(force=force)
        else:
            self.become(self.membership.promote(at_least=at_least))
        if parked:
            await asyncio.sleep(_HEAD_START)
        return warning

    async def demote(self, primary: Endpoint | None = None) -> None:
        """Become passive, and close the client connections."""
        if self.member is not None:
            await self.member.demote(primary)
        else:
            self.become(self.membership.demote(primary))
            self.close_client_connections("this member is passive now")

    async def check_arbiter(self) -> None:
        """Read the arbiter, and step down if another member was made primary."""
        if self.member is not None:
            await self.member.check_arbiter()

    def close_client_connections(self, why: str) -> None:
        """Close every connection, except the cluster-admin's connections that only manage.

        If a client changed a queue of a backup, it would differ from the primary's.
        """
        reason = self._close_condition(why)
        for connection in tuple(self._connections):
            manages = connection.admin and not connection.replicates and not connection.uses_queues
            if connection.opened_at is not None and not manages:
                connection.close_with(reason)

    def follow(self, primary: Endpoint | None, *, generation: int = 0) -> None:
        """Set the address of the primary."""
        if self.member is None:
            self.become(self.membership.follow(primary, generation=generation))
        else:
            self.member.follow_hint(primary)

    async def set_members(self, members: tuple[Endpoint, ...], broker_url: str = "") -> None:
        """Announce new members to clients.

        This member searches at ``broker_url``, or else at these members.
        """
        self.members = members
        self._describe()
        if self.member is not None:
            await self.member.set_members(members, broker_url)

    async def wiring_settled(self) -> None:
        """Wait until every change of queues, exchanges and bindings is durable, here and on the backups."""
        if self.member is not None:
            await self.member.wiring_settled()

    def become(self, membership: Membership) -> None:
        """Change to a new role or generation, and announce it."""
        before, self.membership = self.membership.role, membership
        self._describe()
        self.record(Kind.MEMBER_ROLE)
        self.admission.role_changed(membership)
        self.site.became(serves=membership.role.serves)
        logger.info("%s is %s, generation %d", self.options.name, membership.role, membership.generation)
        if self.options.on_role is not None and membership.role is not before:
            self.options.on_role(membership.role)

    async def check_link_password(self, path: str) -> None:
        """Check that a link can read its password on this member."""
        await asyncio.to_thread(self.options.password_files.read, path)

    def _persist_site_progress(self, queue: Queue) -> None:
        if self.member is not None:
            self.member.put_site_progress(queue)

    def _close_condition(self, why: str) -> proton.Condition:
        membership = self.membership
        if not membership.role.serves and membership.primary is not None:
            return refusals.redirect(membership.primary)
        return proton.Condition(CONNECTION_FORCED, why)

    def status(self) -> dict[str, Any]:
        """Return the member's status, for people and supervisors; its size does not grow with the queues."""
        membership = self.membership
        return {
            "name": self.options.name,
            "cluster": self.options.cluster,
            "address": self.address.authority,
            "role": str(membership.role),
            "generation": membership.generation,
            "primary": None if membership.primary is None else membership.primary.authority,
            "members": [member.authority for member in self.members],
            "connections": len(self._connections),
            "entrance": self.admission.status(),
            "site": self.site.status(),
            **({} if self.member is None else {"replication": self.member.status()}),
            "queue_count": len(self.addresses),
            "uptime": self._loop.time() - self._started_at,
            "pid": os.getpid(),
        }

    def followed_queues(self) -> list[tuple[str, str]]:
        """Return pairs of names: a link to another site, and a queue that the link has filled."""
        return self.site.followed_queues()

    # -- for the connections --------------------------------------------------------------------

    @property
    def auth(self) -> Auth:
        """The users of the member and their permissions."""
        return self.options.auth

    @property
    def limits(self) -> ConnectionLimits:
        """The limits of one connection."""
        return self.options.connection_limits

    @property
    def handshake_timeout(self) -> float:
        """Seconds that a client has to send its Open, and to answer a Close."""
        return self.options.handshake_timeout

    @property
    def replica_set(self) -> ReplicaSet | None:
        """The backups, while this member is primary."""
        return None if self.member is None else self.member.replica_set

    def management(self, *, admin: bool, by: str) -> ManagementLink:
        """Return the management node for one client.

        :param admin: true if the cluster-admin sends the requests.
        :param by: the client, for the log.
        """
        return ManagementLink(self._management, admin=admin, by=by)

    @staticmethod
    def now_ms() -> int:
        """Return the wall clock in milliseconds, for expiry times that senders set."""
        return int(time.time() * 1000)
