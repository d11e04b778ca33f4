"""The blocking API: a shell over the cores of the asyncio API, which run on a loop thread.

    with haclient.connect("amqp://broker-a,broker-b") as connection:
        sender = connection.create_sender("orders")
        sender.send(Message(body="one"))

Names, parameters and meanings are the same as in ``haclient.aio``; tests compare both and run over both.

Different on purpose
--------------------
* A call waits where the asyncio API is awaited; ``connect`` returns a usable connection.
* Connections, senders and receivers are thread-safe.  A call on haclient's own thread, or after a fork,
  raises ``WrongThread`` (``loop_thread``).
* Messages are encoded and decoded on the calling thread.  This costs the loop thread no time, and ``send``
  raises the errors of encoding.
* Sends and settlements are posted to the loop thread in batches.  ``unsettled`` includes posted messages, and
  ``submit`` returns a ``concurrent.futures.Future``.
* An interrupt (``KeyboardInterrupt``) withdraws the same messages as a cancellation in the asyncio API.
"""

from __future__ import annotations

import haclient.engine  # noqa: F401 - names what a broken proton lacks

# isort: split
import contextlib
import os
import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

import proton

from haclient.api.bases import BaseConnection, BaseFactory
from haclient.api.blocking_receiver import Delivery, Receiver
from haclient.api.blocking_sender import Sender
from haclient.api.deadlines import flush, limit, wait_opened
from haclient.api.descriptions import describe_connection, describe_factory
from haclient.api.receiving import unsubscribe
from haclient.api.unclosed import is_ours, warn_unclosed
from haclient.cluster_url.option_types import OptionArguments
from haclient.cluster_url.url_list import URLArgument
from haclient.core.attach.source import source_params
from haclient.core.connection import ConnectionCore, State
from haclient.core.message_encoder import EncodeHook, MessageEncoder, check_encoding
from haclient.core.receiver import ReceiverCore
from haclient.core.sender import SenderCore
from haclient.errors import ConnectionClosed
from haclient.events.event_log import BlockingEvents
from haclient.factory.connect_params import CredentialsProvider, GivenCredentials
from haclient.factory.factory_core import FactoryCore, check_one_timeout
from haclient.factory.loop_thread import LoopThread
from haclient.telemetry.settings import TelemetrySettings
from haclient.telemetry.sink import EventCallback, Sink

L = TypeVar("L", SenderCore, ReceiverCore)

__all__ = ["Connection", "ConnectionFactory", "Delivery", "Receiver", "Sender", "connect"]


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
) -> Connection:
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
    try:
        connection = factory.connect(timeout=timeout)
    except BaseException:
        factory.close()
        raise
    connection._own_factory = factory._of_connection = True
    return connection


class ConnectionFactory(BaseFactory):
    """Makes connections to one cluster that share their knowledge of it.

    Takes the arguments of ``connect``, except ``timeout``, which the method ``connect`` has.  As a context
    manager it flushes and closes all its connections.
    """

    # ``__slots__`` is for tracemalloc: in Python 3.11 it does not know where an object with a dictionary was
    # made.
    __slots__ = ("__weakref__", "_closed", "_of_connection", "_thread")

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
        self._thread = LoopThread(self._core.close_if_open)
        self._closed = self._of_connection = False  # closed by the application

    def connect(self, *, timeout: float | None = None) -> Connection:
        """Open a new connection, and return it when it is usable.

        :param timeout: seconds; the URL's ``startup_deadline`` by default, ``math.inf`` for no limit.
        :raises ConnectionGaveUp: if no primary is found in time.
        """
        return Connection(self, self._thread.call(self._core.open_connection(timeout=timeout)))

    def close(self) -> None:
        """Close every connection of the factory, and their shared state."""
        self._closed = True
        if not self._thread.started and not self._thread.stop():
            self._core.close_unused()
            return
        try:
            self._thread.call(self._core.close())
        except ConnectionClosed:
            return
        self._thread.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None and not self._core.closed and self._thread.started:
                self._thread.call(flush(self._core, self._core.options.call_timeout))
        finally:
            self.close()

    def __repr__(self) -> str:
        return describe_factory("haclient", getattr(self, "_core", None))

    def __del__(self) -> None:
        core = getattr(self, "_core", None)
        if core is None or not core.used or self._closed or self._of_connection or not is_ours(core.pid):
            return  # resources end with the thread
        warn_unclosed(self)


class Connection(BaseConnection):
    """One connection, always to the current primary.

    As a context manager it flushes its senders at the end of the block, all within one ``call_timeout``, and
    closes.  After an exception or a cancellation it only closes.
    """

    __slots__ = ("__weakref__", "_closed", "_factory", "_own_factory", "_pid", "_thread")

    def __init__(self, factory: ConnectionFactory, core: ConnectionCore) -> None:
        self._factory = factory
        self._thread = factory._thread
        self._core = core
        self._own_factory = False
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
    ) -> Sender:
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
        options, links = self._factory._core.options, self._core.links
        create = partial(
            links.create_sender, address, name=name, capabilities=capabilities, configure=configure
        )
        core = self._create(create, timeout)
        encoder = MessageEncoder(
            core, duplicate_detection=options.duplicate_detection, durable=durable, hook=on_encode
        )
        return Sender(self._thread, core, encoder, options, self)

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
    ) -> Receiver:
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
        return self._open_receiver(create, timeout)

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
    ) -> Receiver:
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
        return self._open_receiver(create, timeout)

    def unsubscribe(self, name: str, *, topic: str | None = None, timeout: float | None = None) -> None:
        """Remove a durable subscription, with the messages in it.  Requires that no receiver is attached.

        :param topic: topic of a subscription that all clients share (without ``client_id``): the primary
            finds it only by its topic.
        :param timeout: seconds; the URL's ``call_timeout`` by default, ``math.inf`` for no limit.
        :raises LinkRefused: if there is none of that name, or it may not be removed.
        :raises LinkTimeout: if it is not removed in time.
        :raises ConnectionClosed: if the connection is closed.
        """
        seconds = limit(timeout, self._factory._core.options.call_timeout)
        self._thread.call(unsubscribe(self._core, name, topic, seconds))

    def events(self) -> BlockingEvents:
        """An iterator over the connection's events from now on.

        Keep a reference to it.  The iteration ends when the connection or the iterator is closed: by its
        ``close``, or as a context manager.
        """
        subscription = BlockingEvents(self._core.name, self)
        self._thread.post(self._factory._core.subscribe, subscription, self._core.number)
        return subscription

    def close(self) -> None:
        """Close within a second in any state.  Waiting sends fail with ``ConnectionClosed``."""
        self._closed = True
        try:
            self._thread.call(self._core.close())
        except ConnectionClosed:
            return
        finally:  # also after an interrupt, which has closed the socket
            if self._own_factory:
                self._factory.close()

    def _open_receiver(self, create: Callable[[], ReceiverCore], timeout: float | None) -> Receiver:
        return Receiver(
            self._thread, self._create(create, timeout), self._factory._core.options.call_timeout, self
        )

    def _create(self, create: Callable[[], L], timeout: float | None) -> L:
        seconds = limit(timeout, self._factory._core.options.call_timeout)
        created: list[L] = []

        async def attach() -> None:
            created.append(create())
            await wait_opened(self._core, created[0], seconds)

        try:
            self._thread.call(attach())
        except BaseException:
            # An interrupt may arrive after the link is attached.
            with contextlib.suppress(ConnectionClosed):
                for core in created:
                    self._thread.post(core.close)
            raise
        return created[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None and self._core.error is None:
                self._thread.call(flush(self._core.links, self._factory._core.options.call_timeout))
        except ConnectionClosed:  # the process ends, which a thread that only receives can ignore
            if self._core.links.unsettled:
                raise
        finally:
            self.close()

    def __repr__(self) -> str:
        return describe_connection("haclient", self._core)

    def __del__(self) -> None:
        core = getattr(self, "_core", None)
        if core is None or self._closed or self._factory._closed or not is_ours(self._pid):
            return
        if core.state is State.FAILED:
            return
        self._factory._core.abandon(core.loop, None if self._own_factory else core)
        warn_unclosed(self)
