"""The judge: what a shim writes, and what a broker hands on, as bytes, read by python-qpid-proton alone.

Neither our codec nor our links take part.  A shim's bytes are those that it sends to a listener of proton; a
broker's are those that a receiver of proton gets.
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

# Header, delivery annotations and message annotations; properties and application properties.
_BEFORE_THE_BARE_MESSAGE = (0x70, 0x71, 0x72)
_BEFORE_THE_BODY = (0x73, 0x74)
# What the judge waits for the messages of a case, in seconds.
_PATIENCE = 30.0


class _Collecting(MessagingHandler):
    """Keeps the bytes of so many messages, and accepts them; its container ends with the connection."""

    def __init__(self, count: int) -> None:
        super().__init__(prefetch=count, auto_accept=False)
        self._count = count
        self.messages: list[bytes] = []

    def on_start(self, event: Any) -> None:
        event.container.schedule(_PATIENCE, self)

    def on_timer_task(self, event: Any) -> None:
        event.container.stop()

    def on_delivery(self, event: Any) -> None:
        # Before proton's own handler, which would decode the message and forget its bytes.
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
        """Every message is there."""

    def on_disconnected(self, event: Any) -> None:
        event.container.stop()

    on_connection_closed = on_transport_error = on_disconnected


class _Listening(_Collecting):
    """A broker without queues, for one connection of a sender, which closes when it has its answers."""

    def __init__(self, address: str, count: int) -> None:
        super().__init__(count)
        self._address = address
        self.listens = threading.Event()

    def on_start(self, event: Any) -> None:
        super().on_start(event)
        event.container.listen(self._address)
        self.listens.set()

    def on_link_opening(self, event: Any) -> None:
        # A link without an address is a refused one.
        event.link.source.copy(event.link.remote_source)
        event.link.target.copy(event.link.remote_target)


class _Receiving(_Collecting):
    """A receiver from one queue."""

    def __init__(self, url: str, queue: str, count: int) -> None:
        super().__init__(count)
        self._url, self._queue = url, queue

    def on_start(self, event: Any) -> None:
        super().on_start(event)
        event.container.create_receiver(event.container.connect(self._url, reconnect=False), self._queue)

    def on_enough(self, event: Any) -> None:
        event.connection.close()


async def written(send: Callable[[str], Awaitable[object]], count: int) -> list[bytes]:
    """What a sender writes, message by message.

    :param send: runs it against the broker at this host and port.
    """
    (address,) = free_addresses((Endpoint("127.0.0.1", 0),))
    listening = _Listening(address.authority, count)
    container = asyncio.create_task(asyncio.to_thread(Container(listening).run))
    await asyncio.to_thread(listening.listens.wait, _PATIENCE)
    await send(address.authority)
    await container
    return listening.messages


async def stored(address: str, queue: str, count: int) -> list[bytes]:
    """What the broker at this host and port hands on from a queue, message by message."""
    receiving = _Receiving(f"amqp://{address}", queue, count)
    await asyncio.to_thread(Container(receiving).run)
    return receiving.messages


def bare(data: bytes) -> bytes:
    """The sections that no broker may change: properties, application properties and body.

    Source: AMQP 1.0 part 3, section 3.2 (the bare message).
    """
    return _without(data, _BEFORE_THE_BARE_MESSAGE)


def body(data: bytes) -> bytes:
    """The section of the body, and what comes after it."""
    return _without(data, (*_BEFORE_THE_BARE_MESSAGE, *_BEFORE_THE_BODY))


def _without(data: bytes, sections: Collection[int]) -> bytes:
    """What comes after these sections, whose descriptors are small."""
    position = 0
    while data[position : position + 2] == b"\x00\x53" and data[position + 2] in sections:
        position = _after(data, position + 3)
    return bytes(data[position:])


def _after(data: bytes, position: int) -> int:
    """Where the list or map at this position ends (part 1, section 1.6)."""
    code = data[position]
    if code == 0x45:
        return position + 1
    width = 1 if code in (0xC0, 0xC1) else 4
    size = int.from_bytes(data[position + 1 : position + 1 + width])
    return position + 1 + width + size


def read(data: bytes) -> proton.Message:
    """A message as proton reads it.

    :raises proton.MessageException: when it cannot.
    """
    message = proton.Message()
    message.decode(data)
    return message
