"""``standby=warm``: a parked connection at another member, in addition to the live one."""

from __future__ import annotations

import asyncio

import proton
import pytest

from haclient import aio
from haclient.events import AttemptStarted, BackingOff, Reconnected
from haclient.testing.peers.listening import url
from haclient.testing.peers.passive import redirection
from tests.failover.test_parking import QUICK, pair, stop
from tests.failover.waiting import next_of
from tests.peers.apis import API, APIS
from tests.peers.parking import member
from tests.peers.primary import primary

WARM = {**QUICK, "standby": "warm"}


@pytest.mark.parametrize("make_api", APIS, ids=lambda each: each.name)
async def test_a_promoted_standby_needs_no_new_attempt(make_api: type[API]) -> None:
    """The member answers the parked Begin, and the waiting message goes over it."""
    async with pair(generation=2) as (first, second):
        connection = await make_api().connect(url(first, second, **WARM))
        events = connection.events()
        sender = await connection.create_sender("q")
        await sender.send(proton.Message(body="before"))
        await second.until(lambda: any(second.parked.values()))
        came = len(second.accepted)
        stop(first)
        sending = asyncio.create_task(sender.send(proton.Message(body="after")))
        second.promote()
        back = await next_of(events, Reconnected)
        await sending
        assert (first.bodies, second.bodies) == (["before"], ["after"])
        assert len(second.accepted) == came
        assert back.endpoint.port == second.port
        assert connection.generation == 2
        await connection.close()
        await second.until(lambda: not second.engines)


async def test_the_live_connection_that_was_only_cut_is_found_again() -> None:
    """The standby's member is not promoted; the client dials the primary at once, as without standby."""
    async with (
        pair() as (first, second),
        aio.connect(url(first, second, **WARM)) as connection,
    ):
        events = connection.events()
        await second.until(lambda: second.parked)
        first.drop()
        back = await next_of(events, Reconnected)
        assert back.endpoint.port == first.port
        # The parked connection took part in that search; a new one accompanies the new session.
        await second.until(lambda: second.asked == 2 and len(second.parked) == 1)


async def test_a_standby_that_is_usable_beside_a_living_primary_is_not_used() -> None:
    """Never two primaries: the standby waits for the end of the live connection, and then serves at once."""
    async with (
        pair() as (first, second),
        aio.connect(url(first, second, **WARM)) as connection,
    ):
        events = connection.events()
        sender = await connection.create_sender("q")
        await second.until(lambda: any(second.parked.values()))
        second.promote()
        await sender.send(proton.Message(body="one"))
        assert first.bodies == ["one"]
        assert connection.endpoint is not None
        assert connection.endpoint.port == first.port
        assert not any(second.engines.values())
        stop(first)
        await next_of(events, Reconnected)
        await sender.send(proton.Message(body="two"))
        assert second.bodies == ["two"]
        assert len(second.accepted) == 1


async def test_a_standby_that_is_closed_is_made_again() -> None:
    """A delay precedes the new standby, whatever the member answers. Its redirect to the living primary is
    not followed.
    """
    async with (
        pair() as (first, second),
        aio.connect(url(first, second, **WARM)),
    ):
        for round_ in range(1, 4):
            await second.until(lambda: any(second.parked.values()))
            assert second.asked == round_
            second.close_parked(
                redirection(first) if round_ == 2 else proton.Condition("amqp:connection:forced")
            )
        await second.until(lambda: any(second.parked.values()))
        assert len(first.accepted) == 1


async def test_a_member_that_does_not_park_is_left_alone() -> None:
    """The client makes one attempt, without an effect on the live connection."""
    async with (
        pair(offers=False) as (first, second),
        member(offers=True) as third,
        aio.connect(url(first, second, third, **WARM)),
    ):
        for _ in range(3):
            await third.until(lambda: any(third.parked.values()))
            third.close_parked(proton.Condition("amqp:connection:forced"))
        await third.until(lambda: any(third.parked.values()))
        assert second.refused == 1
        assert len(first.accepted) == 1


async def test_an_ordinary_broker_that_admits_everybody_is_no_standby() -> None:
    """Such a broker begins the session at once: that would be a second primary, so it is closed."""
    async with (
        member(serving=True) as first,
        primary() as other,
        aio.connect(url(first, other, **WARM)) as connection,
    ):
        await other.until(lambda: other.accepted)
        await other.until(lambda: not other.engines)
        sender = await connection.create_sender("q")
        await sender.send(proton.Message(body="one"))
        assert (first.bodies, other.bodies) == (["one"], [])


async def test_when_the_standby_is_gone_with_the_primary_the_search_goes_on_as_usual() -> None:
    """Both members died; a third one is the primary now."""
    async with (
        pair() as (first, second),
        member(offers=False) as third,
        aio.connect(url(first, second, third, **WARM)) as connection,
    ):
        events = connection.events()
        await second.until(lambda: any(second.parked.values()))
        stop(first)
        stop(second)
        third.serving = True
        back = await next_of(events, Reconnected)
        assert back.endpoint.port == third.port


async def test_the_standby_takes_no_dial_that_a_search_waits_for() -> None:
    """The factory has one dial: the standby frees it when it is parked."""
    async with (
        pair() as (first, second),
        aio.ConnectionFactory(url(first, second, max_dials=1, **WARM)) as factory,
    ):
        connections = [await factory.connect() for _ in range(5)]
        await second.until(lambda: len(second.parked) == 5)
        assert all(each.endpoint is not None and each.endpoint.port == first.port for each in connections)


async def test_closing_closes_the_standby() -> None:
    """This holds with a live connection, and before the standby is parked."""
    async with pair() as (first, second):
        async with aio.connect(url(first, second, **WARM)):
            await second.until(lambda: any(second.parked.values()))
        await second.until(lambda: not second.engines)
        await (await aio.connect(url(first, second, **WARM))).close()
        await second.until(lambda: not second.engines)
    left = [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("haclient")]
    assert not left


async def test_the_episode_reports_the_standby_as_its_first_attempt() -> None:
    """Every winning attempt has a beginning in the events and in the telemetry."""
    async with (
        pair() as (first, second),
        aio.connect(url(first, second, **WARM)) as connection,
    ):
        events = connection.events()
        await second.until(lambda: any(second.parked.values()))
        stop(first)
        started = await next_of(events, AttemptStarted)
        assert (started.attempt, started.endpoint.port) == (1, second.port)
        await next_of(events, BackingOff)
        second.promote()
        back = await next_of(events, Reconnected)
        assert back.attempts >= 1
