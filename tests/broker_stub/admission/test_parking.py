"""Clients that ask for it are parked, and served or redirected when there is a primary."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import proton
import pytest
from proton import Message

from broker_stub.admission.controller import AdmissionOptions
from broker_stub.admission.user_file import DEFAULT_ADMIN, write_users
from broker_stub.broker import Broker
from broker_stub.election.roles import Membership, Role
from broker_stub.management_client import AdminClient
from haclient import Credentials
from haclient.cluster_url.endpoint import Endpoint
from haclient.engine.settings import PARK
from haclient.telemetry import TelemetrySettings, flush
from tests.broker_stub.clients import Client, member, running, until
from tests.telemetry.lines import lines, words

ADMIN = Credentials(user=DEFAULT_ADMIN, password="secret of the admin")
ELSEWHERE, FURTHER = Endpoint("127.0.0.9", 5999), Endpoint("127.0.0.9", 6000)
PASSIVE = Membership(Role.PASSIVE, 3)
BUSY = AdmissionOptions(rate=1 / 60, burst=1)


async def come(broker: Broker, *, name: str = "me", park: bool = True, **settings: Any) -> Client:
    desired = (PARK,) if park else ()
    client = await Client().connect(
        broker.address, container_id=name, desired_capabilities=desired, **settings
    )
    await until(lambda: client.properties is not None)
    return client


def is_parked(client: Client) -> bool:
    assert client.engine is not None
    offered = [str(name) for name in client.engine.connection.remote_offered_capabilities or ()]
    failed = "amqp:connection-establishment-failed" in client.properties
    return PARK in offered and not failed and not client.begun.is_set()


async def parked(broker: Broker, count: int = 1) -> list[Client]:
    clients = [await come(broker, name=f"client {number}") for number in range(count)]
    assert all(is_parked(client) for client in clients)
    assert broker.status()["entrance"]["parked_now"] == count
    return clients


async def begun(client: Client) -> None:
    async with asyncio.timeout(10):
        await client.begun.wait()


@asynccontextmanager
async def passive(membership: Membership = PASSIVE, **options: Any) -> AsyncIterator[Broker]:
    async with running(membership, **options) as broker:
        yield broker


async def test_a_passive_member_parks_clients_that_asks_for_it_and_serves_him_when_it_is_promoted() -> None:
    async with passive() as broker:
        [client] = await parked(broker)
        await broker.promote()
        await begun(client)
        link = await client.attach("sender", "s", "q")
        assert link.endpoint.remote_properties == {proton.symbol("haclient:generation"): proton.ulong(4)}
        [outcome] = await client.send(link, Message(body="x"))
        assert outcome.accepted
        assert broker.status()["entrance"]["parked_now"] == 0
        await client.close()


async def test_the_first_who_are_parked_are_served_before_the_promotion_is_answered() -> None:
    async with passive() as broker:
        [client] = await parked(broker)
        await broker.promote()
        assert broker.status()["entrance"]["parked_now"] == 0
        await begun(client)
        await client.close()


async def test_every_attach_of_a_link_from_either_end_tells_the_generation() -> None:
    async with passive() as broker:
        [client] = await parked(broker)
        await broker.promote()
        await begun(client)
        for role in ("sender", "receiver"):
            link = await client.attach(role, role, "q")
            assert link.endpoint.remote_properties["haclient:generation"] == 4
        await client.close()


async def test_a_client_that_was_never_parked_learns_it_from_the_open_only() -> None:
    async with running() as broker:
        client = await come(broker)
        assert not is_parked(client)
        await begun(client)
        assert (await client.attach("sender", "s", "q")).endpoint.remote_properties is None
        offered = client.engine.connection.remote_offered_capabilities
        assert PARK not in map(str, offered)
        await client.close()


async def test_who_does_not_ask_is_refused_as_ever() -> None:
    async with passive() as broker:
        client = await come(broker, park=False)
        assert (await client.end()).condition.name == "amqp:connection:forced"


async def test_the_parked_are_served_in_the_order_in_which_they_came_each_in_its_slot() -> None:
    async with passive(admission=AdmissionOptions(rate=50.0, burst=1)) as broker:
        clients = await parked(broker, 6)
        order: list[str] = []
        for number, client in enumerate(clients):
            client.session_opened = lambda *_, number=number: order.append(number)  # type: ignore[method-assign]
        loop = asyncio.get_running_loop()
        start = loop.time()
        await broker.promote()
        await until(lambda: len(order) == 6)
        assert order == sorted(order)
        assert loop.time() - start >= 4 / 50
        for client in clients:
            await client.close()


async def test_newcomers_come_after_those_who_are_parked() -> None:
    async with passive(admission=BUSY) as broker:
        first, second = await parked(broker, 2)
        await broker.promote()
        await begun(first)
        newcomer = await come(broker, name="newcomer", park=False)
        info = (await newcomer.end()).condition.info
        assert info["retry-after"] > 60_000
        assert not second.begun.is_set()
        for client in (first, second):
            await client.close()


async def test_a_busy_primary_parks_a_newcomer_until_its_slot() -> None:
    async with running(admission=AdmissionOptions(rate=2.0, burst=1)) as broker:
        first = await come(broker, name="first")
        await begun(first)
        second = await come(broker, name="second")
        assert is_parked(second)
        await begun(second)
        assert (await second.attach("sender", "s", "q")).endpoint.remote_properties is not None
        assert broker.status()["entrance"]["admitted"] == 2
        for client in (first, second):
            await client.close()


async def test_the_parked_are_sent_to_another_member_that_becomes_primary() -> None:
    async with passive() as broker:
        [client] = await parked(broker)
        broker.follow(ELSEWHERE, generation=4)
        condition = (await client.end()).condition
        assert (condition.name, condition.info["port"]) == ("amqp:connection:redirect", 5999)
        assert broker.status()["entrance"]["redirected"] == 1


async def test_they_are_sent_on_at_the_accept_rate() -> None:
    async with passive(admission=BUSY) as broker:
        first, second = await parked(broker, 2)
        broker.follow(ELSEWHERE, generation=4)
        assert (await first.end()).condition.name == "amqp:connection:redirect"
        assert is_parked(second)
        await second.close()


async def test_beside_a_live_primary_they_stay_until_there_is_another_one() -> None:
    async with passive(Membership(Role.PASSIVE, 3, ELSEWHERE)) as broker:
        [client] = await parked(broker)
        broker.follow(ELSEWHERE, generation=3)
        broker.follow(None)
        assert is_parked(client)
        broker.follow(FURTHER, generation=4)
        assert (await client.end()).condition.info["port"] == 6000


async def test_a_primary_that_was_promoted_again_is_another_one() -> None:
    async with passive(Membership(Role.PASSIVE, 3, ELSEWHERE)) as broker:
        [client] = await parked(broker)
        broker.follow(ELSEWHERE, generation=4)
        assert (await client.end()).condition.name == "amqp:connection:redirect"


@pytest.mark.parametrize("options", [{"park_limit": 0}, {"park_limit": 1}])
async def test_in_full_parking_no_client_has_asked(options: dict[str, Any]) -> None:
    async with passive(admission=AdmissionOptions(**options)) as broker:
        clients = await parked(broker, options["park_limit"])
        refused = await come(broker)
        assert (await refused.end()).condition.name == "amqp:connection:forced"
        for client in clients:
            await client.close()
        if clients:
            await until(lambda: broker.status()["entrance"]["parked_now"] == 0)
            [again] = await parked(broker)
            await again.close()


async def test_a_busy_primary_with_full_parking_refuses_with_the_time_to_come() -> None:
    async with running(admission=AdmissionOptions(rate=1 / 60, burst=1, park_limit=0)) as broker:
        first = await come(broker, name="first")
        await begun(first)
        condition = (await (await come(broker, name="second")).end()).condition
        assert condition.name == "amqp:resource-limit-exceeded"
        assert condition.info["retry-after"] > 0
        await first.close()


async def test_nobody_is_parked_for_longer_than_the_time_out() -> None:
    async with passive(admission=AdmissionOptions(park_timeout=0.1)) as broker:
        client = await come(broker)
        reason = await client.end()
        assert (reason.condition.name, reason.condition.description) == (
            "amqp:connection:forced",
            "parked for 0.1 s without a slot",
        )
        await until(lambda: not broker._connections)


async def test_the_parked_are_alive_beyond_the_idle_time_out() -> None:
    async with passive(heartbeat=0.2) as broker:
        client = await come(broker, heartbeat=0.2)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.0):
                await asyncio.shield(client.close_reason)
        assert is_parked(client)
        await broker.promote()
        await begun(client)
        await client.close()


async def test_one_that_falls_silent_is_lost_and_forgotten() -> None:
    async with passive(heartbeat=0.2) as broker:
        [client] = await parked(broker)
        client.engine._timer.cancel()
        client.engine._timer = asyncio.get_running_loop().call_later(60, int)
        await client.end()
        await until(lambda: broker.status()["entrance"]["parked_now"] == 0)


async def test_the_parked_are_closed_with_the_others_when_the_member_stops_or_is_demoted() -> None:
    async with running(admission=BUSY) as broker:
        served = await come(broker, name="served")
        await begun(served)
        waiting = await come(broker, name="waiting")
        assert is_parked(waiting)
        await broker.demote(ELSEWHERE)
        for client in (served, waiting):
            assert (await client.end()).condition.name == "amqp:connection:redirect"
        [stays] = await parked(broker)
        await broker.stop()
        assert (await stays.end()).condition.name == "amqp:connection:redirect"


async def test_a_link_that_comes_too_early_waits_for_its_slot_as_well() -> None:
    async with passive() as broker:
        [client] = await parked(broker)
        early = asyncio.create_task(client.attach("sender", "early", "q"))
        [served] = broker._connections
        await until(lambda: len(served._parked_links) == 1)
        assert not list(broker.addresses)
        await broker.promote()
        link = await early
        assert link.endpoint.remote_properties == {"haclient:generation": 4}
        await client.close()


async def test_whoever_attaches_without_end_while_parked_is_cut() -> None:
    async with passive() as broker:
        [client] = await parked(broker)
        for number in range(101):
            client.engine.attach(client.engine.sender(client.session, f"link {number}", client))
        await client.end()
        await until(lambda: not broker._connections)


async def test_one_that_ends_its_session_while_parked_leaves_nothing_behind() -> None:
    async with passive() as broker:
        [client] = await parked(broker)
        client.session.close()
        client.engine.wake()
        await client.end()
        await until(lambda: not broker._connections)
        assert broker.status()["entrance"]["parked_now"] == 0


async def test_the_admin_is_served_and_not_parked(tmp_path: Path) -> None:
    write_users(tmp_path / "users", {ADMIN.user: ADMIN.password})
    async with member(tmp_path, "--users", str(tmp_path / "users")) as address:
        parked = await Client().connect(address, container_id="parked", desired_capabilities=(PARK,))
        async with await AdminClient.connect(address, ADMIN) as admin:
            assert (await admin.status()).facts["entrance"]["parked_now"] == 1
            await admin.promote()
            await begun(parked)
        as_admin = {"user": ADMIN.user, "password": ADMIN.password, "mechanisms": ("SCRAM-SHA-256",)}
        client = await Client().connect(address, desired_capabilities=(PARK,), **as_admin)
        await begun(client)
        for each in (parked, client):
            await each.close()


async def test_hundreds_are_served_when_there_is_no_limit() -> None:
    async with passive() as broker:
        clients = await parked(broker, 100)
        await broker.promote()
        for client in clients:
            await begun(client)
            client.engine.abort()


async def test_the_telemetry_records_who_was_parked_and_what_became_of_him(tmp_path: Path) -> None:
    async with passive(telemetry=TelemetrySettings(tmp_path)) as broker:
        [client] = await parked(broker)
        await broker.promote()
        await begun(client)
        await client.close()
        await broker.demote()
        [client] = await parked(broker)
        broker.follow(ELSEWHERE, generation=9)
        await client.end()
    flush()
    found = lines(tmp_path)
    assert words(found) == [
        "role", "parked", "role", "unparked", "admitted", "role", "parked", "role", "unparked",
    ]  # fmt: skip
    served, sent_on = (line["data"] for line in found if line["type"].endswith("unparked"))
    assert "error.type" not in served
    assert (sent_on["error.type"], sent_on["messaging.client.id"]) == ("redirected", "client 0")
