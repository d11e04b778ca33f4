"""The facts of the fleet that a client keeps from the Opens of primaries."""

from __future__ import annotations

from typing import Any

import proton
import pytest

from broker_stub.admission.controller import AdmissionOptions, RateSource
from haclient import aio
from haclient.retry.fleet import NO_FLEET, FleetSize
from tests.broker_stub.clients import running
from tests.peers import primary, url

FAST: dict[str, Any] = {"backoff_base": 0.01, "backoff_max": 0.05}
LARGE = {"haclient:connections": proton.ulong(20_000), "haclient:setup-rate": 200.0}


def known(connection: Any) -> FleetSize:
    fleet = connection._core._shared.cluster.topology.fleet
    assert isinstance(fleet, FleetSize)
    return fleet


@pytest.mark.parametrize(
    ("properties", "fleet"),
    [
        (LARGE, FleetSize(20_000, 200.0)),
        ({}, NO_FLEET),
        ({**LARGE, "haclient:setup-rate": proton.float32(0.5)}, FleetSize(20_000, 0.5)),
        ({**LARGE, "haclient:connections": proton.ulong(2**64 - 1)}, FleetSize(2**63, 200.0)),
        ({**LARGE, "haclient:connections": -5}, NO_FLEET),
        ({**LARGE, "haclient:connections": "20000"}, NO_FLEET),
        ({**LARGE, "haclient:setup-rate": 0.0}, NO_FLEET),
        ({**LARGE, "haclient:setup-rate": float("nan")}, NO_FLEET),
        ({**LARGE, "haclient:setup-rate": float("inf")}, NO_FLEET),
        ({**LARGE, "haclient:setup-rate": True}, NO_FLEET),
    ],
    ids=str,
)
async def test_both_values_are_kept_if_they_are_possible(
    properties: dict[str, Any], fleet: FleetSize
) -> None:
    async with primary(properties=properties) as peer, aio.connect(url(peer), **FAST) as connection:
        assert known(connection) == fleet


async def test_the_next_primary_changes_them() -> None:
    async with primary(properties=LARGE) as peer, aio.connect(url(peer), **FAST) as connection:
        for announced, fleet in (
            ({**LARGE, "haclient:connections": proton.ulong(1)}, FleetSize(10_000, 200.0)),
            ({}, NO_FLEET),
        ):
            peer.properties = announced
            before = connection._core.session_number
            peer.drop()
            sender = await connection.create_sender("q")
            await sender.send("there again")
            await sender.close()
            assert connection._core.session_number == before + 1
            assert known(connection) == fleet


async def test_a_pair_that_refuses_nobody_announces_itself() -> None:
    async with (
        running(admission=AdmissionOptions(rate=RateSource.ANNOUNCED)) as broker,
        aio.connect(str(broker.address)) as connection,
    ):
        fleet = known(connection)
        assert fleet.connections == 1
        assert fleet.setup_rate > 1
