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
from collections.abc import AsyncIterator, Callable, Generator, Mapping
from types import TracebackType
from typing import Any, Self, Unpack

import proton

from haclient import configuration
from haclient.cluster_url.endpoint import Endpoint
from haclient.cluster_url.url import ClusterURL
from haclient.core.connection import ConnectionCore, State
from haclient.core.delivery import DeliveryCore
from haclient.core.ledger import Entry
from haclient.core.message_encoder import EncodeHook, MessageEncoder
from haclient.core.receiver import ReceiverCore
from haclient.core.sender import SenderCore
from haclient.discovery.topology import Topology
from haclient.errors import DeadlineExceeded, HaclientError, ReceiveTimeout, SendTimeout, another
from haclient.event_log import AsyncEvents
from haclient.factory import FactoryArguments, FactoryCore
from haclient.outcome import ACCEPTED, RELEASED, Outcome, OutcomeState
from haclient.send_futures import AsyncSendFuture
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

    Takes the arguments of ``factory.FactoryCore``.
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

    def connect(self) -> Connecting:
        """A new connection, when it is usable.

        :raises ConnectionGaveUp: when no primary is found in time.
        """
        return Connecting(self, own_factory=False)

    async def close(self) -> None:
        """Close every connection of the factory, and what they share."""
        await self._core.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class Connecting:
    """A pending connection: ``await`` it, or use it as an asynchronous context manager.

    The search begins, and ``ConnectionGaveUp`` is raised, when it is awaited or entered.
    """

    def __init__(self, factory: ConnectionFactory, *, own_factory: bool) -> None:
        self._factory = factory
        self._own_factory = own_factory
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
            await self._connection.close()

    async def _connect(self) -> Connection:
        core = self._factory._core.connection()
        connection = Connection(self._factory, core, own_factory=self._own_factory)
        try:
            await core.open()
        except BaseException:
            await connection.close()
            raise
        return connection


class Connection:
    """One connection to whichever member is primary."""

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
        configure: Callable[[proton.Sender], None] | None = None,
        on_encode: EncodeHook | None = None,
    ) -> Sender:
        """A sender to a node; ``None`` for the anonymous terminus, where each message's address decides.

        :param name: the link name; made up when left out.
        :param configure: called with proton's ``Sender`` before each attach, for what has no
            argument here.
        :param on_encode: called with each message before it is encoded, for entries that are added to
            what is sent; see ``core.message_encoder``.
        :raises LinkRefused: when the primary refuses it.
        :raises ConnectionClosed: when the connection is closed.
        """
        core = self._core.links.create_sender(address, name=name, configure=configure)
        await wait_opened(core)
        options = self._factory._core.options
        encoder = MessageEncoder(address, duplicate_detection=options.duplicate_detection, hook=on_encode)
        return Sender(core, encoder, options.send_timeout)

    async def create_receiver(
        self,
        address: str | None,
        *,
        credit: int | None = None,
        name: str | None = None,
        dynamic: bool = False,
        browse: bool = False,
        configure: Callable[[proton.Receiver], None] | None = None,
    ) -> Receiver:
        """A receiver from a node.

        :param credit: messages that may be in flight or waiting here; the URL's by default.
        :param dynamic: let the primary make a temporary node; ``Receiver.address`` names it, and
            it is another one after a failover.
        :param browse: look at copies of the messages and leave them where they are.
        :raises LinkRefused: when the primary refuses it.
        :raises ConnectionClosed: when the connection is closed.
        """
        core = self._core.links.create_receiver(
            address, name=name, credit=credit, dynamic=dynamic, browse=browse, configure=configure
        )
        await wait_opened(core)
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

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class Sender:
    """Sends messages to one node, across failovers."""

    def __init__(self, core: SenderCore, encoder: MessageEncoder, timeout: float | None) -> None:
        self._core = core
        self._timeout = timeout
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

    async def send(self, message: proton.Message, *, timeout: float | None = None) -> Outcome:
        """Send and wait until the primary has settled it, across failovers.

        :param timeout: seconds; the URL's ``send_timeout`` by default, which is none.
        :raises MessageNotAccepted: with the outcome, when the broker did not accept it.
        :raises SendTimeout: ``delivered`` says whether it may have arrived.
        :raises DeliveryUnknown: at most once only, when the connection was lost before the outcome.
        :raises ConnectionClosed, LinkClosed: when there is nothing to send on any more.
        """
        core, data = self._core, self._encode(message)
        seconds = self._timeout if timeout is None else timeout
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
            delivered = core.withdraw(entry) if entry is not None else False
            msg = f"the primary did not settle the message within {seconds} s"
            raise SendTimeout(msg, delivered=delivered) from None
        except asyncio.CancelledError:
            if entry is not None:
                core.withdraw(entry)
            raise

    async def send_nowait(
        self,
        message: proton.Message,
        *,
        timeout: float | None = None,
    ) -> asyncio.Future[Outcome]:
        """Send without waiting for the outcome, which the returned future will hold.

        Waits only while the window is full.  The future raises what ``send`` would raise;
        cancelling it withdraws a message that has not been sent yet.

        :raises SendTimeout: when the window stayed full.
        """
        core = self._core
        data = self._encode(message)
        if core.ledger.full:
            await self._wait_window(self._timeout if timeout is None else timeout)
        future = AsyncSendFuture(loop=self._loop)
        future.core, future.entry = core, core.submit(data, future)
        return future

    async def flush(self, *, timeout: float | None = None) -> None:
        """Wait until everything sent so far is settled.

        :raises SendTimeout: when it is not, in time.
        """
        try:
            async with asyncio.timeout(timeout):
                await self._core.flush()
        except DeadlineExceeded:
            raise
        except TimeoutError:
            msg = f"{len(self._core.ledger)} messages are not settled after {timeout} s"
            raise SendTimeout(msg, delivered=None) from None

    async def close(self) -> None:
        """Close the link.  Sends that wait fail with ``LinkClosed``."""
        self._core.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _wait_window(self, seconds: float | None) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._core.wait_window()
        except DeadlineExceeded:
            raise
        except TimeoutError:
            msg = f"the window of {self._core.ledger.window} messages stayed full for {seconds} s"
            raise SendTimeout(msg, delivered=False) from None


class Receiver:
    """Receives messages from one node, across failovers; an asynchronous iterator of deliveries.

    The iteration ends when the application closes the receiver or its connection.
    """

    def __init__(self, core: ReceiverCore) -> None:
        self._core = core

    @property
    def address(self) -> str | None:
        """The node it receives from; a dynamic one changes with a failover."""
        return self._core.address

    async def receive(self, *, timeout: float | None = None) -> Delivery:
        """Wait for the next delivery.

        :param timeout: seconds; none waits for ever.
        :raises ReceiveTimeout: when none arrived in time.
        :raises LinkClosed, ConnectionClosed: when none can arrive any more.
        """
        core = self._core
        if not core.inbox:
            try:
                async with asyncio.timeout(timeout):
                    await core.wait_message()
            except DeadlineExceeded:
                raise
            except TimeoutError:
                msg = f"no message arrived within {timeout} s"
                raise ReceiveTimeout(msg) from None
        delivery = core.inbox.popleft()
        core.replenish_credit(1, delivery.session_number)
        return Delivery(delivery)

    async def close(self) -> None:
        """Close the link.  What was prefetched goes back to the queue."""
        self._core.close()

    def __aiter__(self) -> AsyncIterator[Delivery]:
        return self

    async def __anext__(self) -> Delivery:
        try:
            return await self.receive()
        except HaclientError:
            if self._core.closed_here:
                raise StopAsyncIteration from None
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class Delivery:
    """One received message.  Settle it once, with one of the four outcomes.

    Each of them raises ``StaleDelivery`` when the connection that delivered it is lost,
    and ``AlreadySettled`` the second time.
    """

    __slots__ = ("_core",)

    def __init__(self, core: DeliveryCore) -> None:
        self._core = core

    @property
    def message(self) -> proton.Message:
        """The message."""
        return self._core.message

    @property
    def data(self) -> bytes:
        """The message as received, encoded."""
        return self._core.data

    @property
    def settled(self) -> bool:
        """Whether it was settled here."""
        return self._core.settled

    async def accept(self) -> None:
        """Done: the broker may forget the message."""
        self._settle(ACCEPTED)

    async def reject(self, condition: str | None = None, description: str | None = None) -> None:
        """The message is at fault; the broker must not deliver it as it is."""
        self._settle(Outcome(OutcomeState.REJECTED, condition, description))

    async def release(self) -> None:
        """Give it back, as if it had not been delivered."""
        self._settle(RELEASED)

    async def modify(self, *, delivery_failed: bool = True, undeliverable_here: bool = False) -> None:
        """Give it back, counted as a failed delivery, or never to be delivered here again."""
        self._settle(
            Outcome(
                OutcomeState.MODIFIED, delivery_failed=delivery_failed, undeliverable_here=undeliverable_here
            )
        )

    def _settle(self, outcome: Outcome) -> None:
        self._core.mark_settled()
        self._core.settle(outcome)


async def wait_opened(core: SenderCore | ReceiverCore) -> None:
    """Wait until a link is attached; a cancelled wait closes it."""
    try:
        if not core.opened.done():
            await asyncio.wait([core.opened])
    except asyncio.CancelledError:
        core.close()
        raise
    if isinstance(error := core.opened.exception(), HaclientError):
        raise another(error)


def _known_outcome(entry: Entry[Any], future: asyncio.Future[Outcome]) -> Outcome | None:
    """The outcome that arrived before the call that waits for it could return; raises what it would raise."""
    if future.done() and not future.cancelled():
        return future.result()
    if isinstance(entry.late_outcome, BaseException):
        raise entry.late_outcome
    return entry.late_outcome
