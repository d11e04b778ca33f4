"""The asyncio API.

    async with haclient.aio.connect("amqp://broker-a,broker-b") as connection:
        sender = await connection.create_sender("orders")
        await sender.send(Message(body="one"))

All objects belong to the event loop on which they were made.  A cancelled call leaves no work half-done.  The
blocking API (``haclient.blocking``) has the same names and meanings.
"""

from __future__ import annotations

import haclient.engine  # noqa: F401 - names what a broken proton lacks

# isort: split
import asyncio
import os
import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self, Unpack

import proton

from haclient.api.asyncio_receiver import Delivery, Receiver
from haclient.api.asyncio_sender import Sender
from haclient.api.bases import BaseConnection, BaseFactory
from haclient.api.deadlines import flush, limit, wait_opened
from haclient.api.descriptions import describe_connection, describe_factory
from haclient.api.loop_affinity import check_loop
from haclient.api.opening import Opening
from haclient.api.receiving import unsubscribe
from haclient.api.unclosed import is_ours, warn_unclosed
from haclient.cluster_url.option_types import OptionArguments
from haclient.cluster_url.url_list import URLArgument
from haclient.core.attach.source import source_params
from haclient.core.connection import ConnectionCore, State
from haclient.core.message_encoder import EncodeHook, MessageEncoder, check_encoding
from haclient.core.receiver import ReceiverCore
from haclient.events.event_log import AsyncEvents
from haclient.factory.connect_params import CredentialsProvider, GivenCredentials
from haclient.factory.factory_core import FactoryCore, check_one_timeout
from haclient.telemetry.settings import TelemetrySettings
from haclient.telemetry.sink import EventCallback, Sink

__all__ = ["Connection", "ConnectionFactory", "Delivery", "Opening", "Receiver", "Sender", "connect"]


def connect(
    url: URLArgument,
    *,
    user: str | None = None,
    password: str | None = None,
    credentials: GivenCredentials | CredentialsProvider | None = None,
    timeout: float | None = None,
    ssl_context: ssl.SSLContext | None = None,
    desired_capabilities: tuple[str, ...] = (),
    on_event: EventCallback | Sink | Iterable[EventCallback | Sink] | None = None,
    telemetry: str | os.PathLike[str] | TelemetrySettings | None = None,
    **options: Unpack[OptionArguments],
) -> Opening[Connection]:
    """Connect, with a factory of its own that closes with the connection.

    :param url: a cluster URL such as ``amqp://host:port,host:port``, or a list of URLs with the same meaning.
    :param user: overrides the credentials in the URL, together with ``password``.
    :param credentials: user and password as a pair, or a function (plain or ``async``) that returns one.  The
        client calls it before each attempt.  During the first connect ``connect`` raises its exception,
        unless that is an ``OSError``; otherwise the client calls it again.
    :param timeout: seconds; the URL's ``startup_deadline`` by default, ``math.inf`` for no limit.
    :param ssl_context: replaces the ``tls_*`` options.
    :param desired_capabilities: capabilities to ask of the peer in Open.
    :param on_event: called with each event, on a thread of its own; a sink (``telemetry.sink``), or several.
    :param telemetry: a directory, or settings; empty for off.
    :param options: any URL option by its name; they override the URL.
    :raises ClusterURLError: if the URL or an option is wrong, or two arguments set the same option.
    :raises TypeError: for an argument of an invalid type.
    :raises ConnectionGaveUp: if no primary is found in time.
    """
    check_one_timeout(timeout, options)
    factory = ConnectionFactory(
        url,
        user=user,
        password=password,
        credentials=credentials,
        ssl_context=ssl_context,
        desired_capabilities=desired_capabilities,
        on_event=on_event,
        telemetry=telemetry,
        **options,
    )
    return factory._connect(timeout, own_factory=True)


class ConnectionFactory(BaseFactory):
    """Makes connections to one cluster that share their knowledge of it.

    Takes the arguments of ``connect``, except ``timeout``, which the method ``connect`` has.  As a context
    manager it flushes and closes all its connections.
    """

    # ``__slots__`` is for tracemalloc: in Python 3.11 it does not know where an object with a dictionary was
    # made.
    __slots__ = ("__weakref__", "_closed")

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
        self._core = FactoryCore(
            url,
            user=user,
            password=password,
            credentials=credentials,
            ssl_context=ssl_context,
            desired_capabilities=desired_capabilities,
            on_event=on_event,
            telemetry=telemetry,
            **options,
        )
        self._closed = False  # by the application

    def connect(self, *, timeout: float | None = None) -> Opening[Connection]:
        """Open a new connection, and return it when it is usable.

        :param timeout: seconds; the URL's ``startup_deadline`` by default, ``math.inf`` for no limit.
        :raises ConnectionGaveUp: if no primary is found in time.
        """
        return self._connect(timeout)

    async def close(self) -> None:
        """Close every connection of the factory, and their shared state."""
        self._closed = True
        await self._core.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None and not self._core.closed:
                await flush(self._core, self._core.options.call_timeout)
        finally:
            await self.close()

    def __repr__(self) -> str:
        return describe_factory("haclient.aio", getattr(self, "_core", None))

    def _connect(self, timeout: float | None = None, *, own_factory: bool = False) -> Opening[Connection]:
        async def connect() -> Connection:
            core = self._core.connection(timeout=timeout)
            connection = Connection(self, core, own_factory=own_factory)
            try:
                await core.open()
            except BaseException:
                await connection.close()
                raise
            return connection

        return Opening(connect, "connect")


class Connection(BaseConnection):
    """One connection, always to the current primary.

    As a context manager it flushes its senders at the end of the block, all within one ``call_timeout``, and
    closes.  After an exception or a cancellation it only closes.
    """

    __slots__ = ("__weakref__", "_closed", "_factory", "_loop", "_own_factory", "_pid")

    def __init__(self, factory: ConnectionFactory, core: ConnectionCore, *, own_factory: bool) -> None:
        self._factory = factory
        self._core = core
        self._loop = asyncio.get_running_loop()
        self._own_factory = own_factory
        self._closed = False  # by the application
        self._pid = os.getpid()

    @property
    def factory(self) -> ConnectionFactory:
        """The factory that made the connection."""
        return self._factory

    def create_sender(
        self,
        address: str | None,
        *,
        name: str | None = None,
        durable: bool = True,
        capabilities: Sequence[str] = (),
        timeout: float | None = None,
        configure: Callable[[proton.Sender], None] | None = None,
        on_encode: EncodeHook | None = None,
    ) -> Opening[Sender]:
        """Create a sender to a node.

        :param address: the node; ``None`` for the anonymous terminus, where each message's address decides.
        :param name: the link name; generated by default.
        :param durable: whether its messages survive a failover, unless ``send`` overrides it;
            ``Message.durable`` has no effect.
        :param capabilities: capabilities of the target, such as ``"queue"`` or ``"topic"``.  Brokers that
            make nodes on demand choose the kind of node by them.  Without one, Artemis makes a topic of an
            unknown address, and accepts messages that no receiver gets: docs/brokers.md.
        :param configure: called with proton's ``Sender`` before each attach, for settings that have no
            argument here.
        :param on_encode: called with each message before it is encoded, to add entries to the sent bytes; see
            ``core.message_encoder``.
        :param timeout: seconds; the URL's ``call_timeout`` by default, ``math.inf`` for no limit.
        :raises LinkRefused: if the primary refuses the link.
        :raises LinkTimeout: if the link is not attached in time.
        :raises ConnectionClosed: if the connection is closed.
        """
        check_encoding(durable=durable, on_encode=on_encode)

        async def create() -> Sender:
            check_loop(self._loop)
            options = self._factory._core.options
            core = self._core.links.create_sender(
                address, name=name, capabilities=capabilities, configure=configure
            )
            await wait_opened(self._core, core, limit(timeout, options.call_timeout))
            encoder = MessageEncoder(
                core, duplicate_detection=options.duplicate_detection, durable=durable, hook=on_encode
            )
            return Sender(core, encoder, options, self)

        return Opening(create, "create_sender")

    def create_receiver(
        self,
        address: str | None,
        *,
        credit: int | None = None,
        selector: str | None = None,
        filters: Mapping[str, Any] | None = None,
        capabilities: Sequence[str] = (),
        strict: bool = True,
        name: str | None = None,
        dynamic: bool = False,
        browse: bool = False,
        confirm: bool = False,
        timeout: float | None = None,
        configure: Callable[[proton.Receiver], None] | None = None,
    ) -> Opening[Receiver]:
        """Create a receiver from a node.

        :param credit: messages that may be in flight or waiting here; the URL's by default.  With 0 the
            primary sends only the messages that ``Receiver.add_credit`` asks for, and no credit is renewed.
        :param selector: selects the messages, as in JMS (``"colour = 'red' AND size > 2"``).
        :param filters: other filters, by name; a value that is not ``proton.Described`` is described by its
            name.
        :param capabilities: capabilities of the source, such as ``"queue"`` or ``"topic"``.
        :param strict: ``FilterNotSupported`` if the primary does not apply a filter; after a failover this
            closes the receiver.  With ``False`` the receiver stays and gets the unfiltered messages, too.
        :param name: the link name; generated by default.
        :param dynamic: let the primary make a temporary node; ``Receiver.address`` names it, and changes with
            a failover.
        :param browse: read copies of the messages and leave them in the queue.
        :param confirm: have the primary confirm accepted deliveries, for ``Delivery.accept(confirm=True)``.
        :param timeout: seconds; the URL's ``call_timeout`` by default, ``math.inf`` for no limit.
        :param configure: called with proton's ``Receiver`` before each attach, for settings that have no
            argument here.
        :raises LinkRefused: if the primary refuses the link.
        :raises FilterNotSupported: if the primary ignores the selector or a filter.
        :raises ConfirmNotSupported: if the primary does not confirm accepted deliveries.
        :raises LinkTimeout: if the link is not attached in time.
        :raises ConnectionClosed: if the connection is closed.
        """
        create = partial(
            self._core.links.create_receiver,
            address,
            name=name,
            credit=credit,
            dynamic=dynamic,
            browse=browse,
            confirm=confirm,
            configure=configure,
            source=source_params(selector, filters, capabilities, strict=strict),
        )
        return self._open_receiver(create, timeout, "create_receiver")

    def subscribe(
        self,
        topic: str,
        *,
        name: str | None = None,
        durable: bool = False,
        shared: bool = False,
        credit: int | None = None,
        selector: str | None = None,
        filters: Mapping[str, Any] | None = None,
        capabilities: Sequence[str] = (),
        strict: bool = True,
        confirm: bool = False,
        timeout: float | None = None,
        configure: Callable[[proton.Receiver], None] | None = None,
    ) -> Opening[Receiver]:
        """Create a receiver of the messages to a topic, as in JMS.

        :param name: name of a durable or shared subscription, without ``|``.
        :param durable: keep the subscription when its receiver or the connection is closed, until
            ``unsubscribe``.  It belongs to the URL's ``client_id``.  Without a ``client_id`` it must be
            shared, and the primary must support shared subscriptions.
        :param shared: deliver each message to one of the receivers of that name.  These are the receivers of
            one ``client_id``; without it, or with the capability ``"global"``, of all clients.
        :param credit: as for ``create_receiver``; so are the parameters not listed here.
        :param strict: also refuse a primary that cannot share subscriptions.  A subscription that is
            ``durable``, too, is always refused there.
        :raises ValueError: if the name or the ``client_id`` is missing.
        :raises LinkRefused: if the primary refuses the link.
        :raises FilterNotSupported: if the primary ignores the selector or a filter.
        :raises ConfirmNotSupported: if the primary does not confirm accepted deliveries.
        :raises LinkTimeout: if the link is not attached in time.
        :raises ConnectionClosed: if the connection is closed.
        """
        create = partial(
            self._core.links.subscribe,
            topic,
            name=name,
            durable=durable,
            shared=shared,
            credit=credit,
            confirm=confirm,
            source=source_params(selector, filters, capabilities, strict=strict),
            configure=configure,
        )
        return self._open_receiver(create, timeout, "subscribe")

    async def unsubscribe(self, name: str, *, topic: str | None = None, timeout: float | None = None) -> None:
        """Remove a durable subscription, with the messages in it.  Requires that no receiver is attached.

        :param topic: topic of a subscription that all clients share (without ``client_id``): the primary
            finds it only by its topic.
        :param timeout: seconds; the URL's ``call_timeout`` by default, ``math.inf`` for no limit.
        :raises LinkRefused: if there is none of that name, or it may not be removed.
        :raises LinkTimeout: if it is not removed in time.
        :raises ConnectionClosed: if the connection is closed.
        """
        check_loop(self._loop)
        seconds = limit(timeout, self._factory._core.options.call_timeout)
        await unsubscribe(self._core, name, topic, seconds)

    def events(self) -> AsyncEvents:
        """An asynchronous iterator over the connection's events from now on.

        Keep a reference to it.  The iteration ends when the connection or the iterator is closed: by its
        ``close``, or as a context manager.
        """
        check_loop(self._loop)
        subscription = AsyncEvents(self._core.name, self, partial(check_loop, self._loop))
        self._factory._core.subscribe(subscription, self._core.number)
        return subscription

    async def close(self) -> None:
        """Close within a second in any state.  Waiting sends fail with ``ConnectionClosed``."""
        check_loop(self._loop)
        self._closed = True
        try:
            await self._core.close()
        finally:
            if self._own_factory:
                await self._factory.close()

    def _open_receiver(
        self, create: Callable[[], ReceiverCore], timeout: float | None, call: str
    ) -> Opening[Receiver]:
        call_timeout = self._factory._core.options.call_timeout

        async def open_receiver() -> Receiver:
            check_loop(self._loop)
            core = create()
            await wait_opened(self._core, core, limit(timeout, call_timeout))
            return Receiver(core, call_timeout, self)

        return Opening(open_receiver, call)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None and self._core.error is None:
                await flush(self._core.links, self._factory._core.options.call_timeout)
        finally:
            await self.close()

    def __repr__(self) -> str:
        return describe_connection("haclient.aio", self._core)

    def __del__(self) -> None:
        core = getattr(self, "_core", None)
        if core is None or self._closed or self._factory._closed or not is_ours(self._pid):
            return
        if core.state is State.FAILED:
            return
        self._factory._core.abandon(core.loop, None if self._own_factory else core)
        warn_unclosed(self)
