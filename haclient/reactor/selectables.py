"""Selectables: file descriptors that an application, or its ``EventInjector``, adds to a container.

The selectable is proton's; asyncio, which has no limit at 1024, watches its file descriptor.

A ready descriptor is not watched until its handlers have been called: they may read only a part, and asyncio
would report it again meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from proton import Event as ProtonEvent
from proton import reactor as proton_reactor

if TYPE_CHECKING:
    from haclient.reactor.loop import Reactor

_WATCHED_AGAIN = frozenset(
    {ProtonEvent.SELECTABLE_UPDATED, ProtonEvent.SELECTABLE_READABLE, ProtonEvent.SELECTABLE_WRITABLE}
)
SELECTABLE_EVENTS = _WATCHED_AGAIN | {ProtonEvent.SELECTABLE_INIT, ProtonEvent.SELECTABLE_FINAL}
"""The events that change how the loop watches a selectable."""


class EventInjector(proton_reactor.EventInjector):
    """Passes events of other threads to a container; see ``proton.reactor.EventInjector``.

    Its pipe is closed when the container releases it; later events are dropped.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._over = False

    def trigger(self, event: Any) -> None:
        """Dispatch an event on the container's thread.  Thread-safe."""
        with self._lock:
            if not self._over:
                super().trigger(event)

    def close(self) -> None:
        """Release the container once all earlier events are dispatched.  Thread-safe."""
        with self._lock:
            if not self._over and not self._closed:
                super().close()

    def end(self) -> None:
        """Close the pipe: the container has released the injector."""
        with self._lock:
            if not self._over:
                self._over = True
                for descriptor in self.pipe:
                    os.close(descriptor)

    def __del__(self) -> None:
        self.end()


class Selectables:
    """The selectables of one container."""

    def __init__(self, container: Reactor) -> None:
        self._container = container
        # The watched descriptor and directions of each, since a selectable may change its own.
        self._watched: dict[Any, tuple[int, bool, bool]] = {}
        self._timers: dict[Any, Any] = {}

    def follow(self, kind: Any, selectable: Any) -> None:
        """Watch, release or close a selectable, as its event demands."""
        if kind is ProtonEvent.SELECTABLE_INIT:
            self._container.hold(selectable)
            self._watch(selectable)
        elif kind in _WATCHED_AGAIN and not selectable.is_terminal:
            self._watch(selectable)
        elif kind is ProtonEvent.SELECTABLE_FINAL:
            self._unwatch(selectable)
            delegate = selectable._delegate
            if isinstance(delegate, EventInjector):
                delegate.end()
            else:
                selectable.close()
            self._container.release(selectable)

    def close(self) -> None:
        """Stop watching all selectables."""
        for selectable in tuple(self._watched):
            self._unwatch(selectable)

    def _watch(self, selectable: Any) -> None:
        self._unwatch(selectable)
        descriptor = selectable.fileno()
        loop = self._container.loop
        if descriptor >= 0 and not selectable.is_terminal:
            reading, writing = bool(selectable.reading), bool(selectable.writing)
            if reading:
                loop.add_reader(descriptor, self._notify, selectable, selectable.readable)
            if writing:
                loop.add_writer(descriptor, self._notify, selectable, selectable.writable)
            self._watched[selectable] = (descriptor, reading, writing)
        if selectable.deadline:
            delay = max(0.0, selectable.deadline - self._container.mark())
            self._timers[selectable] = loop.call_later(delay, selectable.expired)

    def _notify(self, selectable: Any, ready: Callable[[], None]) -> None:
        self._unwatch(selectable)
        ready()

    def _unwatch(self, selectable: Any) -> None:
        descriptor, reading, writing = self._watched.pop(selectable, (-1, False, False))
        loop = self._container.loop
        with contextlib.suppress(OSError, ValueError):
            if reading:
                loop.remove_reader(descriptor)
            if writing:
                loop.remove_writer(descriptor)
        timer = self._timers.pop(selectable, None)
        if timer is not None:
            timer.cancel()
