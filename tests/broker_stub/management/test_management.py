"""The management node: queues, exchanges and bindings by AMQP Management, and its permissions."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import proton
import pytest

from broker_stub.admission.user_file import DEFAULT_ADMIN, write_users
from broker_stub.amqp.node_names import BINDING_TYPE, EXCHANGE_TYPE, MEMBER_TYPE, QUEUE_TYPE
from broker_stub.management.node import Management
from broker_stub.management_client import AdminClient, MemberRefusedError, MemberUnreachableError
from haclient import Credentials
from haclient.cluster_url.endpoint import Endpoint
from tests.broker_stub.clients import Client, member, running
from tests.broker_stub.replication.cluster import ADMIN, Cluster

PASSWORD = "a password"


@pytest.fixture
async def admin(tmp_path: Path) -> AsyncIterator[AdminClient]:
    """A member that is primary without an arbiter."""
    users = tmp_path / "users"
    write_users(users, {DEFAULT_ADMIN: PASSWORD})
    async with (
        member(tmp_path, "--users", str(users), "--role", "primary") as address,
        await AdminClient.connect(address, Credentials(user=DEFAULT_ADMIN, password=PASSWORD)) as admin,
    ):
        yield admin


async def refused(
    admin: AdminClient, operation: str, kind: str, name: str = "", **arguments: Any
) -> tuple[int, str]:
    with pytest.raises(MemberRefusedError) as info:
        await admin.call(operation, kind=kind, name=name, **arguments)
    return info.value.status, str(info.value)


async def test_a_close_that_is_cancelled_drops_the_connection(admin: AdminClient) -> None:
    closing = asyncio.ensure_future(admin.close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing])
    assert closing.cancelled()
    with pytest.raises(MemberUnreachableError):
        await admin.query(QUEUE_TYPE)


# -- queues -----------------------------------------------------------------------------------------


async def test_a_queue_is_created_read_listed_and_deleted(admin: AdminClient) -> None:
    made = await admin.create(QUEUE_TYPE, "orders", **{"x-qpid-replicate": "configuration"})
    assert (made["name"], made["replicate"], made["depth"]) == ("orders", "configuration", 0)
    read = await admin.call("READ", kind=QUEUE_TYPE, name="orders")
    assert read["identity"] == made["identity"]
    assert made in await admin.query(QUEUE_TYPE)
    await admin.delete(QUEUE_TYPE, "orders")
    assert (await refused(admin, "READ", QUEUE_TYPE, "orders"))[0] == 404
    again = await admin.create(QUEUE_TYPE, "orders")
    assert again["identity"] != made["identity"]


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("q", {"x-qpid-replicate": "some"}, "x-qpid-replicate is none, configuration, all, and not 'some'"),
        ("q", {"replicate": 3}, "replicate must be a text"),
        ("q", {"replicate": "all", "x-qpid-replicate": "none"}, "contradict"),
        ("q", {"replciate": "all"}, "no attribute replciate"),
        ("", {}, "a name has 1 to 1024 characters"),
        ("$management", {}, "does not start with $ or temporary/"),
        ("x" * 1025, {}, "1 to 1024 characters"),
        ("temporary/1", {}, "does not start with $ or temporary/"),
    ],
)
async def test_what_makes_no_sense_is_a_bad_request_and_an_invalid_field(
    admin: AdminClient, name: str, arguments: dict[str, Any], words: str
) -> None:
    status, said = await refused(admin, "CREATE", QUEUE_TYPE, name, **arguments)
    assert status == 400
    assert "amqp:invalid-field" in said
    assert words in said


async def test_a_name_that_is_taken_is_a_conflict(admin: AdminClient) -> None:
    await admin.create(QUEUE_TYPE, "orders")
    assert await refused(admin, "CREATE", QUEUE_TYPE, "orders") == (409, "there is already a queue 'orders'")
    status, _ = await refused(admin, "CREATE", EXCHANGE_TYPE, "orders", type="direct")
    assert status == 409


async def test_nothing_of_a_queue_can_be_changed_and_an_unknown_operation_is_not_implemented(
    admin: AdminClient,
) -> None:
    await admin.create(QUEUE_TYPE, "orders")
    status, said = await refused(admin, "UPDATE", QUEUE_TYPE, "orders", replicate="none")
    assert (status, "create it anew" in said) == (405, True)
    assert (await refused(admin, "UPDATE", QUEUE_TYPE, "other"))[0] == 404
    assert (await refused(admin, "PURGE", QUEUE_TYPE, "orders"))[0] == 501
    assert (await refused(admin, "READ", "org.example.topic"))[0] == 501


async def test_a_temporary_queue_is_not_deleted_over_the_head_of_its_connection(admin: AdminClient) -> None:
    [queue] = [queue for queue in await admin.query(QUEUE_TYPE) if queue["temporary"]]
    status, said = await refused(admin, "DELETE", QUEUE_TYPE, queue["name"])
    assert (status, "is temporary" in said) == (409, True)


async def test_a_query_selects_attributes_and_rows(admin: AdminClient) -> None:
    for name in ("a", "b", "c"):
        await admin.create(EXCHANGE_TYPE, name, type="fanout")
    wanted = {"attributeNames": ["type", "name", "colour"]}
    whole = await admin.call("QUERY", kind=EXCHANGE_TYPE, **wanted)
    assert whole["attributeNames"] == ["type", "name", "colour"]
    assert whole["results"] == [["fanout", name, None] for name in ("a", "b", "c")]
    part = await admin.call("QUERY", kind=EXCHANGE_TYPE, offset=1, count=1, **wanted)
    assert part["results"] == [["fanout", "b", None]]
    assert (await refused(admin, "QUERY", EXCHANGE_TYPE, offset=-1))[0] == 400
    assert (await refused(admin, "QUERY", EXCHANGE_TYPE, attributeNames="name"))[0] == 400


# -- exchanges and bindings -------------------------------------------------------------------------


async def test_exchanges_and_bindings_route_from_the_moment_they_are_created(admin: AdminClient) -> None:
    exchange = await admin.create(EXCHANGE_TYPE, "prices", type="topic")
    assert (exchange["type"], exchange["replicate"]) == ("topic", "all")
    await admin.create(QUEUE_TYPE, "eur")
    made = await admin.create(BINDING_TYPE, "", exchange="prices", queue="eur", key="eur.#")
    assert made == {"name": "prices/eur/eur.#", "exchange": "prices", "queue": "eur", "key": "eur.#"}
    client = await Client().connect(admin.address)
    sender = await client.attach("sender", "s", "prices")
    await client.send(sender, proton.Message(body=1, subject="eur.usd"))
    assert (await admin.call("READ", kind=QUEUE_TYPE, name="eur"))["depth"] == 1
    await client.close()
    await admin.delete(BINDING_TYPE, made["name"])
    assert await admin.query(BINDING_TYPE) == []
    await admin.delete(EXCHANGE_TYPE, "prices")
    assert await admin.query(EXCHANGE_TYPE) == []


async def test_a_binding_ends_with_its_queue(admin: AdminClient) -> None:
    await admin.create(EXCHANGE_TYPE, "prices", type="fanout")
    await admin.create(QUEUE_TYPE, "eur")
    await admin.create(BINDING_TYPE, "", exchange="prices", queue="eur")
    assert (await refused(admin, "CREATE", BINDING_TYPE, exchange="prices", queue="eur"))[0] == 409
    await admin.delete(QUEUE_TYPE, "eur")
    assert await admin.query(BINDING_TYPE) == []


async def test_names_with_slashes_are_distinguished_by_their_parts(admin: AdminClient) -> None:
    for exchange, queue in (("a", "b/c"), ("a/b", "c")):
        await admin.create(EXCHANGE_TYPE, exchange, type="fanout")
        await admin.create(QUEUE_TYPE, queue)
        await admin.create(BINDING_TYPE, "", exchange=exchange, queue=queue)
    assert (await refused(admin, "DELETE", BINDING_TYPE, "a/b/c/"))[0] == 409
    await admin.delete(BINDING_TYPE, "", exchange="a/b", queue="c")
    [left] = await admin.query(BINDING_TYPE)
    assert left["exchange"] == "a"


@pytest.mark.parametrize(
    ("kind", "arguments", "status"),
    [
        (EXCHANGE_TYPE, {"type": "headers"}, 400),
        (EXCHANGE_TYPE, {}, 400),
        (BINDING_TYPE, {"exchange": "none", "queue": "none"}, 404),
        (BINDING_TYPE, {"queue": "q"}, 400),
    ],
)
async def test_wiring_that_cannot_be_is_refused(
    admin: AdminClient, kind: str, arguments: dict[str, Any], status: int
) -> None:
    assert (await refused(admin, "CREATE", kind, "x", **arguments))[0] == status


# -- members ----------------------------------------------------------------------------------------


async def test_new_members_are_announced_to_every_client_that_connects(admin: AdminClient) -> None:
    status = await admin.set_members([Endpoint("10.0.0.1", 5672), Endpoint("10.0.0.2", 5672, tls=True)])
    assert status.facts["members"] == ["10.0.0.1:5672", "10.0.0.2:5672"]
    client = await Client().connect(admin.address)
    await client.begun.wait()
    servers = client.properties["failover-server-list"]
    assert [(server["network-host"], server["scheme"]) for server in servers] == [
        ("10.0.0.1", "amqp"),
        ("10.0.0.2", "amqps"),
    ]
    await client.close()


@pytest.mark.parametrize("members", [[], ["nowhere"], "10.0.0.1:5672", [3]])
async def test_members_that_are_no_list_of_addresses_are_refused(admin: AdminClient, members: object) -> None:
    assert (await refused(admin, "UPDATE", MEMBER_TYPE, members=members))[0] == 400
    assert (await refused(admin, "UPDATE", MEMBER_TYPE, role="primary"))[0] == 400


async def test_what_is_created_at_the_primary_is_on_the_backup_when_it_is_answered(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        a, b = await cluster.pair()
        async with (
            await AdminClient.connect(a.address, ADMIN) as primary,
            await AdminClient.connect(b.address, ADMIN) as backup,
        ):
            queue = await primary.create(QUEUE_TYPE, "eur")
            await primary.create(EXCHANGE_TYPE, "prices", type="direct")
            binding = await primary.create(BINDING_TYPE, "", exchange="prices", queue="eur", key="k")
            copies = {each["name"]: each["identity"] for each in await backup.query(QUEUE_TYPE)}
            assert copies["eur"] == queue["identity"]
            assert await backup.query(BINDING_TYPE) == [binding]
            status, said = await refused(backup, "CREATE", QUEUE_TYPE, "usd")
            assert (status, str(a.address) in said) == (409, True)
            assert (await refused(backup, "DELETE", QUEUE_TYPE, "eur"))[0] == 409
            await primary.delete(QUEUE_TYPE, "eur")
            assert "eur" not in {each["name"] for each in await backup.query(QUEUE_TYPE)}
            assert await backup.query(BINDING_TYPE) == []


# -- requests as such -------------------------------------------------------------------------------


async def answer(message: proton.Message, *, admin: bool = True) -> proton.Message:
    async with running() as broker:
        return await Management(broker).answer(message, admin=admin, by="a test")


async def test_the_log_has_a_line_for_each_command_with_the_client(
    admin: AdminClient, tmp_path: Path
) -> None:
    await admin.create(QUEUE_TYPE, "orders", replicate="none")
    await admin.query(QUEUE_TYPE)
    await refused(admin, "UPDATE", QUEUE_TYPE, "nowhere", replicate="none")
    await admin.delete(QUEUE_TYPE, "orders")
    lines = [line for line in (tmp_path / "member.log").read_text().splitlines() if "management: " in line]
    client = rf"by '{DEFAULT_ADMIN}' at 127\.0\.0\.1:\d+ \(container '.+'\)"
    for line, command in zip(
        lines,
        (
            rf"CREATE {QUEUE_TYPE} 'orders' with 'replicate' {client}",
            rf"UPDATE {QUEUE_TYPE} 'nowhere' with 'replicate' {client}",
            rf"UPDATE {QUEUE_TYPE} 'nowhere' with 'replicate' {client} failed: .*nowhere.*",
            rf"DELETE {QUEUE_TYPE} 'orders' {client}",
        ),
        strict=True,
    ):
        assert re.search(f"management: {command}$", line)


@pytest.mark.parametrize("admin", [True, False])
async def test_no_text_of_a_client_makes_a_line_of_the_log(
    caplog: pytest.LogCaptureFixture, *, admin: bool
) -> None:
    text = "x\n2026 forged\x1b[2J\x85" + "y" * 5000
    properties = {"operation": "CREATE", "type": QUEUE_TYPE, "name": text}
    with caplog.at_level("INFO", "broker_stub.management"):
        await answer(proton.Message(properties=properties, body={text: text}), admin=admin)
    assert caplog.messages
    assert all(message.isprintable() and len(message) < 1000 for message in caplog.messages)


async def test_nobody_but_the_cluster_admin_is_answered_with_more_than_a_refusal() -> None:
    message = proton.Message(properties={"operation": "READ"}, body={})
    response = await answer(message, admin=False)
    assert response.properties["statusCode"] == 403
    assert response.body is None


async def test_statuses_say_what_was_done() -> None:
    async with running() as broker:
        management = Management(broker)

        async def status(operation: str) -> int:
            properties = {"operation": operation, "type": QUEUE_TYPE, "name": "q"}
            response = await management.answer(proton.Message(properties=properties), admin=True, by="t")
            return int(response.properties["statusCode"])

        assert [await status(each) for each in ("CREATE", "READ", "DELETE")] == [201, 200, 204]


async def test_a_query_may_name_the_type_as_entity_type_and_say_the_rest_in_its_properties() -> None:
    properties = {"operation": "QUERY", "type": "org.amqp.management", "entityType": QUEUE_TYPE, "count": 0}
    response = await answer(proton.Message(properties=properties, body={"attributeNames": []}, id=7))
    assert (response.properties["statusCode"], response.properties["count"]) == (200, 0)
    assert response.correlation_id == 7


@pytest.mark.parametrize("body", ["text", [1], 5])
async def test_a_body_that_is_no_map_is_a_bad_request(body: object) -> None:
    response = await answer(proton.Message(properties={"operation": "READ"}, body=body))
    assert response.properties["statusCode"] == 400
