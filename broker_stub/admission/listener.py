"""Accepts sockets, one in each turn of the event loop.

asyncio's own server accepts as many as its backlog is long before anything else runs again, and
libuv's as many as there are; when every client of a dead primary comes in the same second, those
already in would wait for all of them.

Rules
-----
* A turn accepts one socket for each address; the others wait in the kernel, up to ``_BACKLOG``.  Making
  an engine is a quarter of a millisecond, and in a storm the turns are not much longer than that.
* Accepting rests, never for long, when ``room`` says so, and when there are no more file descriptors
  (or buffers): the oldest handshake is cut then, for the next newcomer may be the cluster-admin.
* TLS is the engine's, so there is none here.

Sources: accept(2), "error handling"; listen(2), ``net.core.somaxconn``.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable

from broker_stub.address import Address

logger = logging.getLogger("broker_stub.admission.listener")

# Every client of a dead primary comes in the same second; Linux cuts this at somaxconn (4096).
_BACKLOG = 4096
# Until the next look when there was no descriptor left, in seconds.
_PAUSE = 0.05
_NOTHING_LEFT = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class Listener:
    """The listening sockets of a member.

    :param make: a protocol for each accepted socket.
    :param room: seconds to wait before the next one is accepted, 0.0 for none.
    :param exhausted: called when there is no descriptor left.
    """

    def __init__(
        self,
        make: Callable[[], asyncio.BaseProtocol],
        loop: asyncio.AbstractEventLoop,
        *,
        room: Callable[[], float],
        exhausted: Callable[[], None],
    ) -> None:
        self._make = make
        self._loop = loop
        self._room = room
        self._exhausted = exhausted
        self._sockets: list[socket.socket] = []
        self._taking: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None
        self._complained_at = float("-inf")

    async def listen(self, address: Address) -> None:
        """Accept from now on.

        :raises OSError: when the address cannot be had.
        """
        found = await self._loop.getaddrinfo(
            address.host or None, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        try:
            for family, kind, protocol, _name, where in dict.fromkeys(found):
                self._sockets.append(_listening(family, kind, protocol, where))
        except OSError:
            self.close()
            raise
        self._start()

    @property
    def port(self) -> int:
        """The port of the first socket."""
        port: int = self._sockets[0].getsockname()[1]
        return port

    def close(self) -> None:
        """Accept no more."""
        self._stop()
        for task in self._taking:
            task.cancel()
        for each in self._sockets:
            each.close()

    def _start(self) -> None:
        self._pause = None
        for each in self._sockets:
            self._loop.add_reader(each, self._ready, each)

    def _stop(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        for each in self._sockets:
            if each.fileno() >= 0:
                self._loop.remove_reader(each)

    def _rest(self, seconds: float) -> None:
        self._stop()
        self._pause = self._loop.call_later(seconds, self._start)

    def _ready(self, listening: socket.socket) -> None:
        """Somebody is at the door."""
        wait = self._room()
        if wait > 0:
            self._rest(wait)
            return
        try:
            accepted, _where = listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            if error.errno not in _NOTHING_LEFT:
                raise
            self._nothing_left(error)
            return
        self._take(accepted)

    def _nothing_left(self, error: OSError) -> None:
        now = self._loop.time()
        if now - self._complained_at >= 1.0:
            self._complained_at = now
            logger.error("cannot accept: %s", error.strerror)
        self._exhausted()
        self._rest(_PAUSE)

    def _take(self, accepted: socket.socket) -> None:
        accepted.setblocking(False)
        task = self._loop.create_task(self._connect(accepted))
        self._taking.add(task)

        def taken(task: asyncio.Task[None]) -> None:
            self._taking.discard(task)
            if task.cancelled() or task.exception() is not None:
                accepted.close()
                logger.debug("an accepted socket was lost: %s", task)

        task.add_done_callback(taken)

    async def _connect(self, accepted: socket.socket) -> None:
        await self._loop.connect_accepted_socket(self._make, accepted)


def _listening(family: int, kind: int, protocol: int, where: tuple[object, ...]) -> socket.socket:
    made = socket.socket(family, kind, protocol)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind(where)
        made.listen(_BACKLOG)
        made.setblocking(False)
    except OSError:
        made.close()
        raise
    return made
