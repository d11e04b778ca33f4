"""Threads for calls that may hang: the application's function for credentials, and a library for Kerberos.

The default executor of the event loop is the application's as well, and the end of a program waits for its
threads.  These threads are few, and no end of a program waits for them.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")

# The default executor has as many on a machine with four processors.
_MOST = 8


class DaemonThreads:
    """At most eight threads, which exist while there are calls.

    :param name: the name of each thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._calls: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._threads = 0
        self._pid = os.getpid()

    async def run(self, function: Callable[[], T]) -> T:
        """Call a function in a thread, in a copy of this context.

        While eight calls have not returned, further ones wait.  A call that is cancelled while it waits is
        not made; a call that was made goes on, and its result is dropped.

        :raises RuntimeError: if the system allows no further thread.
        """
        if self._pid != os.getpid():  # the threads are the parent's, and perhaps one held the lock
            DaemonThreads.__init__(self, self._name)
        future: Future[T] = Future()
        call = future, functools.partial(contextvars.copy_context().run, function)
        with self._lock:
            if self._threads < _MOST:
                threading.Thread(target=self._work, name=self._name, daemon=True).start()
                self._threads += 1
            self._calls.append(call)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            with self._lock, contextlib.suppress(ValueError):
                self._calls.remove(call)
            raise

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._calls:
                    self._threads -= 1
                    return
                future, function = self._calls.popleft()
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function())
                except BaseException as error:  # noqa: BLE001 - the caller raises it again
                    future.set_exception(error)
            del future, function  # the thread may wait for the lock; the result is the caller's
