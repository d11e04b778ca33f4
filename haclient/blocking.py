"""The blocking API: a shell over the same cores as the asyncio one, on a loop thread.

    with haclient.connect("amqp://broker-a,broker-b") as connection:
        sender = connection.create_sender("orders")
        sender.send(Message(body="one"))

Names, parameters and meanings are those of ``haclient.aio``; tests compare both and run over both.

Different on purpose
--------------------
* A call waits where the asyncio API is awaited; ``connect`` returns a usable connection.
* Connections, senders and receivers may be used by several threads.  A call on haclient's own thread, or
  after a fork, raises ``WrongThread`` (``loop_thread``).
* Messages are encoded and decoded on the calling thread, which costs the loop thread no time and raises
  the errors of encoding where ``send`` is called.
* Sends and settlements are posted to the loop thread and cross to it in batches: ``unsettled`` counts what
  is posted, and ``submit`` returns a ``concurrent.futures.Future``.
* An interrupt (``KeyboardInterrupt``) withdraws what a cancellation withdraws in the asyncio API.
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
    """Connect with a factory of its own, which closes with the connection.

    :param url: a cluster URL such as ``amqp://host:port,host:port``, or a list of URLs, which means the same.
    :param user: wins over the credentials of the URL, together with ``password``.
    :param credentials: the same as a pair, or a function (plain or ``async``) that returns one.  The client
        calls it before each attempt, and raises here what it raises at the first connect; at an ``OSError``,
        and after the first connect, the client calls it again.
    :param timeout: seconds; the URL's ``startup_deadline`` by default, ``math.inf`` for no limit.
    :param ssl_context: replaces the ``tls_*`` options; not for SASL EXTERNAL.
    :param desired_capabilities: what to ask of the peer in Open.
    :param on_event: called with each event, on a thread of its own; a sink (``telemetry.sink``), or several.
    :param telemetry: a directory, or settings; empty for off.
    :param options: any URL option by its name; they override the URL.
    :raises ClusterURLError: when the URL or an option is wrong, and for two arguments that set the same.
    :raises TypeError: for an argument of a type that it cannot have.
    :raises ConnectionGaveUp: when no primary is found in time.
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
    """Makes connections to one cluster that share what they know about it.

    Takes the arguments of ``connect``, but for ``timeout``, which its own ``connect`` has.  As a context
    manager it flushes and closes all of them, as a connection does.
    """

    # Not for memory: tracemalloc of Python 3.11 does not know where an object with a dictionary was made.
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
        """A new connection, when it is usable.

        :param timeout: seconds; the URL's ``startup_deadline`` by default, ``math.inf`` for no limit.
        :raises ConnectionGaveUp: when no primary is found in time.
        """
        return Connection(self, self._thread.call(self._core.open_connection(timeout=timeout)))

    def close(self) -> None:
        """Close every connection of the factory, and what they share."""
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
            return  # what it holds goes with its thread
        warn_unclosed(self)


class Connection(BaseConnection):
    """One connection to whichever member is primary.

    As a context manager it flushes its senders at the end of the block, all within one ``call_timeout``, and
    closes; after an exception or a cancellation it only closes.
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
        """The factory that made it."""
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
        """A sender to a node; ``None`` for the anonymous terminus, where each message's address decides.

        :param name: the link name; made up when left out.
        :param durable: whether its messages survive a failover, unless ``send`` says otherwise;
            ``Message.durable`` has no say.
        :param capabilities: those of the target, such as ``"queue"`` or ``"topic"``: what kind of node a
            broker makes that makes nodes on demand.  Artemis makes a topic of an unknown address without
            one, and accepts messages that nobody gets: docs/brokers.md.
        :param configure: called with proton's ``Sender`` before each attach, for what has no
            argument here.
        :param on_encode: called with each message before it is encoded, for entries that are added to
            what is sent; see ``core.message_encoder``.
        :param timeout: seconds; the URL's ``call_timeout`` by default, ``math.inf`` for no limit.
        :raises LinkRefused: when the primary refuses it.
        :raises LinkTimeout: when it is not attached in time.
        :raises ConnectionClosed: when the connection is closed.
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
        """A receiver from a node.

        :param credit: messages that may be in flight or waiting here; the URL's by default.  With 0 none
            comes but those that ``Receiver.add_credit`` asks for: nothing is refilled.
        :param selector: which messages it gets, as in JMS (``"colour = 'red' AND size > 2"``).
        :param filters: others, by name; a value that is not ``proton.Described`` is described by its name.
        :param capabilities: those of the source, such as ``"queue"`` or ``"topic"``.
        :param strict: ``FilterNotSupported`` when the primary does not apply a filter; also after a failover,
            which closes the receiver then.  ``False`` goes on and gets the other messages, too.
        :param name: the link name; made up when left out.
        :param dynamic: let the primary make a temporary node; ``Receiver.address`` names it, and
            it is another one after a failover.
        :param browse: look at copies of the messages and leave them where they are.
        :param confirm: have the primary confirm what is accepted: for ``Delivery.accept(confirm=True)``.
        :param timeout: seconds; the URL's ``call_timeout`` by default, ``math.inf`` for no limit.
        :param configure: called with proton's ``Receiver`` before each attach, for what has no
            argument here.
        :raises LinkRefused: when the primary refuses it.
        :raises FilterNotSupported: when the primary ignores the selector or a filter.
        :raises ConfirmNotSupported: when the primary does not confirm what is accepted.
        :raises LinkTimeout: when it is not attached in time.
        :raises ConnectionClosed: when the connection is closed.
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
        """A receiver of the messages to a topic, as in JMS.

        :param name: of a durable or shared subscription, without ``|``.
        :param durable: the subscription stays when its receiver or the connection is closed, until
            ``unsubscribe``.  It belongs to the URL's ``client_id``; without one it must be shared, and the
            primary must be one that shares subscriptions.
        :param shared: each message goes to one of the receivers of that name: those of one ``client_id``, or,
            without it or with the capability ``"global"``, of all clients.
        :param credit: as for ``create_receiver``, and the same for all others.
        :param strict: also refuses a primary that cannot share subscriptions; one that is ``durable`` too is
            always refused there.
        :raises ValueError: when the name or the ``client_id`` is missing.
        :raises LinkRefused: when the primary refuses it.
        :raises FilterNotSupported: when the primary ignores the selector or a filter.
        :raises ConfirmNotSupported: when the primary does not confirm what is accepted.
        :raises LinkTimeout: when it is not attached in time.
        :raises ConnectionClosed: when the connection is closed.
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
        """Remove a durable subscription, with the messages in it.  It has no receiver any more.

        :param topic: of a shared subscription that all clients share (without ``client_id``): the primary
            finds it by its topic only.
        :param timeout: seconds; the URL's ``call_timeout`` by default, ``math.inf`` for no limit.
        :raises LinkRefused: when there is none of that name, or it may not be removed.
        :raises LinkTimeout: when it is not removed in time.
        :raises ConnectionClosed: when the connection is closed.
        """
        seconds = limit(timeout, self._factory._core.options.call_timeout)
        self._thread.call(unsubscribe(self._core, name, topic, seconds))

    def events(self) -> BlockingEvents:
        """An iterator over the events of the connection from now on, as long as it is kept.

        It ends when the connection is closed, or when it is closed itself: by its ``close``, or as a context
        manager.
        """
        subscription = BlockingEvents(self._core.name, self)
        self._thread.post(self._factory._core.subscribe, subscription, self._core.number)
        return subscription

    def close(self) -> None:
        """Close, within a second in every state.  Sends that wait fail with ``ConnectionClosed``."""
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
            # An interrupt may come when it is attached already.
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
        except ConnectionClosed:  # the process ends: a thread that only receives has nothing to hear of it
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
