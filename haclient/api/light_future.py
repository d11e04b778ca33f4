"""A ``concurrent.futures.Future`` that makes its condition when somebody waits for it, and not before.

A pipelined program looks at most of its futures when they are done already.  The standard future makes a
condition, a lock and three containers each time, and notifies nobody: three microseconds a message, and a
kilobyte while its program keeps it.

Rules
-----
* Whoever waits, adds a callback or looks from ``concurrent.futures.wait`` uses ``_condition``.  Once that is
  made, every method is the standard one.
* Until then the lock alone guards the state, and the condition is made with that lock: so a waiter either
  sees the result or is notified of it.

It uses names that the standard library's ``wait`` and ``as_completed`` read of every future as well.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")

# The class itself: ``threading.RLock`` is a function that calls it, at twice the price.
_RLock = type(threading.RLock())
_PENDING, _FINISHED = "PENDING", "FINISHED"
_OPEN = (_PENDING, "RUNNING")


class LightFuture(Future[T]):
    """Starts pending.  One thread may set it while others wait for it or cancel it."""

    # Instead of ``Future.__init__``; the lists are made together with the condition.
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
        """Whether it has a result, an error, or was cancelled."""
        return self._state not in _OPEN

    def result(self, timeout: float | None = None) -> T:
        """Wait for the result and return it, or raise the error."""
        if self._state == _FINISHED and self._exception is None:
            return self._result  # type: ignore[return-value]
        return super().result(timeout)

    def set_result(self, result: T) -> None:
        """Set the result.

        :raises concurrent.futures.InvalidStateError: when it is done already.
        """
        with self._lock:
            if self._made is None and self._state == _PENDING:
                self._result = result
                self._state = _FINISHED
                return
        super().set_result(result)
