"""Annotations of *modified* outcomes: on backups, after failovers, restarts and catch-ups."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import proton
import pytest
from proton import Message, symbol

from haclient.outcome import Outcome, OutcomeState
from tests.broker_stub.clients import Client
from tests.broker_stub.replication.cluster import Cluster, Member, send, stop_equal, take


async def annotate(member: Member, queue: str, *annotations: dict[str, Any]) -> None:
    """Give the first messages of a queue back with annotations, one map for each.

    A further message is sent and consumed afterwards; it is settled after the backups have all of it.
    """
    client = await Client().connect(member.address)
    receiver = await client.attach("receiver", "r", queue)
    receiver.grant(len(annotations))
    async with asyncio.timeout(10):
        got = [await client.received.get() for _ in annotations]
    for (link, delivery, _), values in zip(got, annotations, strict=True):
        data = proton.Data()
        data.put_object({symbol(key): value for key, value in values.items()})
        link.settle(delivery, Outcome(OutcomeState.MODIFIED, annotations=bytes(data.encode())))
    await client.close()
    await send(member, queue, "last")


def of(message: Message) -> dict[str, Any]:
    found = {str(key): value for key, value in (message.annotations or {}).items()}
    return {key: value for key, value in found.items() if not key.startswith("x-opt-delivery")}


async def found(member: Member, queue: str) -> list[tuple[Any, dict[str, Any]]]:
    return [(message.body, of(message)) for message in await take(member, queue)]


@pytest.mark.slow
async def test_they_survive_a_failover_and_the_way_back(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        a, b = await cluster.pair()
        await send(a, "orders", "one", "two", annotations={symbol("x-mine"): 1})
        await annotate(a, "orders", {"x-why": "busy"}, {"x-mine": 2})
        await annotate(a, "orders", {"x-why": "late"})
        await a.kill()
        await b.promote()
        await annotate(b, "orders", {"x-again": True})
        await a.start()
        await a.until("ready")
        await b.kill()
        await a.promote()
        assert (await found(a, "orders"))[:2] == [
            ("one", {"x-mine": 1, "x-why": "late", "x-again": True}),
            ("two", {"x-mine": 2}),
        ]


@pytest.mark.slow
async def test_they_survive_a_restart_of_both(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        a, b = await cluster.pair()
        await send(a, "orders", "one", ttl=3600.0)
        await annotate(a, "orders", {"x-why": "busy"})
        content = await stop_equal(a, b)
        assert [count for _, _, count in content["orders"]] == [1, 0]
        await asyncio.gather(a.start(), b.start())
        await a.promote()
        await b.until("ready")
        await a.kill()
        await b.promote()
        [message, _] = await take(b, "orders")
        assert (of(message), message.ttl > 3000) == ({"x-why": "busy"}, True)


@pytest.mark.slow
async def test_a_backup_gets_those_of_what_it_has_and_of_what_it_lacks(tmp_path: Path) -> None:
    delayed = {symbol("x-opt-delivery-delay"): 1}
    async with Cluster(tmp_path) as cluster:
        a, b = await cluster.pair()
        await send(a, "orders", "plain", "kept", "cleared")
        await annotate(a, "orders", {}, {}, {"x-why": "former"})
        await b.stop()
        await annotate(a, "orders", {}, {"x-why": "busy"}, {"x-why": "later", "x-new": 1})
        await send(a, "fresh", "lacked", annotations=delayed)
        await annotate(a, "fresh", {"x-why": "new"})
        await b.start()
        await b.until("ready")
        await a.kill()
        await b.promote()
        assert (await found(b, "orders"))[:3] == [
            ("plain", {}),
            ("kept", {"x-why": "busy"}),
            ("cleared", {"x-why": "later", "x-new": 1}),
        ]
        assert (await found(b, "fresh"))[0] == ("lacked", {"x-why": "new"})


@pytest.mark.slow
async def test_a_former_primary_takes_the_new_one_s_in_place_of_its_own(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        a, b = await cluster.pair()
        await send(a, "orders", "one", "two")
        await annotate(a, "orders", {"x-of": "both"})
        await b.kill()
        await annotate(a, "orders", {"x-of": "a", "x-a": 1}, {"x-a": 1})
        await a.kill()
        await b.start()
        await b.promote(force=True)
        await annotate(b, "orders", {"x-b": 1})
        await a.start()
        await a.until("ready")
        content = await stop_equal(b, a)
        assert len(content["orders"]) == 4
        await a.start()
        await a.promote()
        assert (await found(a, "orders"))[:2] == [("one", {"x-of": "both", "x-b": 1}), ("two", {})]
