"""A connection without a primary warns when a call has waited for 5 s, and then every 30 s."""

from __future__ import annotations

import asyncio
import itertools
import logging
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from haclient import Message, aio, events
from haclient.core import waiting
from haclient.errors import ConnectionGaveUp, LinkTimeout, ReceiveTimeout, SendTimeout
from haclient.testing.threads import in_thread
from haclient.testing.virtual_clock import VirtualTime, virtual_time
from haclient.utils import BlockingConnection
from tests.peers import primary, url

# Few attempts, since these tests are about the warnings.
SLOW: dict[str, Any] = {
    "client_id": "waiting",
    "backoff_base": 1000,
    "backoff_max": 1000,
    "deadline": None,
    "startup_deadline": None,
}


class Warned(logging.Handler):
    """The warnings about waiting calls, with the virtual time since the loss."""

    def __init__(self, clock: VirtualTime) -> None:
        super().__init__(logging.WARNING)
        self.found: list[tuple[int, str]] = []
        self.began = clock.elapsed
        self._clock = clock

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if "no primary for" in text:
            self.found.append((round(self._clock.elapsed - self.began), text))

    @property
    def times(self) -> list[int]:
        return [at for at, _ in self.found]


@contextmanager
def warned(clock: VirtualTime) -> Iterator[Warned]:
    handler = Warned(clock)
    logger = logging.getLogger("haclient")
    logger.addHandler(handler)
    try:
        yield handler
    finally:
        logger.removeHandler(handler)


Use = Callable[[aio.Connection, Warned], Awaitable[None]]


def in_an_outage(use: Use, *before: Callable[[aio.Connection], Awaitable[Any]], **options: Any) -> Warned:
    """Use a connection whose primary is gone.

    :param before: links to create before the loss; ``use`` gets them as attributes of its argument.
    """

    async def main() -> None:
        async with primary() as peer:
            connection = await aio.connect(url(peer), **{**SLOW, **options})
            made.extend([await make(connection) for make in before])
            subscription = connection.events()
        async for event in subscription:
            if isinstance(event, events.Disconnected):
                break
        log.began = clock.elapsed
        await use(connection, log)
        await connection.close()
        count = len(log.found)
        await asyncio.sleep(100)
        assert len(log.found) == count, "a closed connection warns no more"

    made: list[Any] = []
    use.__dict__["made"] = made
    with virtual_time() as clock, warned(clock) as log:
        clock.run(main())
    return log


def sender(connection: aio.Connection) -> Awaitable[aio.Sender]:
    return connection.create_sender("q")


def receiver(connection: aio.Connection) -> Awaitable[aio.Receiver]:
    return connection.create_receiver("q")


def test_many_calls_make_one_warning_and_one_timer() -> None:
    async def use(_: aio.Connection, __: Warned) -> None:
        [(receiving)] = use.__dict__["made"]
        timers = len(scheduled())
        calls = [asyncio.ensure_future(receiving.receive()) for _ in range(100)]
        await asyncio.sleep(0)
        assert len(scheduled()) <= timers + 1
        await asyncio.sleep(99)
        for call in calls:
            call.cancel()
        await asyncio.wait(calls)
        await asyncio.sleep(100)

    log = in_an_outage(use, receiver)
    assert log.times == [5, 35, 65, 95]
    assert log.found[1][1].startswith("waiting/1: no primary for 35 s; 100 calls and 0 messages wait")


def scheduled() -> list[asyncio.TimerHandle]:
    """Return the timers of the running loop."""
    loop: Any = asyncio.get_running_loop()
    return [timer for timer in loop._scheduled if not timer.cancelled()]


def test_nothing_that_waits_is_no_warning_and_each_call_counts_from_its_own_beginning() -> None:
    async def use(connection: aio.Connection, _: Warned) -> None:
        [(receiving)] = use.__dict__["made"]
        await asyncio.sleep(100)
        with pytest.raises(ReceiveTimeout):
            await receiving.receive(timeout=3)
        await asyncio.sleep(97)
        with pytest.raises(LinkTimeout, match="no primary"):
            await connection.create_sender("q", timeout=40)
        await asyncio.sleep(60)
        with pytest.raises(LinkTimeout):
            await connection.create_receiver("q")

    assert in_an_outage(use, receiver).times == [205, 235, 305, 335]


def test_warnings_of_calls_that_follow_each_other_are_30_s_apart() -> None:
    async def use(_: aio.Connection, __: Warned) -> None:
        [(receiving)] = use.__dict__["made"]
        for _ in range(20):
            with pytest.raises(ReceiveTimeout):
                await receiving.receive(timeout=6)
            await asyncio.sleep(1)

    times = in_an_outage(use, receiver).times
    assert times[0] == 5
    assert all(later - earlier >= 30 for earlier, later in itertools.pairwise(times))


@pytest.mark.parametrize("kind", ["send", "submit", "window", "flush"])
def test_every_kind_of_sending_call_counts(kind: str) -> None:
    async def use(_: aio.Connection, __: Warned) -> None:
        [(sending)] = use.__dict__["made"]
        if kind == "send":
            with pytest.raises(SendTimeout):
                await sending.send(Message(body=1), timeout=40)
            await asyncio.sleep(100)
            return
        future = await sending.submit(Message(body=1))
        if kind == "window":
            with pytest.raises(SendTimeout):
                await sending.submit(Message(body=2), timeout=40)
        elif kind == "flush":
            with pytest.raises(SendTimeout):
                await sending.flush(timeout=40)
        else:
            await asyncio.sleep(40)
        future.cancel()
        await asyncio.sleep(100)

    log = in_an_outage(use, sender, window=1)
    calls = 1 if kind in ("window", "flush") else 0
    assert log.times == [5, 35]
    assert f"; {calls} calls and 1 messages wait" in log.found[0][1]


def test_calls_that_waited_before_the_loss_count_from_the_loss() -> None:
    async def use(_: aio.Connection, __: Warned) -> None:
        await asyncio.sleep(50)
        receiving.cancel()

    async def wait(connection: aio.Connection) -> None:
        nonlocal receiving
        receiving = asyncio.ensure_future((await receiver(connection)).receive())
        await asyncio.sleep(50)

    receiving: asyncio.Future[aio.Delivery] = None  # type: ignore[assignment]
    assert in_an_outage(use, wait).times == [5, 35]


def test_the_first_connect_warns_too_and_a_give_up_ends_it() -> None:
    async def main() -> None:
        async with primary() as peer:
            address = url(peer)
        log.began = clock.elapsed
        with pytest.raises(ConnectionGaveUp):
            await aio.connect(address, **{**SLOW, "startup_deadline": 50})
        await asyncio.sleep(100)

    with virtual_time() as clock, warned(clock) as log:
        clock.run(main())
    assert log.times == [5, 35]
    text, answer = log.found[0][1].split(" wait; ")
    assert text == "waiting/1: no primary for 5 s; 1 calls and 0 messages"
    assert re.fullmatch(r"amqp://127[.0-9]+:\d+: connection refused", answer)


def test_each_outage_has_its_own_warnings_and_a_short_one_none() -> None:
    async def main() -> None:
        async with primary() as peer:
            host, port = peer.host, peer.port
            connection = await aio.connect(url(peer), backoff_base=1, backoff_max=1, deadline=None)
            call = asyncio.ensure_future((await receiver(connection)).receive())
        for seconds in (3, 12, 12):
            log.began = clock.elapsed
            await asyncio.sleep(seconds)
            async with primary(host=host, port=port) as peer:
                await peer.until(lambda peer=peer: peer.credit)
                found.append(log.times)
                log.found.clear()
        call.cancel()
        await connection.close()

    found: list[list[int]] = []
    with virtual_time() as clock, warned(clock) as log:
        clock.run(main())
    assert found == [[], [5], [5]]


def test_a_blocking_call_of_the_drop_in_counts(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with in_thread(primary()) as peer:
        connection = BlockingConnection(url(peer), backoff_base=0.01, backoff_max=0.01, timeout=10)
        receiving = connection.create_receiver("q")
        monkeypatch.setattr(waiting, "_FIRST", 0.01)
    with pytest.raises(Exception, match="timed out"):
        receiving.receive(timeout=0.5)
    connection.close()
    texts = [record.getMessage() for record in caplog.records if "no primary for" in record.getMessage()]
    assert len(texts) == 1
    assert "1 calls and 0 messages wait" in texts[0]
