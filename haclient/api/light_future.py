"""A ``concurrent.futures.Future`` that creates its condition only when a caller waits for it.

A pipelined program reads most of its futures after they are done.  The standard future creates a condition, a
lock and three containers each time, and notifies no waiter.  That costs three microseconds per message, and a
kilobyte while the program keeps the future.

Rules
-----
* A caller that waits, adds a callback or uses ``concurrent.futures.wait`` uses ``_condition``.  Once that is
  created, every method is the standard one.
* Until then the lock alone guards the state.  The condition is created with that lock, so a waiter either
  sees the result or is notified of it.

It uses names that the standard library's ``wait`` and ``as_completed`` read of every future as well.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")

# The class itself: ``threading.RLock`` is a function that calls it, at twice the cost.
_RLock = type(threading.RLock())
_PENDING, _FINISHED = "PENDING", "FINISHED"
_OPEN = (_PENDING, "RUNNING")


class LightFuture(Future[T]):
    """A future that is pending at first.  One thread may set it while others wait for it or cancel it."""

    # Replaces ``Future.__init__``; the lists are created with the condition.
    _state = _PENDING
    _result = None
    _exception = None
    _made: threading.Condition | None = None
    _waiters: list[Any]
    _done_callbacks: list[Callable[[Future[T]], object]]

    def __init__(self) -> None:
        self._lock = _RLock()

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]
        if self._made is None:
            with self._lock:
                if self._made is None:
                    self._waiters, self._done_callbacks = [], []
                    self._made = threading.Condition(self._lock)
        return self._made

    def done(self) -> bool:
        """Return whether the future has a result, an error, or was cancelled."""
        return self._state not in _OPEN

    def result(self, timeout: float | None = None) -> T:
        """Wait for the result and return it, or raise the error."""
        if self._state == _FINISHED and self._exception is None:
            return self._result  # type: ignore[return-value]
        return super().result(timeout)

    def set_result(self, result: T) -> None:
        """Set the result.

        :raises concurrent.futures.InvalidStateError: if it is done already.
        """
        with self._lock:
            if self._made is None and self._state == _PENDING:
                self._result = result
                self._state = _FINISHED
                return
        super().set_result(result)
