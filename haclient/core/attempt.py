"""One attempt at one endpoint, from TCP connect to a usable session.

A session is usable when the Open arrived without ``amqp:connection-establishment-failed``, and the Begin was
answered (docs/internals/discovery.md, rule 3).  An attempt only reports its progress: TCP connected, Open
received, parked by the member, session usable, or failed.  The search owns its deadline; ``cancel`` ends the
attempt at any point.

Parking (docs/storms.md): the member's Open offers ``haclient:park``.  The member answers the Begin when it
serves and reaches this client's turn.  The generation in that Open may be outdated by then.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import os
import socket
import ssl
import struct
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

import proton

from haclient.cluster_url.endpoint import Endpoint
from haclient.core import failures
from haclient.core.container_id import OPEN_CONNECTIONS
from haclient.discovery.evidence import Failure, FailureReason
from haclient.engine import peer_fields
from haclient.engine.heartbeat import refuse_idle_timeout
from haclient.engine.links import ReceiverLink, SenderLink
from haclient.engine.owner import CloseReason, EngineOwner
from haclient.engine.protocol import Engine
from haclient.engine.sasl.mechanisms import prepared
from haclient.engine.settings import PARK, Settings
from haclient.printable.log import get_logger
from haclient.resolver.resolve import ResolutionError, Resolver

logger = get_logger("haclient")

# Closing a socket with this linger option sends RST: the port is free at once.
_NO_LINGER = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True)
class ConnectParams:
    """Parameters to connect to one endpoint, decided by the factory just before the dial.

    :param fresh: a callable supplied the credentials, and may supply others next time.
    :param expires_at: when the credentials expire, in seconds since 1970; ``None`` if that is not known.
    :param refusal: why not to dial at all (this member refused the credentials already).
    :param error: the exception of the application's callable for credentials; ``refusal`` is set then, too.
    :param exact_properties: Open has the properties of ``settings`` and no others.
    :param verified: whether TLS verifies the certificate of the peer, and the name in it.
    :param plain_barred: PLAIN must not be used: the cluster has offered SCRAM, and this endpoint has no TLS.
    :param on_mechanism: called with the SASL mechanism that the member and the client agreed on, if any.
    :param on_refused: called with the mechanism when the member refuses these credentials.
    :param on_id_in_use: called when the member has another connection with this container id.
    """

    settings: Settings
    tls: ssl.SSLContext | None = None
    fresh: bool = False
    expires_at: float | None = None
    refusal: Failure | None = None
    error: Exception | None = None
    exact_properties: bool = False
    verified: bool = False
    plain_barred: bool = False
    on_mechanism: Callable[[str | None], None] = lambda _: None
    on_refused: Callable[[str | None], None] = lambda _: None
    on_id_in_use: Callable[[], None] = lambda: None


ParamsProvider = Callable[[Endpoint], Awaitable[ConnectParams]]


@dataclass(frozen=True, slots=True)
class AttemptCallbacks:
    """Callbacks for the progress of an attempt.  Called on the event loop; none may block."""

    tcp_connected: Callable[[int], None]
    opened: Callable[[int], None]
    parked: Callable[[int], None]
    usable: Callable[[int], None]
    failed: Callable[[int, Failure], None]
    dialling: Callable[[int], None] = lambda _: None
    """Called when credentials and address are known, just before the SYN is sent."""
    answered: Callable[[int], None] = lambda _: None
    """Called when the peer has sent its first bytes, at the latest with its Open."""


class Attempt:
    """One attempt to connect to an endpoint.  It owns its engine until it is adopted.

    :param park: whether to ask the member to park the connection.
    :ivar dialled_at: when it was dialled, in the loop's seconds.
    :ivar parked: whether the member parked it.
    :ivar begun: the session that was begun; ``session``: the same, once the peer answered the Begin.
    """

    def __init__(
        self,
        number: int,
        endpoint: Endpoint,
        params_provider: ParamsProvider,
        resolver: Resolver,
        callbacks: AttemptCallbacks,
        *,
        park: bool = False,
    ) -> None:
        self.number = number
        self.endpoint = endpoint
        self.dialled_at = asyncio.get_running_loop().time()
        self.parked = False
        self.engine: Engine | None = None
        self.begun: proton.Session | None = None
        self.session: proton.Session | None = None
        self.params: ConnectParams | None = None
        self._params_provider = params_provider
        self._resolver = resolver
        self._callbacks = callbacks
        self._park = park
        self._done = False
        self._in_handshake = False

    async def run(self) -> None:
        """Dial and send Open.  Returns when TCP is connected; the callbacks report the rest."""
        loop = asyncio.get_running_loop()
        try:
            self.params = params = await self._make_params()
            if params.refusal is not None:
                self._fail(params.refusal)
                return
            connected = await self._connect_tcp(loop)
            if connected is not None:
                await self._connect_amqp(loop, params, connected)
        except asyncio.CancelledError:
            self.cancel()
            raise
        except ResolutionError as error:
            self._fail(Failure(kind=FailureReason.UNRESOLVED, detail=str(error)))
        except (OSError, ssl.SSLError) as error:
            self._fail(failures.from_socket_error(error, in_handshake=self._in_handshake))
        except Exception as error:  # a defect in this package must not leave the search waiting
            logger.exception("the attempt at %s failed", self.endpoint)
            self._fail(Failure(kind=FailureReason.ENDED, detail=f"internal error: {type(error).__name__}"))

    async def _make_params(self) -> ConnectParams:
        params = await self._params_provider(self.endpoint)
        settings = params.settings if params.refusal is not None else await prepared(params.settings)
        if self._park:
            asked = (*settings.desired_capabilities, PARK)
            settings = replace(settings, desired_capabilities=asked)
        return params if settings is params.settings else replace(params, settings=settings)

    def hand_over(self, number: int, callbacks: AttemptCallbacks) -> None:
        """Report to other callbacks from now on, under a new number."""
        self.number, self._callbacks = number, callbacks

    @property
    def proven(self) -> bool:
        """Return whether the peer has proved its identity, by certificate or by SASL."""
        if self.engine is None or self.params is None:
            return False
        return self.params.verified or self.engine.incoming.peer_proved

    def cancel(self) -> None:
        """Drop the connection at any stage, without sending Close."""
        self._done = True
        if self.engine is not None:
            self.engine.abort()

    def adopt(self, owner: EngineOwner) -> tuple[Engine, proton.Session]:
        """Transfer the usable connection to its new owner."""
        assert self.engine is not None
        assert self.session is not None
        self._done = True
        OPEN_CONNECTIONS.add(self.engine)
        self.engine.owner = owner
        return self.engine, self.session

    # -- sockets ------------------------------------------------------------------------------

    async def _connect_tcp(self, loop: asyncio.AbstractEventLoop) -> socket.socket | None:
        error: OSError | None = None
        addresses = await self._addresses()
        self._callbacks.dialling(self.number)
        for address in addresses:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            connection = socket.socket(family, socket.SOCK_STREAM)
            try:
                connection.setblocking(False)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                await _connect_socket(loop, connection, (address, self.endpoint.port))
            except OSError as failure:
                connection.close()
                error = failure
            except BaseException:
                connection.close()
                raise
            else:
                self._callbacks.tcp_connected(self.number)
                return connection
        if error is not None:
            raise error
        return None

    async def _addresses(self) -> tuple[str, ...]:
        try:
            ipaddress.ip_address(self.endpoint.host)
        except ValueError:
            return tuple(found.host for found in await self._resolver.resolve(self.endpoint))
        return (self.endpoint.host,)

    async def _connect_amqp(
        self, loop: asyncio.AbstractEventLoop, params: ConnectParams, connection: socket.socket
    ) -> None:
        def make() -> Engine:
            engine = Engine(self, params.settings, loop)
            if engine.incoming.greeting is not None:
                engine.incoming.greeting.on_bytes = self._note_answer
            return engine

        self._in_handshake = params.tls is not None
        try:
            _, self.engine = await loop.create_connection(
                make,
                sock=connection,
                ssl=params.tls,
                server_hostname=params.settings.tls_name if params.tls is not None else None,
            )
        except BaseException:
            connection.close()
            raise
        self._in_handshake = False
        self.engine.open()
        self.begun = self.engine.begin()

    def _note_answer(self) -> None:
        if not self._done:
            self._callbacks.answered(self.number)

    # -- the engine's side --------------------------------------------------------------------

    def opened(self, engine: Engine) -> None:
        """Handle the peer's Open.  The result follows: an answered Begin, or a Close."""
        if self._done:
            return
        refusal = refuse_idle_timeout(engine.transport.remote_idle_timeout)
        if refusal is not None:
            engine.refuse_peer(refusal)
            return
        self._note_mechanism(engine)
        self._callbacks.opened(self.number)
        failed = engine.peer_properties.get(failures.ESTABLISHMENT_FAILED)
        if self._park and not failed and PARK in peer_fields.offered_capabilities(engine.connection):
            self.parked = True
            self._callbacks.parked(self.number)

    def session_opened(self, engine: Engine, session: proton.Session) -> None:
        """Handle the answer to the Begin: the session is usable."""
        if not self._done and not engine.peer_properties.get(failures.ESTABLISHMENT_FAILED):
            self.session = session
            self._callbacks.usable(self.number)

    def link_requested(self, engine: Engine, link: SenderLink | ReceiverLink) -> None:
        """Refuse a link that the peer attaches on its own."""
        engine.refuse(link, proton.Condition("amqp:not-allowed", "this client opens its own links"))

    def peer_closed(self, engine: Engine, condition: proton.Condition | None) -> None:
        """Fail the attempt at the peer's Close; the peer may leave the socket open for ever."""
        self._fail(self._refusal(engine, condition))
        engine.abort()

    def _refusal(self, engine: Engine, condition: proton.Condition | None) -> Failure:
        params = self.params
        assert params is not None
        if self.session is not None:  # the usable session is lost before its adoption
            return failures.from_close(condition, self.endpoint)
        mechanism = engine.incoming.mechanism
        failure = failures.from_early_close(condition, self.endpoint, mechanism=mechanism, fresh=params.fresh)
        if failure.kind is FailureReason.AUTHENTICATION_TEMPORARY:
            params.on_refused(mechanism)
        return failure

    def writable_again(self, engine: Engine) -> None:
        """Do nothing: an attempt queues no output."""

    def ended(self, engine: Engine, reason: CloseReason) -> None:
        """Handle the end of the connection before its adoption."""
        params, greeting = self.params, engine.incoming.greeting
        assert params is not None
        if isinstance(reason.error, ConnectionError) and greeting is not None and not greeting.data:
            self._fail(failures.from_silence(tls=self.endpoint.tls))
            return
        asked = params.settings.hostname if greeting is not None else None
        vhost = None if asked == self.endpoint.tls_name else asked
        if reason.error is not None:
            failure = failures.from_socket_error(reason.error)
            self._fail(failures.without_open(failure, engine.incoming.client_sasl, vhost))
            return
        self._note_mechanism(engine)
        failure = failures.from_engine_error(
            reason.condition,
            engine.incoming.client_sasl,
            params.settings,
            greeting,
            tls=self.endpoint.tls,
            fresh=params.fresh,
        )
        if params.plain_barred and failure.condition == failures.UNAUTHORIZED and failure.mechanism is None:
            advice = "PLAIN without TLS is not used after a member of this cluster has offered SCRAM"
            failure = replace(failure, detail=f"{failure.detail}; {advice}")
        if params.fresh and failures.credentials_refused(engine.incoming.client_sasl):
            params.on_refused(failure.mechanism)
        self._fail(failures.without_open(failure, engine.incoming.client_sasl, vhost))

    def _note_mechanism(self, engine: Engine) -> None:
        assert self.params is not None
        self.params.on_mechanism(engine.incoming.mechanism)

    def _fail(self, failure: Failure) -> None:
        if self._done:
            return
        if failure.id_in_use and self.engine is not None and self.params is not None:
            failure = replace(failure, id_held_here=OPEN_CONNECTIONS.have_id_of(self.engine))
            self.params.on_id_in_use()
        if self.params is not None and self.params.settings.bearer:
            failure = failures.of_token(failure, self.params.settings.password or "", time.time())
        self.cancel()
        self._callbacks.failed(self.number, failure)


async def _connect_socket(
    loop: asyncio.AbstractEventLoop, connection: socket.socket, address: tuple[str, int]
) -> None:
    """Connect to a literal address without a thread.

    asyncio's own loops do so in ``sock_connect``.  uvloop looks up even literal addresses in a pool of four
    threads.  Other lookups that wait for a dead name server could then delay a failover.

    If nothing listens at a port of the same machine, TCP may choose that port as the client's source port.
    It then connects the socket to itself.  The client closes such a socket at once, so that the broker can
    listen.

    :raises OSError: if the connection cannot be made.
    """
    await _connect_to(loop, connection, address)
    if _is_connected_to_itself(connection):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))


def _is_connected_to_itself(connection: socket.socket) -> bool:
    try:
        return bool(connection.getsockname() == connection.getpeername())
    except OSError:  # it has ended; the owner of the socket notices
        return False


async def _connect_to(
    loop: asyncio.AbstractEventLoop, connection: socket.socket, address: tuple[str, int]
) -> None:
    if isinstance(loop, asyncio.BaseEventLoop):
        await loop.sock_connect(connection, address)
        return
    error = connection.connect_ex(address)
    if error == errno.EINPROGRESS:
        writable = asyncio.Event()
        loop.add_writer(connection, writable.set)
        try:
            await writable.wait()
        finally:
            loop.remove_writer(connection)
        error = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if error:
        raise OSError(error, os.strerror(error))
