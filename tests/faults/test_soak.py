"""Ten failovers of the soak, and that the soak can fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import soak
from tests.faults.cluster import ClusterOptions, cluster, may_mount
from tests.faults.soak import Plan, Result


# With this seed the faults of ten failovers are varied, and short.
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", [290])
async def test_ten_failovers_lose_nothing(seed: int, tmp_path: Path) -> None:
    plan = Plan(failovers=10, seed=seed, options=ClusterOptions(small_disks=may_mount()), seconds=240)
    result = await soak.soak(plan, tmp_path, lambda _what, _done: None)
    assert not result.wrong, result.as_json()
    assert result.failovers >= 10
    assert result.generation > 10
    assert result.verdict is not None
    assert result.verdict.acknowledged > 1000
    assert sum(result.stored.values()) > 100


async def test_stores_that_differ_are_found(tmp_path: Path) -> None:
    """One member's store is replaced by that of a member that never saw a message."""
    async with cluster(tmp_path) as members:
        await _send(members.url)
        await soak._settled(members)
        primary, backup = members.primary, members.backups[0]
        await members.stop(primary, backup)
        result = Result(seed=0)
        assert await soak._compare(members, result) == []
        assert result.stored == {"q": 3}
        for path in members.store_of(backup).iterdir():
            path.unlink()
        assert await soak._compare(members, result)


async def _send(url: str) -> None:
    from haclient import Message, aio

    async with aio.connect(url) as connection:
        sender = await connection.create_sender("q")
        for number in range(3):
            await sender.send(Message(body=number), timeout=20)
