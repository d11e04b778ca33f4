"""Releases proton's C objects where no other thread uses their connection.

Python finalizes an object in whichever thread drops its last reference, or collects garbage.  Meanwhile the
container's thread may be inside proton, since cffi releases the lock of the interpreter.  proton's reference
counts and lists have no lock, so a release in another thread can crash the process.

While events are dispatched, the dispatching thread releases at once: proton then uses the memory of a settled
delivery for the next one, which saves a quarter of a message's time.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from cproton_ffi import lib

_this_thread = threading.get_ident


class Released:
    """The C objects of one connection whose Python objects are gone.

    :ivar count: the number of Python objects with a reference to a C object, and of these C objects.
    """

    def __init__(self) -> None:
        self.count = 0
        self._waiting: deque[Any] = deque()
        self._thread = 0
        """The thread that dispatches events."""

    def add(self, impl: Any, is_exiting: Callable[[], bool] = sys.is_finalizing) -> None:
        """Add the C object of a Python object that is finalized, in any thread.

        After the last Python object nothing uses the connection, and all are released.  At Python's exit
        nothing is released: a daemon thread may still be inside proton.
        """
        if self._thread == _this_thread():
            lib.pn_decref(impl)
            self.count -= 1
            return
        self._waiting.append(impl)
        if len(self._waiting) == self.count and not is_exiting():
            self.free()

    @contextmanager
    def here(self) -> Iterator[None]:
        """Release at once what this thread finalizes, since it uses the connection; then release the rest."""
        former, self._thread = self._thread, _this_thread()
        try:
            yield
        finally:
            self.free()
            self._thread = former

    def free(self) -> None:
        """Release the C objects; call this in the thread that uses the connection."""
        waiting, decref = self._waiting, lib.pn_decref
        while waiting:
            decref(waiting.popleft())
            self.count -= 1
