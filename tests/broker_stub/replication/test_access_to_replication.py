"""Only the cluster-admin may use management, replication and passive members."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from proton import Message, symbol, uint

from broker_stub.replication import wire
from broker_stub.replication.backup import CAPABILITY
from haclient.engine.sasl.mechanisms import WITH_PASSWORD
from haclient.outcome import OutcomeState
from tests.broker_stub.clients import Client, LinkRefusedError
from tests.broker_stub.replication.cluster import ADMIN, USER, Cluster, Member, depth, send

ALICE = {"user": USER[0], "password": USER[1], "mechanisms": WITH_PASSWORD}
NOBODY: dict[str, Any] = {}
CLUSTER_ADMIN = {"user": ADMIN.user, "password": ADMIN.password, "mechanisms": WITH_PASSWORD}
REPLICATES = {"desired_capabilities": (CAPABILITY,)}
who = pytest.mark.parametrize("user", [NOBODY, ALICE], ids=["anonymous", "ordinary user"])


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[tuple[Member, Member]]:
    async with Cluster(tmp_path) as cluster:
        yield await cluster.pair()


async def connected(member: Member, user: dict[str, Any], **settings: Any) -> Client:
    client = await Client().connect(member.address, **user, **settings)
    await client.begun.wait()
    return client


async def refused(client: Client, role: str, address: str) -> str:
    """Return the condition of a refused link."""
    with pytest.raises(LinkRefusedError) as caught:
        await client.attach(role, f"{role} {address}", address)
    return str(caught.value.condition)


@pytest.mark.slow
@who
async def test_who_is_not_the_cluster_admin_cannot_manage(pair: tuple[Member, Member], user: Any) -> None:
    client = await connected(pair[0], user)
    assert await refused(client, "sender", "$management") == "amqp:unauthorized-access"
    assert await refused(client, "receiver", "$management") == "amqp:unauthorized-access"
    link = await client.attach("sender", "anywhere", None)
    request = Message(address="$management", properties={"operation": "STOP"}, body={})
    [outcome] = await client.send(link, request)
    assert (outcome.state, outcome.condition) == (OutcomeState.REJECTED, "amqp:unauthorized-access")
    await client.close()
    assert (await pair[0].status()).role == "primary"


@who
async def test_who_is_not_the_cluster_admin_cannot_replicate(pair: tuple[Member, Member], user: Any) -> None:
    a, b = pair
    await send(a, "orders", "one")
    await b.until(lambda status: depth(status, "orders") == 1)
    client = await connected(a, user, **REPLICATES)
    for address in ("$replication", "$replication/anything", "orders"):
        assert await refused(client, "receiver", address) == "amqp:unauthorized-access"
    await client.close()
    assert [replica["name"] for replica in await replicas(a)] == ["b"]


@pytest.mark.slow
@who
async def test_the_addresses_of_replication_are_nowhere_without_the_capability(
    pair: tuple[Member, Member], user: Any
) -> None:
    client = await connected(pair[0], user)
    for role in ("sender", "receiver"):
        for address in ("$replication", "$replication/anything"):
            assert await refused(client, role, address) == "amqp:not-found"
    await client.close()


@pytest.mark.slow
@who
@pytest.mark.parametrize("settings", [{}, REPLICATES], ids=["client", "as a backup"])
async def test_a_passive_member_sends_them_to_the_primary(
    pair: tuple[Member, Member], user: Any, settings: Any
) -> None:
    a, b = pair
    client = await Client().connect(b.address, **user, **settings)
    reason = await client.end()
    assert reason.condition.name == "amqp:connection:redirect"
    assert reason.condition.info["port"] == a.address.port


@pytest.mark.slow
@who
async def test_a_passive_member_that_knows_no_primary_refuses_them(
    pair: tuple[Member, Member], user: Any
) -> None:
    a, b = pair
    await a.kill()
    await b.until("connecting")
    client = await Client().connect(b.address, **user)
    assert (await client.end()).condition.name == "amqp:connection:forced"


async def test_even_the_cluster_admin_gets_no_queue_of_a_passive_member(pair: tuple[Member, Member]) -> None:
    a, b = pair
    await send(a, "orders", "one")
    client = await connected(b, CLUSTER_ADMIN)
    for role in ("sender", "receiver"):
        assert await refused(client, role, "orders") == "amqp:illegal-state"
    await client.close()
    client = await Client().connect(b.address, **CLUSTER_ADMIN, **REPLICATES)
    assert (await client.end()).condition.name == "amqp:connection:redirect"


async def test_a_wrong_password_is_nobody(pair: tuple[Member, Member]) -> None:
    wrong = {**CLUSTER_ADMIN, "password": "guessed"}
    client = await Client().connect(pair[0].address, **wrong)
    assert (await client.end()).condition.name == "amqp:unauthorized-access"


@pytest.mark.slow
@pytest.mark.parametrize("body", [b"no report", b"\0" * 16 + b"\xff" * 4, "text"])
async def test_a_backup_that_reports_nonsense_is_dropped_and_nobody_else_is(
    pair: tuple[Member, Member], body: Any
) -> None:
    a, _ = pair
    client = await connected(a, CLUSTER_ADMIN, **REPLICATES)
    who = {symbol("haclient:member"): "c", symbol("haclient:member-identity"): str(uuid.uuid4())}
    version = {symbol("haclient:replication-version"): uint(wire.VERSION)}
    await client.attach("receiver", "control", "$replication", link_properties={**who, **version})
    link = await client.attach("sender", "reports", "$replication/have")
    link.send(bytes(Message(body=body, inferred=True).encode()), None)
    assert "no report of what it has" in str(await client.end())
    assert [replica["name"] for replica in await replicas(a)] == ["b"]


async def replicas(member: Member) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await member.status()).facts["replication"]["replicas"]
    return found
