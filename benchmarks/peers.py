"""The peer of the comparisons: proton's own ``Container``, used as fast as possible.

It sends as many messages as credit allows in each ``on_sendable``, counts ``on_accepted``, and receives with
a large prefetch.
"""

from __future__ import annotations

import proton
from measure import Sample, Stopwatch
from proton.handlers import MessagingHandler
from proton.reactor import Container


class _Sending(MessagingHandler):
    """Sends ``count`` messages and waits until all are accepted."""

    def __init__(self, url: str, address: str, body: bytes, count: int) -> None:
        super().__init__()
        self._target = f"{url}/{address}"
        self._body = body
        self._count = count
        self._sent = 0
        self._settled = 0
        self._watch: Stopwatch | None = None
        self.sample: Sample | None = None

    def on_start(self, event: proton.Event) -> None:
        """Open connection and link."""
        event.container.create_sender(self._target)

    def on_sendable(self, event: proton.Event) -> None:
        """Send as many messages as credit allows; the first credit starts the watch."""
        if self._watch is None:
            self._watch = Stopwatch()
        sender, body, count = event.sender, self._body, self._count
        while sender.credit and self._sent < count:
            sender.send(proton.Message(body=body))
            self._sent += 1

    def on_accepted(self, event: proton.Event) -> None:
        """Count an accepted message; the last one stops the watch."""
        self._settled += 1
        if self._settled == self._count:
            assert self._watch is not None
            self.sample = self._watch.stop(self._count)
            event.connection.close()


class _Receiving(MessagingHandler):
    """Receives and accepts ``count`` messages."""

    def __init__(self, url: str, address: str, count: int, prefetch: int) -> None:
        super().__init__(prefetch=prefetch)
        self._url = url
        self._address = address
        self._count = count
        self._received = 0
        self._watch: Stopwatch | None = None
        self.sample: Sample | None = None

    def on_start(self, event: proton.Event) -> None:
        """Open the connection."""
        event.container.connect(self._url)

    def on_connection_opened(self, event: proton.Event) -> None:
        """Attach, and start the watch."""
        self._watch = Stopwatch()
        event.container.create_receiver(event.connection, self._address)

    def on_message(self, event: proton.Event) -> None:
        """Count a message; the handler accepts by itself."""
        assert event.message.body is not None
        self._received += 1
        if self._received == self._count:
            assert self._watch is not None
            self.sample = self._watch.stop(self._count)
            event.connection.close()


def container_send(url: str, address: str, body: bytes, count: int) -> Sample:
    """Send pipelined; the sample is from the first credit to the last outcome."""
    handler = _Sending(url, address, body, count)
    Container(handler).run()
    assert handler.sample is not None, "the container ended early"
    return handler.sample


def container_receive(url: str, address: str, count: int, *, prefetch: int) -> Sample:
    """Receive and accept; the sample is from the Attach to the last message."""
    handler = _Receiving(url, address, count, prefetch)
    Container(handler).run()
    assert handler.sample is not None, "the container ended early"
    return handler.sample
