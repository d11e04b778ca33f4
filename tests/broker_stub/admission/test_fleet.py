"""A primary that refuses no client announces the number of its clients, and its setup rate."""

from __future__ import annotations

from typing import Any

import proton
import pytest

from broker_stub.admission.controller import AdmissionOptions, RateSource
from broker_stub.admission.fleet import Peak
from broker_stub.broker import Broker
from broker_stub.election.roles import Membership, Role
from haclient.cluster_url.endpoint import Endpoint
from tests.broker_stub.clients import Client, running

DAY = 86_400.0
ANNOUNCED = AdmissionOptions(rate=RateSource.ANNOUNCED)
COUNT, RATE = "haclient:connections", "haclient:setup-rate"


async def announced(broker: Broker, name: str, **settings: Any) -> tuple[Client, Any]:
    """Connect a client; return it with the fleet announcement in the member's Open."""
    client = await Client().connect(broker.address, container_id=name, **settings)
    await client.begun.wait()
    return client, client.properties


async def test_each_client_learns_the_most_that_there_were() -> None:
    """The current number would be too low: a fleet restarts client by client, and at night few are
    connected.
    """
    async with running(admission=ANNOUNCED) as broker:
        clients = [await announced(broker, f"client {number}") for number in range(5)]
        assert [properties[COUNT] for _, properties in clients] == [1, 2, 3, 4, 5]
        for client, _ in clients[1:]:
            await client.close()
        late, properties = await announced(broker, "late")
        assert properties[COUNT] == 5
        assert isinstance(properties[COUNT], proton.ulong)
        assert properties[RATE] > 1
        await late.close()
        await clients[0][0].close()


async def test_it_refuses_nobody() -> None:
    async with running(admission=ANNOUNCED) as broker:
        clients = [(await announced(broker, "me"))[0] for _ in range(30)]
        assert broker.status()["entrance"]["rate"] is None
        for client in clients:
            await client.close()


@pytest.mark.parametrize("rate", [1000.0, float("inf"), RateSource.MEASURED, RateSource.AUTO], ids=str)
async def test_a_primary_that_says_when_to_come_announces_nothing(rate: float | RateSource) -> None:
    """A primary without any limit announces nothing, either."""
    async with running(admission=AdmissionOptions(rate=rate)) as broker:
        client, properties = await announced(broker, "me")
        assert not {COUNT, RATE} & set(properties)
        await client.close()


async def test_a_passive_member_announces_nothing() -> None:
    elsewhere = Membership(Role.PASSIVE, 3, Endpoint("127.0.0.9", 5999))
    async with running(elsewhere, admission=ANNOUNCED) as broker:
        client = await Client().connect(broker.address, container_id="me")
        await client.end()
        assert not {COUNT, RATE} & set(client.properties)


class TestPeak:
    def test_it_is_the_most_of_a_day_at_least(self) -> None:
        peak = Peak(0.0)
        assert peak.note(20, 1.0) == 20
        assert peak.note(3, DAY - 1) == 20
        assert peak.note(3, DAY) == 20
        assert peak.note(5, 2 * DAY - 1) == 20

    def test_it_is_forgotten_after_two_days_at_most(self) -> None:
        peak = Peak(0.0)
        peak.note(20, 1.0)
        peak.note(3, DAY)
        assert peak.note(4, 2 * DAY) == 4

    def test_it_is_forgotten_in_a_long_silence(self) -> None:
        peak = Peak(0.0)
        peak.note(20, 1.0)
        assert peak.note(2, 5 * DAY) == 2
