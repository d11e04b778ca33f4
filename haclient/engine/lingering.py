"""A socket that its engine has left, until the peer has read the last bytes or the time is up.

The engine has ended, and nothing refers to it from here.  The socket takes no more bytes, and what the
peer sends is dropped.

Source: AMQP 1.0 part 2, section 2.4.3: a Close is answered with a Close.
"""

from __future__ import annotations

import asyncio

# A peer that closed reads the rest within a round trip or two; a socket that nobody reads is not kept longer.
_LINGER = 0.5


class LingeringSocket(asyncio.Protocol):
    """Takes over a socket, and closes it when what was written to it is sent.

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
        """Close the socket now, whatever is not sent yet."""
        if not self.closed.done():
            self._socket.abort()
