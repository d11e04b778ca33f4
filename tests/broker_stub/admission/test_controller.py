"""Newcomers over the accept rate: refused or redirected, with the time to come back."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Any

import proton
import pytest
from proton import Message

from broker_stub.admission.controller import AdmissionOptions, RateSource
from broker_stub.admission.user_file import DEFAULT_ADMIN, write_users
from broker_stub.broker import Broker
from broker_stub.election.roles import Membership, Role
from broker_stub.management_client import AdminClient
from haclient import Credentials
from haclient.cluster_url.endpoint import Endpoint
from tests.broker_stub.clients import PRIMARY, Client, member, running

ADMIN = Credentials(user=DEFAULT_ADMIN, password="secret of the admin")
ELSEWHERE = Endpoint("127.0.0.9", 5999)
# One slot a minute: a refusal lasts for the whole test.
SLOW = AdmissionOptions(rate=1 / 60, burst=1)


async def come(broker: Broker, name: str, **settings: Any) -> Client:
    return await Client().connect(broker.address, container_id=name, **settings)


async def refused(broker: Broker, name: str, **settings: Any) -> proton.Condition:
    client = await come(broker, name, **settings)
    condition = (await client.end()).condition
    assert client.properties["amqp:connection-establishment-failed"] is True
    assert condition is not None
    return condition


async def let_in(broker: Broker, name: str, **settings: Any) -> Client:
    client = await come(broker, name, **settings)
    async with asyncio.timeout(10):
        await client.begun.wait()
    return client


def hint(condition: proton.Condition) -> Any:
    return (condition.info or {}).get("retry-after")


async def test_over_the_rate_a_primary_tells_each_newcomer_its_own_time() -> None:
    async with running(admission=SLOW) as broker:
        first = await let_in(broker, "first")
        conditions = [await refused(broker, f"client {number}") for number in range(3)]
        assert {condition.name for condition in conditions} == {"amqp:resource-limit-exceeded"}
        hints = [hint(condition) for condition in conditions]
        assert all(isinstance(each, proton.uint) for each in hints)
        assert [math.ceil(each / 60_000) for each in hints] == [1, 2, 3]
        facts = broker.status()["entrance"]
        assert (facts["rate"], facts["admitted"], facts["refused"]) == (1 / 60, 1, 3)
        assert (facts["slots_kept"], facts["half_open"], facts["parked_now"]) == (3, 0, 0)
        await first.close()


async def test_a_client_that_comes_in_its_time_is_admitted() -> None:
    async with running(admission=AdmissionOptions(rate=5.0, burst=1)) as broker:
        first = await let_in(broker, "first")
        delay = hint(await refused(broker, "second")) / 1000
        await asyncio.sleep(delay)
        await (await let_in(broker, "second")).close()
        await first.close()


async def test_a_client_that_comes_too_early_gets_the_same_time_again() -> None:
    async with running(admission=SLOW) as broker:
        first = await let_in(broker, "first")
        await refused(broker, "second")
        before, after = [hint(await refused(broker, "early")) for _ in range(2)]
        assert after <= before
        assert broker.status()["entrance"]["slots_kept"] == 2
        await first.close()


async def test_connections_of_one_container_have_slots_of_their_own() -> None:
    async with running(admission=SLOW) as broker:
        first = await let_in(broker, "app", properties={"haclient:connection": proton.uint(1)})
        hints = [
            hint(await refused(broker, "app", properties={"haclient:connection": proton.uint(number)}))
            for number in (2, 3)
        ]
        assert hints[1] > hints[0]
        await first.close()


async def test_without_a_limit_there_is_no_refusal() -> None:
    async with running() as broker:
        clients = [await let_in(broker, "me") for _ in range(30)]
        assert broker.status()["entrance"]["rate"] is None
        for client in clients:
            await client.close()


async def test_a_passive_member_says_when_to_come_to_the_primary_if_it_is_asked_too_often() -> None:
    options = AdmissionOptions(rate=1 / 60, burst=2)
    async with running(Membership(Role.PASSIVE, 3, ELSEWHERE), admission=options) as broker:
        conditions = [await refused(broker, f"client {number}") for number in range(4)]
        assert {condition.name for condition in conditions} == {"amqp:connection:redirect"}
        assert [condition.info["port"] for condition in conditions] == [5999] * 4
        minutes = [each and math.ceil(each / 60_000) for each in map(hint, conditions)]
        assert minutes == [None, None, 1, 2]
        assert broker.status()["entrance"]["redirected"] == 4


async def test_a_passive_member_that_knows_no_primary_gives_no_time() -> None:
    async with running(Membership(), admission=SLOW) as broker:
        assert [hint(await refused(broker, "me")) for _ in range(3)] == [None] * 3


async def test_those_who_are_in_are_served_while_newcomers_are_refused() -> None:
    async with running(admission=SLOW) as broker:
        client = await let_in(broker, "in")
        link = await client.attach("sender", "s", "q")
        for number in range(20):
            await refused(broker, f"client {number}")
            [outcome] = await client.send(link, Message(body="x"))
            assert outcome.accepted
        await client.close()


async def test_the_admin_takes_no_slot_and_never_waits(tmp_path: Path) -> None:
    write_users(tmp_path / "users", {ADMIN.user: ADMIN.password})
    arguments = (
        "--users",
        str(tmp_path / "users"),
        "--role",
        "primary",
        "--accept-rate",
        "0.01",
        "--accept-burst",
        "1",
    )
    async with member(tmp_path, *arguments) as address:
        first = await Client().connect(address, container_id="first")
        await first.begun.wait()
        for _ in range(3):
            async with await AdminClient.connect(address, ADMIN) as admin:
                facts = (await admin.status()).facts["entrance"]
                assert (facts["admitted"], facts["rate"]) == (1, 0.01)
        replication = {"user": ADMIN.user, "password": ADMIN.password, "mechanisms": ("SCRAM-SHA-256",)}
        backup = await Client().connect(address, desired_capabilities=("haclient:replicate",), **replication)
        await backup.begun.wait()
        for client in (first, backup):
            await client.close()


async def test_the_rate_can_be_measured_at_the_start() -> None:
    async with running(admission=AdmissionOptions(rate=RateSource.MEASURED)) as broker:
        assert broker.status()["entrance"]["rate"] > 10
        await (await let_in(broker, "me")).close()


async def test_an_automatic_rate_learns_from_the_set_ups() -> None:
    async with running(admission=AdmissionOptions(rate=RateSource.AUTO)) as broker:
        await (await let_in(broker, "me")).close()
        auto = broker.admission._auto
        assert auto is not None
        assert auto._fastest < 60
        broker.admission._tick(0.0)
        assert broker.status()["entrance"]["rate"] == auto.rate


async def test_what_is_measured_after_a_promotion_is_what_comes_from_then_on() -> None:
    async with running(Membership(Role.PASSIVE, 3, ELSEWHERE), admission=SLOW) as broker:
        assert hint(await refused(broker, "a")) is None
        await broker.promote()
        await (await let_in(broker, "a")).close()
        assert (await refused(broker, "b")).name == "amqp:resource-limit-exceeded"
    assert PRIMARY.role is Role.PRIMARY


@pytest.mark.parametrize(("given", "meant"), [("0", None), ("unlimited", None), ("250", 250.0), ("0.5", 0.5)])
async def test_serve_takes_a_rate(tmp_path: Path, given: str, meant: float | None) -> None:
    write_users(tmp_path / "users", {ADMIN.user: ADMIN.password})
    async with (
        member(tmp_path, "--users", str(tmp_path / "users"), "--accept-rate", given) as address,
        await AdminClient.connect(address, ADMIN) as admin,
    ):
        assert (await admin.status()).facts["entrance"]["rate"] == meant
