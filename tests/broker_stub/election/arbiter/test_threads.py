"""Calls that hang are given up, and never accumulate."""

from __future__ import annotations

import asyncio
import threading

import pytest

from broker_stub.election.arbiter.threads import Threads

MOST = 8


async def test_calls_that_hang_are_given_up_and_at_a_bound_no_further_one_begins() -> None:
    threads, released, begun = Threads(), threading.Event(), threading.Semaphore(0)

    def hang(_deadline: float) -> None:
        begun.release()
        released.wait()

    hanging = [asyncio.ensure_future(threads.run(hang, timeout=3600.0)) for _ in range(MOST)]
    for _ in hanging:
        assert await asyncio.to_thread(begun.acquire, timeout=30)
    with pytest.raises(TimeoutError):
        await threads.run(lambda _deadline: pytest.fail("it began"), timeout=3600.0)
    for each in hanging:
        each.cancel()
    await asyncio.gather(*hanging, return_exceptions=True)
    with pytest.raises(TimeoutError):  # their callers have gone, but the threads still hang
        await threads.run(lambda _deadline: pytest.fail("it began"), timeout=3600.0)
    released.set()
    async with asyncio.timeout(30):
        while True:
            try:
                assert await threads.run(lambda _deadline: "answer", timeout=30.0) == "answer"
                break
            except TimeoutError:
                await asyncio.sleep(0)


async def test_a_call_that_ends_in_time_returns_what_it_returns_and_raises_what_it_raises() -> None:
    threads = Threads()
    for _ in range(3 * MOST):
        with pytest.raises(ZeroDivisionError):
            await threads.run(lambda _deadline: 1 / 0, timeout=30.0)
    assert await threads.run(lambda deadline: deadline > 0, timeout=30.0)
