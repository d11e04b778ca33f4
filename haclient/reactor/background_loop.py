"""Runs the event loop of blocking calls: in the caller's thread, and in a background thread between calls.

A call runs the loop until an event is pending for a handler, then stops the loop and calls the handler.
So, as with proton, a handler may make a blocking call itself, or close the connection.

Between two calls the background thread runs the loop of a container briefly at intervals, and whenever a
heartbeat is due.  It calls no handler, but heartbeats and failovers continue.  One lock separates that
thread from the application.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import threading
import weakref
from collections.abc import Callable

from haclient.factory.loop_thread import check_threads
from haclient.reactor.loop import Reactor

# Most seconds between two runs of the loop while the application computes; each run reads arrived bytes.
_TURN_INTERVAL = 0.5
_LEAST_INTERVAL = 0.02


class BackgroundLoop:
    """Runs the loop of a container between blocking calls."""

    def __init__(self, container: Reactor) -> None:
        check_threads()
        self.lock = threading.RLock()
        self._container = weakref.ref(container)
        self._over = threading.Event()
        # An open connection must be closed before the interpreter has destroyed half of proton's objects.
        self._at_exit = functools.partial(_end, self._container, os.getpid())
        atexit.register(self._at_exit)
        self._thread = threading.Thread(target=self._run, name="haclient background loop", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread.  Do not call this with the lock held."""
        atexit.unregister(self._at_exit)
        self._over.set()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        pause = _LEAST_INTERVAL
        while not self._over.wait(pause):
            container = self._container()
            if container is None:
                atexit.unregister(self._at_exit)
                return
            # A call that has the lock runs the loop itself, but may return just before a heartbeat is due.
            if self.lock.acquire(blocking=False):
                try:
                    if container.begun and not self._over.is_set():
                        container.turn()
                finally:
                    self.lock.release()
            pause = min(_TURN_INTERVAL, max(_LEAST_INTERVAL, container.until_due()))
            del container


def turn_until(container: Reactor, condition: Callable[[], object], timeout: float | None) -> bool:
    """Run the loop and call handlers until a condition holds, the timeout expires, or the container ends.

    :param timeout: seconds; ``None`` is no limit.
    :returns: whether the condition holds.
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


def background_loop_of(container: Reactor) -> BackgroundLoop:
    """Return the background loop of a container, which all its connections share."""
    if container.background_loop is None:
        container.background_loop = BackgroundLoop(container)
    background: BackgroundLoop = container.background_loop
    return background


def release_loop(container: Reactor, *, own: bool) -> None:
    """End the loop and its thread, unless another connection of the container needs them."""
    if own or not container.in_use:
        background, container.background_loop = container.background_loop, None
        if background is not None:
            background.stop()
        container.shut_down()


def _end(reference: weakref.ref[Reactor], pid: int) -> None:
    """Close remaining connections, but only in the process that opened their sockets.

    A forked process shares the sockets and the selector: closing or removing them there would affect the
    parent.  So a forked process keeps the container for ever, even through garbage collection at the
    interpreter's exit.
    """
    container = reference()
    if container is None:
        return
    if os.getpid() == pid:
        release_loop(container, own=True)
    else:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(container))
