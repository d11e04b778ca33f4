"""``retry-after`` on real sockets: honored, but never above the ceiling, whatever a server sends."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import proton
import pytest

from haclient import aio
from haclient.events import AttemptStarted, BackingOff, Event, Reconnected
from haclient.testing.peers.listening import Peer, PeerEngine, bound, url
from haclient.testing.peers.passive import speaking
from tests.failover.test_parking import QUICK
from tests.failover.waiting import next_of
from tests.peers.parking import member
from tests.peers.primary import primary

LIMIT = "amqp:resource-limit-exceeded"
REDIRECT = "amqp:connection:redirect"
HOUR = proton.uint(3_600_000)
NONSENSE: list[Any] = [
    proton.int32(-1),
    "soon",
    True,
    proton.float32(1.5),
    float("nan"),
    float("inf"),
    proton.ulong(2**64 - 1),
    None,
    [HOUR],
    {"retry-after": HOUR},
    proton.symbol("later"),
    proton.timestamp(1),
]


def closing_with(
    name: str, retry_after_values: Iterable[Any], target: Peer | None = None
) -> AbstractAsyncContextManager[Peer]:
    """Start a member that closes each connection with the next value as its `retry-after`."""
    each = iter(retry_after_values)

    def refuse(engine: PeerEngine) -> None:
        info: dict[Any, Any] = {proton.symbol("retry-after"): next(each)}
        if target is not None:
            info[proton.symbol("network-host")] = target.host
            info[proton.symbol("port")] = proton.uint(target.port)
        engine.open(properties={"amqp:connection-establishment-failed": True})
        engine.close(proton.Condition(name, "come later", info))

    return speaking(refuse)


def server_requested(seen: list[Event]) -> list[BackingOff]:
    """Return the waits that `retry-after` decided."""
    return [event for event in seen if isinstance(event, BackingOff) and event.retry_after is not None]


@pytest.mark.parametrize("name", [LIMIT, "amqp:connection:forced"])
@pytest.mark.parametrize("retry_after", [HOUR, *NONSENSE], ids=repr)
async def test_no_retry_after_keeps_a_client_from_the_primary(name: str, retry_after: Any) -> None:
    """Waits stay below the ceiling, and nothing crashes."""
    seen: list[Event] = []
    async with closing_with(name, itertools.repeat(retry_after)) as bad, primary() as good:
        connection = await aio.connect(url(bad, good, max_retry_after="0.3", **QUICK), on_event=seen.append)
        assert connection.endpoint is not None
        assert connection.endpoint.port == good.port
        await connection.close()
    assert sum(event.delay for event in server_requested(seen)) <= 0.3


@pytest.mark.slow
async def test_a_server_that_changes_its_mind_parks_nobody() -> None:
    """The member sends every invalid value in turn, an hour in between, and all again."""
    said_all = asyncio.Event()
    seen: list[Event] = []

    def moods() -> Iterator[Any]:
        for _ in range(3):
            yield from (HOUR, *NONSENSE, proton.uint(10))
        said_all.set()
        yield from itertools.repeat(HOUR)

    with bound() as reserved:
        host, port = reserved.getsockname()
    async with closing_with(LIMIT, moods()) as bad:
        options = url(bad, Peer(host, port), max_retry_after="0.3", startup_deadline="none", **QUICK)
        connecting = asyncio.create_task(aio.connect(options, on_event=seen.append))
        async with asyncio.timeout(30):
            await said_all.wait()
        async with primary(host=host, port=port) as good:
            connection = await connecting
            assert connection.endpoint is not None
            assert connection.endpoint.port == good.port
            await connection.close()
    assert server_requested(seen)
    assert sum(event.delay for event in server_requested(seen)) <= 0.3


@pytest.mark.parametrize("retry_after", [HOUR, *NONSENSE], ids=repr)
async def test_a_redirect_with_any_retry_after_leads_to_its_target(retry_after: Any) -> None:
    """With the wait, or at once."""
    async with (
        primary() as good,
        closing_with(REDIRECT, itertools.repeat(retry_after), good) as bad,
        aio.connect(url(bad, max_retry_after="0.3", **QUICK)) as connection,
    ):
        assert connection.endpoint is not None
        assert connection.endpoint.port == good.port
        assert len(bad.accepted) == 1


async def test_a_slot_is_kept_at_the_member_that_gave_it() -> None:
    """Both attempts go there: the other member is not asked."""
    seen: list[Event] = []
    condition = proton.Condition(LIMIT, "your turn comes", {proton.symbol("retry-after"): proton.uint(200)})
    async with member(offers=False, refusal=condition) as busy, primary() as other:
        connecting = asyncio.create_task(aio.connect(url(busy, other, **QUICK), on_event=seen.append))
        await busy.until(lambda: busy.refused == 1)
        busy.serving = True
        connection = await connecting
        assert connection.endpoint is not None
        assert connection.endpoint.port == busy.port
        await connection.close()
        assert not other.accepted
    assert [event.endpoint.port for event in seen if isinstance(event, AttemptStarted)] == [busy.port] * 2
    (wait,) = server_requested(seen)
    assert wait.retry_after == 0.2
    assert 0.2 <= wait.delay <= 0.3


@pytest.mark.parametrize("name", [LIMIT, "amqp:connection:forced", REDIRECT])
async def test_the_close_of_a_usable_connection_says_when_to_reconnect(name: str) -> None:
    """The client returns to the same member, to a named one, or to any (the one it lost so soon is last)."""
    seen: list[Event] = []
    async with primary() as first, primary() as second:
        to = first if name == LIMIT else second
        info: dict[Any, Any] = {
            proton.symbol("retry-after"): proton.uint(200),
            proton.symbol("network-host"): to.host,
            proton.symbol("port"): proton.uint(to.port),
        }
        connection = await aio.connect(url(first, second, **QUICK), on_event=seen.append)
        stream = connection.events()
        first.close(proton.Condition(name, "come later", info))
        back = await next_of(stream, Reconnected)
        assert back.endpoint.port == to.port
        await connection.close()
    (wait,) = server_requested(seen)
    assert wait.retry_after == 0.2
    assert back.duration >= wait.delay >= 0.2


@pytest.mark.slow
async def test_two_hundred_connections_never_have_more_than_max_dials_attempts_pending() -> None:
    """At the first connect, and after a loss: the primary counts connections without a Begin."""
    async with (
        primary(begin_after=0.002) as busy,
        aio.ConnectionFactory(url(busy, max_dials=4, startup_deadline="none", **QUICK)) as factory,
    ):
        connections = await asyncio.gather(*(factory.connect() for _ in range(200)))
        assert busy.most_opening <= 4
        streams = [connection.events() for connection in connections]
        busy.opening = 0
        busy.drop()
        await asyncio.gather(*(next_of(stream, Reconnected, timeout=60) for stream in streams))
        assert len(busy.accepted) == 400
        assert busy.most_opening <= 4
