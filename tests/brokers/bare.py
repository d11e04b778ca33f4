"""A bare AMQP client, the judge of the clusters: proton's engine over asyncio streams, without haclient.

It makes one connection to one member and fails on the first error.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import cast

import proton

from haclient.cluster_url.endpoint import Endpoint
from tests.brokers.topology import Stored

_CHUNK = 65536
_CREDIT = 500
# Seconds of silence after which a queue counts as drained. By then the broker has requeued the unsettled
# messages of ended connections.
_QUIET_SECONDS = 2.0
_HANDSHAKE_SECONDS = 2.0
_DRAIN_SECONDS = 120.0
# proton's own limit for one Open or Attach is far above this.
_MAX_FRAME = 65536


class BareError(Exception):
    """The peer refused, closed the connection, or did not answer."""


@dataclass(frozen=True, slots=True)
class Account:
    """A client's credentials, and the virtual host it asks for.

    :ivar hostname: the ``hostname`` of the Open; the virtual host in products that have some.
    """

    user: str = ""
    password: str = ""
    hostname: str = ""


class BareConnection:
    """A proton connection, its transport, and the streams that carry its bytes."""

    def __init__(self, streams: tuple[asyncio.StreamReader, asyncio.StreamWriter], account: Account) -> None:
        self._reader, self._writer = streams
        self._collector = proton.Collector()
        self.connection = proton.Connection()
        self.connection.collect(self._collector)
        self.connection.container = "judge"
        self.connection.hostname = account.hostname
        self._transport = proton.Transport()
        self._transport.max_frame_size = _MAX_FRAME
        sasl = self._transport.sasl()
        if account.user:
            self.connection.user, self.connection.password = account.user, account.password
            sasl.allow_insecure_mechs = True
            sasl.allowed_mechs("PLAIN")
        else:
            sasl.allowed_mechs("ANONYMOUS")
        self._transport.bind(self.connection)

    async def pump(self, done: Callable[[], bool]) -> None:
        """Exchange bytes until a condition holds.

        :raises BareError: if the connection ends first, or the peer closes it or the session.
        """
        self._write()
        while not done():
            if not (data := await self._reader.read(_CHUNK)):
                raise BareError(f"end of stream; {self._transport.condition}")
            while data and (room := self._transport.capacity()) > 0:
                self._transport.push(data[:room])
                data = data[room:]
            while (event := self._collector.peek()) is not None:
                self._check(event)
                self._collector.pop()
            self._write()

    def _check(self, event: proton.Event) -> None:
        if event.type is proton.Event.TRANSPORT_ERROR:
            raise BareError(str(self._transport.condition))
        ended = event.type in (proton.Event.CONNECTION_REMOTE_CLOSE, proton.Event.SESSION_REMOTE_CLOSE)
        if ended and not self.connection.state & proton.Endpoint.LOCAL_CLOSED:
            context = cast("proton.Connection | proton.Session", event.context)
            raise BareError(str(context.remote_condition))

    async def attach(self, link: proton.Link) -> None:
        """Open a link, and wait until the peer has attached it."""
        link.open()
        await self.pump(lambda: bool(link.state & proton.Endpoint.REMOTE_ACTIVE | self._refused(link)))
        terminus = link.remote_target if link.is_sender else link.remote_source
        if self._refused(link) or not terminus.address:
            raise BareError(str(link.remote_condition or f"{link.name} was refused"))

    async def close(self) -> None:
        """Close the connection gracefully; everything settled before has reached the peer."""
        self.connection.close()
        await self.pump(lambda: bool(self.connection.state & proton.Endpoint.REMOTE_CLOSED))

    def session(self) -> proton.Session:
        """Open a session. The next write carries its Begin."""
        session = self.connection.session()
        session.open()
        return session

    @staticmethod
    def _refused(link: proton.Link) -> int:
        return int(link.state & proton.Endpoint.REMOTE_CLOSED)

    def _write(self) -> None:
        while (pending := self._transport.pending()) > 0:
            data = self._transport.peek(pending) or b""
            self._writer.write(data)
            self._transport.pop(len(data))


@asynccontextmanager
async def connected(endpoint: Endpoint, account: Account) -> AsyncIterator[BareConnection]:
    """Open a connection, and close its streams at the end of the context."""
    streams = await asyncio.open_connection(endpoint.host, endpoint.port)
    try:
        bare = BareConnection(streams, account)
        bare.connection.open()
        await bare.pump(lambda: bool(bare.connection.state & proton.Endpoint.REMOTE_ACTIVE))
        yield bare
    finally:
        streams[1].transport.abort()
        with contextlib.suppress(OSError):
            await streams[1].wait_closed()


async def refusal(endpoint: Endpoint, account: Account, address: str) -> str:
    """Return why a member refuses a sender to an address; empty if it attaches one."""
    try:
        async with asyncio.timeout(_HANDSHAKE_SECONDS), connected(endpoint, account) as bare:
            await bare.attach(_sender(bare.session(), address))
            await bare.close()
    except (OSError, BareError, proton.ProtonException) as error:  # a TimeoutError is an OSError
        return repr(error)
    return ""


async def send_refusal(endpoint: Endpoint, account: Account, address: str) -> str:
    """Return why a member does not accept a message for an address; empty if it does."""
    try:
        async with asyncio.timeout(_HANDSHAKE_SECONDS):
            await send(endpoint, account, address, "probe")
    except (OSError, BareError, proton.ProtonException) as error:
        return repr(error)
    return ""


async def receive_all(endpoint: Endpoint, account: Account, address: str) -> list[Stored]:
    """Accept the stored messages until none has arrived for a while.

    :raises BareError: if the connection fails. The messages accepted before are then lost to the judge.
    """
    stored: list[Stored] = []
    async with asyncio.timeout(_DRAIN_SECONDS), connected(endpoint, account) as bare:
        receiver = bare.session().receiver("judge")
        receiver.source.address = address
        receiver.source.durability = proton.Terminus.CONFIGURATION
        await bare.attach(receiver)
        with contextlib.suppress(TimeoutError):
            while True:
                if receiver.credit < _CREDIT // 2:
                    receiver.flow(_CREDIT - receiver.credit)
                async with asyncio.timeout(_QUIET_SECONDS):
                    await bare.pump(_progress(receiver))
                stored += _take(receiver)
        receiver.close()
        await bare.close()
    return stored


async def send(endpoint: Endpoint, account: Account, address: str, *bodies: str) -> None:
    """Send durable messages, and wait until all are accepted."""
    async with asyncio.timeout(_DRAIN_SECONDS), connected(endpoint, account) as bare:
        sender = _sender(bare.session(), address)
        await bare.attach(sender)
        deliveries = []
        for number, body in enumerate(bodies):
            await bare.pump(lambda: sender.credit > 0)
            deliveries.append(sender.delivery(str(number)))
            sender.stream(proton.Message(id=f"judge-{number}", body=body, durable=True).encode())
            sender.advance()
        await bare.pump(lambda: all(each.remote_state for each in deliveries))
        refused = [each.remote_state for each in deliveries if each.remote_state != proton.Delivery.ACCEPTED]
        if refused:
            raise BareError(f"not accepted: {refused}")
        await bare.close()


def _sender(session: proton.Session, address: str) -> proton.Sender:
    sender = session.sender(f"judge-{time.monotonic_ns()}")
    sender.target.address = address
    sender.target.durability = proton.Terminus.CONFIGURATION
    return sender


def _progress(receiver: proton.Receiver) -> Callable[[], bool]:
    """Return a function that checks for new bytes of a message: a large message takes time without being
    silent.
    """

    def seen() -> tuple[int, bool]:
        delivery = receiver.current
        return (0, False) if delivery is None else (delivery.pending, not delivery.partial)

    before = seen()
    return lambda: seen() != before


def _take(receiver: proton.Receiver) -> list[Stored]:
    stored = []
    while (delivery := receiver.current) is not None and not delivery.partial:
        message = proton.Message()
        message.decode(receiver.recv(delivery.pending) or b"")
        body: object = message.body
        if isinstance(body, memoryview):
            body = bytes(body)  # proton's view is of memory that is freed with the message
        stored.append(Stored(message.id, body, message.delivery_count))
        receiver.advance()
        delivery.update(proton.Delivery.ACCEPTED)
        delivery.settle()
    return stored
