"""While a member parks a connection it holds its links too, and then answers all of them together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import proton

from broker_stub.broker import Broker
from haclient import aio
from haclient.engine.settings import MAX_PARKED_LINKS
from tests.broker_stub.admission.test_parking import PASSIVE
from tests.broker_stub.clients import running, until

QUICK = "backoff_base=0.02&backoff_max=0.1"


@asynccontextmanager
async def pair() -> AsyncIterator[tuple[Broker, Broker]]:
    """Start a primary and a passive member; stop the primary at the end of the block."""
    async with running() as first, running(PASSIVE) as second:
        yield first, second


def connect(first: Broker, second: Broker, standby: str = "outage") -> aio.Opening[aio.Connection]:
    return aio.connect(
        f"amqp://{first.address.authority},{second.address.authority}?standby={standby}&{QUICK}"
    )


async def held(broker: Broker, links: int) -> None:
    """Wait until the member holds one connection with that many links."""
    await until(lambda: [len(each._parked_links) for each in broker._connections] == [links])


async def test_senders_and_receivers_wait_with_the_connection_and_go_on_with_it() -> None:
    async with pair() as (first, second), connect(first, second) as connection:
        sender = await connection.create_sender("q")
        receiver = await connection.create_receiver("q", credit=5)
        await first.stop()
        await held(second, 2)
        sending = await sender.submit(proton.Message(body="waited"))
        assert not list(second.addresses)
        await second.promote()
        assert (await asyncio.wait_for(sending, 10)).accepted
        delivery = await receiver.receive(timeout=10)
        assert delivery.message.body == "waited"
        await delivery.accept()
        assert connection.generation == second.membership.generation


async def test_a_warm_standby_gets_the_links_when_the_live_connection_is_lost() -> None:
    async with pair() as (first, second), connect(first, second, "warm") as connection:
        sender = await connection.create_sender("q")
        await held(second, 0)
        await first.stop()
        await held(second, 1)
        await second.promote()
        assert (await sender.send(proton.Message(body="x"), timeout=10)).accepted


async def test_what_is_closed_or_made_while_the_connection_is_held_counts_when_it_is_served() -> None:
    async with pair() as (first, second), connect(first, second) as connection:
        closed = await connection.create_sender("closed")
        kept = await connection.create_sender("kept")
        await first.stop()
        await held(second, 2)
        await closed.close()
        making = asyncio.create_task(connection.create_sender("made"))
        await until(lambda: any(link.dead for each in second._connections for link in each._parked_links))
        await second.promote()
        made = await asyncio.wait_for(making, 10)
        for sender in (kept, made):
            assert (await sender.send(proton.Message(body="x"), timeout=10)).accepted
        assert {queue.name for queue in second.addresses} == {"kept", "made"}


async def test_more_links_than_a_member_holds_are_attached_when_it_serves() -> None:
    async with pair() as (first, second), connect(first, second) as connection:
        senders = [await connection.create_sender(f"q{number}") for number in range(MAX_PARKED_LINKS + 5)]
        await first.stop()
        await held(second, MAX_PARKED_LINKS)
        await second.promote()
        for sender in senders:
            assert (await sender.send(proton.Message(body="x"), timeout=10)).accepted


async def test_links_that_waited_at_a_member_which_is_not_promoted_go_to_the_one_that_is() -> None:
    async with pair() as (first, second), running(PASSIVE) as third:
        url = f"amqp://{first.address.authority},{second.address.authority},{third.address.authority}?{QUICK}"
        async with aio.connect(url) as connection:
            sender = await connection.create_sender("q")
            await first.stop()
            await until(lambda: any(each._parked_links for at in (second, third) for each in at._connections))
            held_by, other = (second, third) if second._connections else (third, second)
            await other.promote()
            held_by.follow(other.address, generation=other.membership.generation)
            assert (await sender.send(proton.Message(body="x"), timeout=20)).accepted
            assert [queue.name for queue in other.addresses] == ["q"]
            assert not list(held_by.addresses)
