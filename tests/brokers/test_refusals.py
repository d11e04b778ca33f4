"""Real brokers refuse as recorded in ``tests/peers/recorded_refusals.py``, and users see these texts."""

from __future__ import annotations

import asyncio
import http.client
import json
from base64 import b64encode
from pathlib import Path

import pytest

from haclient.cluster_url.endpoint import Endpoint
from haclient.errors import ConnectionGaveUp
from tests.brokers.application import attach, check, connect, received, refused, running, send
from tests.brokers.bare import Account
from tests.brokers.products import installed, rabbitmq4
from tests.brokers.products.activemq import ActiveMQ
from tests.brokers.products.artemis import Artemis
from tests.brokers.products.artemis_config import Kind, Limit, Settings
from tests.brokers.products.broker_j import BrokerJ
from tests.brokers.products.rabbitmq import OneRabbitMQ
from tests.brokers.topology import Launch
from tests.interop.rabbitmq import Node, RabbitMQ, durable
from tests.peers.recorded_refusals import ADDRESS, REFUSALS, Product, Step, refusal

pytestmark = [pytest.mark.brokers, pytest.mark.timeout(900)]
FEW = 20_000
"""Bytes: some twelve messages fill an address."""
MANY = 60


async def test_artemis_refuses_users_and_addresses_that_it_does_not_know(tmp_path: Path) -> None:
    artemis = Artemis(Kind.SINGLE, Launch(tmp_path), Settings(unmade=ADDRESS))
    async with running("artemis-single", artemis) as broker:
        endpoint = broker.members[0].endpoint
        where, url = endpoint.authority, broker.url
        for situation, who in (("wrong password", "admin:wrong@"), ("no credentials", "")):
            seen = await refused(connect(f"amqp://{who}{where}"))
            check(refusal(Product.ARTEMIS, situation), seen, endpoint)
        for step, receive in ((Step.SENDER, False), (Step.RECEIVER, True)):
            seen = await refused(attach(url, ADDRESS, receive=receive))
            check(refusal(Product.ARTEMIS, "unknown address", step), seen, endpoint)


@pytest.mark.parametrize(("policy", "stored"), [("BLOCK", MANY), ("FAIL", 13), ("DROP", 13)])
async def test_artemis_refuses_or_drops_what_is_too_much(tmp_path: Path, policy: str, stored: int) -> None:
    settings = Settings(limits=(Limit("#", policy, FEW),))
    async with running("artemis-single", Artemis(Kind.SINGLE, Launch(tmp_path), settings)) as broker:
        seen = await refused(send(broker.url, ADDRESS, MANY))
        if policy == "BLOCK":  # granted credit stays valid: only the next link gets none
            assert seen == ("", "")
            seen = await refused(send(broker.url, ADDRESS, 1))
        check(refusal(Product.ARTEMIS, f"full address, {policy}"), seen, broker.members[0].endpoint)
        found = await received(broker.url, ADDRESS)
        assert found == MANY if policy == "BLOCK" else 0 < found < MANY


async def test_broker_j_refuses(tmp_path: Path) -> None:
    async with running("broker-j", BrokerJ(Launch(tmp_path))) as broker:
        primary = await broker.group.primary()
        endpoint, where = primary.endpoint, primary.endpoint.authority
        for situation, who, vhost in (
            ("wrong password", "guest:wrong@", "group"),
            ("no credentials", "", "group"),
            ("unknown virtual host", "guest:guest@", "nope"),
        ):
            seen = await refused(connect(f"amqp://{who}{where}?vhost={vhost}"))
            check(refusal(Product.BROKER_J, situation), seen, endpoint)
        (node,) = (node for node in broker._nodes if node.member is primary)
        url = f"amqp://guest:guest@{where}?vhost=group"
        for policy in ("REJECT", "PRODUCER_FLOW_CONTROL", "RING"):
            await asyncio.to_thread(_make_queue, node._http.authority, node._name, policy)
            seen = await refused(send(url, ADDRESS, MANY))
            check(refusal(Product.BROKER_J, f"full queue, {policy}"), seen, endpoint)
            assert await received(url, ADDRESS) in {5, 6}


def _make_queue(where: str, node: str, policy: str) -> None:
    """Create the queue anew, with room for five messages."""
    account = b64encode(b"guest:guest").decode()
    headers = {"Authorization": f"Basic {account}", "Content-Type": "application/json"}
    facts = json.dumps({"overflowPolicy": policy, "maximumQueueDepthMessages": 5})
    connection = http.client.HTTPConnection(where, timeout=60)
    path = f"/api/latest/queue/{node}/group/{ADDRESS}"
    for method, body in (("DELETE", None), ("PUT", facts)):
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        text = answer.read()
        assert method == "DELETE" or answer.status == http.HTTPStatus.CREATED, text
    connection.close()


_ACTIVEMQ = """
    <destinationPolicy><policyMap><policyEntries>
      <policyEntry queue="q" memoryLimit="{few}">
        <pendingQueuePolicy><vmQueueCursor/></pendingQueuePolicy>
      </policyEntry>
    </policyEntries></policyMap></destinationPolicy>
    <plugins>
      <simpleAuthenticationPlugin anonymousAccessAllowed="false"><users>
        <authenticationUser username="admin" password="admin" groups="admins"/>
        <authenticationUser username="joe" password="joe" groups="all"/>
      </users></simpleAuthenticationPlugin>
      <authorizationPlugin><map><authorizationMap><authorizationEntries>
        <authorizationEntry queue=">" read="admins" write="admins" admin="admins"/>
        <authorizationEntry topic=">" read="admins,all" write="admins,all" admin="admins,all"/>
      </authorizationEntries></authorizationMap></map></authorizationPlugin>
    </plugins>
    <systemUsage><systemUsage sendFailIfNoSpace="{fails}"/></systemUsage>
"""


@pytest.mark.parametrize("fails", [False, True])
async def test_activemq_classic_refuses(tmp_path: Path, *, fails: bool) -> None:
    elements = _ACTIVEMQ.format(few=FEW, fails=str(fails).lower())
    cluster = ActiveMQ(Launch(tmp_path), elements)
    cluster.group.account = Account("admin", "admin")
    async with running("activemq", cluster) as broker:
        endpoint = (await broker.group.primary()).endpoint
        where = endpoint.authority
        for situation, who in (("wrong password", "admin:wrong@"), ("no credentials", "")):
            seen = await refused(connect(f"amqp://{who}{where}"))
            check(refusal(Product.ACTIVEMQ, situation), seen, endpoint)
        for situation, receive in (("no permission to write", False), ("no permission to read", True)):
            seen = await refused(attach(f"amqp://joe:joe@{where}", ADDRESS, receive=receive))
            check(refusal(Product.ACTIVEMQ, situation), seen, endpoint)
        url = f"amqp://admin:admin@{where}"
        situation = "full queue, sendFailIfNoSpace" if fails else "full queue"
        check(refusal(Product.ACTIVEMQ, situation), await refused(send(url, ADDRESS, MANY)), endpoint)
        # The broker stores the unsettled messages when there is room again.
        found = await received(url, ADDRESS)
        assert (5 < found < MANY) if fails else found > 5


async def test_rabbitmq_4_refuses(tmp_path: Path) -> None:
    if reason := rabbitmq4.missing():
        pytest.skip(reason)
    broker = RabbitMQ(1, folder=tmp_path, root=installed.DEBIAN_13)
    try:
        await asyncio.to_thread(broker.start)
        (node,) = broker.nodes
        await asyncio.to_thread(_prepare, node)
        await _rabbitmq_4_refuses(Endpoint(node.host, node.port))
    finally:
        broker.stop()


def _prepare(node: Node) -> None:
    """Create queues, a user without rights, and a virtual host that the user may not use."""
    full = {"reject-publish": {"x-overflow": "reject-publish"}, "drop-head": {}}
    arguments = {name: {"x-max-length": 5, **more} for name, more in full.items()} | {"known": {}}
    queues = [
        {"name": name, "vhost": "/", "durable": True, "auto_delete": False, "arguments": more}
        for name, more in arguments.items()
    ]
    definitions = node.folder / "queues.json"
    definitions.write_text(json.dumps({"queues": queues}))
    node.control("import_definitions", str(definitions))
    node.control("add_user", "joe", "joe")
    node.control("set_permissions", "joe", "^$", "^$", "^$")
    node.control("add_vhost", "team")


async def _rabbitmq_4_refuses(endpoint: Endpoint) -> None:
    url, joe = (f"amqp://{who}@{endpoint.authority}/" for who in ("guest:guest", "joe:joe"))
    seen = await refused(connect(url.replace("guest@", "wrong@")))
    check(refusal(Product.RABBITMQ_4, "wrong password"), seen, endpoint)
    await connect(f"amqp://{endpoint.authority}")  # guests are refused
    for situation, vhost in (
        ("unknown virtual host", "nope"),
        ("a virtual host that the user may not use", "team"),
    ):
        record = refusal(Product.RABBITMQ_4, situation)
        with pytest.raises(ConnectionGaveUp) as caught:
            await connect(f"{joe}?vhost=vhost:{vhost}&max_attempts=1")
        assert record.shown in str(caught.value)
    for record in REFUSALS:
        if record.product is Product.RABBITMQ_4 and record.step in (Step.SENDER, Step.RECEIVER):
            who = joe if record.situation.startswith("no permission") else url
            seen = await refused(attach(who, record.address, receive=record.step is Step.RECEIVER))
            check(record, seen, endpoint)
    seen = await refused(send(url, "/exchanges/amq.direct/nowhere", 1))
    check(refusal(Product.RABBITMQ_4, "an exchange without a matching binding"), seen, endpoint)
    for name in ("reject-publish", "drop-head"):
        seen = await refused(send(url, f"/queues/{name}", 20))
        check(refusal(Product.RABBITMQ_4, f"full queue, {name}"), seen, endpoint)
        assert await received(url, f"/queues/{name}") in {5, 6}


async def test_rabbitmq_3_refuses(tmp_path: Path) -> None:
    async with running("rabbitmq", OneRabbitMQ(Launch(tmp_path))) as broker:
        (member,) = broker.group.members
        endpoint, where, url = member.endpoint, member.endpoint.authority, broker.url
        seen = await refused(connect(f"amqp://guest:wrong@{where}"))
        check(refusal(Product.RABBITMQ_3, "wrong password"), seen, endpoint)
        seen = await refused(connect(f"amqp://guest:guest@{where}/?vhost=vhost:nope"))
        check(refusal(Product.RABBITMQ_3, "unknown virtual host"), seen, endpoint)
        await connect(f"amqp://{where}")  # guests are refused
        for step, receive in ((Step.SENDER, False), (Step.RECEIVER, True)):
            unknown = refusal(Product.RABBITMQ_3, "unknown address", step)
            check(unknown, await refused(attach(url, unknown.address, receive=receive)), endpoint)
        for address in (f"/amq/queue/{ADDRESS}", "/exchange/amq.direct/nowhere"):
            await send(url, address, 2)  # accepted, then dropped
        await _rabbitmq_is_full(broker, url, endpoint)


async def _rabbitmq_is_full(broker: OneRabbitMQ, url: str, endpoint: object) -> None:
    (node,) = broker._broker.nodes
    for name, more in (("reject-publish", {"overflow": "reject-publish"}), ("drop-head", {})):
        queue = f"/queue/{name}"
        policy = json.dumps({"max-length": 5, **more})
        await asyncio.to_thread(node.control, "set_policy", name, f"^{name}$", policy)
        seen = await refused(send(url, queue, 10, configure=durable))
        check(refusal(Product.RABBITMQ_3, f"full queue, {name}"), seen, endpoint)
        assert await received(url, queue, configure=durable) == 5
