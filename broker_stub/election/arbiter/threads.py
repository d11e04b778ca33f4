"""Work that blocks, and may hang, beside the loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from typing import NoReturn, TypeVar

T = TypeVar("T")

# How much later than its own deadline the work is waited for (seconds): its own error says more.
_GRACE = 0.5
# Calls that may hang at the same time: a promotion, a shrink, and a few reads that were given up.
_MOST_HANGING = 8


class Threads:
    """Threads that nobody waits for, for the calls of one arbiter; at most a few hang at the same time."""

    def __init__(self) -> None:
        self._free = threading.BoundedSemaphore(_MOST_HANGING)

    async def run(self, work: Callable[[float], T], *, timeout: float) -> T:
        """Like ``asyncio.to_thread``, but neither the loop nor the interpreter waits for work that hangs.

        :param work: is given its deadline, by ``time.monotonic()``, and should end by itself then.
        :param timeout: seconds until that deadline.
        :raises TimeoutError: if it hangs, and the thread is left to itself; or if so many hang already.
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
