"""Accepts sockets, at a bounded rate per iteration of the event loop.

asyncio's own server accepts as many sockets as its backlog holds before anything else runs, and libuv's
server all that are waiting. When every client of a dead primary connects in the same second, established
connections would wait for all of them.

Rules
-----
* An iteration accepts one socket for each address; the others wait in the kernel, up to ``_BACKLOG``. Making
  an engine takes a quarter of a millisecond, and in a storm an iteration is not much longer.
* A socket without a first byte gets no engine yet (``silent_sockets``), and costs a tenth of one. An
  iteration accepts up to ``_BATCH`` of these, because a health probe may wait behind thousands of them.
* Accepting pauses briefly if ``Handshakes`` requires it, or if file descriptors or buffers run out. In the
  second case the oldest handshake is aborted, because the next client may be the cluster-admin.
* There is no TLS here: the engine handles it.

Sources: accept(2), "error handling"; listen(2), ``net.core.somaxconn``.
"""

from __future__ import annotations

import asyncio
import errno
import resource
import socket
import sys
from collections import deque
from collections.abc import Callable
from typing import Protocol

from broker_stub.admission.handshakes import PendingHandshake
from broker_stub.admission.silent_sockets import SilentSocket, has_spoken
from haclient.cluster_url.endpoint import Endpoint
from haclient.printable.log import get_logger

logger = get_logger("broker_stub.admission.listener")

# Every client of a dead primary connects in the same second; Linux limits this to somaxconn (4096).
_BACKLOG = 4096
# Together they take as long as one or two engines.
_BATCH = 16
# Seconds until the next attempt after descriptors ran out.
_PAUSE = 0.05
# Descriptors for store, arbiter, telemetry, and the links to other members.
_FILES = 200
_EXHAUSTED_ERRORS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


def most_connections(handshakes: int) -> int:
    """Return the number of connections for which the process has descriptors.

    Subtracts handshakes, at most a quarter of the descriptors, and the member's own files, at most an eighth.
    """
    limit, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return sys.maxsize
    return limit - min(handshakes, limit // 4) - min(_FILES, limit // 8)


class PendingHandshakes(Protocol):
    """The handshakes, as the listener sees them: see ``Handshakes``."""

    def accept_delay(self, now: float) -> float:
        """Return the seconds until the next socket may be accepted; 0.0 for now."""

    def begin_delay(self, now: float) -> float:
        """Return the seconds until the next engine may be made; 0.0 for now."""

    def wait_for(self, silent: PendingHandshake, now: float) -> None:
        """Add an accepted socket whose client has sent nothing."""

    def spoke(self, silent: PendingHandshake, now: float) -> None:
        """Remove a socket whose client has sent its first byte."""

    def done(self, handshake: PendingHandshake) -> None:
        """Remove an ended connection."""

    def abort_oldest(self, why: str) -> None:
        """Abort the oldest handshake, if any."""


class Listener:
    """The listening sockets of a member.

    :param make: makes a protocol for each accepted socket.
    :param timeout: seconds that a client has to send its first byte.
    """

    def __init__(
        self,
        make: Callable[[], asyncio.BaseProtocol],
        loop: asyncio.AbstractEventLoop,
        handshakes: PendingHandshakes,
        *,
        timeout: float,
    ) -> None:
        self._make = make
        self._loop = loop
        self._handshakes = handshakes
        self._timeout = timeout
        self._silent: set[SilentSocket] = set()
        self._spoken: deque[socket.socket] = deque()
        self._begin_timer: asyncio.Handle | None = None
        self._sockets: list[socket.socket] = []
        self._connecting: set[asyncio.Task[None]] = set()
        self._resume_timer: asyncio.TimerHandle | None = None
        self._last_logged_at = self._last_report_at = float("-inf")
        self._unreported = 0

    async def listen(self, address: Endpoint) -> None:
        """Start accepting.

        :raises OSError: if it cannot listen on the address.
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
        """Stop accepting."""
        self._stop()
        for task in self._connecting:
            task.cancel()
        for silent in tuple(self._silent):
            silent.abort("the member stops")
        if self._begin_timer is not None:
            self._begin_timer.cancel()
        for spoken in self._spoken:
            spoken.close()
        self._spoken.clear()
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
        """Accept one waiting socket whose client has sent bytes, or several silent ones."""
        for _ in range(_BATCH):
            accepted = self._accept(listening)
            if accepted is None:
                return
            accepted.setblocking(False)
            spoken = has_spoken(accepted)
            if spoken:
                self._hand_over(accepted)
                return
            if spoken is None:
                accepted.close()
            else:
                self._wait_for_first_byte(accepted)

    def _accept(self, listening: socket.socket) -> socket.socket | None:
        wait = self._handshakes.accept_delay(self._loop.time())
        if wait > 0:
            self._pause_accepting(wait)
            return None
        try:
            accepted, _where = listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return None
        except OSError as error:
            if error.errno not in _EXHAUSTED_ERRORS:
                raise
            self._out_of_descriptors(error)
            return None
        return accepted

    def _wait_for_first_byte(self, accepted: socket.socket) -> None:
        silent = SilentSocket(
            accepted, self._loop, timeout=self._timeout, spoke=self._spoke, ended=self._silent_ended
        )
        self._silent.add(silent)
        self._handshakes.wait_for(silent, self._loop.time())

    def _silent_ended(self, silent: SilentSocket, why: str) -> None:
        self._silent.discard(silent)
        self._handshakes.done(silent)
        self._unreported += bool(why)
        now = self._loop.time()
        if self._unreported and now - self._last_report_at >= 1.0:
            logger.info("closed %d connections without a first byte, the last one: %s", self._unreported, why)
            self._unreported, self._last_report_at = 0, now

    def _spoke(self, silent: SilentSocket, accepted: socket.socket) -> None:
        """Queue a socket to begin in a later iteration: a thousand clients may send in the same one."""
        self._silent.discard(silent)
        self._handshakes.spoke(silent, self._loop.time())
        self._spoken.append(accepted)
        if self._begin_timer is None:
            self._begin_next()

    def _begin_next(self) -> None:
        self._begin_timer = None
        delay = self._handshakes.begin_delay(self._loop.time())
        if not delay:
            self._hand_over(self._spoken.popleft())
        if self._spoken:
            later = self._loop.call_later
            self._begin_timer = (
                later(delay, self._begin_next) if delay else self._loop.call_soon(self._begin_next)
            )

    def _out_of_descriptors(self, error: OSError) -> None:
        now = self._loop.time()
        if now - self._last_logged_at >= 1.0:
            self._last_logged_at = now
            logger.error("cannot accept: %s", error.strerror)
        self._handshakes.abort_oldest("there is no file descriptor left")
        self._pause_accepting(_PAUSE)

    def _hand_over(self, accepted: socket.socket) -> None:
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
