"""A primary whose disk is full stays primary, and loses nothing: it gets room, or a backup takes over."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_stub.local_cluster.supervisor import MemberState
from haclient import Message, aio
from tests.faults import damage
from tests.faults.cluster import ClusterOptions, cluster, may_mount

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(120),
    pytest.mark.skipif(not may_mount(), reason="a small disk needs root and mount"),
]

# No member is silent on purpose in these tests. A backup that a busy machine keeps silent for long would be
# dropped, and then no member could succeed the primary.
OPTIONS = ClusterOptions(small_disks=True, heartbeat=30.0, backup_timeout=30.0)


@pytest.mark.parametrize("moved", [False, True])
async def test_what_a_primary_with_a_full_disk_holds_up_is_settled_in_the_end(
    tmp_path: Path, *, moved: bool
) -> None:
    async with cluster(tmp_path, OPTIONS) as members, aio.connect(members.url) as connection:
        victim, promoted = members.primary, members.promoted
        sender = await connection.create_sender("q")
        filler = members.store_of(victim) / "ballast"
        damage.fill(filler)
        # More than fits into its existing write-ahead log.
        sending = [await sender.submit(Message(body=bytes(1_000_000))) for _ in range(4)]
        await members.until_disk(victim, "stop")
        assert (members.primary, members.promoted) == (victim, promoted), "it steps down for nobody"
        if moved:
            [heir] = members.backups
            await members.pair.promote(heir)
            for future in sending:
                assert (await future).accepted
            assert members.primary is heir
            assert victim.state is MemberState.CONNECTING
        filler.unlink()
        for future in sending:
            assert (await future).accepted
        await members.whole()
        assert members.promoted == promoted + moved
