"""The judge: reads the bytes that a shim writes or a broker delivers, with python-qpid-proton alone.

Neither haclient's codec nor its links are involved. A shim sends its bytes to a proton listener; a
broker delivers its bytes to a proton receiver.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Collection
from typing import Any

import proton
from proton.handlers import MessagingHandler
from proton.reactor import Container

from broker_stub.local_cluster.member_process import free_addresses
from haclient.cluster_url.endpoint import Endpoint

# Header, delivery annotations and message annotations; then properties and application properties.
_BEFORE_THE_BARE_MESSAGE = (0x70, 0x71, 0x72)
_BEFORE_THE_BODY = (0x73, 0x74)
# Seconds that the judge waits for the messages of a case.
_PATIENCE = 30.0


class _Collecting(MessagingHandler):
    """Accepts a fixed number of messages and keeps their bytes. Its container ends with the connection."""

    def __init__(self, count: int) -> None:
        super().__init__(prefetch=count, auto_accept=False)
        self._count = count
        self.messages: list[bytes] = []

    def on_start(self, event: Any) -> None:
        event.container.schedule(_PATIENCE, self)

    def on_timer_task(self, event: Any) -> None:
        event.container.stop()

    def on_delivery(self, event: Any) -> None:
        # Before proton's own handler, which would decode the message and drop its bytes.
        delivery, link = event.delivery, event.link
        if not (link.is_receiver and delivery.readable and not delivery.partial):
            return
        self.messages.append(link.recv(delivery.pending) or b"")
        link.advance()
        delivery.update(proton.Delivery.ACCEPTED)
        delivery.settle()
        if len(self.messages) == self._count:
            self.on_enough(event)

    def on_enough(self, event: Any) -> None:
        """Called when every message has arrived."""

    def on_disconnected(self, event: Any) -> None:
        event.container.stop()

    on_connection_closed = on_transport_error = on_disconnected


class _Listening(_Collecting):
    """A broker without queues, for one sender's connection, which closes after its outcomes."""

    def __init__(self, address: str, count: int) -> None:
        super().__init__(count)
        self._address = address
        self.listens = threading.Event()

    def on_start(self, event: Any) -> None:
        super().on_start(event)
        event.container.listen(self._address)
        self.listens.set()

    def on_link_opening(self, event: Any) -> None:
        # A link without an address would be a refusal.
        event.link.source.copy(event.link.remote_source)
        event.link.target.copy(event.link.remote_target)


class _Receiving(_Collecting):
    """A receiver on one queue."""

    def __init__(self, url: str, queue: str, count: int) -> None:
        super().__init__(count)
        self._url, self._queue = url, queue

    def on_start(self, event: Any) -> None:
        super().on_start(event)
        event.container.create_receiver(event.container.connect(self._url, reconnect=False), self._queue)

    def on_enough(self, event: Any) -> None:
        event.connection.close()


async def written(send: Callable[[str], Awaitable[object]], count: int) -> list[bytes]:
    """Return the messages that a sender writes.

    :param send: runs the sender against the broker at this host and port.
    """
    (address,) = free_addresses((Endpoint("127.0.0.1", 0),))
    listening = _Listening(address.authority, count)
    container = asyncio.create_task(asyncio.to_thread(Container(listening).run))
    await asyncio.to_thread(listening.listens.wait, _PATIENCE)
    await send(address.authority)
    await container
    return listening.messages


async def stored(address: str, queue: str, count: int) -> list[bytes]:
    """Return the messages that the broker at this host and port delivers from a queue."""
    receiving = _Receiving(f"amqp://{address}", queue, count)
    await asyncio.to_thread(Container(receiving).run)
    return receiving.messages


def bare(data: bytes) -> bytes:
    """Return the sections that no broker may change: properties, application properties and body.

    Source: AMQP 1.0 part 3, section 3.2 (the bare message).
    """
    return _without(data, _BEFORE_THE_BARE_MESSAGE)


def body(data: bytes) -> bytes:
    """Return the body's section and everything after it."""
    return _without(data, (*_BEFORE_THE_BARE_MESSAGE, *_BEFORE_THE_BODY))


def _without(data: bytes, sections: Collection[int]) -> bytes:
    """Return the data after these sections, whose descriptors are small."""
    position = 0
    while data[position : position + 2] == b"\x00\x53" and data[position + 2] in sections:
        position = _after(data, position + 3)
    return bytes(data[position:])


def _after(data: bytes, position: int) -> int:
    """Return the end of the list or map at this position (part 1, section 1.6)."""
    code = data[position]
    if code == 0x45:
        return position + 1
    width = 1 if code in (0xC0, 0xC1) else 4
    size = int.from_bytes(data[position + 1 : position + 1 + width])
    return position + 1 + width + size


def read(data: bytes) -> proton.Message:
    """Decode a message with proton.

    :raises proton.MessageException: if proton cannot decode it.
    """
    message = proton.Message()
    message.decode(data)
    return message
