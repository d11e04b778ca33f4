"""The blocking API's future behaves as a standard one, and costs nothing while no thread waits."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, InvalidStateError

import pytest

from haclient.api.light_future import LightFuture

Ending = Callable[[Future[int]], object]


def test_nothing_is_made_for_a_future_that_is_read_when_it_is_done() -> None:
    future = LightFuture[int]()
    assert not future.done()
    future.set_result(7)
    assert future.done()
    assert future.result() == 7
    assert future._made is None


def fail(future: Future[int]) -> None:
    future.set_exception(ValueError("no"))


def succeed(future: Future[int]) -> None:
    future.set_result(7)


ENDINGS: dict[str, Ending] = {"result": succeed, "error": fail, "cancelled": Future.cancel}
ways = pytest.mark.parametrize("end", ENDINGS.values(), ids=ENDINGS)


def seen(future: Future[int]) -> object:
    """Return all that a caller can see of a completed future."""
    try:
        return future.result(timeout=10)
    except (ValueError, CancelledError) as error:
        return type(error)


@ways
def test_it_ends_as_a_standard_future_does(end: Ending) -> None:
    light, standard = LightFuture[int](), Future[int]()
    for future in (light, standard):
        end(future)
    assert seen(light) == seen(standard)
    assert (light.done(), light.cancelled(), light.running()) == (
        standard.done(),
        standard.cancelled(),
        standard.running(),
    )
    for again in (succeed, fail):
        with pytest.raises(InvalidStateError):
            again(light)
    assert light.cancel() is standard.cancel()
    assert repr(light).partition("state=")[2] == repr(standard).partition("state=")[2]


@ways
def test_a_thread_that_waits_is_woken(end: Ending) -> None:
    for _ in range(200):
        future, found = LightFuture[int](), list[object]()
        waiter = threading.Thread(target=lambda future=future, found=found: found.append(seen(future)))
        waiter.start()
        end(future)
        waiter.join(10)
        assert found == [seen(future)]


@ways
def test_the_standard_ways_to_wait_for_several_futures(end: Ending) -> None:
    waiting: Future[int] = LightFuture()
    done: Future[int] = LightFuture()
    done.set_result(1)
    assert concurrent.futures.wait([done, waiting], 0).not_done == {waiting}
    both = concurrent.futures.as_completed([done, waiting], 10)
    assert next(both) is done
    # A cancelled future is reported to ``wait`` only after an executor has seen it.
    end(waiting)
    if waiting.cancelled():
        waiting.set_running_or_notify_cancel()
    assert next(both) is waiting


@ways
def test_a_callback_is_called_once_before_or_after_the_end(end: Ending) -> None:
    future, calls = LightFuture[int](), list[Future[int]]()
    future.add_done_callback(calls.append)
    end(future)
    future.add_done_callback(calls.append)
    assert calls == [future, future]


def test_no_callback_is_lost_or_doubled_when_two_threads_race() -> None:
    for _ in range(300):
        future, calls = LightFuture[int](), list[Future[int]]()
        setter = threading.Thread(target=future.set_result, args=(7,))
        setter.start()
        future.add_done_callback(calls.append)
        setter.join(10)
        assert calls == [future]


def test_either_a_cancellation_or_a_result_wins() -> None:
    for _ in range(300):
        future, refused = LightFuture[int](), list[bool]()

        def set_it(future: Future[int] = future, refused: list[bool] = refused) -> None:
            try:
                future.set_result(7)
            except InvalidStateError:
                refused.append(True)

        setter = threading.Thread(target=set_it)
        setter.start()
        cancelled = future.cancel()
        setter.join(10)
        assert future.done()
        assert cancelled is bool(refused) is future.cancelled()


async def test_asyncio_waits_for_it() -> None:
    future = LightFuture[int]()
    threading.Timer(0.01, future.set_result, (7,)).start()
    async with asyncio.timeout(10):
        assert await asyncio.wrap_future(future) == 7
