"""A passive member parks clients during an outage, and serves them when it is promoted (docs/storms.md)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import proton
import pytest

from haclient import aio
from haclient.errors import DeadlineExceeded
from haclient.events import AttemptFailed, Connected, Event, Parked, Reconnected
from haclient.testing.peers.listening import url
from haclient.testing.peers.passive import redirection
from tests.failover.waiting import next_of
from tests.peers.parking import Member, member

QUICK = {"backoff_base": "0.02", "backoff_max": "0.1"}


@asynccontextmanager
async def pair(**backup: object) -> AsyncIterator[tuple[Member, Member]]:
    """Start a primary and a backup that parks."""
    async with member(serving=True) as first, member(**backup) as second:
        yield first, second


def stop(peer: Member) -> None:
    """Stop serving, and redirect every client."""
    peer.serving = peer.offers = False
    peer.drop()


async def taken_over(events: AsyncIterator[Event], first: Member, second: Member) -> None:
    """Stop the first member; the second one parks the client, is promoted, and serves it."""
    stop(first)
    await next_of(events, Parked)
    await second.until(lambda: any(second.parked.values()))
    second.promote()
    await next_of(events, Reconnected)


async def test_a_parked_client_is_served_when_its_member_is_promoted() -> None:
    """One attempt there suffices, however long the outage is. A message sent meanwhile is settled."""
    async with (
        pair(properties={"haclient:generation": 1}, generation=2) as (first, second),
        aio.connect(url(first, second, **QUICK)) as connection,
    ):
        events = connection.events()
        sender = await connection.create_sender("q")
        stop(first)
        parked = await next_of(events, Parked)
        assert parked.endpoint.port == second.port
        sending = asyncio.create_task(sender.send(proton.Message(body="during the outage")))
        await second.until(lambda: any(second.parked.values()))
        second.promote()
        back = await next_of(events, Reconnected)
        await sending
        assert second.bodies == ["during the outage"]
        assert second.asked == 1
        assert back.generation is None
        assert connection.generation == 2


async def test_the_generation_of_the_parking_open_is_not_believed() -> None:
    """The generation in that Open is obsolete, and no Attach has raised it yet."""
    async with (
        pair(properties={"haclient:generation": 1, "haclient:cluster": "c"}) as (first, second),
        aio.connect(url(first, second, **QUICK)) as connection,
    ):
        await taken_over(connection.events(), first, second)
        assert connection.generation is None


async def test_a_parked_session_of_an_old_generation_is_dropped() -> None:
    """A stale primary answered the Begin; its first Attach says so."""
    known = {"haclient:cluster": "c"}
    async with (
        member(serving=True, properties={**known, "haclient:generation": 5}) as first,
        member(properties=known, generation=4) as second,
        aio.connect(url(first, second, **QUICK)) as connection,
    ):
        events = connection.events()
        await taken_over(events, first, second)
        opening = asyncio.create_task(connection.create_sender("q"))
        await second.until(lambda: not second.engines)
        first.serving = True
        second.serving = second.offers = False
        back = await next_of(events, Reconnected)
        assert back.endpoint.port == first.port
        await opening


async def test_a_parked_client_follows_the_redirect_to_the_new_primary() -> None:
    """Another member was promoted."""
    async with (
        pair() as (first, second),
        member() as third,
        aio.connect(url(first, second, **QUICK)) as connection,
    ):
        events = connection.events()
        stop(first)
        await next_of(events, Parked)
        third.serving = True
        second.close_parked(redirection(third))
        back = await next_of(events, Reconnected)
        assert back.endpoint.port == third.port


async def test_nobody_asks_before_a_round_has_failed() -> None:
    """The first connect goes by the passive member, which is not asked to park the client."""
    async with (
        pair() as (first, second),
        aio.connect(url(second, first)) as connection,
    ):
        assert connection.endpoint is not None
        assert connection.endpoint.port == first.port
        assert second.asked == 0


async def test_with_standby_none_a_client_never_asks() -> None:
    """The passive member refuses it in every round."""
    async with (
        pair() as (first, second),
        aio.connect(url(first, second, standby="none", **QUICK)) as connection,
    ):
        stop(first)
        await second.until(lambda: second.refused > 5)
        second.serving = True
        await next_of(connection.events(), Reconnected)
        assert second.asked == 0


async def test_a_parked_attempt_holds_no_dial_and_has_no_deadline() -> None:
    """The factory's only dial is free for another connection, and the attempt outlives its timeout."""
    async with pair() as (first, second):
        arguments = url(first, second, max_dials=1, attempt_timeout="0.3", **QUICK)
        async with aio.ConnectionFactory(arguments) as factory:
            one = await factory.connect()
            events = one.events()
            stop(first)
            await next_of(events, Parked)

            async def ended() -> None:
                """Meanwhile the round dials the rest of the list, and then the search pauses."""
                while (await next_of(events, AttemptFailed, timeout=1.0)).record.endpoint.port == first.port:
                    pass

            with pytest.raises(TimeoutError):
                await ended()
            assert len(second.parked) == 1
            second.promote()
            two = await factory.connect()
            assert two.endpoint == one.endpoint


async def test_after_the_park_timeout_the_others_are_asked_again() -> None:
    """Their answer wins, and the parked connection is closed."""
    async with pair() as (first, second):
        arguments = url(first, second, park_timeout="0.2", **QUICK)
        async with aio.connect(arguments) as connection:
            events = connection.events()
            stop(first)
            await next_of(events, Parked)
            came = len(first.accepted)
            first.serving = True
            back = await next_of(events, Reconnected)
            assert back.endpoint.port == first.port
            assert len(first.accepted) > came
            await second.until(lambda: not second.engines)


async def test_only_the_search_that_leads_is_parked() -> None:
    """The factory's other connections follow the search owner when it is served."""
    async with (
        pair() as (first, second),
        aio.ConnectionFactory(url(first, second, **QUICK)) as factory,
    ):
        connections = [await factory.connect() for _ in range(20)]
        stop(first)
        await second.until(lambda: any(second.parked.values()))
        assert len(second.parked) == 1
        second.promote()
        await asyncio.gather(*(next_of(each.events(), Reconnected) for each in connections))
        assert second.asked == 1


async def test_closing_a_parked_connection_leaves_nothing() -> None:
    """No socket and no task; the deadline of a first connect does the same."""
    async with member() as only:
        with pytest.raises(DeadlineExceeded):
            await aio.connect(url(only, startup_deadline="0.6", **QUICK))
        assert only.asked == 1
        await only.until(lambda: not only.engines)
        connecting = asyncio.create_task(aio.connect(url(only, **QUICK)))
        await only.until(lambda: only.parked)
        connecting.cancel()
        await asyncio.wait([connecting])
        await only.until(lambda: not only.engines)
    left = [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("haclient")]
    assert not left


async def test_a_first_connect_can_be_parked_too() -> None:
    """Clients that start during the outage wait like the others."""
    async with member() as only:
        found: list[Event] = []
        connecting = asyncio.create_task(aio.connect(url(only, **QUICK), on_event=found.append))
        await only.until(lambda: any(only.parked.values()))
        only.promote()
        connection = await connecting
        assert len(only.accepted) == 2
        await connection.close()
    assert any(isinstance(each, Connected) for each in found)
