"""``proton.utils`` with failover: programs written for it change one import line.

    from haclient.utils import BlockingConnection

Theory of operation
-------------------
The classes are proton's own, on ``haclient.reactor.Container``.  A call runs the container's event loop on
the caller's thread until its result is there.  So handlers are called, and raise, where proton calls them,
and no message crosses from one thread to another.  Between two calls a ``BackgroundLoop``
(``reactor.background_loop``) runs the loop from time to time on a thread of its own, without calling
handlers.  Heartbeats and failovers continue while the application computes.

Rules
-----
* Where proton raises because a connection was lost, these classes wait for the next one, as long as the
  call's timeout allows.  With ``reconnect=False`` they raise as proton does.
* If the application or the broker causes an error, these classes raise the same exceptions as proton, which
  are exported here.  Examples: a link refused or detached, a message rejected, a timeout.
* One lock separates the background loop and the application.  Several threads may use a connection, one call
  at a time.
* At a loss, a receiver drops the messages that it had fetched and not handed out: the broker sends them
  again.
"""

from __future__ import annotations

import haclient.engine  # noqa: F401 - names what a broken proton lacks

# isort: split
import weakref
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, cast

import proton
from proton import ConnectionException, Endpoint, Link, Message, SSLDomain, Timeout, Url
from proton import utils as proton_utils
from proton._utils import Fetcher as ProtonFetcher
from proton.handlers import FlowController
from proton.utils import ConnectionClosed, LinkDetached, SendException

from haclient.engine.amqp_values.decode import UndecodableMessage
from haclient.error_catalog.base import quoted
from haclient.errors import LinkClosed
from haclient.printable.text import printable
from haclient.reactor import Container
from haclient.reactor.background_loop import background_loop_of, release_loop, turn_until
from haclient.reactor.endpoints.binding import Binding
from haclient.reactor.endpoints.endpoint import Connection

__all__ = [
    "BlockingConnection",
    "BlockingReceiver",
    "BlockingSender",
    "ConnectionClosed",
    "LinkDetached",
    "SendException",
    "SyncRequestResponse",
]

_Timeout = float | Literal[False] | None
# Default of ``proton.utils.BlockingConnection``.
_DEFAULT_TIMEOUT = 60.0
# Seconds: a search that gives up knows the reason, and may report it before the waiting call times out.
_GRACE = 0.5
_CLOSED = "the connection is closed"


class _Fetcher(ProtonFetcher):
    """Keeps fetched messages until they are received, and also errors of messages that cannot be decoded.

    These messages count against ``prefetch``: proton replaces the credit of each as it arrives, so that a
    peer could fill the memory.
    """

    def __init__(self, connection: BlockingConnection, prefetch: int | None) -> None:
        super().__init__(connection, prefetch)  # type: ignore[arg-type]
        self._prefetch = prefetch or 0
        handlers: Any = self.handlers
        self._flow_controllers = [each for each in handlers if isinstance(each, FlowController)]

    def on_message(self, event: proton.Event) -> None:
        """Keep an arrived message."""
        received: Any = event
        try:
            message = received.message
        except UndecodableMessage as error:
            message = error
        self.incoming.append((message, received.delivery))
        self._set_window()
        received.container.yield_()  # wakes the call that waits for ``incoming``

    def pop(self) -> Message:
        """Return the next message; its delivery is the next to be settled.

        :raises UndecodableMessage: if it cannot be decoded; the receiver's ``reject`` rejects it.
        """
        message = super().pop()
        self._set_window()
        if isinstance(message, UndecodableMessage):
            raise message
        return message

    def drop_unsettled(self) -> None:
        """Drop the messages not settled when the connection was lost: the broker sends them again."""
        settled = [entry for entry in self.incoming if entry[1].settled]
        self.incoming.clear()
        self.incoming.extend(settled)
        self._set_window()

    def top_up(self, link: Any) -> None:
        """Replace the credit of received messages; as in proton only when the program asks for more."""
        for controller in self._flow_controllers:
            controller._flow(link)

    def _set_window(self) -> None:
        """Limit the credit and the messages kept here to ``prefetch`` together."""
        for controller in self._flow_controllers:
            controller._window = self._prefetch - len(self.incoming)

    def on_link_local_close(self, event: proton.Event) -> None:
        """End the waiting call, if the client closed the receiver because the peer sent without credit."""
        link: Any = event.link
        if link.condition is not None:
            raise LinkClosed(
                f"the client closed the receiver for {quoted(link.source.address)}: the primary exceeded a "
                f"limit ({link.condition.name}: {link.condition.description})",
                link.condition.name,
            )


class _Locked:
    """Runs one call at a time, and none while the background loop runs."""

    if TYPE_CHECKING:
        connection: Any
        link: Any

    def close(self) -> None:
        """Close the link."""
        with self.connection.lock:
            super().close()  # type: ignore[misc]

    def _checkClosed(self) -> None:  # noqa: N802 - proton's, called when the wait for the peer's Attach is over
        if self.link.state & Endpoint.REMOTE_UNINIT:
            raise self.connection.ended()
        super()._checkClosed()  # type: ignore[misc]

    def __getattr__(self, name: str) -> Any:
        if name in {"link", "connection"}:  # not set yet: the constructor raised
            raise AttributeError(name)
        with self.connection.lock:
            return getattr(self.link, name)


class BlockingSender(_Locked, proton_utils.BlockingSender):
    """A sender; see ``proton.utils.BlockingSender``."""

    def send(self, msg: Message, timeout: _Timeout = False, error_states: Any = None) -> Any:  # noqa: FBT002
        """Send a message, and wait until the primary has settled it, across failovers.

        :param timeout: seconds; ``False`` for the connection's, ``None`` for no limit.
        :returns: the delivery.
        :raises proton.ConnectionException: if the connection ends for good before that; the message may have
            arrived.
        :raises SendException: if the outcome is one of ``error_states``: rejected or released.
        :raises proton.Timeout: if it was not settled in time; the ledger gives it up.  If the next send is of
            the same, unchanged message, it has the same duplicate-detection id: brokers store one.
        """
        with self.connection.lock:
            before = tuple(self.link.deliveries.values())
            try:
                delivery = super().send(msg, timeout, error_states)
            except (Timeout, KeyboardInterrupt):
                sent = [delivery for delivery in self.link.deliveries.values() if delivery not in before]
                if sent:
                    self.link.give_up(msg, sent)
                raise
            if not (delivery.settled or self.link.snd_settle_mode == Link.SND_SETTLED):
                raise self.connection.ended()
            return delivery


class BlockingReceiver(_Locked, proton_utils.BlockingReceiver):
    """A receiver; see ``proton.utils.BlockingReceiver``."""

    def receive(self, timeout: _Timeout = False) -> Message:  # noqa: FBT002
        """Return the next message.

        :param timeout: seconds; ``False`` for the connection's, ``None`` for no limit.
        :raises proton.Timeout: if none arrived in time.
        :raises proton.ConnectionException: if the connection has ended for good.
        """
        with self.connection.lock:
            fetcher: _Fetcher | None = self.fetcher  # type: ignore[assignment]
            if fetcher is None:
                return super().receive(timeout)  # raises an error with the reason
            fetcher.top_up(self.link)
            if not fetcher.incoming or self.connection.container.pending:
                if not self.link.credit:
                    self.link.flow(1)
                what = f"Receiving on receiver {self.link.name}"
                self.connection.wait(lambda: fetcher.incoming, timeout, what)
                if not fetcher.incoming:
                    raise self.connection.ended()
            message: Message = fetcher.pop()
            return message

    def settle(self, state: Any = None) -> None:
        """Settle the oldest received message that is not settled."""
        with self.connection.lock:
            super().settle(state)

    def __del__(self) -> None:
        """Do nothing: proton would detach its handler from a reactor that does not exist here."""


class BlockingConnection(proton_utils.BlockingConnection):
    """A connection to the current primary; see ``proton.utils.BlockingConnection``.

    :param url: proton's URL, or a cluster URL.
    :param timeout: seconds, for every call without its own timeout.
    :param container: a container of ``haclient.reactor``, whose id, credentials and TLS are used.
    :param reconnect: ``False`` for a connection that ends with its socket.
    :param kwargs: arguments of ``Container.connect``.
    :raises proton.Timeout: (``DeadlineExceeded``) if no primary is found in time.
    :raises proton.ConnectionException: if the search gives up, for example because of wrong credentials.
    """

    def __init__(
        self,
        url: str | Url | None = None,
        timeout: float | None = None,
        container: Container | None = None,
        ssl_domain: SSLDomain | None = None,
        heartbeat: float | None = None,
        urls: Iterable[str | Url] | None = None,
        reconnect: Any = None,
        **kwargs: Any,
    ) -> None:
        self.disconnected: Any = False
        self.timeout = timeout or _DEFAULT_TIMEOUT
        self._own_container = container is None
        self.container: Any = container or Container()
        self.closing = False
        self.conn: Any = None
        self._receivers: weakref.WeakSet[BlockingReceiver] = weakref.WeakSet()
        self._background_loop = background_loop_of(self.container)
        self.lock = self._background_loop.lock
        if reconnect is not False:
            kwargs.setdefault("startup_deadline", self.timeout)
        try:
            with self.lock:
                if not self.container.begun:
                    self.container.begin_alone()
                    self.container.start()
                self.conn = self.container.connect(
                    url,
                    urls,
                    handler=self,
                    reconnect=reconnect,
                    heartbeat=heartbeat,
                    ssl_domain=ssl_domain,
                    **kwargs,
                )
                self.wait(self._opened, timeout=self.timeout + _GRACE, msg="Opening connection")
        except BaseException:
            self.close()
            raise

    def create_sender(
        self, address: str | None, handler: Any = None, name: str | None = None, options: Any = None
    ) -> BlockingSender:
        """Create a sender.

        :raises LinkDetached: if the primary refuses it.
        :raises proton.ConnectionException: if the connection has ended for good.
        """
        with self.lock:
            self._check_usable()
            link = self.container.create_sender(
                self.conn, address, name=name, handler=handler, options=options
            )
            return BlockingSender(self, link)

    def create_receiver(
        self,
        address: str | None = None,
        credit: int | None = None,
        dynamic: bool = False,  # noqa: FBT001, FBT002 - proton's signature
        handler: Any = None,
        name: str | None = None,
        options: Any = None,
    ) -> BlockingReceiver:
        """Create a receiver.

        :param credit: messages to fetch in advance; without it, each ``receive`` asks for one.
        :param handler: called for each message, within the calls of this connection.
        :raises LinkDetached: if the primary refuses it.
        :raises proton.ConnectionException: if the connection has ended for good.
        """
        fetcher: Any = None if handler else _Fetcher(self, credit)
        with self.lock:
            self._check_usable()
            link = self.container.create_receiver(
                self.conn, address, name=name, dynamic=dynamic, handler=handler or fetcher, options=options
            )
            # The fetcher asks for the prefetched messages itself.
            initial: Any = (1 if credit is None else credit) if handler else None
            receiver = BlockingReceiver(self, link, fetcher, credit=initial)
        self._receivers.add(receiver)
        return receiver

    def close(self) -> None:
        """Close the connection.  If the peer is gone, close does not wait."""
        if self.closing:
            return
        self.closing = True
        try:
            with self.lock:
                if self.conn is not None:
                    self._close_connection(self._binding)
        finally:
            container, self.container = self.container, None
            if self.conn is not None:
                self.conn.handler = None
            self.conn = None
            release_loop(container, own=self._own_container)

    def _close_connection(self, binding: Binding) -> None:
        self.conn.close()
        container = self.container
        if not turn_until(container, lambda: binding.closed, self.timeout) and not container.over:
            raise Timeout(f"Connection {self.url} timed out: Closing connection")

    def ended(self) -> ConnectionException:
        """Return the error of a call on a connection that has ended for good."""
        return ConnectionException(_CLOSED) if self.conn is None else ConnectionClosed(self.conn)

    def _check_usable(self) -> None:
        if self.conn is None or self._binding.closed:
            raise self.ended()

    @property
    def url(self) -> Any:
        """Address of the current or last member."""
        return self.conn and self.conn.connected_address

    def run(self) -> None:
        """Handle events until the connection is closed."""
        with self.lock:
            turn_until(self._turned, lambda: False, None)

    def wait(
        self,
        condition: Callable[[], object],
        timeout: _Timeout = False,  # noqa: FBT002
        msg: str | None = None,
    ) -> None:
        """Handle events until a condition holds.

        :param timeout: seconds; ``False`` for the connection's, ``None`` for no limit.
        :raises proton.Timeout: if it does not hold in time.
        :raises proton.ConnectionException: if the connection has ended for good.
        """
        seconds = self.timeout if timeout is False else timeout
        with self.lock:
            container, binding = self._turned, self._binding
            binding.waiting += 1
            if binding.engine is None and binding.connector is not None:
                binding.connector.on_waiting()
            try:
                holds = turn_until(container, lambda: self.disconnected or condition(), seconds)
            finally:
                binding.waiting -= 1
        if self.conn is None and holds:  # a handler closed it
            return
        if self.conn is None:
            raise ConnectionException(_CLOSED)
        if self.disconnected and not self._is_closed():
            raise self._binding.failure or ConnectionException(
                printable(f"Connection {self.url} disconnected: {self.disconnected}")
            )
        if not holds and not container.over:
            raise Timeout(self._who_is_waited_for() + (f": {msg}" if msg else ""))

    def _who_is_waited_for(self) -> str:
        if self._binding.engine is not None:
            return f"Connection {self.url} timed out"
        last = f", the last was {self.url}" if self.url else ""
        return f"Connection timed out, no primary is connected{last}"

    # -- the container's side -----------------------------------------------------------------

    def on_transport_closed(self, event: proton.Event) -> None:
        """Drop fetched messages, because a connection was lost."""
        for receiver in self._receivers:
            if isinstance(receiver.fetcher, _Fetcher):
                receiver.fetcher.drop_unsettled()
        self._note_end(event)

    def on_transport_error(self, event: proton.Event) -> None:
        """Record that a connection was lost, or that the search gave up."""
        self._note_end(event)

    def on_transport_tail_closed(self, event: proton.Event) -> None:
        """Do nothing: ``on_transport_closed`` follows."""

    def on_transport_head_closed(self, event: proton.Event) -> None:
        """Do nothing: ``on_transport_closed`` follows."""

    def _note_end(self, event: proton.Event) -> None:
        binding = self._binding
        if not self.closing and (binding.failure is not None or not binding.keeps_ledger):
            transport: Any = event.transport
            self.disconnected = transport.condition or "unknown"

    @property
    def _binding(self) -> Binding:
        connection: Connection = self.conn
        return cast("Binding", connection._binding)

    @property
    def _turned(self) -> Container:
        if self.container is None:
            raise ConnectionException(_CLOSED)
        container: Container = self.container
        return container

    def _opened(self) -> bool:
        return not self.conn.state & Endpoint.REMOTE_UNINIT

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class SyncRequestResponse(proton_utils.SyncRequestResponse):
    """Sends requests and waits for their responses; see ``proton.utils.SyncRequestResponse``.

    If a failover leaves a request without response, the request is sent again, with the new primary's address
    for responses.  A service may see it twice.
    """

    connection: BlockingConnection
    response: Any

    def call(self, request: Message) -> Message:
        """Send a request and wait for its response.

        :raises ValueError: if neither this object nor the request has an address.
        :raises proton.Timeout: if no response arrived in time.
        """
        if not self.address and not request.address:
            raise ValueError(f"Request message has no address: {request}")
        request.correlation_id = wanted = str(self.correlation_id.next())
        connection = self.connection
        with connection.lock:
            while not self._has_response(wanted):
                connection.wait(lambda: self.reply_to, msg="Waiting for an address for responses")
                engine_count = connection._binding.engine_count
                request.reply_to = self.reply_to
                self.sender.send(request)
                self._await_response(wanted, engine_count)
            response: Message = self.response
            self.response = None
            self.receiver.flow(1)
            return response

    def _await_response(self, wanted: str, engine_count: int) -> None:
        """Wait until the response arrives, or cannot arrive because its address belongs to a lost engine."""
        binding = self.connection._binding
        self.connection.wait(
            lambda: self._has_response(wanted) or binding.engine_count != engine_count,
            msg="Waiting for response",
        )

    def _has_response(self, wanted: str) -> bool:
        return self.response is not None and self.response.correlation_id == wanted
