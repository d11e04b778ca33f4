"""Runs an event loop on a thread of its own, for the blocking API.

Heartbeats continue while the application computes, because they do not need its thread.

Rules
-----
* ``call`` runs a coroutine and waits for it; ``post`` queues a callback and returns.  Posts are batched: one
  wake-up of the loop serves all that are queued before it runs.  The posts of a thread run before its later
  calls.
* The first call starts the thread, and with it the event loop and its descriptors.  Until then a forked
  process may use an inherited factory; the parent and every child start a thread of their own.
* The thread lives in the process that started it.  After a fork, and on the loop thread itself, both raise
  ``WrongThread`` instead of waiting for ever.
* It is a thread of the operating system.  Greenlets of one thread share its running event loop, so the first
  call raises ``WrongThread`` if gevent or eventlet has replaced threads by greenlets.
* The thread ends with ``stop``, with the garbage collection of its owner, or with the process.  The last two
  never raise, and take no lock: the collector may run in the middle of a call here.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from haclient.errors import ConnectionClosed, WrongThread
from haclient.printable.log import get_logger

logger = get_logger("haclient")

T = TypeVar("T")

# Seconds to wait at the end of the process: enough for a loop that only has to stop.
_JOIN_TIMEOUT = 1.0
_CLOSED = "the factory is closed"


# The patch to use instead of one that replaces threads, and how a greenlet then makes a blocking call.
_INSTEAD = {
    "gevent": "gevent.monkey.patch_all(thread=False, select=False); call by gevent.get_hub().threadpool",
    "eventlet": "eventlet.monkey_patch(thread=False); call by eventlet.tpool",
}


def check_threads() -> None:
    """Check that greenlets have not replaced threads.

    :raises WrongThread: if they have; says how to patch instead.
    """
    gevent, eventlet = sys.modules.get("gevent.monkey"), sys.modules.get("eventlet.patcher")
    # gevent's selectors (patched by ``select``) wait for ever on a thread whose hub has no other work.
    if gevent is not None and any(map(gevent.is_module_patched, ("threading", "_thread", "selectors"))):
        found = "gevent"
    elif eventlet is not None and eventlet.is_monkey_patched("thread"):
        found = "eventlet"
    else:
        return
    raise WrongThread(f"{found} has replaced threads, and haclient needs real ones: use {_INSTEAD[found]}")


class LoopThread:
    """An event loop on a thread that starts with the first call.

    :param finish: run on the loop at the end, before all remaining tasks are cancelled.
    """

    _loop: asyncio.AbstractEventLoop

    def __init__(self, finish: Callable[[], Coroutine[Any, Any, object]] | None = None) -> None:
        self._finish = finish
        # The process in which the thread runs.
        self._pid: int | None = None
        self._thread: threading.Thread | None = None
        self._ident: int | None = None
        self._finalizer: Callable[[], object] = lambda: None
        self._posted: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._awake = False
        # No work may reach the loop once ``stop`` has begun: it might never run.
        self._lock = threading.Lock()
        self._stopped = False

    @property
    def started(self) -> bool:
        """Return whether the thread was started."""
        return self._thread is not None

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and wait for its result.

        An interrupt (``KeyboardInterrupt``) cancels the coroutine.

        :raises ConnectionClosed: after ``stop``, also if it ends the loop meanwhile.
        """
        try:
            self.check()
            with self._lock:
                self._check_running()
                if self._thread is None:
                    self._start()
                if self._posted:  # another thread may be about to wake the loop for it
                    self._loop.call_soon_threadsafe(self._run_posted)
                future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except BaseException as error:
            coroutine.close()
            if isinstance(error, RuntimeError) and self._thread is not None and self._loop.is_closed():
                raise ConnectionClosed(_CLOSED) from None  # closed by the end of the process
            raise
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise ConnectionClosed(_CLOSED) from None
        except BaseException:
            future.cancel()
            raise

    def call_within(self, seconds: float | None, function: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Run a coroutine function on the loop and wait for it at most ``seconds``.

        :raises TimeoutError: if it takes longer.
        """

        async def within() -> None:
            async with asyncio.timeout(seconds):
                await function()

        self.call(within())

    def post(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call a function on the loop, after all earlier posts."""
        self.check_process()
        self.post_checked(function, *arguments)

    def post_checked(self, function: Callable[..., object], *arguments: Any) -> None:
        """Post a function like ``post``, without the check of the process."""
        self._posted.append((function, arguments))
        if not self._awake:
            self._awake = True
            with self._lock:
                if not self._stopped:
                    if self._thread is None:
                        self._start()
                    self._loop.call_soon_threadsafe(self._run_posted)
                    return
            # Run the queued posts here: their connections are closed, so each of them reports that.
            self._run_posted()
            raise ConnectionClosed(_CLOSED)

    @property
    def busy(self) -> bool:
        """Return whether posts wait to run."""
        return bool(self._posted)

    def check(self) -> None:
        """Check that a blocking call can be made here.

        :raises WrongThread: on the loop thread, or in a forked process.
        :raises ConnectionClosed: after ``stop``.
        """
        self.check_process()
        if self._stopped:  # checked first: a new thread may have the id of the ended one
            raise ConnectionClosed(_CLOSED)
        if threading.get_ident() == self._ident:
            msg = "a blocking call on haclient's own thread would wait for itself"
            raise WrongThread(msg)

    def stop(self) -> bool:
        """End the thread, after the posts made before.

        :returns: whether there was a thread.
        """
        with self._lock:
            self._stopped = True
        self._finalizer()
        if self._thread is not None and threading.current_thread() is not self._thread:
            self._thread.join(_JOIN_TIMEOUT)
        return self._thread is not None

    def _start(self) -> None:
        """Start the thread; the caller holds the lock."""
        check_threads()
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=_run, args=(loop, self._finish), name="haclient", daemon=True)
        thread.start()
        self._loop, self._pid, self._thread, self._ident = loop, os.getpid(), thread, thread.ident
        # The garbage collector must not wait for the thread.  The end of the process must, or the thread is
        # killed at work.  At the end of the process the application may close, too: only one of the two may
        # stop the loop, or the second would stop its clean-up.
        stops = [loop.stop]
        finalizer = self._finalizer = weakref.finalize(self, _stop, loop, stops, self._pid)
        finalizer.atexit = False
        weakref.finalize(thread, _stop_at_exit, loop, stops, self._pid, weakref.ref(thread))

    def check_process(self) -> None:
        """Check that the process is not a fork.

        :raises WrongThread: if it is.
        """
        if self._pid is not None and os.getpid() != self._pid:
            msg = "this factory connected in the parent process: make a new one after a fork"
            raise WrongThread(msg)

    def _check_running(self) -> None:
        if self._stopped:
            raise ConnectionClosed(_CLOSED)

    def _run_posted(self) -> None:
        # Reset first: a post during this call wakes the loop once more, at worst without need.
        self._awake = False
        posted = self._posted
        while posted:
            function, arguments = posted.popleft()
            try:
                function(*arguments)
            except Exception:
                logger.exception("a callback posted to the event-loop thread raised")
            # A kept exception keeps this frame by its traceback, and so its local variables.
            del function, arguments


def _run(loop: asyncio.AbstractEventLoop, finish: Callable[[], Coroutine[Any, Any, object]] | None) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        try:
            if finish is not None:
                loop.run_until_complete(finish())
        finally:
            loop.run_until_complete(cancel_everything())
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()


async def cancel_everything() -> None:
    """Cancel every other task of the running loop, and wait until they end."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _stop(loop: asyncio.AbstractEventLoop, stops: list[Callable[[], None]], pid: int) -> None:
    if os.getpid() == pid:
        with contextlib.suppress(RuntimeError, IndexError):  # it is closed, or is stopping
            loop.call_soon_threadsafe(stops.pop())


def _stop_at_exit(
    loop: asyncio.AbstractEventLoop,
    stops: list[Callable[[], None]],
    pid: int,
    running: weakref.ref[threading.Thread],
) -> None:
    _stop(loop, stops, pid)
    thread = running()
    if os.getpid() == pid and thread is not None:  # otherwise it has ended
        thread.join(_JOIN_TIMEOUT)
