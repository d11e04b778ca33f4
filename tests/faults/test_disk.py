"""A disk that is full is the end of a member, and of nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_stub.local_cluster.supervisor import MemberState
from haclient import Message, aio
from tests.faults import damage
from tests.faults.cluster import ClusterOptions, cluster, may_mount

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(not may_mount(), reason="a small disk needs root and mount"),
]

# Nobody is silent here on purpose.  A backup that a busy machine keeps silent for long would be dropped, and
# then nobody may succeed the primary.
OPTIONS = ClusterOptions(small_disks=True, heartbeat=30.0, backup_timeout=30.0)


async def test_a_primary_whose_disk_is_full_ends_and_its_successor_settles(tmp_path: Path) -> None:
    async with cluster(tmp_path, OPTIONS) as members, aio.connect(members.url) as connection:
        victim = members.primary
        sender = await connection.create_sender("q")
        damage.fill(members.store_of(victim) / "ballast")
        members.expect_end(victim)
        # More than fits into what its write-ahead log has already.
        sending = [await sender.submit(Message(body=bytes(1_000_000))) for _ in range(4)]
        await members.until(victim, MemberState.DEAD)
        assert [event.detail for event in members.events if event.kind == "died"] == ["exit code 1"]
        for future in sending:
            assert (await future).accepted
        assert members.primary is not victim
