"""Accepts sockets, one in each iteration of the event loop.

asyncio's own server accepts as many as its backlog is long before anything else runs again, and
libuv's as many as there are; when every client of a dead primary connects in the same second,
established connections would wait for all of them.

Rules
-----
* An iteration accepts one socket for each address; the others wait in the kernel, up to ``_BACKLOG``.
  Making an engine takes a quarter of a millisecond, and in a storm an iteration is not much longer.
* Accepting pauses, never for long, when ``accept_delay`` says so, and when file descriptors (or buffers)
  run out: the oldest handshake is aborted then, for the next client may be the cluster-admin.
* The engine does TLS, so there is none here.

Sources: accept(2), "error handling"; listen(2), ``net.core.somaxconn``.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable

from haclient.cluster_url.endpoint import Endpoint

logger = logging.getLogger("broker_stub.admission.listener")

# Every client of a dead primary connects in the same second; Linux limits this to somaxconn (4096).
_BACKLOG = 4096
# Seconds until it tries again when no descriptor was left.
_PAUSE = 0.05
_EXHAUSTED_ERRORS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class Listener:
    """The listening sockets of a member.

    :param make: a protocol for each accepted socket.
    :param accept_delay: seconds to wait before the next socket is accepted, 0.0 for none.
    :param exhausted: called when no descriptor is left.
    """

    def __init__(
        self,
        make: Callable[[], asyncio.BaseProtocol],
        loop: asyncio.AbstractEventLoop,
        *,
        accept_delay: Callable[[], float],
        exhausted: Callable[[], None],
    ) -> None:
        self._make = make
        self._loop = loop
        self._accept_delay = accept_delay
        self._exhausted = exhausted
        self._sockets: list[socket.socket] = []
        self._connecting: set[asyncio.Task[None]] = set()
        self._resume_timer: asyncio.TimerHandle | None = None
        self._last_logged_at = float("-inf")

    async def listen(self, address: Endpoint) -> None:
        """Start to accept.

        :raises OSError: when it cannot listen on the address.
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
        """Stop to accept."""
        self._stop()
        for task in self._connecting:
            task.cancel()
        for each in self._sockets:
            each.close()

    def _start(self) -> None:
        self._resume_timer = None
        for each in self._sockets:
            self._loop.add_reader(each, self._ready, each)

    def _stop(self) -> None:
        if self._resume_timer is not None:
            self._resume_timer.cancel()
            self._resume_timer = None
        for each in self._sockets:
            if each.fileno() >= 0:
                self._loop.remove_reader(each)

    def _pause_accepting(self, seconds: float) -> None:
        self._stop()
        self._resume_timer = self._loop.call_later(seconds, self._start)

    def _ready(self, listening: socket.socket) -> None:
        """Accept one of the waiting sockets."""
        wait = self._accept_delay()
        if wait > 0:
            self._pause_accepting(wait)
            return
        try:
            accepted, _where = listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            if error.errno not in _EXHAUSTED_ERRORS:
                raise
            self._out_of_descriptors(error)
            return
        self._hand_over(accepted)

    def _out_of_descriptors(self, error: OSError) -> None:
        now = self._loop.time()
        if now - self._last_logged_at >= 1.0:
            self._last_logged_at = now
            logger.error("cannot accept: %s", error.strerror)
        self._exhausted()
        self._pause_accepting(_PAUSE)

    def _hand_over(self, accepted: socket.socket) -> None:
        accepted.setblocking(False)
        task = self._loop.create_task(self._connect(accepted))
        self._connecting.add(task)

        def connected(task: asyncio.Task[None]) -> None:
            self._connecting.discard(task)
            if task.cancelled() or task.exception() is not None:
                accepted.close()
                logger.debug("an accepted socket failed before its first byte: %s", task)

        task.add_done_callback(connected)

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
