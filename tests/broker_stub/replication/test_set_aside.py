"""A queue that cannot be replicated stops only itself; until it is replicated the replica is not eligible."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_stub.management_client import MemberStatus
from broker_stub.queueing.queue import Queue
from broker_stub.replication import wire
from broker_stub.replication.commit_watch import TICKS
from broker_stub.replication.replica import Phase
from haclient.outcome import Outcome, OutcomeState
from tests.broker_stub.replication.cluster import Cluster, Member, bodies, depth, send, stop_equal
from tests.broker_stub.replication.test_slow_replica import Pair
from tests.telemetry.lines import lines
from tests.telemetry.test_recorder import check_form

# No message enters one queue while a file exists.
HOOK = """
import os
from broker_stub.queueing.queue import Queue

_insert = Queue.insert

def insert(self, *arguments):
    if self.name == "poison" and os.path.exists(os.environ["TEST_POISON"]):
        raise RuntimeError("planted")
    _insert(self, *arguments)

Queue.insert = insert
"""


class Poison:
    """Makes a member fail with one queue."""

    def __init__(self, folder: Path) -> None:
        hook = folder / "hook"
        hook.mkdir()
        (hook / "sitecustomize.py").write_text(HOOK)
        self.file = folder / "poison"
        root = Path(__file__).resolve().parents[3]
        self.wrapper = ("env", f"PYTHONPATH={hook}:{root}", f"TEST_POISON={self.file}")


def aside(status: MemberStatus) -> bool:
    """Test that the one replica lacks only that queue, and is not ready."""
    replicas = status.facts["replication"]["replicas"]
    return any(
        list(each["set_aside"]) == ["poison"]
        and "planted" in each["set_aside"]["poison"]
        and each["phase"] == "catching-up"
        for each in replicas
    )


async def healed(a: Member, b: Member) -> None:
    status = await b.until("ready")
    assert status.role == "ready"
    [replica] = (await a.status()).facts["replication"]["replicas"]
    assert replica["set_aside"] == {}


@pytest.mark.slow
async def test_the_other_queues_are_copied_and_it_is_tried_again(tmp_path: Path) -> None:
    poison, telemetry = Poison(tmp_path), tmp_path / "telemetry"
    recorded = ("--telemetry", str(telemetry))
    wrappers = {"b": poison.wrapper}
    async with Cluster(tmp_path, backup_timeout=2.0, wrappers=wrappers, arguments=recorded) as cluster:
        a, b = cluster.members
        await a.start()
        await a.promote()
        await send(a, "poison", *range(5))
        await send(a, "good", *range(5))
        poison.file.touch()
        await b.start()
        await a.until(aside)
        await b.until(lambda status: depth(status, "good") == 5)
        await send(a, "good", 5, 6)
        await send(a, "poison", 5)
        await b.until(lambda status: status.role == "catchup" and depth(status, "good") == 7)
        await b.refused("catchup|catching up|no generation")
        assert "'poison' is not copied to b for now" in a.log
        poison.file.unlink()
        await healed(a, b)
        assert await b.depth("poison") == 6
        assert len((await stop_equal(a, b))["poison"]) == 6
        found = lines(telemetry, "set_aside")
        check_form(found)
        said = [(each["subject"], each["data"]["haclient.state"]) for each in found]
        assert said == [("a", "set-aside"), ("a", "copied")], "once, however often it is tried again"
        names = {(e["data"]["messaging.destination.name"], e["data"]["haclient.replica.name"]) for e in found}
        assert names == {("poison", "b")}


@pytest.mark.slow
async def test_a_ready_replica_leaves_the_in_sync_set_first(tmp_path: Path) -> None:
    poison = Poison(tmp_path)
    async with Cluster(tmp_path, backup_timeout=2.0, wrappers={"b": poison.wrapper}) as cluster:
        a, b = await cluster.pair()
        await send(a, "poison", *range(3))
        poison.file.touch()
        await send(a, "poison", 3)
        assert (await a.status()).generation == 2
        await a.until(aside)
        await send(a, "poison", 4)
        await send(a, "good", "x")
        await b.until(lambda status: depth(status, "good") == 1)
        await b.refused("catchup|catching up|no generation")
        poison.file.unlink()
        await healed(a, b)
        await a.kill()
        await b.promote()
        assert await bodies(b, "poison") == list(range(5))


# -- the primary's side, without a connection ----------------------------------------------------------


async def catching_up(messages: int) -> Pair:
    """Make a replica that was sent this many messages and has acknowledged none."""
    pair = Pair(messages)
    await pair.execute()
    await pair.execute()
    pair.report()
    pair.data.credit = 1000
    pair.replica.pump()
    return pair


def reject(pair: Pair) -> None:
    """Reject the first event, and acknowledge nothing."""
    rejected = Outcome(OutcomeState.REJECTED, "amqp:internal-error", "no room")
    token, pair.data.tokens = pair.data.tokens[0], pair.data.tokens[1:]
    pair.data.owner.settled(pair.data, token, rejected)


async def test_a_replica_stays_in_catch_up_for_as_long_as_a_queue_is_set_aside() -> None:
    pair = await catching_up(3)
    assert pair.replica.phase is Phase.FINAL_CATCH_UP
    reject(pair)
    assert pair.replica.phase is Phase.CATCHING_UP
    assert pair.replica.queues_set_aside() == {"q": "it did not take event 1: no room"}
    assert pair.primary.set_aside == [("q", False)]
    assert not pair.primary.failed
    pair.data.settle_all()
    assert (pair.replica.lag, pair.replica.phase) == (0, Phase.CATCHING_UP)
    pair.put(2)
    pair.report()
    pair.data.settle_all()
    assert pair.primary.caught_up
    assert pair.replica.queues_set_aside() == {}
    assert pair.primary.set_aside == [("q", False), ("q", True)]


async def test_of_many_queues_that_are_set_aside_at_once_ten_are_reported() -> None:
    """A full disk sets all of them aside: their telemetry must not displace other records."""
    pair = Pair()
    await pair.execute()
    await pair.execute()
    queues = [Queue(f"q{number}", lambda: 0.0) for number in range(12)]
    for queue in queues:
        pair.replica.add(queue)
    feeds = [pair.replica._feeds[wire.key(queue.identity)] for queue in queues]
    for _ in range(2):
        for feed in feeds:
            pair.replica._feeds[feed.key] = feed
            pair.replica.feed_failed(feed, "planted")
    assert pair.primary.set_aside == [(f"q{number}", False) for number in range(10)]
    pair.replica.remove(queues[0])
    for feed in feeds[1:]:
        pair.replica.feed_caught_up(feed)
    assert pair.primary.set_aside[10:] == [(f"q{number}", True) for number in range(1, 10)]


async def test_a_replica_with_a_queue_aside_owes_nothing_before_it_reports_again() -> None:
    pair = await catching_up(3)
    reject(pair)
    pair.data.settle_all()
    pair.replica.tick()
    assert pair.ticks() == 0
    pair.report()
    pair.replica.tick()
    assert pair.ticks() > TICKS


async def test_a_replica_that_messages_wait_for_is_dropped_instead() -> None:
    pair = Pair()
    await pair.ready()
    pair.put(1)
    reject(pair)
    assert pair.primary.failed == "'q' cannot be copied: it did not take event 1: no room"


async def test_a_message_that_the_replica_takes_from_nobody_is_not_sent() -> None:
    """Such a message would end the link of all queues; it may come from a store with another limit."""
    pair = Pair(1)
    pair.data.endpoint.remote_max_message_size = 50
    data = pair.data
    pair.replica.data.attach(data)  # type: ignore[arg-type]
    await pair.execute()
    await pair.execute()
    data.credit = 10
    pair.report()
    [(ended, _)] = data.sent
    assert b"ended" in ended
    assert "more than it takes" in pair.replica.queues_set_aside()["q"]
    assert not pair.primary.failed


async def test_a_queue_that_the_primary_cannot_encode_is_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair(1)
    await pair.execute()
    await pair.execute()
    pair.data.credit = 10

    def fail() -> None:
        raise RuntimeError("planted")

    with monkeypatch.context() as patch:
        patch.setattr(pair.queue, "ids", fail)
        pair.report()
    assert pair.replica.queues_set_aside() == {"q": "it cannot be sent: planted"}
    pair.report()
    pair.data.settle_all()
    assert pair.primary.caught_up


async def test_a_queue_that_is_deleted_while_it_is_set_aside_holds_nothing_up() -> None:
    pair = await catching_up(3)
    reject(pair)
    pair.data.settle_all()
    pair.replica.remove(pair.queue)
    await pair.execute()
    assert pair.primary.caught_up
    assert pair.replica.queues_set_aside() == {}
