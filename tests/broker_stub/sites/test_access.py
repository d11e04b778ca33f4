"""Another site's events: permissions to read them, and to create them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from proton import Message

from broker_stub.admission.user_file import write_users
from broker_stub.amqp.message_format import header_end
from broker_stub.amqp.node_names import EXCHANGE_TYPE
from broker_stub.management_client import AdminClient
from broker_stub.queueing.exchanges import ExchangeType
from broker_stub.queueing.message import Replicate
from broker_stub.queueing.site_state import REPLICATION_QUEUE, SiteMode
from broker_stub.sites.event import Origin, annotate
from broker_stub.sites.site_link import FOLLOW
from broker_stub.sites.source_config import FROM
from haclient import Credentials, aio
from haclient.cluster_url.endpoint import Endpoint
from haclient.errors import LinkRefused
from haclient.outcome import ACCEPTED
from tests.broker_stub.clients import Client, LinkRefusedError, member, running, until
from tests.broker_stub.commands import run
from tests.broker_stub.replication.cluster import ADMIN
from tests.broker_stub.sites.watching import PATIENCE

_NOBODY: dict[str, Any] = {}
_ALICE = {"user": "alice", "password": "wonder"}
_LINK = {"user": "link", "password": "over"}
_ADMIN = {"user": ADMIN.user, "password": ADMIN.password}
_PARKED = "from-a.parked"


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Endpoint]:
    """A member with users that has events, and an exchange for events of another site."""
    write_users(tmp_path / "users", {ADMIN.user: ADMIN.password, "alice": "wonder", "link": "over"})
    users = ("--users", str(tmp_path / "users"), "--link-user", "link", "--link-user", "somebody-else")
    async with member(tmp_path, *users, "--role", "primary") as address:
        async with await AdminClient.connect(address, ADMIN) as admin:
            await admin.create(EXCHANGE_TYPE, "from-a", type="replication")
        yield address


async def attach(
    address: Endpoint, credentials: dict[str, Any], role: str, *where: Any, **source: Any
) -> str:
    """Return the condition of a refused link, empty if the link is not refused."""
    client = await Client().connect(address, **credentials)
    try:
        await client.attach(role, "l", *where, **source)
    except LinkRefusedError as refused:
        return refused.condition
    finally:
        await client.close()
    return ""


@pytest.mark.parametrize("queue", [REPLICATION_QUEUE, _PARKED])
async def test_events_are_for_the_admin_and_for_link_users(site: Endpoint, queue: str) -> None:
    for other in (_NOBODY, _ALICE):
        assert await attach(site, other, "receiver", queue) == "amqp:unauthorized-access"
        assert (
            await attach(site, other, "receiver", queue, distribution_mode=2)
        ) == "amqp:unauthorized-access", "browsing is reading"
    for known in (_LINK, _ADMIN):
        assert await attach(site, known, "receiver", queue) == ""


async def test_events_are_made_by_the_admin_and_the_link_only(site: Endpoint) -> None:
    for other in (_NOBODY, _ALICE, _LINK):
        for address in ("from-a", "from-a/key"):
            assert await attach(site, other, "sender", address) == "amqp:unauthorized-access"
        client = await Client().connect(site, **other)
        relay = await client.attach("sender", "relay")
        [outcome] = await client.send(relay, Message(address="from-a", body="an event"))
        assert outcome is not None
        assert outcome.condition == "amqp:unauthorized-access"
        await client.close()
    assert await attach(site, _ADMIN, "sender", "from-a") == ""


async def test_who_follows_manages_nothing(site: Endpoint) -> None:
    other_admin = {**_ADMIN, "desired_capabilities": (FOLLOW,)}
    assert await attach(site, other_admin, "sender", "$management") == "amqp:unauthorized-access"
    assert await attach(site, other_admin, "receiver", REPLICATION_QUEUE) == ""


async def test_everybody_else_uses_the_other_queues(site: Endpoint) -> None:
    async with aio.connect(str(site), credentials=Credentials(user="alice", password="wonder")) as connection:
        await (await connection.create_sender("orders")).send(Message(body=1), timeout=PATIENCE)
        with pytest.raises(LinkRefused, match="--link-user"):
            await connection.create_receiver(REPLICATION_QUEUE)


async def test_without_users_everybody_may() -> None:
    async with running() as broker:
        broker.addresses.declare_exchange("from-a", ExchangeType.REPLICATION)
        for role, where in (("receiver", REPLICATION_QUEUE), ("sender", "from-a")):
            assert await attach(broker.address, _NOBODY, role, where) == ""


async def test_link_users_need_users() -> None:
    refused = await run("serve", "--link-user", "link")
    assert (refused.exit_code, "--link-user needs --users" in refused.stderr) == (2, True)


async def test_nobody_puts_anything_where_events_wait() -> None:
    async with running() as broker, aio.connect(str(broker.address)) as connection:
        broker.addresses.declare_exchange("from-a", ExchangeType.REPLICATION)
        for queue in (REPLICATION_QUEUE, _PARKED):
            with pytest.raises(LinkRefused, match="only the site itself"):
                await connection.create_sender(queue)


async def test_what_was_there_before_the_exchange_does_not_keep_queues_from_being_made() -> None:
    async with running() as broker:
        parked = broker.addresses.declare(_PARKED, replicate=Replicate.ALL)
        parked.enqueue(bytes(Message(body="no event").encode()), lambda _: None, None)
        broker.addresses.declare_exchange("from-a", ExchangeType.REPLICATION)
        broker.addresses.declare("orders")
        assert parked.depth == 1
        [link] = broker.site.status()["links"]
        assert link["malformed"] > 0


async def test_no_client_says_of_its_message_that_an_event_put_it_there() -> None:
    message = bytes(Message(address="orders", body="passed on", durable=True).encode())
    end = header_end(message)
    once = annotate(message, Origin(bytes(16), 99, bytes(16), 7))
    mark = once[end : len(once) - len(message) + end]
    async with running() as broker:
        client = await Client().connect(broker.address)
        links = [await client.attach("sender", "q", "orders"), await client.attach("sender", "relay")]
        for link in links:
            for data in (once, message[:end] + mark + mark + message[end:]):
                link.send(data, None, settled=False)
                assert await client.outcomes.get() == ACCEPTED
        links[0].send(mark, None, settled=False)
        refused = await client.outcomes.get()
        assert refused is not None
        assert refused.condition == "amqp:decode-error"
        await client.close()
        queue = broker.addresses.queue("orders")
        assert [each.data for each in map(queue.message, queue.ids()) if each is not None] == [message] * 4


async def test_a_link_to_its_own_cluster_says_so_and_makes_nothing() -> None:
    async with running() as broker, aio.connect(str(broker.address)) as connection:
        queue = broker.addresses.declare("orders", site=SiteMode.ALL)
        await (await connection.create_sender("orders")).send(Message(body=1), timeout=PATIENCE)
        options = {FROM: str(broker.address)}
        broker.addresses.declare_exchange("from-a", ExchangeType.REPLICATION, options=options)
        await until(lambda: "cannot follow itself" in broker.site.status()["links"][0]["error"])
        assert queue.depth == 1
        assert broker.site.status()["source"]["lag_events"] == 1
