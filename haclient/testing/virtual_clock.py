"""Virtual time for an application's own retry tests: an hour of backoff in milliseconds.

    with virtual_time() as time:
        time.run(application.keep_trying())
        assert time.elapsed > 3600

Theory of operation
-------------------
The event loop of ``run`` asks its selector to wait until the next timer.  This selector checks whether an
event can occur before that.  With no open socket and no working thread none can, and the clock jumps.

While a socket is open a peer may answer, in real time.  So the clock jumps only after ``settle`` real seconds
of silence.  While a thread of the loop's executor works (``asyncio.to_thread``, name resolution), time passes
as usual.

In the thread that entered it ``time.sleep`` takes ``settle`` real seconds at most, and ``time.monotonic`` and
``time.time`` return the virtual time.  Other threads, haclient's own among them, use real time: for the
blocking API use ``fast_failover`` as well.

Rules
-----
* Processes, and so ``ha_pair``, use real time.  Virtual time is for outages that do not end: with
  ``flaky_peers``, or an address without a member.  For failovers use ``fast_failover``.
* Connections made meanwhile have no heartbeats: a peer in real time is silent for hours of virtual time.

Alternatives rejected: looptime 0.9, the maintained one, moves its clock after 42 empty polls of the selector,
some microseconds.  A peer in another thread or process never answers in time.  Installing it also patches the
event loop of each test.  async-solipsism has no real sockets; time-machine and freezegun do not reach timers
and sleeps.
"""

from __future__ import annotations

import asyncio
import selectors
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar
from unittest import mock

from haclient.cluster_url.options import Options, with_overrides
from haclient.testing.short_delays import changed_options

T = TypeVar("T")
_Events = list[tuple[selectors.SelectorKey, int]]
# Seconds: an answer over loopback takes well under a millisecond, on a busy machine some tens.
SETTLE = 0.1
# Seconds.  asyncio regards a timer as due up to a nanosecond early.  Code that then reads the clock must not
# find the time too early: it would wait for a time that does not pass by itself.
_TICK = 1e-9
_DIGITS = 3


class VirtualTime:
    """A virtual clock, and event loops that use it.

    :param settle: real seconds of silence after which no answer is expected.
    """

    def __init__(self, settle: float = SETTLE) -> None:
        self.settle = settle
        self._elapsed = 0.0
        self._monotonic = time.monotonic()
        self._wall = time.time()
        self._really_sleep = time.sleep

    @property
    def elapsed(self) -> float:
        """Return the virtual seconds so far, to the millisecond; computation takes none."""
        return round(self._elapsed, _DIGITS)

    def advance(self, seconds: float) -> None:
        """Advance the clock at once.

        :raises ValueError: for a negative time.
        """
        if seconds < 0:
            raise ValueError(f"time does not go back ({seconds} s)")
        self._elapsed += seconds

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end on a new event loop of virtual time, as ``asyncio.run``."""
        with asyncio.Runner(loop_factory=self.new_event_loop) as runner:
            return runner.run(main)

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        """Return a new event loop of virtual time, for functions that take a loop factory."""
        return _Loop(self)

    def monotonic(self) -> float:
        """Return the virtual ``time.monotonic``, which the event loops use."""
        return self._monotonic + self._elapsed

    def time(self) -> float:
        """Return the virtual ``time.time``."""
        return self._wall + self._elapsed

    def sleep(self, seconds: float) -> None:
        """Sleep in virtual time; other threads and processes get ``settle`` real seconds of it."""
        self.advance(seconds)
        self._really_sleep(min(seconds, self.settle))


@contextmanager
def virtual_time(settle: float = SETTLE) -> Iterator[VirtualTime]:
    """Use virtual time in this thread, until the body ends."""
    clock = VirtualTime(settle)
    with ExitStack() as stack:
        for name in ("sleep", "monotonic", "time"):
            stack.enter_context(_in_this_thread(name, getattr(clock, name)))
        stack.enter_context(changed_options(_without_heartbeat))
        yield clock


def _without_heartbeat(options: Options) -> Options:
    return with_overrides(options, heartbeat=0)


@contextmanager
def _in_this_thread(name: str, virtual: Callable[..., Any]) -> Iterator[None]:
    """Replace a function of ``time`` for callers on this thread."""
    real: Callable[..., Any] = getattr(time, name)
    mine = threading.get_ident()

    def either(*arguments: Any) -> Any:
        return (virtual if threading.get_ident() == mine else real)(*arguments)

    with mock.patch.object(time, name, either):
        yield


class _Loop(asyncio.SelectorEventLoop):
    """An event loop that uses a virtual clock."""

    def __init__(self, clock: VirtualTime) -> None:
        self._clock = clock
        self._threads_at_work: set[asyncio.Future[Any]] = set()
        selector = _Selector(clock, self._threads_at_work)
        super().__init__(selector)
        selector.own = frozenset(selector.get_map())

    def time(self) -> float:
        return self._clock.monotonic()

    def run_in_executor(  # type: ignore[override]  # typeshed's generic signature, simplified
        self, executor: Executor | None, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        future: asyncio.Future[T] = super().run_in_executor(executor, func, *args)
        self._threads_at_work.add(future)
        future.add_done_callback(self._threads_at_work.discard)
        return future

    async def shutdown_default_executor(self, *args: Any, **kwargs: Any) -> None:
        """Wait for the threads in real time; in virtual time Python 3.12's 300 s would pass at once."""
        joining = self.create_future()
        self._threads_at_work.add(joining)
        try:
            await super().shutdown_default_executor(*args, **kwargs)
        finally:
            self._threads_at_work.discard(joining)


class _Selector(selectors.DefaultSelector):
    """Waits for real input in real time, and for timers in virtual time.

    :ivar own: the descriptors of the loop itself, which only wake the loop.
    """

    def __init__(self, clock: VirtualTime, threads_at_work: set[asyncio.Future[Any]]) -> None:
        super().__init__()
        self._clock = clock
        self._threads_at_work = threads_at_work
        self.own: frozenset[Any] = frozenset()

    def select(self, timeout: float | None = None) -> _Events:
        if timeout is None:
            return super().select(None)  # no timer: only another thread or process can continue
        ready = super().select(0)
        if ready or timeout <= 0:
            return ready
        if self._threads_at_work:
            return self._really_wait(timeout)
        if self._may_be_answered():
            ready = super().select(min(timeout, self._clock.settle))
        if not ready:
            self._clock.advance(timeout + _TICK)
        return ready

    def _really_wait(self, timeout: float) -> _Events:
        began = time.perf_counter()
        ready = super().select(timeout)
        self._clock.advance(min(time.perf_counter() - began, timeout) if ready else timeout + _TICK)
        return ready

    def _may_be_answered(self) -> bool:
        """Return whether any descriptor is open, apart from sockets that only listen."""
        return any(not _listens(fd) for fd in self.get_map() if fd not in self.own)


def _listens(fd: Any) -> bool:
    try:
        tried = socket.socket(fileno=fd)
    except OSError:
        return False  # a pipe, to a child process
    try:
        return bool(tried.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    finally:
        tried.detach()
