"""The asyncio API.

    async with haclient.aio.connect("amqp://broker-a,broker-b") as connection:
        sender = await connection.create_sender("orders")
        await sender.send(Message(body="one"))

Everything belongs to the event loop it was made on.  A call that is cancelled leaves nothing
half-done.  The blocking API (``haclient.blocking``) has the same names and meanings.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Generator, Mapping
from types import TracebackType
from typing import Any, Self, Unpack

import proton

from haclient import configuration
from haclient.api.asyncio_receiver import Delivery, Receiver
from haclient.api.deadlines import flush, limit, not_settled, wait_opened, window_full
from haclient.api.send_futures import AsyncSendFuture
from haclient.cluster_url.endpoint import Endpoint
from haclient.cluster_url.options import Options
from haclient.cluster_url.url import ClusterURL
from haclient.core.connection import ConnectionCore, State
from haclient.core.ledger import Entry
from haclient.core.message_encoder import EncodeHook, MessageEncoder
from haclient.core.sender import SenderCore
from haclient.discovery.topology import Topology
from haclient.engine.codec import duplicate_id_of
from haclient.errors import DeadlineExceeded
from haclient.event_log import AsyncEvents
from haclient.factory import FactoryArguments, FactoryCore
from haclient.outcome import Outcome
from haclient.telemetry.redact import Redactor

__all__ = ["Connection", "ConnectionFactory", "Delivery", "Receiver", "Sender", "connect"]


def connect(url: str | ClusterURL, **arguments: Unpack[FactoryArguments]) -> Connecting:
    """Connect with a factory of its own, which closes with the connection.

    :param url: a cluster URL.
    :param arguments: those of ``ConnectionFactory``: URL options by name, ``credentials``,
        ``ssl_context``, ``on_event``.
    :raises ClusterURLError: when the URL or an option is wrong.
    :raises ConnectionGaveUp: when no primary is found in time.
    """
    return Connecting(ConnectionFactory(url, **arguments), own_factory=True)


class ConnectionFactory:
    """Makes connections to one cluster that share what they know about it.

    Takes the arguments of ``factory.FactoryCore``.  As a context manager it flushes and closes all of them,
    as a connection does.
    """

    def __init__(self, url: str | ClusterURL, **arguments: Unpack[FactoryArguments]) -> None:
        self._core = FactoryCore(url, **arguments)

    @classmethod
    def from_env(
        cls, environ: Mapping[str, str] | None = None, **arguments: Unpack[FactoryArguments]
    ) -> Self:
        """A factory by the variables ``HACLIENT_URL``, ``HACLIENT_USER`` and so on; see ``configuration``.

        :param environ: the variables; ``None`` for those of the process.
        :param arguments: those of ``ConnectionFactory``, which win.
        :raises ConfigurationError: for a variable that is unknown, missing or wrong.
        """
        return configuration.from_env(environ).make(cls, arguments)

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any], **arguments: Unpack[FactoryArguments]) -> Self:
        """A factory by the keys ``url``, ``user`` and so on; see ``configuration``."""
        return configuration.from_mapping(mapping).make(cls, arguments)

    @classmethod
    def from_file(
        cls, path: str | os.PathLike[str] | None = None, **arguments: Unpack[FactoryArguments]
    ) -> Self:
        """A factory by a TOML or JSON file, by default proton's ``connect.json``; see ``configuration``."""
        return configuration.from_file(path).make(cls, arguments)

    @property
    def topology(self) -> Topology | None:
        """What is known about the cluster; ``None`` before the first connect."""
        return self._core.topology

    @property
    def client_id(self) -> str:
        """The container id of its connections."""
        return self._core.client_id

    @property
    def redactor(self) -> Redactor:
        """Knows the credentials in use, for observers that write hosts or errors somewhere."""
        return self._core.redactor

    def connect(self, *, timeout: float | None = None) -> Connecting:
        """A new connection, when it is usable.

        :param timeout: seconds; the URL's ``startup_deadline`` by default, ``math.inf`` for no limit.
        :raises ConnectionGaveUp: when no primary is found in time.
        """
        return Connecting(self, own_factory=False, timeout=timeout)

    async def close(self) -> None:
        """Close every connection of the factory, and what they share."""
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


class Connecting:
    """A pending connection: ``await`` it, or use it as an asynchronous context manager.

    The search begins, and ``ConnectionGaveUp`` is raised, when it is awaited or entered.
    """

    def __init__(
        self, factory: ConnectionFactory, *, own_factory: bool, timeout: float | None = None
    ) -> None:
        self._factory = factory
        self._own_factory = own_factory
        self._timeout = timeout
        self._connection: Connection | None = None

    def __await__(self) -> Generator[Any, None, Connection]:
        return self._connect().__await__()

    async def __aenter__(self) -> Connection:
        self._connection = await self._connect()
        return self._connection

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._connection is not None:
            await self._connection.__aexit__(kind, error, trace)

    async def _connect(self) -> Connection:
        core = self._factory._core.connection(timeout=self._timeout)
        connection = Connection(self._factory, core, own_factory=self._own_factory)
        try:
            await core.open()
        except BaseException:
            await connection.close()
            raise
        return connection


class Connection:
    """One connection to whichever member is primary.

    As a context manager it flushes its senders at the end of the block, all within one ``call_timeout``, and
    closes; after an exception or a cancellation it only closes.
    """

    def __init__(self, factory: ConnectionFactory, core: ConnectionCore, *, own_factory: bool) -> None:
        self._factory = factory
        self._core = core
        self._own_factory = own_factory

    @property
    def factory(self) -> ConnectionFactory:
        """The factory that made it."""
        return self._factory

    @property
    def state(self) -> State:
        """Connecting, connected, reconnecting, closed or failed."""
        return self._core.state

    @property
    def endpoint(self) -> Endpoint | None:
        """The member it is, or was last, connected to."""
        return self._core.endpoint

    @property
    def generation(self) -> int | None:
        """The generation of that member, if it announces one; after parking, its first Attach does."""
        return self._core.generation

    async def create_sender(
        self,
        address: str | None,
        *,
        name: str | None = None,
        durable: bool = True,
        timeout: float | None = None,
        configure: Callable[[proton.Sender], None] | None = None,
        on_encode: EncodeHook | None = None,
    ) -> Sender:
        """A sender to a node; ``None`` for the anonymous terminus, where each message's address decides.

        :param name: the link name; made up when left out.
        :param durable: whether its messages outlive a restart of the broker, unless ``send`` says otherwise;
            ``Message.durable`` has no say.
        :param configure: called with proton's ``Sender`` before each attach, for what has no
            argument here.
        :param on_encode: called with each message before it is encoded, for entries that are added to
            what is sent; see ``core.message_encoder``.
        :param timeout: seconds; the URL's ``call_timeout`` by default, ``math.inf`` for no limit.
        :raises LinkRefused: when the primary refuses it.
        :raises LinkTimeout: when it is not attached in time.
        :raises ConnectionClosed: when the connection is closed.
        """
        options = self._factory._core.options
        core = self._core.links.create_sender(address, name=name, configure=configure)
        await wait_opened(self._core, core, limit(timeout, options.call_timeout))
        encoder = MessageEncoder(
            core, duplicate_detection=options.duplicate_detection, durable=durable, hook=on_encode
        )
        return Sender(core, encoder, options)

    async def create_receiver(
        self,
        address: str | None,
        *,
        credit: int | None = None,
        name: str | None = None,
        dynamic: bool = False,
        browse: bool = False,
        timeout: float | None = None,
        configure: Callable[[proton.Receiver], None] | None = None,
    ) -> Receiver:
        """A receiver from a node.

        :param credit: messages that may be in flight or waiting here; the URL's by default.
        :param dynamic: let the primary make a temporary node; ``Receiver.address`` names it, and
            it is another one after a failover.
        :param browse: look at copies of the messages and leave them where they are.
        :param timeout: seconds; the URL's ``call_timeout`` by default, ``math.inf`` for no limit.
        :raises LinkRefused: when the primary refuses it.
        :raises LinkTimeout: when it is not attached in time.
        :raises ConnectionClosed: when the connection is closed.
        """
        core = self._core.links.create_receiver(
            address, name=name, credit=credit, dynamic=dynamic, browse=browse, configure=configure
        )
        await wait_opened(self._core, core, limit(timeout, self._factory._core.options.call_timeout))
        return Receiver(core)

    def events(self) -> AsyncEvents:
        """An asynchronous iterator over the events of the connection from now on, as long as it is kept."""
        subscription = AsyncEvents()
        self._factory._core.subscribe(subscription, self._core.number)
        return subscription

    async def close(self) -> None:
        """Close, within a second in every state.  Sends that wait fail with ``ConnectionClosed``."""
        await self._core.close()
        if self._own_factory:
            await self._factory.close()

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


class Sender:
    """Sends messages to one node, across failovers.

    As a context manager it flushes at the end of the block, and closes; after an exception or a cancellation
    it only closes.
    """

    def __init__(self, core: SenderCore, encoder: MessageEncoder, options: Options) -> None:
        self._core = core
        self._timeout = options.send_timeout
        self._call_timeout = options.call_timeout
        self._loop = asyncio.get_running_loop()
        self._encode = encoder.encode

    @property
    def address(self) -> str | None:
        """The node it sends to."""
        return self._core.address

    @property
    def unsettled(self) -> int:
        """Messages sent and not settled yet."""
        return len(self._core.ledger)

    async def send(
        self,
        message: proton.Message,
        *,
        timeout: float | None = None,
        durable: bool | None = None,
        duplicate_id: str | bytes | None = None,
    ) -> Outcome:
        """Send and wait until the primary has settled it, across failovers.

        :param timeout: seconds; the URL's ``send_timeout`` by default, which is none, as ``math.inf`` is.
        :param durable: whether the message outlives a restart of the broker; ``create_sender``'s by default.
        :param duplicate_id: that of an earlier send, which this one repeats (``SendTimeout`` has it): a
            broker with duplicate detection stores one message.  Made up when left out.
        :raises MessageNotAccepted: with the outcome, when the broker did not accept it.
        :raises SendTimeout: ``delivered`` says whether it may have arrived.
        :raises DeliveryUnknown: at most once only, when the connection was lost before the outcome.
        :raises ConnectionClosed, LinkClosed: when there is nothing to send on any more.
        """
        core, data = self._core, self._encode(message, duplicate_id, durable=durable)
        seconds = self._timeout if timeout is None else limit(timeout)
        entry = None
        try:
            async with asyncio.timeout(seconds):
                if core.ledger.full:
                    await core.wait_window()
                future: asyncio.Future[Outcome] = self._loop.create_future()
                entry = core.submit(data, future)
                return await future
        except DeadlineExceeded:
            raise
        except TimeoutError:
            if entry is not None and (outcome := _known_outcome(entry, future)) is not None:
                return outcome
            if entry is None:
                raise not_settled(core, seconds, delivered=False, duplicate_id=duplicate_id) from None
            delivered, sent_with = core.withdraw(entry), duplicate_id_of(data)
            raise not_settled(core, seconds, delivered=delivered, duplicate_id=sent_with) from None
        except asyncio.CancelledError:
            if entry is not None:
                core.withdraw(entry)
            raise

    async def send_nowait(
        self,
        message: proton.Message,
        *,
        timeout: float | None = None,
        durable: bool | None = None,
        duplicate_id: str | bytes | None = None,
    ) -> asyncio.Future[Outcome]:
        """Send without waiting for the outcome, which the returned future will hold.

        Waits only while the window is full.  The future raises what ``send`` would raise;
        cancelling it withdraws a message that has not been sent yet.

        :param timeout, durable, duplicate_id: as for ``send``.
        :raises SendTimeout: when the window stayed full.
        """
        core = self._core
        data = self._encode(message, duplicate_id, durable=durable)
        if core.ledger.full:
            await self._wait_window(limit(timeout, self._timeout), duplicate_id)
        future = AsyncSendFuture(loop=self._loop)
        future.core, future.entry = core, core.submit(data, future)
        return future

    async def flush(self, *, timeout: float | None = None) -> None:
        """Wait until everything sent before is settled; what is sent meanwhile is not waited for.

        The outcome of each message is in its future, or was raised by its ``send``.

        :param timeout: seconds; the URL's ``call_timeout`` by default, ``math.inf`` for no limit.
        :raises SendTimeout: when it is not, in time.
        :raises ConnectionGaveUp, ConnectionClosed, LinkClosed: when the sender ended, with messages among it.
        """
        await flush(self._core, limit(timeout, self._call_timeout))

    async def close(self) -> None:
        """Close the link, without waiting for anything.  Sends that wait fail with ``LinkClosed``."""
        self._core.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None and self._core.error is None:
                await self.flush()
        finally:
            await self.close()

    async def _wait_window(self, seconds: float | None, duplicate_id: str | bytes | None) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._core.wait_window()
        except DeadlineExceeded:
            raise
        except TimeoutError:
            raise window_full(self._core, seconds, duplicate_id) from None


def _known_outcome(entry: Entry[Any], future: asyncio.Future[Outcome]) -> Outcome | None:
    """The outcome that arrived before the call that waits for it could return; raises what it would raise."""
    if future.done() and not future.cancelled():
        return future.result()
    if isinstance(entry.late_outcome, BaseException):
        raise entry.late_outcome
    return entry.late_outcome
