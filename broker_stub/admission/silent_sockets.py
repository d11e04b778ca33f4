"""Keeps an accepted socket until its client has sent a first byte, at a small part of an engine's cost.

In AMQP the client sends first, with or without TLS, and its first bytes directly follow the TCP handshake. A
client that sends nothing may never do so.

Source: AMQP 1.0 part 2, section 2.2; ``TCP_DEFER_ACCEPT`` in tcp(7) does the same inside Linux. But with SYN
cookies, so in a flood, the kernel hands over silent sockets nonetheless.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable


class SilentSocket:
    """An accepted socket without a first byte (a ``PendingHandshake``); it ends with one of its callbacks.

    :param timeout: seconds until it is closed.
    :param spoke: called when the first byte can be read; the caller owns the socket again.
    :param ended: called with the reason when it was closed by the timeout or ``abort``; with an empty reason
        if the peer closed it.
    """

    __slots__ = ("_ended", "_loop", "_socket", "_spoke", "_timer")

    def __init__(
        self,
        accepted: socket.socket,
        loop: asyncio.AbstractEventLoop,
        *,
        timeout: float,
        spoke: Callable[[SilentSocket, socket.socket], object],
        ended: Callable[[SilentSocket, str], object],
    ) -> None:
        self._socket = accepted
        self._loop = loop
        self._spoke = spoke
        self._ended = ended
        self._timer = loop.call_later(timeout, self.abort, "the client sent no AMQP Open")
        loop.add_reader(accepted, self._readable)

    def abort(self, why: str) -> None:
        """Close the socket: its client has sent nothing that could be answered."""
        self._release()
        self._socket.close()
        self._ended(self, why)

    def _readable(self) -> None:
        spoken = has_spoken(self._socket)
        if spoken is None:
            self.abort("")
        elif spoken:
            self._release()
            self._spoke(self, self._socket)

    def _release(self) -> None:
        self._timer.cancel()
        self._loop.remove_reader(self._socket)


def has_spoken(accepted: socket.socket) -> bool | None:
    """Return whether a byte can be read; ``None`` if none will ever arrive."""
    try:
        return True if accepted.recv(1, socket.MSG_PEEK) else None
    except (BlockingIOError, InterruptedError):
        return False
    except OSError:
        return None
