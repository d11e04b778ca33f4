"""The core of a connection factory, shared by both APIs: URL, options, connections, topology.

``connect_params`` decides how to connect to an endpoint, ``event_hub`` publishes events, and
``recorder_setup`` records them if telemetry is on.

When a forked process first uses an inherited factory, the factory gets a new identity: a new client id
(unless the application chose it), random source and link names.  It also drops all state of the parent's
event loop.  Otherwise all children would back off in step, and take each other's links.

It serves one event loop at a time: after that loop is closed, the next one gets connections of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import random
import ssl
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Unpack

from haclient.cluster_url.errors import ClusterURLError
from haclient.cluster_url.option_types import OptionArguments
from haclient.cluster_url.options import Options, with_overrides
from haclient.cluster_url.url_list import URLArgument, read_url
from haclient.core.cluster import Cluster, Shared
from haclient.core.connection import ConnectionCore
from haclient.core.waiting import in_parallel
from haclient.discovery.polling.setup_answers import SetupAnswers
from haclient.discovery.topology import Topology
from haclient.engine.sasl.mechanisms import check_available
from haclient.error_catalog.arguments import check_timeout, check_type
from haclient.errors import ConnectionClosed, WrongThread
from haclient.events.event_log import AsyncEvents, BlockingEvents, CallbackSubscription
from haclient.factory.connect_params import (
    CredentialsProvider,
    CredentialsSource,
    EndpointParams,
    GivenCredentials,
    choose_credentials,
)
from haclient.factory.event_hub import EventHub
from haclient.factory.recorder_setup import make_recorder, make_redactor
from haclient.resolver.resolve import Resolver
from haclient.telemetry.settings import TelemetrySettings
from haclient.telemetry.sink import EventCallback, Sink, callbacks


class FactoryArguments(OptionArguments, total=False):
    """The keyword arguments of ``connect`` and ``ConnectionFactory``.

    ``FactoryCore`` explains the arguments listed here.  The others are the URL options of that name, as text
    or as values.
    """

    user: str | None
    password: str | None
    credentials: GivenCredentials | CredentialsProvider | None
    ssl_context: ssl.SSLContext | None
    desired_capabilities: tuple[str, ...]
    on_event: EventCallback | Sink | Iterable[EventCallback | Sink] | None
    telemetry: str | os.PathLike[str] | TelemetrySettings | None


def check_one_timeout(timeout: float | None, options: OptionArguments) -> None:
    """Check that ``timeout`` of ``connect`` and the option that it overrides are not both given.

    :raises ClusterURLError: if they are.
    """
    if timeout is not None and "startup_deadline" in options:
        msg = "argument 'timeout': startup_deadline sets the same; give one of them"
        raise ClusterURLError(msg, "timeout")


# Two pods with one ``client_id`` get the same digits by chance once in four billion.
_RANDOM_DIGITS = 8
# Makes the random source of a factory's backoff and SRV; ``haclient.testing.random_source`` replaces it.
new_random = random.Random
# For the process: a broker does not see factories and serves all connections of a process in one queue.
_SETUP_ANSWERS = SetupAnswers()


@dataclass(frozen=True, slots=True)
class _Identity:
    """The identity of a factory in one process.

    :param name_prefix: prefix of link names that the application does not choose.
    """

    pid: int
    client_id: str
    name_prefix: str
    rng: random.Random


class FactoryCore:
    """The part of a connection factory that both APIs share.

    :param url: a cluster URL, parsed or not, or a list of them (``cluster_url.url_list``).
    :param user: overrides the credentials in the URL, together with ``password``.
    :param credentials: overrides them as well: a pair, a ``Token``, or a callable that returns one and is
        asked before each attempt (on a thread, unless it is a coroutine function).
    :param ssl_context: overrides the ``tls_*`` options.
    :param desired_capabilities: capabilities to ask of the peer in Open (AMQP 1.0 part 2, section 2.7.1).
    :param on_event: called with each event, on a thread of its own; a sink (``telemetry.sink``), or several.
    :param telemetry: overrides the option of that name: a directory, or settings; empty for off.
    :param options: any URL option by its name; they override the URL.
    :raises ClusterURLError: if the URL or an option is wrong, or two arguments set the same option.
    :raises TypeError: for an argument of an invalid type.
    """

    def __init__(
        self,
        url: URLArgument,
        *,
        user: str | None = None,
        password: str | None = None,
        credentials: GivenCredentials | CredentialsProvider | None = None,
        ssl_context: ssl.SSLContext | None = None,
        desired_capabilities: tuple[str, ...] = (),
        on_event: EventCallback | Sink | Iterable[EventCallback | Sink] | None = None,
        telemetry: str | os.PathLike[str] | TelemetrySettings | None = None,
        **options: Unpack[OptionArguments],
    ) -> None:
        self.url = read_url(url)
        check_type("ssl_context", ssl_context, ssl.SSLContext, type(None))
        check_type("telemetry", telemetry, str, os.PathLike, TelemetrySettings, type(None))
        chosen = choose_credentials(user, password, credentials)
        settings = telemetry if isinstance(telemetry, TelemetrySettings) else None
        overrides: dict[str, object] = {**options}
        if telemetry is not None:
            overrides["telemetry"] = telemetry if settings is None else settings.directory
        self.options: Options = with_overrides(self.url.options, **overrides)
        check_available(self.options.sasl_mechanisms or ())
        self._identity = self._new_identity()
        self.redactor = make_redactor(self.url, self.client_id)
        self.credentials = CredentialsSource(self.url, chosen, lambda: self.topology)
        self._endpoint_params = EndpointParams(
            self.options,
            client_id=lambda: self.client_id,
            desired_capabilities=desired_capabilities,
            source=self.credentials,
            context=ssl_context,
            redactor=self.redactor,
        )
        self._events = EventHub()
        for callback in callbacks(on_event, self.redactor):
            self._events.subscribe(CallbackSubscription(callback))
        self._recorder = make_recorder(settings, self.options, self.redactor)
        if self._recorder is not None:
            self._events.subscribe(self._recorder)
        self._shared: Shared | None = None
        self._numbers = 0
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connections: dict[ConnectionCore, None] = {}
        # Tasks that close abandoned connections; the loop itself keeps only weak references to tasks.
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def client_id(self) -> str:
        """The container id of its connections, or the prefix of their ids."""
        return self._in_this_process().client_id

    @property
    def topology(self) -> Topology | None:
        """The known state of the cluster; ``None`` before the first connect."""
        return self._shared.cluster.topology if self._shared else None

    def connection(self, *, timeout: float | None = None) -> ConnectionCore:
        """Make a new connection without opening it.  Must be called on the event loop.

        :param timeout: seconds for the first connect; ``startup_deadline`` by default, ``math.inf`` for no
            limit.
        """
        if self._closed:
            raise ConnectionClosed("the factory is closed")
        if timeout is not None:
            check_timeout(timeout)
        shared = self.shared()
        self._numbers += 1
        if timeout is not None:
            seconds = None if timeout == math.inf else timeout
            shared = replace(shared, options=replace(shared.options, startup_deadline=seconds))
        core = ConnectionCore(shared, self._numbers)
        self._connections[core] = None
        core.on_closed = lambda: self._connections.pop(core, None)
        return core

    async def open_connection(self, *, timeout: float | None = None) -> ConnectionCore:
        """Open a new connection, and return it when it is usable."""
        core = self.connection(timeout=timeout)
        await core.open()
        return core

    def shared(self) -> Shared:
        """Return the state that the connections share.  Must be called on the event loop."""
        self._on_this_loop()
        if self._shared is None:
            self._shared = self._share()
        return self._shared

    @property
    def used(self) -> bool:
        """Return whether the factory was used on an event loop."""
        return self._loop is not None

    @property
    def pid(self) -> int:
        """Id of the process that used it last."""
        return self._identity.pid

    @property
    def closed(self) -> bool:
        """Return whether the application closed it."""
        return self._closed

    @property
    def unsettled(self) -> int:
        """Number of messages of its connections without an outcome."""
        return sum(core.links.unsettled for core in tuple(self._connections))

    @property
    def connections(self) -> int:
        """Number of open connections."""
        return len(self._connections)

    @property
    def starved(self) -> bool:
        """Return whether messages of a sender wait because the primary gives no credit."""
        return any(core.links.starved for core in tuple(self._connections))

    @property
    def blocked(self) -> bool:
        """Return whether messages of a sender wait because the primary's session window is closed."""
        return any(core.links.blocked for core in tuple(self._connections))

    async def flush(self) -> None:
        """Wait until all messages sent before are settled; see ``LinkSet.flush``."""
        self._on_this_loop()
        await in_parallel(core.links.flush() for core in self._connections)

    async def close(self) -> None:
        """Close every connection, then their shared state.

        If cancelled, closes every socket immediately.
        """
        self._on_this_loop()
        self._closed = True
        cores = tuple(self._connections)
        try:
            await asyncio.gather(*(core.close() for core in cores))
        finally:
            for core in cores:  # a cancelled ``gather`` may cancel ``close`` before it begins
                core.abort()
            shared, self._shared = self._shared, None
            self._events.close()
            if shared is not None:
                await shared.cluster.close()

    def abandon(self, loop: asyncio.AbstractEventLoop, core: ConnectionCore | None = None) -> None:
        """Close an abandoned connection, or the whole factory; from any thread, without a lock.

        :param loop: event loop of the connections.
        """
        with contextlib.suppress(RuntimeError):  # the loop is closed, and so are its sockets
            loop.call_soon_threadsafe(self._close_abandoned, core)

    def _close_abandoned(self, core: ConnectionCore | None) -> None:
        if self._closed:
            return
        closing = self.close() if core is None else core.close()
        task = asyncio.get_running_loop().create_task(closing, name="haclient close")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close_if_open(self) -> None:
        """Close the factory at the end of its event loop, unless it is closed or never connected."""
        await asyncio.gather(*self._closing, return_exceptions=True)
        if not self._closed and self._loop is not None:
            try:
                for core in self._connections:
                    core.warn_never_closed()
            finally:
                await self.close()

    def close_unused(self) -> None:
        """Close a factory that never connected; needs no event loop."""
        self._closed = True
        self._events.close()

    def subscribe(self, subscription: AsyncEvents | BlockingEvents, connection: int | None) -> None:
        """Send the events of one connection (or of all, with ``None``) to an iterator, while it is kept.

        The iterator ends at once if the connection has ended.
        """
        if connection is not None and all(core.number != connection for core in self._connections):
            subscription.end()
        else:
            self._events.subscribe_iterator(subscription, connection)

    def _new_identity(self) -> _Identity:
        client_id = self.options.client_id or f"haclient-{uuid.uuid4()}"
        # Not from the random source, which a test may seed.
        name_prefix = f"{client_id}-{uuid.uuid4().hex[:_RANDOM_DIGITS]}"
        return _Identity(os.getpid(), client_id, name_prefix, new_random())

    def _in_this_process(self) -> _Identity:
        """Return the identity; in a forked process make a new one, and drop the parent's connections."""
        if self._identity.pid != os.getpid():
            self._identity = self._new_identity()
            self._leave_loop()
        return self._identity

    def _on_this_loop(self) -> None:
        """Serve the running event loop from now on.

        :raises WrongThread: if another loop is served and not closed.
        """
        self._in_this_process()
        running = asyncio.get_running_loop()
        if self._loop is running:
            return
        if self._loop is not None and not self._loop.is_closed():
            raise WrongThread("the factory serves another event loop: make one for each loop")
        self._leave_loop()
        self._loop = running

    def _leave_loop(self) -> None:
        self._loop = self._shared = None
        self._connections = {}

    def _share(self) -> Shared:
        options, identity = self.options, self._identity
        # Like credentials, a client certificate reveals its owner to any server that asks for it.
        credentials = self.credentials.for_unlisted or self._endpoint_params.shows_certificate
        resolver = Resolver(nameserver=options.nameserver, timeout=options.dns_timeout, rng=identity.rng)
        return Shared(
            options=options,
            cluster=Cluster(
                self.url, options.policy(), resolver, credentials=credentials, answers=_SETUP_ANSWERS
            ),
            params_provider=self._endpoint_params.params_for,
            publish=self._events.publish,
            client_id=identity.client_id,
            name_prefix=identity.name_prefix,
            credentials=credentials,
            rng=identity.rng,
        )
