"""Keeps a socket open after its engine has ended, until the last bytes are sent or a time limit is reached.

The engine has ended, and nothing here refers to it.  The socket takes no more bytes, and further bytes from
the peer are dropped.

Source: AMQP 1.0 part 2, section 2.4.3: a Close is answered with a Close.
"""

from __future__ import annotations

import asyncio

# Seconds.  A peer that sent Close reads the rest within a round trip or two.
_LINGER = 0.5


class LingeringSocket(asyncio.Protocol):
    """Takes over a socket, and closes it when its buffered bytes are sent.

    :ivar closed: done when the socket is closed.
    """

    def __init__(self, socket: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self.closed: asyncio.Future[None] = loop.create_future()
        self._socket = socket
        self._timer = loop.call_later(_LINGER, socket.abort)
        socket.set_protocol(self)
        socket.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio: the socket is closed."""
        self._timer.cancel()
        if not self.closed.done():
            self.closed.set_result(None)

    def abort(self) -> None:
        """Close the socket now, and drop unsent bytes."""
        if not self.closed.done():
            self._socket.abort()
