"""haclient's own clients at a busy member: refused with a time to come back, parked, served, redirected."""

from __future__ import annotations

import asyncio

import pytest
from proton import Message

from broker_stub.admission.controller import AdmissionOptions
from broker_stub.broker import Broker
from broker_stub.election.roles import Membership, Role
from haclient import aio
from haclient.cluster_url.endpoint import Endpoint
from tests.broker_stub.clients import running, until

FAST = "backoff_base=0.05&backoff_max=0.2"
PASSIVE = Membership(Role.PASSIVE, 1)


def entrance(broker: Broker, name: str) -> int:
    count: int = broker.status()["entrance"][name]
    return count


async def send(connection: aio.Connection) -> None:
    sender = await connection.create_sender("q")
    assert (await sender.send(Message(body="x"), timeout=30)).accepted


async def test_a_client_that_waits_in_an_outage_is_parked_and_served_by_the_promoted_member() -> None:
    async with running(PASSIVE) as broker:
        connection = aio.connect(f"{broker.address}?{FAST}")
        waiting = asyncio.ensure_future(connection.__aenter__())
        await until(lambda: entrance(broker, "parked_now") == 1)
        await broker.promote()
        async with asyncio.timeout(30):
            opened = await waiting
        await send(opened)
        assert opened.generation == 2
        await opened.close()


async def test_a_parked_client_reaches_the_primary_by_the_members_redirect() -> None:
    async with running(PASSIVE) as here, running(PASSIVE) as there:
        connection = aio.connect(f"{here.address}?{FAST}")
        waiting = asyncio.ensure_future(connection.__aenter__())
        await until(lambda: entrance(here, "parked_now") == 1)
        await there.promote()
        here.follow(there.address, generation=2)
        async with asyncio.timeout(30):
            opened = await waiting
        assert opened.endpoint is not None
        assert opened.endpoint.port == there.address.port
        await opened.close()


@pytest.mark.parametrize("standby", ["none", "outage"])
async def test_every_connection_of_one_factory_gets_in_at_its_own_time(standby: str) -> None:
    options = AdmissionOptions(rate=20.0, burst=1)
    async with running(admission=options) as broker:
        factory = aio.ConnectionFactory(f"{broker.address}?{FAST}&standby={standby}")
        async with asyncio.timeout(60):
            connections = await asyncio.gather(*(factory.connect().__aenter__() for _ in range(20)))
        assert entrance(broker, "admitted") == 20
        assert entrance(broker, "refused") <= 40
        for connection in connections:
            await connection.close()
        await factory.close()


async def test_many_clients_over_the_rate_are_all_in_after_about_two_attempts() -> None:
    async with running(admission=AdmissionOptions(rate=50.0, burst=1)) as broker:
        factories = [aio.ConnectionFactory(f"{broker.address}?standby=none") for _ in range(40)]
        async with asyncio.timeout(60):
            connections = await asyncio.gather(*(each.connect().__aenter__() for each in factories))
        assert entrance(broker, "admitted") == 40
        assert entrance(broker, "refused") <= 80
        for connection in connections:
            await connection.close()
        for factory in factories:
            await factory.close()


async def test_a_warm_standby_stays_beside_a_live_primary_and_takes_over_when_promoted() -> None:
    async with running(Membership(Role.PRIMARY, 1)) as first:
        known = Membership(Role.PASSIVE, 1, first.address)
        async with running(known) as second:
            second_address: Endpoint = second.address
            url = f"{first.address},{second_address.authority}?standby=warm&{FAST}"
            async with aio.connect(url) as connection:
                await until(lambda: entrance(second, "parked_now") == 1)
                assert connection.endpoint is not None
                assert connection.endpoint.port == first.address.port
                await second.promote()
                await first.demote(second_address)
                await send(connection)
                assert connection.endpoint.port == second_address.port
