"""Ten failovers of the soak, and that the soak can fail."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from haclient import Message, aio
from tests.faults import soak
from tests.faults.checker import check
from tests.faults.clients import drain, encode
from tests.faults.cluster import LONGEST, ClusterOptions, cluster, may_mount
from tests.faults.history import Fate, History, Link, Name, Receipt
from tests.faults.soak import Plan, Result

pytestmark = pytest.mark.slow


# With this seed the faults of ten failovers are varied, and short.
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [290])
async def test_ten_failovers_lose_nothing(seed: int, tmp_path: Path) -> None:
    plan = Plan(failovers=10, seed=seed, options=ClusterOptions(small_disks=may_mount()), seconds=200)
    result = await soak.soak(plan, tmp_path, lambda _what, _done: None)
    assert not result.wrong, result.as_json()
    assert result.failovers >= 10
    assert result.generation > 10
    assert result.verdict is not None
    assert result.verdict.acknowledged > 1000
    assert sum(result.stored.values()) > 100
    ends = {how.rpartition(": ")[2] for how in result.impatient}
    assert ends >= {"accepted", "cancelled", "timed out, not delivered", "timed out, unknown"}, ends
    impatient = sum(count for how, count in result.impatient.items() if "patient" not in how)
    assert impatient > result.verdict.sent / 20


async def test_without_time_for_the_failovers_there_is_a_verdict(tmp_path: Path) -> None:
    """The time for faults ends at once. The queues are still drained, and nothing is lost."""
    plan = Plan(failovers=10, seed=1, options=ClusterOptions(), seconds=1e-9)
    result = await soak.soak(plan, tmp_path, lambda _what, _done: None)
    assert result.wrong == ["only 0 of 10 failovers after 1e-09 s"]
    assert result.verdict is not None
    assert (result.drained, result.missing) == (True, 0)


def test_what_is_not_received_when_it_ends_early_is_counted() -> None:
    names = [Name("producer", number) for number in range(5)]
    fates = dict.fromkeys(names, Fate.ACKNOWLEDGED)
    received = Receipt(names[0], "q", Link("consumer", 1, 1), 0, 1.0)
    history = History(sent=dict.fromkeys(names, "q"), fates=fates, receipts=[received])
    result = Result(seed=0)
    soak.conclude(result, history)
    assert (result.missing, result.drained) == (4, False)
    assert result.wrong == ["4 of 5 acknowledged messages were not received; the queues were not drained"]
    assert json.loads(result.as_json())["missing"] == 4
    drained = Result(seed=0, drained=True)
    soak.conclude(drained, history)
    assert len(drained.wrong) == 4


def test_the_limit_follows_from_the_number_of_failovers() -> None:
    """A run of 40 needed more than 520 s on a machine that did other things too."""
    options = ClusterOptions()
    few, many = (Plan(failovers=failovers, seed=0, options=options) for failovers in (10, 40))
    assert many.for_faults >= 40 * 20
    assert many.bound - few.bound >= 30 * 20


async def test_stores_that_differ_are_found(tmp_path: Path) -> None:
    """One member's store is replaced by the store of a member that never had a message."""
    async with cluster(tmp_path) as members:
        await _send(members.url)
        await soak.settled(members)
        primary, backup = members.primary, members.backups[0]
        await members.stop(primary, backup)
        result = Result(seed=0)
        assert await soak.compare(members, result) == []
        assert result.stored == {"q": 3}
        for path in members.store_of(backup).iterdir():
            path.unlink()
        assert await soak.compare(members, result)


async def test_a_drain_gets_over_a_failover(tmp_path: Path) -> None:
    history = History()
    names = [Name("producer", number) for number in range(5000)]
    async with cluster(tmp_path) as members:
        async with aio.connect(members.url, window=len(names)) as connection:
            sender = await connection.create_sender("q")
            for name in names:
                history.sends(name, "q")
                await sender.submit(Message(body=encode(name, 10)))
            await sender.flush(timeout=60)
        draining = asyncio.create_task(drain(members.url, history))
        while len(history.receipts) < 100:  # noqa: ASYNC110 - written down as they come
            await asyncio.sleep(0)
        victim = members.primary
        members.pause(victim)  # for longer than a queue without messages would be quiet
        await asyncio.sleep(LONGEST)
        await members.kill(victim)
        await members.until_promoted(victim.generation)
        await draining
    assert {receipt.name for receipt in history.receipts} == set(names)
    assert check(history).holds


async def _send(url: str) -> None:
    async with aio.connect(url) as connection:
        sender = await connection.create_sender("q")
        for number in range(3):
            await sender.send(Message(body=number), timeout=20)
