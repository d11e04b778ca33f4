"""Exchanges and bindings on every member: live, by catching up, and from the store."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from proton import Message

from broker_stub.durability.guard import Guard
from broker_stub.election import generation as rules
from broker_stub.election.arbiter.urls import MemoryArbiter
from broker_stub.management_client import MemberRefusedError
from broker_stub.queueing.duplicate_detection import DEFAULT_WINDOW
from broker_stub.replication.replica_set import ReplicaSet, SteppedDownError
from broker_stub.store import MemoryStore
from haclient import aio
from haclient.errors import HaclientError, MessageNotAccepted
from tests.broker_stub.replication.cluster import PATIENCE, Cluster, Member, bodies, depth, send

EXCHANGE, QUEUE, BINDING = "haclient.exchange", "haclient.queue", "haclient.binding"


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with Cluster(tmp_path, backup_timeout=1.0) as cluster:
        yield cluster


async def make(member: Member, kind: str, name: str, **attributes: Any) -> None:
    await member.call("CREATE", kind=kind, name=name, **attributes)


async def delete(member: Member, kind: str, name: str) -> None:
    await member.call("DELETE", kind=kind, name=name)


async def bind(member: Member, exchange: str, queue: str, key: str) -> None:
    await make(member, BINDING, "", exchange=exchange, queue=queue, key=key)


async def wiring(member: Member, kind: str, *attributes: str) -> list[tuple[str, ...]]:
    answer = await member.call("QUERY", kind=kind)
    facts = [dict(zip(answer["attributeNames"], row, strict=True)) for row in answer["results"]]
    return sorted(tuple(each[attribute] for attribute in attributes) for each in facts)


async def bindings(member: Member) -> list[tuple[str, ...]]:
    return await wiring(member, BINDING, "exchange", "queue", "key")


async def make_topic(member: Member) -> None:
    """Make an exchange ``ex`` with a queue for one word and one for everything."""
    await make(member, EXCHANGE, "ex", type="topic")
    for queue, key in (("eu", "eu.*"), ("all", "#")):
        await make(member, QUEUE, queue)
        await bind(member, "ex", queue, key)


async def check_topic(member: Member) -> None:
    await send(member, "ex", "de", "fr", subject="eu.x")
    await send(member, "ex/us.ny", "ny")
    assert await bodies(member, "eu") == ["de", "fr"]
    assert await bodies(member, "all") == ["de", "fr", "ny"]


async def test_an_exchange_works_at_the_new_primary_as_soon_as_its_making_was_answered(
    cluster: Cluster,
) -> None:
    a, b = await cluster.pair()
    await make_topic(a)
    await send(a, "ex", "before", subject="eu.de")
    await a.kill()
    await b.promote()
    assert await bodies(b, "eu") == await bodies(b, "all") == ["before"]
    await check_topic(b)


async def test_what_is_deleted_and_unbound_is_gone_on_the_backup(cluster: Cluster) -> None:
    a, b = await cluster.pair()
    await make_topic(a)
    await make(a, EXCHANGE, "other", type="fanout")
    await bind(a, "other", "eu", "")
    await bind(a, "ex", "eu", "extra")
    await delete(a, BINDING, "ex/eu/eu.*")
    await delete(a, QUEUE, "all")
    await delete(a, EXCHANGE, "other")
    for member in (a, b):
        assert await wiring(member, EXCHANGE, "name", "type") == [("ex", "topic")]
        assert await bindings(member) == [("ex", "eu", "extra")]
    assert (await a.status()).generation == 1


async def test_a_deleted_queue_costs_no_backup_whatever_was_on_its_way(cluster: Cluster) -> None:
    a, b = await cluster.pair()
    async with asyncio.timeout(PATIENCE), aio.connect(a.url) as connection:
        sender = await connection.create_sender("q")
        sent = [await sender.submit(Message(body=bytes(1000))) for _ in range(500)]
        await delete(a, QUEUE, "q")
        await asyncio.gather(*sent, return_exceptions=True)
    await send(a, "q", "another")
    assert (await a.status()).generation == (await b.until("ready")).generation == 1


async def test_a_queue_that_is_deleted_before_the_backup_attaches_costs_no_backup(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        a, b = await cluster.pair()
        b.pause()
        making = asyncio.ensure_future(make(a, QUEUE, "q"))
        await a.until(lambda status: depth(status, "q") is not None)
        deleting = asyncio.ensure_future(delete(a, QUEUE, "q"))
        await a.until(lambda status: depth(status, "q") is None)
        b.resume()
        await asyncio.gather(making, deleting)
        await send(a, "other", "x")
        assert (await a.status()).generation == (await b.until("ready")).generation == 1
        assert await b.depth("q") is None


@pytest.mark.slow
async def test_a_backup_that_was_away_has_the_wiring_of_the_primary_and_no_other(cluster: Cluster) -> None:
    a, b = await cluster.pair()
    await make_topic(a)
    await make(a, EXCHANGE, "left over", type="fanout")
    await make(a, EXCHANGE, "again", type="fanout")
    await bind(a, "again", "eu", "old")
    await b.stop()
    await a.until(lambda status: not status.facts["replication"]["replicas"])
    await delete(a, EXCHANGE, "left over")
    await delete(a, EXCHANGE, "again")
    await make(a, EXCHANGE, "again", type="direct")
    await bind(a, "again", "eu", "new")
    await delete(a, BINDING, "ex/all/#")
    await b.start()
    await b.until("ready")
    expected = await wiring(a, EXCHANGE, "name", "type", "identity", "replicate")
    assert await wiring(b, EXCHANGE, "name", "type", "identity", "replicate") == expected
    assert [facts[:2] for facts in expected] == [("again", "direct"), ("ex", "topic")]
    assert await bindings(b) == await bindings(a) == [("again", "eu", "new"), ("ex", "eu", "eu.*")]


async def test_a_binding_is_on_the_backup_when_both_its_ends_are(cluster: Cluster) -> None:
    a, b = await cluster.pair()
    for mode in ("none", "configuration", "all"):
        await make(a, EXCHANGE, f"ex {mode}", type="fanout", replicate=mode)
        await make(a, QUEUE, f"q {mode}", replicate=mode)
    for exchange in ("ex none", "ex configuration", "ex all"):
        for queue in ("q none", "q configuration", "q all"):
            await bind(a, exchange, queue, "")
    replicated = ("all", "configuration")
    expected = [(f"ex {ex}", f"q {q}", "") for ex in replicated for q in replicated]
    assert await bindings(b) == expected
    assert len(await bindings(a)) == 9
    await b.stop()
    await a.until(lambda status: not status.facts["replication"]["replicas"])
    await b.start()
    await b.until("ready")
    assert await bindings(b) == expected


async def test_the_wiring_comes_back_from_the_store(cluster: Cluster) -> None:
    a = cluster.members[0]
    await a.start()
    await a.promote()
    await make_topic(a)
    await make(a, EXCHANGE, "own", type="direct", replicate="none")
    await bind(a, "own", "eu", "k")
    before = await wiring(a, EXCHANGE, "name", "type", "identity", "replicate"), await bindings(a)
    await a.kill()
    await a.start()
    await a.promote()
    assert before == (
        await wiring(a, EXCHANGE, "name", "type", "identity", "replicate"),
        await bindings(a),
    )
    await check_topic(a)


async def test_a_change_is_answered_only_when_the_backup_has_it_or_can_be_primary_no_more(
    cluster: Cluster,
) -> None:
    a, b = await cluster.pair()
    b.pause()
    await make(a, EXCHANGE, "ex", type="fanout")
    assert (await a.status()).generation == 2
    await a.kill()
    b.resume()
    await b.until("connecting")
    with pytest.raises(MemberRefusedError):
        await b.promote()


async def test_every_copy_is_on_the_backup_before_the_sender_s_transfer_is_settled(cluster: Cluster) -> None:
    a, b = await cluster.pair()
    await make_topic(a)
    async with asyncio.timeout(PATIENCE), aio.connect(a.url) as connection:
        sender = await connection.create_sender("ex")
        sent = [await sender.submit(Message(subject="eu.x", body=number)) for number in range(100)]
        await sent[50]
        settled = [number for number, each in enumerate(sent) if each.done()]
        await a.kill()
        await b.promote()
        for each in sent:
            each.cancel()
        with contextlib.suppress(HaclientError):
            await connection.close()
    for queue in ("eu", "all"):
        assert set(settled) <= set(await bodies(b, queue))


async def test_a_receiver_from_an_exchange_gets_a_new_queue_at_the_new_primary(cluster: Cluster) -> None:
    a, b = await cluster.pair()
    await make(a, EXCHANGE, "news", type="topic")
    async with asyncio.timeout(PATIENCE), aio.connect(cluster.url) as connection:
        receiver = await connection.create_receiver("news/eu.#")
        await send(a, "news", "first", subject="eu.de")
        assert (await receiver.receive()).message.body == "first"
        await a.kill()
        await b.promote()
        await _sent_when_somebody_listens(b, "news", "second", subject="eu.fr")
        assert (await receiver.receive()).message.body == "second"
    # The member answers the Close first, and removes the temporary queue when the socket is closed.
    async with asyncio.timeout(PATIENCE):
        while await bindings(b):  # noqa: ASYNC110 - another process can only be asked
            await asyncio.sleep(0.02)


async def _sent_when_somebody_listens(member: Member, exchange: str, body: str, *, subject: str) -> None:
    while True:
        try:
            await send(member, exchange, body, subject=subject)
        except* MessageNotAccepted:
            await asyncio.sleep(0.02)
        else:
            return


# -- the primary that steps down --------------------------------------------------------------------


class Nobody:
    """The owner of a primary term without a member."""

    async def write_state(self, state: rules.GenerationState) -> None: ...

    def generation_changed(self, record: rules.ArbiterRecord) -> None: ...

    def replicas_changed(self) -> None: ...

    def step_down(self, reason: str) -> None: ...


def replica_set(guard: Guard, *, name: str = "") -> ReplicaSet:
    state, held = rules.GenerationState(1), rules.ArbiterRecord(1, "claim")
    return ReplicaSet(
        Nobody(),
        MemoryArbiter(),
        guard,
        state,
        held,
        store=MemoryStore(duplicates=DEFAULT_WINDOW),
        wiring=dict,
        queues=list,
        backup_timeout=10.0,
        name=name,
    )


async def test_without_replicas_the_wiring_is_settled_when_the_guard_resumes() -> None:
    guard = Guard()
    primary = replica_set(guard)
    await primary.wiring_settled()
    guard.suspend("going alone")
    waiting = asyncio.ensure_future(primary.wiring_settled())
    done, _ = await asyncio.wait([waiting], timeout=0.05)
    assert not done
    guard.resume("going alone")
    await waiting
    await primary.close()


async def test_who_waits_for_the_wiring_learns_that_the_primary_stepped_down() -> None:
    guard = Guard()
    primary = replica_set(guard)
    guard.suspend("going alone")
    waiting = asyncio.ensure_future(primary.wiring_settled())
    await asyncio.sleep(0)
    guard.finish()
    await primary.close()
    with pytest.raises(SteppedDownError):
        await waiting
    with pytest.raises(SteppedDownError):
        await primary.wiring_settled()
