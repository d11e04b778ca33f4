"""Runs asynchronous objects on the event loop of another thread, for code that is not a coroutine.

Rules
-----
* The thread lasts as long as the context.  Linux regards the end of the thread that started a child as the
  end of its parent.  So processes started on this loop end with it, and not before.
* Calls wait at most for their time limit, and then cancel the coroutine.
* After a fork the thread does not exist in the child: calls there raise at once.  A child that leaves a
  context, by ``sys.exit`` for example, ends nothing: the context is the parent's.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, TypeVar

from haclient.factory.loop_thread import cancel_everything

T = TypeVar("T")
# Seconds: sockets and processes start and end in a fraction of that, even on a busy machine.
_CALL_TIMEOUT = 60.0


class LoopInThread:
    """The event loop of the other thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._pid = os.getpid()

    def call(self, coroutine: Coroutine[Any, Any, T], timeout: float = _CALL_TIMEOUT) -> T:
        """Run a coroutine in the other thread, and return its result.

        :param timeout: seconds.
        :raises TimeoutError: when it takes longer.
        :raises RuntimeError: when the thread has ended, or belongs to another process.
        """
        if self._loop.is_closed():
            coroutine.close()
            raise RuntimeError("the event loop of this context or fixture has ended")
        if self._pid != os.getpid():
            coroutine.close()
            raise RuntimeError("this fixture belongs to the process that this one was forked from")
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result(timeout)
        except (concurrent.futures.TimeoutError, KeyboardInterrupt):
            future.cancel()
            raise

    def do(self, function: Callable[[], T]) -> T:
        """Call a function in the other thread, and return its result."""

        async def call() -> T:
            return function()

        return self.call(call())

    @contextmanager
    def entered(self, manager: AbstractAsyncContextManager[T]) -> Iterator[T]:
        """Enter an asynchronous context manager in the other thread, and leave it at the end."""
        made = self.call(_enter(manager))
        try:
            yield made
        finally:
            if self._pid == os.getpid():
                self.call(_leave(manager))


@contextmanager
def loop_in_thread(name: str = "brokers for tests") -> Iterator[LoopInThread]:
    """Start a thread with an event loop."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=_run, args=(loop,), name=name, daemon=True)
    thread.start()
    pid = os.getpid()
    try:
        yield LoopInThread(loop)
    finally:
        if pid == os.getpid():
            loop.call_soon_threadsafe(loop.stop)
            thread.join(_CALL_TIMEOUT)


@contextmanager
def in_thread(manager: AbstractAsyncContextManager[T]) -> Iterator[T]:
    """Run an asynchronous context manager on a loop of its own."""
    with loop_in_thread() as loop, loop.entered(manager) as made:
        yield made


def _run(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
        loop.run_until_complete(cancel_everything())
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()


async def _enter(manager: AbstractAsyncContextManager[T]) -> T:
    return await manager.__aenter__()


async def _leave(manager: AbstractAsyncContextManager[Any]) -> None:
    await manager.__aexit__(None, None, None)
