"""``queue``, ``exchange`` and ``binding``: the commands find the primary themselves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker_stub.local_cluster.member_process import free_addresses
from haclient.cluster_url.endpoint import Endpoint
from tests.broker_stub.commands import json_of, manage
from tests.broker_stub.replication.cluster import Cluster


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with Cluster(tmp_path) as cluster:
        yield cluster


async def test_queues_are_added_listed_and_removed_wherever_the_primary_is(cluster: Cluster) -> None:
    a, b = await cluster.pair()
    for name, mode in (("all", "all"), ("wiring", "configuration"), ("here", "none")):
        facts = await json_of("queue", "add", name, cluster.url, "--replicate", mode)
        assert (facts["name"], facts["replicate"]) == (name, mode)
    # The backup alone is enough to find the primary.
    listed = await json_of("queue", "list", b.url)
    assert [queue["name"] for queue in listed] == ["all", "wiring", "here"]
    names = {queue["name"] for queue in (await b.status()).facts["queues"]}
    assert {"all", "wiring"} <= names
    assert "here" not in names
    for member, name in ((a, "all"), (b, "wiring")):
        assert await json_of("queue", "remove", name, member.url) == {"removed": name}
    assert [queue["name"] for queue in await json_of("queue", "list", a.url, b.url)] == ["here"]


@pytest.mark.slow
async def test_exchanges_and_bindings_are_added_listed_and_removed(cluster: Cluster) -> None:
    await cluster.pair()
    await json_of("exchange", "add", "prices", cluster.url, "--type", "topic")
    await json_of("queue", "add", "eur", cluster.url)
    binding = await json_of("binding", "add", "prices", "eur", cluster.url, "--key", "eur.*")
    assert await json_of("binding", "list", cluster.url) == [binding]
    people = (await manage("binding", "list", cluster.url)).output
    assert people == "prices -> eur, key 'eur.*'\n"
    assert (await manage("exchange", "list", cluster.url)).output == "prices: topic, replicate all\n"
    assert (await manage("queue", "list", cluster.url)).output == "eur: 0 messages, replicate all\n"
    wrong = await manage("binding", "remove", "prices", "eur", cluster.url)
    assert (wrong.exit_code, "there is no binding" in wrong.stderr) == (1, True)
    await json_of("binding", "remove", "prices", "eur", cluster.url, "--key", "eur.*")
    await json_of("exchange", "remove", "prices", cluster.url)
    assert await json_of("exchange", "list", cluster.url) == []


async def test_what_the_primary_refuses_is_refused_with_its_reason(cluster: Cluster) -> None:
    await cluster.pair()
    await json_of("queue", "add", "orders", cluster.url)
    again = await manage("queue", "add", "orders", cluster.url)
    assert (again.exit_code, again.stdout) == (1, "")
    assert "there is already a queue 'orders'" in again.stderr


async def test_without_a_primary_every_member_is_named_with_what_it_is(cluster: Cluster) -> None:
    a, b = cluster.members
    await a.start()
    result = await manage("queue", "add", "orders", cluster.url)
    assert result.exit_code == 1
    assert "no primary found" in result.stderr
    assert f"amqp://{a.address.authority} is connecting" in result.stderr
    assert f"amqp://{b.address.authority}: Connection refused" in result.stderr


async def test_members_of_which_none_answers_are_not_reachable() -> None:
    first, second = free_addresses((Endpoint("127.0.0.1", 0),) * 2)
    result = await manage("queue", "list", f"{first},{second.authority}")
    assert result.exit_code == 3
    assert result.stderr.count("Connection refused") == 2
