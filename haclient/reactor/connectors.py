"""Connectors dial for a connection of a container: once, or after every lost connection.

``PlainConnector`` is proton's connection without reconnect.  ``FailoverConnector`` has the interface of a
link of ``core.connection.ConnectionCore``: the core finds the primary, attaches the connector to the session
that it opened, and reports a lost connection to it.  The connector passes both on to the binding.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import ssl
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import proton
from proton import ConnectionException, Url

from haclient.cluster_url.endpoint import Endpoint
from haclient.cluster_url.seed import Seed
from haclient.cluster_url.url import ClusterURL
from haclient.core.attempt import ConnectParams
from haclient.core.cluster import Shared
from haclient.core.container_id import OPEN_CONNECTIONS
from haclient.engine.owner import CloseReason
from haclient.engine.protocol import Engine
from haclient.engine.sasl.frames import FRAMING_ERROR
from haclient.engine.sasl.mechanisms import prepared
from haclient.engine.settings import DEFAULT_MAX_FRAME_SIZE, Settings
from haclient.engine.tls import TlsFileError
from haclient.errors import (
    AuthenticationFailed,
    ConnectionClosed,
    ConnectionGaveUp,
    HaclientError,
    TLSVerificationFailed,
)
from haclient.factory.factory_core import FactoryCore
from haclient.printable.log import get_logger
from haclient.reactor.attempt_errors import SOCKET_ERROR, AttemptErrors, url_of
from haclient.reactor.connect_options import ConnectOptions
from haclient.reactor.listener import Accepted
from haclient.reactor.proton_events import transport_with

if TYPE_CHECKING:
    from haclient.core.connection import ConnectionCore
    from haclient.reactor.endpoints.binding import Binding

logger = get_logger("haclient")

_UNAUTHORIZED = "amqp:unauthorized-access"


class PlainConnector:
    """Dials each address once; the connection ends with its socket."""

    failover = False

    def __init__(self, binding: Binding, url: ClusterURL, options: ConnectOptions) -> None:
        self._binding = binding
        self._url = url
        self._options = options
        self._task: asyncio.Task[None] | None = None
        self.failure: Exception | None = None

    def start(self) -> None:
        """Start to dial."""
        if self._task is None:
            self._task = self._binding.container.spawn(self._run())

    def close(self) -> None:
        """Send Close after queued output, or cancel the dial."""
        OPEN_CONNECTIONS.remove(self._binding.engine)
        if self._binding.engine is None and self._task is not None and not self._task.done():
            self._task.cancel()
            self._binding.report_closed(proton.Transport(), None)
            self._binding.over()

    def on_waiting(self) -> None:
        """Do nothing: each address is dialled once."""

    def ended(self) -> None:
        """End the binding: a plain connection is not replaced."""
        self._binding.over()

    async def _run(self) -> None:
        failure, name = ConnectionException("no address to connect to"), SOCKET_ERROR
        for seed in self._url.seeds:
            try:
                engine = await self._dial(seed)
            except (OSError, TlsFileError) as error:
                logger.info("cannot connect to %s: %s", seed.endpoint, error)
                failure = ConnectionException(f"cannot connect to {seed.endpoint}: {error}")
                name = FRAMING_ERROR if isinstance(error, ssl.SSLError) else SOCKET_ERROR  # as proton
                continue
            OPEN_CONNECTIONS.add(engine)
            self._binding.connection.url = Url(str(seed.endpoint))
            self._binding.bind(engine, None)
            return
        self.failure = failure
        self._binding.gave_up(transport_with(name, str(failure)), reported=False)
        self._binding.over()

    async def _dial(self, seed: Seed) -> Engine:
        loop, endpoint = self._binding.container.loop, seed.endpoint
        settings = await prepared(self._settings(seed))
        _, engine = await loop.create_connection(
            lambda: Engine(Accepted(), settings, loop),
            endpoint.host,
            endpoint.port,
            ssl=self._options.plain_context(self._url, endpoint),
            server_hostname=settings.tls_name if endpoint.tls else None,
        )
        return engine

    def _settings(self, seed: Seed) -> Settings:
        options, endpoint = self._options, seed.endpoint
        frame = DEFAULT_MAX_FRAME_SIZE if options.max_frame_size is None else options.max_frame_size
        settings = Settings(
            container_id=options.container_id,
            hostname=endpoint.host if options.virtual_host is None else options.virtual_host,
            heartbeat=options.heartbeat or 0,
            user=seed.user,
            password=None if seed.password is None else seed.password.reveal(),
            tls_name=options.tls_server_name(self._url) or endpoint.tls_name,
            max_frame_size=frame,
        )
        return options.refine(settings, endpoint)


class _Factory(FactoryCore):
    """A factory of one connection, whose attempts use the arguments of ``connect``.

    :param earlier: the number of connections that its container has made before.
    """

    def __init__(self, url: ClusterURL, connect_options: ConnectOptions, earlier: int) -> None:
        super().__init__(url, **connect_options.options)
        self._connect_options = connect_options
        self._numbers = earlier

    def report_to(self, errors: AttemptErrors) -> None:
        """Report the attempts of its connection."""
        self._events.subscribe(errors)

    def _share(self) -> Shared:
        delays = self._connect_options.delays
        return replace(super()._share(), params_provider=self._params_for, fixed_delays=delays)

    async def _params_for(self, endpoint: Endpoint) -> ConnectParams:
        params = await self._endpoint_params.params_for(endpoint)
        settings = self._connect_options.refine(params.settings, endpoint)
        params = replace(params, exact_properties=self._connect_options.properties is not None)
        tls = self._connect_options.client_context(endpoint)  # or as the URL options define
        return replace(params, settings=settings, tls=params.tls if tls is None else tls)


class FailoverConnector:
    """Replaces a lost connection, until the application closes it or the search gives up."""

    failover = True
    address = None
    may_attach_ahead = False
    """False: handlers see a session only when it is usable."""
    was_open = unanswered = False
    """False: the application opens its links itself, and sees the peer's answer."""

    def __init__(self, binding: Binding, url: ClusterURL, options: ConnectOptions) -> None:
        self._binding = binding
        container = binding.container
        self._factory = _Factory(url, options, container.connections_made)
        container.connections_made += 1
        self._factory.report_to(
            AttemptErrors(
                self._attempt_failed,
                lambda: self._factory.topology,
                self._has_given_up,
                lambda: self._core is not None and self._core.is_dialling,
            )
        )
        self._core: ConnectionCore | None = None
        self._task: asyncio.Task[None] | None = None
        self._opening: asyncio.Task[None] | None = None
        self._finished = asyncio.Event()
        self._was_bound = False
        self.failure: Exception | None = None
        self.on_closed: Callable[[], None] = lambda: None
        """Set by the core, as for each of its links."""
        self.on_waiting: Callable[[], None] = lambda: None
        """Set by the core; called when a call begins to wait for a session."""
        self.unsettled = 0
        """Messages without an outcome at the last disconnection or the end; handlers send more meanwhile."""

    def start(self) -> None:
        """Search for the primary."""
        if self._task is None:
            self._task = self._binding.container.spawn(self._run())

    def close(self) -> None:
        """Send Close, and end the search."""
        engine = self._binding.engine
        OPEN_CONNECTIONS.remove(engine)
        if engine is not None and self._core is not None:
            engine.owner = _ClosingOwner(self._core)
        self._finished.set()
        self.start()

    def ended(self) -> None:
        """Count unsettled messages; the core searches again."""
        self.unsettled = self._binding.unsettled()

    async def _run(self) -> None:
        if not self._finished.is_set():
            self._core = core = self._factory.connection()
            core.links.register(cast("Any", self))
            self._opening = asyncio.create_task(self._open(core))
            # Cancelled by the end of the container, which waits until each Close is sent.
            with contextlib.suppress(asyncio.CancelledError):
                await self._finished.wait()
        await self._end()

    async def _end(self) -> None:
        if self._core is not None:
            self.unsettled = self._binding.unsettled()
            await self._core.close()
        await self._factory.close()
        if self._opening is not None:
            await self._opening
        if not self._was_bound and self.failure is None:
            self._binding.report_closed(proton.Transport(), None)
        self._binding.over()

    async def _open(self, core: ConnectionCore) -> None:
        with contextlib.suppress(HaclientError):  # ``fail`` reports it
            await core.open()

    # -- called by the core, as on each of its links -----------------------------------------

    def hold(self) -> bool:
        """Return whether nothing is unsettled at this moment; handlers may send more."""
        return not self._binding.has_deliveries

    @property
    def waiting(self) -> int:
        """Return the number of waiting blocking calls; the first connect is a call of the core's."""
        return self._binding.waiting if self._was_bound else 0

    @property
    def to_replay(self) -> int:
        """Return the number of messages to send again over the next connection."""
        return self._binding.unsettled(left=True)

    def attach(self, engine: Engine, session: proton.Session) -> None:
        """Take over a usable session.

        Called while the engine dispatches an event.  The binding takes over when the engine is idle, after
        later events.
        """
        self._binding.container.loop.call_soon(self._bind, engine, session)

    def _bind(self, engine: Engine, session: proton.Session) -> None:
        if self._finished.is_set() or engine.close_reason is not None:
            return
        assert self._core is not None
        self._was_bound = True
        if self._core.endpoint is not None:
            self._binding.connection.url = Url(url_of(self._core.endpoint))
        if (reason := self._binding.links_beyond(engine)) is not None:
            self.fail(ConnectionGaveUp(reason))  # it would be the same over the next connection
            return
        self._binding.bind(engine, session)

    def on_disconnected(self) -> None:
        """Do nothing: the engine has reported the loss to the binding already."""

    def writable_again(self) -> None:
        """Do nothing: the engine continues by itself."""

    def _has_given_up(self) -> bool:
        return self._core is not None and self._core.gave_up

    def _attempt_failed(self, name: str, description: str) -> None:
        # While the connection is usable again, a failed lookup of another name does not matter.
        if not self._finished.is_set() and self._binding.engine is None:
            self._binding.attempt_failed(transport_with(name, description))

    def fail(self, error: HaclientError) -> None:
        """Report that the core is closed, or gave up."""
        if not isinstance(error, ConnectionClosed) and not self._finished.is_set():
            otherwise = FRAMING_ERROR if isinstance(error, TLSVerificationFailed) else SOCKET_ERROR
            name = (error.condition if isinstance(error, ConnectionGaveUp) else None) or otherwise
            if isinstance(error, AuthenticationFailed):
                name, error = _UNAUTHORIZED, copy.copy(error)
                error.args = (f"{error.args[0]} ({_UNAUTHORIZED})",)
            self.failure = error
            self._binding.gave_up(transport_with(name, str(error)), reported=self._was_bound)
        self._finished.set()


class _ClosingOwner(Accepted):
    """The owner of an engine whose connection the application has closed.

    Otherwise the core would treat the peer's Close as a lost connection until it is closed itself.
    """

    def __init__(self, core: ConnectionCore) -> None:
        self._core = core

    def ended(self, engine: Engine, reason: CloseReason) -> None:
        """Report that both Closes are exchanged, or that the socket broke."""
        self._core.ended(engine, reason)
