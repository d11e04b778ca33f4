"""``x-qpid-replicate``: the parts of a queue that backups have."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import proton
import pytest
from proton import Message, symbol

from broker_stub.amqp.node_names import QUEUE_TYPE
from haclient import aio
from haclient.errors import LinkRefused
from tests import stores
from tests.broker_stub.replication.cluster import Cluster, Member, bodies, depth, send, stop_equal

MODES = ("all", "configuration", "none")


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with Cluster(tmp_path) as cluster:
        yield cluster


def in_target(mode: str) -> Callable[[proton.Sender], None]:
    def configure(link: proton.Sender) -> None:
        link.target.properties.put_dict({symbol("x-qpid-replicate"): mode})

    return configure


def in_source(mode: str) -> Callable[[proton.Receiver], None]:
    def configure(link: proton.Receiver) -> None:
        link.source.properties.put_dict({symbol("x-qpid-replicate"): mode})

    return configure


async def declare_and_fill(member: Member, modes: tuple[str, ...] = MODES) -> None:
    """Declare a queue for each mode, named after it, with three messages."""
    async with aio.connect(member.url) as connection:
        for mode in modes:
            sender = await connection.create_sender(mode, configure=in_target(mode))
            for number in range(3):
                await sender.send(Message(body=number))


@pytest.mark.slow
@pytest.mark.parametrize("live", [True, False], ids=["live", "by catching up"])
async def test_none_is_absent_configuration_is_empty_and_all_is_equal(cluster: Cluster, live: bool) -> None:
    a, b = await cluster.pair()
    if not live:
        await b.stop()
    await declare_and_fill(a)
    if not live:
        await b.start()
        await b.until("ready")
    await b.until(lambda status: depth(status, "configuration") is not None)
    for member in (a, b):
        await member.stop()
    on_a, on_b = [await stores.contents(member.store) for member in (a, b)]
    assert {name: len(rows) for name, rows in on_a.items()} == {"all": 3, "configuration": 3, "none": 3}
    assert on_b == {"all": on_a["all"], "configuration": []}
    wiring_a, wiring_b = [(await stores.wiring(member.store)).queues for member in (a, b)]
    assert wiring_b == {name: wiring_a[name] for name in ("all", "configuration")}


async def test_after_a_failover_only_what_was_replicated_is_there(cluster: Cluster) -> None:
    a, b = await cluster.pair()
    await declare_and_fill(a)
    await a.kill()
    await b.promote()
    assert await b.depth("none") is None
    assert await bodies(b, "configuration") == []
    assert await bodies(b, "all") == [0, 1, 2]
    await a.start()
    await a.until("ready")
    assert [await a.depth(mode) for mode in MODES] == [0, 0, None]


async def test_a_queue_keeps_the_mode_that_it_was_made_with(cluster: Cluster) -> None:
    a, b = await cluster.pair()
    await declare_and_fill(a, ("none",))
    async with aio.connect(a.url) as connection:
        sender = await connection.create_sender("none", configure=in_target("all"))
        await sender.send(Message(body="to a queue that is there"))
        receiver = await connection.create_receiver("by a receiver", configure=in_source("none"))
        await receiver.close()
    await send(a, "last", "in order, so what comes before has come")
    await b.until(lambda status: depth(status, "last") == 1)
    assert {queue["name"] for queue in (await b.status()).facts["queues"] if not queue["temporary"]} == {
        "last"
    }


async def test_a_mode_that_does_not_exist_is_an_invalid_field(cluster: Cluster) -> None:
    a, _ = await cluster.pair()
    async with aio.connect(a.url) as connection:
        with pytest.raises(LinkRefused, match=r"amqp:invalid-field.*x-qpid-replicate"):
            await connection.create_sender("orders", configure=in_target("some"))
        with pytest.raises(LinkRefused, match=r"amqp:invalid-field.*x-qpid-replicate"):
            await connection.create_receiver("orders", configure=in_source(""))
    assert await a.depth("orders") is None


async def test_a_queue_made_again_while_the_backup_is_away_is_the_new_one_only(cluster: Cluster) -> None:
    a, b = await cluster.pair()
    await send(a, "orders", "old 1", "old 2")
    await send(a, "bills", "old")
    await b.stop()
    for name in ("orders", "bills"):
        await a.call("DELETE", kind=QUEUE_TYPE, name=name)
    await send(a, "orders", "new")
    await b.start()
    await b.until("ready")
    content = await stop_equal(a, b)
    assert list(content) == ["orders"]
    assert [b"new" in data for _, data, _ in content["orders"]] == [True]
    assert await stores.wiring(a.store) == await stores.wiring(b.store)


async def test_a_queue_made_again_while_the_backup_follows_is_the_new_one_only(cluster: Cluster) -> None:
    a, b = await cluster.pair()
    for number in range(5):
        await send(a, "orders", f"old {number}")
        await a.call("DELETE", kind=QUEUE_TYPE, name="orders")
    await send(a, "orders", "new")
    await a.kill()
    await b.promote()
    assert await bodies(b, "orders") == ["new"]


async def test_the_default_is_an_option_of_the_member(tmp_path: Path) -> None:
    async with Cluster(tmp_path, arguments=("--replicate", "configuration")) as cluster:
        a, b = await cluster.pair()
        await send(a, "orders", "one")
        await declare_and_fill(a, ("all",))
        await b.until(lambda status: (depth(status, "orders"), depth(status, "all")) == (0, 3))


@pytest.mark.slow
@pytest.mark.parametrize("live", [True, False], ids=["live", "by catching up"])
async def test_a_message_that_is_not_to_be_replicated_is_in_no_backup(cluster: Cluster, live: bool) -> None:
    a, b = await cluster.pair()
    if not live:
        await b.stop()
    async with aio.connect(a.url) as connection:
        sender = await connection.create_sender("q")
        for number in range(6):
            annotations = {symbol("x-qpid-replicate"): number % 2 == 0, symbol("other"): 1}
            await sender.send(Message(body=number, annotations=annotations))
        receiver = await connection.create_receiver("q", credit=2)
        for _ in range(2):
            await (await receiver.receive(timeout=10)).accept()  # one message from each queue
        await receiver.close()
    if not live:
        await b.start()
        await b.until("ready")
    await b.until(lambda status: depth(status, "q") == 2)
    assert await a.depth("q") == 4
    await a.kill()
    await b.promote()
    await send(b, "q", "after")
    assert await bodies(b, "q") == [2, 4, "after"]
    await a.start()
    await a.until("ready")
    assert await a.depth("q") == 0, "what only it had is gone"
    await stop_equal(a, b)
