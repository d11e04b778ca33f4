"""Runs an event loop on a thread of its own, for the blocking API.

Heartbeats go on while the application computes, because they do not need its thread.

Rules
-----
* ``call`` runs a coroutine and waits for it; ``post`` queues a callback and returns.  Posts
  are batched: one wake-up of the loop for all that are queued before it runs.  What a thread posts is done
  before what it calls afterwards.
* The thread lives in the process that started it.  After a fork, and on the loop thread
  itself, both raise ``WrongThread`` instead of waiting for ever.
* The thread ends with ``stop``, with the garbage collection of its owner, or with the process.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from haclient.errors import ConnectionClosed, WrongThread

logger = logging.getLogger("haclient")

T = TypeVar("T")

# At the end of the process: long enough for a loop that only has to stop.
_JOIN_TIMEOUT = 1.0
_CLOSED = "the factory is closed"


class LoopThread:
    """Starts when it is made."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._posted: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._awake = False
        # Nothing reaches the loop once ``stop`` has begun: it could be left lying there for ever.
        self._lock = threading.Lock()
        self._stopped = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=_run, args=(self._loop,), name="haclient", daemon=True)
        self._thread.start()
        self._finalizer = weakref.finalize(self, _stop, self._loop, self._thread, self._pid)

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and wait for its result.

        An interrupt (``KeyboardInterrupt``) cancels it.

        :raises ConnectionClosed: also when ``stop`` ends the loop meanwhile.
        """
        try:
            self.check()
            with self._lock:
                self._check_running()
                if self._posted:  # the thread that wakes the loop for it may not have done so yet
                    self._loop.call_soon_threadsafe(self._run_posted)
                future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except BaseException:
            coroutine.close()
            raise
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise ConnectionClosed(_CLOSED) from None
        except BaseException:
            future.cancel()
            raise

    def call_within(self, seconds: float | None, function: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Run a coroutine function on the loop and wait so long for it.

        :raises TimeoutError: when it takes longer.
        """

        async def within() -> None:
            async with asyncio.timeout(seconds):
                await function()

        self.call(within())

    def post(self, function: Callable[..., object], *arguments: Any) -> None:
        """Have a function called on the loop, after everything posted before it."""
        self._posted.append((function, arguments))
        if not self._awake:
            self._awake = True
            self._check_process()
            with self._lock:
                if not self._stopped:
                    self._loop.call_soon_threadsafe(self._run_posted)
                    return
            # Whatever was posted meanwhile finds its connection closed, and raises that.
            self._run_posted()
            raise ConnectionClosed(_CLOSED)

    def check(self) -> None:
        """Raise unless a blocking call can be made here.

        :raises WrongThread: on the loop thread, or in a forked process.
        :raises ConnectionClosed: after ``stop``.
        """
        self._check_process()
        if threading.get_ident() == self._thread.ident:
            msg = "a blocking call on haclient's own thread would wait for itself"
            raise WrongThread(msg)
        self._check_running()

    def stop(self) -> None:
        """End the thread.  What was posted before is done first."""
        with self._lock:
            self._stopped = True
        self._finalizer()

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            msg = "this factory belongs to the parent process: make a new one after a fork"
            raise WrongThread(msg)

    def _check_running(self) -> None:
        if self._stopped:
            raise ConnectionClosed(_CLOSED)

    def _run_posted(self) -> None:
        # Reset first: a post while this runs wakes the loop once more, at worst idly.
        self._awake = False
        posted = self._posted
        while posted:
            function, arguments = posted.popleft()
            try:
                function(*arguments)
            except Exception:
                logger.exception("a callback posted to the event-loop thread raised")


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        loop.run_until_complete(_cancel_everything())
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()


async def _cancel_everything() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _stop(loop: asyncio.AbstractEventLoop, thread: threading.Thread, pid: int) -> None:
    if os.getpid() != pid or not thread.is_alive():
        return
    loop.call_soon_threadsafe(loop.stop)
    if threading.current_thread() is not thread:
        thread.join(_JOIN_TIMEOUT)
