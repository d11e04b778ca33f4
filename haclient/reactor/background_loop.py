"""The event loop of blocking calls: turned by the caller, and by a keeper in between.

A call turns the loop until something waits for a handler, and calls it while the loop stands still:
a handler may make a blocking call in its turn, or close the connection, as with proton.

Between two calls nobody runs the loop of a container; a thread of its own turns it from time to
time, with every handler held off, so that heartbeats and failovers go on.  One lock stands between
that thread and the application.
"""

from __future__ import annotations

import atexit
import functools
import threading
import weakref
from collections.abc import Callable

from haclient.reactor.loop import Reactor

# Between two turns of the loop while the application computes: short against any heartbeat, of
# which the peer wants two in the time it announces.
_KEEP_INTERVAL = 0.5
_LEAST_INTERVAL = 0.02


class Keeper:
    """Turns the loop of a container while nobody else does."""

    def __init__(self, container: Reactor, interval: float) -> None:
        self.lock = threading.RLock()
        self._container = weakref.ref(container)
        self._interval = interval
        self._over = threading.Event()
        # A connection that nobody closes must not die with the interpreter's last breath, when
        # proton's objects are half gone.
        self._at_exit = functools.partial(_end, self._container)
        atexit.register(self._at_exit)
        self._thread = threading.Thread(target=self._run, name="haclient keeper", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread.  Not to be called with the lock held."""
        atexit.unregister(self._at_exit)
        self._over.set()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        searching = False
        while not self._over.wait(_LEAST_INTERVAL if searching else self._interval):
            container = self._container()
            if container is None:
                atexit.unregister(self._at_exit)
                return
            if self.lock.acquire(blocking=False):
                try:
                    if not self._over.is_set():
                        searching = container.turn()
                finally:
                    self.lock.release()
            del container


def turn_until(container: Reactor, condition: Callable[[], object], timeout: float | None) -> bool:
    """Turn the loop, and call handlers, until a condition holds, the time is over, or the end.

    :param timeout: seconds; ``None`` is no limit.
    :returns: whether it holds.
    """
    loop = container.loop
    end = None if timeout is None else loop.time() + timeout
    timer = None if end is None else loop.call_at(end, loop.stop)
    held, container.held = container.held, True
    try:
        while True:
            container.catch_up()
            if condition():
                return True
            if container.over or (end is not None and loop.time() >= end):
                return False
            container.turn_on()
    finally:
        container.held = held
        if timer is not None:
            timer.cancel()


def keeper_of(container: Reactor, heartbeat: float | None) -> Keeper:
    """The keeper of a container, for all its connections."""
    interval = _KEEP_INTERVAL if not heartbeat else min(_KEEP_INTERVAL, heartbeat / 4)
    if container.keeper is None:
        container.keeper = Keeper(container, max(_LEAST_INTERVAL, interval))
    keeper: Keeper = container.keeper
    return keeper


def let_go(container: Reactor, *, own: bool) -> None:
    """End the loop and the keeper, unless another connection of the container needs them."""
    if own or not container.in_use:
        keeper, container.keeper = container.keeper, None
        if keeper is not None:
            keeper.stop()
        container.shut_down()


def _end(reference: weakref.ref[Reactor]) -> None:
    container = reference()
    if container is not None:
        let_go(container, own=True)
