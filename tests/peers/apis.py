"""Both APIs with one set of awaitable names, so that one test runs over both.

The asyncio API is used unchanged. Every blocking method runs on its own thread, and its result is
wrapped likewise. So a blocking call that hangs does not hang the test.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import haclient
from haclient import aio, blocking
from haclient.api.blocking_receiver import Processing
from haclient.events.event_log import BlockingEvents
from haclient.testing.peers.listening import Peer, url

_WRAPPED = (
    blocking.ConnectionFactory,
    blocking.Connection,
    blocking.Sender,
    blocking.Receiver,
    blocking.Delivery,
    Processing,
)


class AsyncAPI:
    """The asyncio API."""

    name = "aio"

    async def connect(self, url: str, **arguments: Any) -> Any:
        return await aio.connect(url, **arguments)

    async def factory(self, url: str, **arguments: Any) -> Any:
        return aio.ConnectionFactory(url, **arguments)


class BlockingAPI:
    """The blocking API, each call on a thread."""

    name = "blocking"

    async def connect(self, url: str, **arguments: Any) -> Any:
        return await on_thread(haclient.connect, url, **arguments)

    async def factory(self, url: str, **arguments: Any) -> Any:
        return await on_thread(haclient.ConnectionFactory, url, **arguments)


API = AsyncAPI | BlockingAPI
APIS = (AsyncAPI, BlockingAPI)


@asynccontextmanager
async def connected(api: API, peer: Peer, **options: Any) -> AsyncIterator[Any]:
    """Connect to a peer with the options of its URL, and short backoffs for fast failovers."""
    connection = await api.connect(url(peer, **{"backoff_base": 0.001, "backoff_max": 0.01, **options}))
    try:
        yield connection
    finally:
        await connection.close()


async def until_waiting(receiver: Any) -> None:
    """Wait until a call of this receiver waits for messages."""
    async with asyncio.timeout(10):
        while not receiver._core.waiting:  # noqa: ASYNC110 - a receiver signals nothing
            await asyncio.sleep(0.001)


class Threaded:
    """A blocking object whose methods are awaited."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.inner, name)
        if not callable(value) or name.startswith("_"):
            return value
        if name == "events":
            return lambda: ThreadedEvents(value())
        if name == "processing":  # never blocks
            return lambda **named: Threaded(value(**named))

        async def call(*arguments: Any, **named: Any) -> Any:
            return await on_thread(value, *arguments, **named)

        return call

    async def __aenter__(self) -> Any:
        return await on_thread(self.inner.__enter__)

    async def __aexit__(self, *raised: object) -> Any:
        return await on_thread(self.inner.__exit__, *raised)


class ThreadedEvents:
    """A blocking iterator, read on a thread."""

    def __init__(self, events: BlockingEvents) -> None:
        self._events = events

    def __aiter__(self) -> ThreadedEvents:
        return self

    async def __anext__(self) -> Any:
        event = await on_thread(next, self._events, None)
        if event is None:
            raise StopAsyncIteration
        return event


async def on_thread(call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Run a blocking call on a new thread. On cancellation the thread continues."""
    future: concurrent.futures.Future[Any] = concurrent.futures.Future()

    def run() -> None:
        try:
            result = call(*arguments, **named)
        except BaseException as error:  # noqa: BLE001 - it belongs to whoever waits
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=run, name=f"test {call!r}", daemon=True).start()
    result = await asyncio.shield(asyncio.wrap_future(future))
    if isinstance(result, concurrent.futures.Future):
        return asyncio.wrap_future(result)
    return [_wrapped(each) for each in result] if isinstance(result, list) else _wrapped(result)


def _wrapped(result: Any) -> Any:
    return Threaded(result) if isinstance(result, _WRAPPED) else result
