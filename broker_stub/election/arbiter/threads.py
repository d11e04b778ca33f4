"""Runs blocking work, which may hang, outside the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from typing import NoReturn, TypeVar

T = TypeVar("T")

# Seconds to wait beyond the deadline of the work: its own error is more specific.
_GRACE = 0.5
# Calls that may hang at the same time: a promotion, a shrink, and a few abandoned reads.
_MOST_HANGING = 8


class Threads:
    """Daemon threads for the calls of one arbiter; a bounded number may hang at the same time."""

    def __init__(self) -> None:
        self._free = threading.BoundedSemaphore(_MOST_HANGING)

    async def run(self, work: Callable[[float], T], *, timeout: float) -> T:
        """Run work like ``asyncio.to_thread``, but without waiting forever for work that hangs.

        Neither the loop nor the interpreter waits for it.

        :param work: called with its deadline, by ``time.monotonic()``; should end by itself at the deadline.
        :param timeout: seconds until that deadline.
        :raises TimeoutError: if the work hangs, and its thread is abandoned; or if too many threads hang
            already.
        """
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[Callable[[], T]] = loop.create_future()
        deadline = time.monotonic() + timeout
        free = self._free

        def finish(outcome: Callable[[], T]) -> None:
            if not ended.done():
                ended.set_result(outcome)

        def run() -> None:
            try:
                outcome = _outcome(work, deadline)
            finally:
                free.release()
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(finish, outcome)

        if not free.acquire(blocking=False):
            raise TimeoutError
        threading.Thread(target=run, name="arbiter", daemon=True).start()
        async with asyncio.timeout(timeout + _GRACE):
            outcome = await ended
        return outcome()


def _outcome(work: Callable[[float], T], deadline: float) -> Callable[[], T]:
    try:
        result = work(deadline)
    except Exception as error:  # noqa: BLE001  (the caller raises it again)
        return _raising(error)
    return lambda: result


def _raising(error: Exception) -> Callable[[], NoReturn]:
    def raise_it() -> NoReturn:
        raise error

    return raise_it
