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
  is posted, and ``send_nowait`` returns a ``concurrent.futures.Future``.
* An interrupt (``KeyboardInterrupt``) withdraws what a cancellation withdraws in the asyncio API.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from time import monotonic
from types import TracebackType
from typing import Any, Self, Unpack

import proton

from haclient import configuration
from haclient.aio import wait_opened
from haclient.cluster_url.endpoint import Endpoint
from haclient.cluster_url.url import ClusterURL
from haclient.core.connection import ConnectionCore, State
from haclient.core.delivery import DeliveryCore
from haclient.core.message_encoder import EncodeHook, MessageEncoder
from haclient.core.receiver import ReceiverCore
from haclient.core.sender import SenderCore
from haclient.discovery.topology import Topology
from haclient.errors import ConnectionClosed, DeadlineExceeded, HaclientError, ReceiveTimeout, SendTimeout
from haclient.event_log import BlockingEvents
from haclient.factory import FactoryArguments, FactoryCore
from haclient.loop_thread import LoopThread
from haclient.outcome import ACCEPTED, RELEASED, Outcome, OutcomeState
from haclient.send_futures import BlockingSendFuture
from haclient.telemetry.redact import Redactor

__all__ = ["Connection", "ConnectionFactory", "Delivery", "Receiver", "Sender", "connect"]


def connect(url: str | ClusterURL, **arguments: Unpack[FactoryArguments]) -> Connection:
    """Connect with a factory of its own, which closes with the connection.

    :param url: a cluster URL.
    :param arguments: those of ``ConnectionFactory``: URL options by name, ``credentials``,
        ``ssl_context``, ``on_event``.
    :raises ClusterURLError: when the URL or an option is wrong.
    :raises ConnectionGaveUp: when no primary is found in time.
    """
    factory = ConnectionFactory(url, **arguments)
    try:
        connection = factory.connect()
    except BaseException:
        factory.close()
        raise
    connection._own_factory = True
    return connection


class ConnectionFactory:
    """Makes connections to one cluster that share what they know about it.

    Takes the arguments of ``factory.FactoryCore``.
    """

    def __init__(self, url: str | ClusterURL, **arguments: Unpack[FactoryArguments]) -> None:
        self._core = FactoryCore(url, **arguments)
        self._thread = LoopThread()

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

    def connect(self) -> Connection:
        """A new connection, when it is usable.

        :raises ConnectionGaveUp: when no primary is found in time.
        """
        return Connection(self, self._thread.call(self._core.open_connection()))

    def close(self) -> None:
        """Close every connection of the factory, and what they share."""
        try:
            self._thread.call(self._core.close())
        except ConnectionClosed:
            return
        self._thread.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Connection:
    """One connection to whichever member is primary."""

    def __init__(self, factory: ConnectionFactory, core: ConnectionCore) -> None:
        self._factory = factory
        self._thread = factory._thread
        self._core = core
        self._own_factory = False

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

    def create_sender(
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

        async def create() -> SenderCore:
            core = self._core.links.create_sender(address, name=name, configure=configure)
            await wait_opened(core)
            return core

        options = self._factory._core.options
        core = self._thread.call(create())
        encoder = MessageEncoder(address, duplicate_detection=options.duplicate_detection, hook=on_encode)
        return Sender(self._thread, core, encoder, options.send_timeout)

    def create_receiver(
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

        async def create() -> ReceiverCore:
            core = self._core.links.create_receiver(
                address, name=name, credit=credit, dynamic=dynamic, browse=browse, configure=configure
            )
            await wait_opened(core)
            return core

        return Receiver(self._thread, self._thread.call(create()))

    def events(self) -> BlockingEvents:
        """An iterator over the events of the connection from now on, as long as it is kept."""
        subscription = BlockingEvents()
        self._thread.post(self._factory._core.subscribe, subscription, self._core.number)
        return subscription

    def close(self) -> None:
        """Close, within a second in every state.  Sends that wait fail with ``ConnectionClosed``."""
        try:
            self._thread.call(self._core.close())
        except ConnectionClosed:
            return
        if self._own_factory:
            self._factory.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Sender:
    """Sends messages to one node, across failovers."""

    def __init__(
        self, thread: LoopThread, core: SenderCore, encoder: MessageEncoder, timeout: float | None
    ) -> None:
        self._thread = thread
        self._core = core
        self._timeout = timeout
        self._encode = encoder.encode
        self._lock = threading.Lock()
        self._posted = 0
        self._submitted = 0

    @property
    def address(self) -> str | None:
        """The node it sends to."""
        return self._core.address

    @property
    def unsettled(self) -> int:
        """Messages sent and not settled yet."""
        return len(self._core.ledger) + self._posted - self._submitted

    def send(self, message: proton.Message, *, timeout: float | None = None) -> Outcome:
        """Send and wait until the primary has settled it, across failovers.

        :param timeout: seconds; the URL's ``send_timeout`` by default, which is none.
        :raises MessageNotAccepted: with the outcome, when the broker did not accept it.
        :raises SendTimeout: ``delivered`` says whether it may have arrived.
        :raises DeliveryUnknown: at most once only, when the connection was lost before the outcome.
        :raises ConnectionClosed, LinkClosed: when there is nothing to send on any more.
        """
        seconds = self._timeout if timeout is None else timeout
        future = self._post(message, seconds)
        try:
            return future.result(seconds)
        except TimeoutError:
            delivered = None if future.done() else self._thread.call(future.withdraw())
            if future.done():  # its outcome arrived after the wait, or it is a TimeoutError itself
                return future.result()
            msg = f"the primary did not settle the message within {seconds} s"
            raise SendTimeout(msg, delivered=delivered) from None
        except BaseException:
            if not future.done():
                self._thread.call(future.withdraw())
            raise

    def send_nowait(self, message: proton.Message, *, timeout: float | None = None) -> Future[Outcome]:
        """Send without waiting for the outcome, which the returned future will hold.

        Waits only while the window is full.  The future raises what ``send`` would raise;
        cancelling it withdraws a message that has not been sent yet.

        :raises SendTimeout: when the window stayed full.
        """
        return self._post(message, self._timeout if timeout is None else timeout)

    def flush(self, *, timeout: float | None = None) -> None:
        """Wait until everything sent so far is settled.

        :raises SendTimeout: when it is not, in time.
        """
        try:
            self._thread.call_within(timeout, self._core.flush)
        except DeadlineExceeded:
            raise
        except TimeoutError:
            msg = f"{self.unsettled} messages are not settled after {timeout} s"
            raise SendTimeout(msg, delivered=None) from None

    def close(self) -> None:
        """Close the link.  Sends that wait fail with ``LinkClosed``."""
        _close_link(self._thread, self._core)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _post(self, message: proton.Message, seconds: float | None) -> BlockingSendFuture:
        self._thread.check()
        if self.unsettled >= self._core.ledger.window:
            self._wait_window(seconds)
        future = BlockingSendFuture()
        future.core, future.thread = self._core, self._thread
        with self._lock:
            data = self._encode(message)
            self._posted += 1
            self._thread.post(self._submit, data, future)
        return future

    def _submit(self, data: bytes, future: BlockingSendFuture) -> None:
        self._submitted += 1
        future.submit(data)

    def _wait_window(self, seconds: float | None) -> None:
        try:
            self._thread.call_within(seconds, self._core.wait_window)
        except DeadlineExceeded:
            raise
        except TimeoutError:
            msg = f"the window of {self._core.ledger.window} messages stayed full for {seconds} s"
            raise SendTimeout(msg, delivered=False) from None


class Receiver:
    """Receives messages from one node, across failovers; an iterator of deliveries.

    The iteration ends when the application closes the receiver or its connection.
    """

    def __init__(self, thread: LoopThread, core: ReceiverCore) -> None:
        self._thread = thread
        self._core = core

    @property
    def address(self) -> str | None:
        """The node it receives from; a dynamic one changes with a failover."""
        return self._core.address

    def receive(self, *, timeout: float | None = None) -> Delivery:
        """Wait for the next delivery.

        :param timeout: seconds; none waits for ever.
        :raises ReceiveTimeout: when none arrived in time.
        :raises LinkClosed, ConnectionClosed: when none can arrive any more.
        """
        self._thread.check()
        try:
            delivery = self._core.inbox.popleft()
        except IndexError:
            delivery = self._wait_delivery(timeout)
        self._thread.post(self._core.replenish_credit, 1, delivery.session_number)
        return Delivery(self._thread, delivery)

    def close(self) -> None:
        """Close the link.  What was prefetched goes back to the queue."""
        _close_link(self._thread, self._core)

    def __iter__(self) -> Iterator[Delivery]:
        return self

    def __next__(self) -> Delivery:
        try:
            return self.receive()
        except HaclientError:
            if self._core.closed_here:
                raise StopIteration from None
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _wait_delivery(self, seconds: float | None) -> DeliveryCore:
        left, deadline = seconds, None if seconds is None else monotonic() + seconds
        while left is None or deadline is None or left >= 0:
            try:
                self._thread.call_within(left, self._core.wait_message)
                return self._core.inbox.popleft()
            except DeadlineExceeded:
                raise
            except TimeoutError:
                break
            except IndexError:  # another thread took it: the time goes on
                left = None if deadline is None else deadline - monotonic()
        msg = f"no message arrived within {seconds} s"
        raise ReceiveTimeout(msg)


class Delivery:
    """One received message.  Settle it once, with one of the four outcomes.

    Each of them raises ``StaleDelivery`` when the connection that delivered it is lost,
    and ``AlreadySettled`` the second time.
    """

    __slots__ = ("_core", "_thread")

    def __init__(self, thread: LoopThread, core: DeliveryCore) -> None:
        self._thread = thread
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

    def accept(self) -> None:
        """Done: the broker may forget the message."""
        self._settle(ACCEPTED)

    def reject(self, condition: str | None = None, description: str | None = None) -> None:
        """The message is at fault; the broker must not deliver it as it is."""
        self._settle(Outcome(OutcomeState.REJECTED, condition, description))

    def release(self) -> None:
        """Give it back, as if it had not been delivered."""
        self._settle(RELEASED)

    def modify(self, *, delivery_failed: bool = True, undeliverable_here: bool = False) -> None:
        """Give it back, counted as a failed delivery, or never to be delivered here again."""
        self._settle(
            Outcome(
                OutcomeState.MODIFIED, delivery_failed=delivery_failed, undeliverable_here=undeliverable_here
            )
        )

    def _settle(self, outcome: Outcome) -> None:
        self._core.mark_settled()
        self._thread.post(self._core.settle, outcome)


def _close_link(thread: LoopThread, core: SenderCore | ReceiverCore) -> None:
    async def close() -> None:
        core.close()

    try:
        thread.call(close())
    except ConnectionClosed:
        return
