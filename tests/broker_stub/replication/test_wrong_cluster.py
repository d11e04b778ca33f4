"""A member that is started with the list or the arbiter of another cluster keeps its messages."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from broker_stub.local_cluster.member_process import MemberStartError
from tests.broker_stub.replication.cluster import Cluster, Member, bodies, send
from tests.stores import contents

BODIES = list(range(50))


class Two:
    """Two clusters; the only copies of the first one's messages are at its stopped member ``a``."""

    def __init__(self, ours: Cluster, theirs: Cluster, folder: Path) -> None:
        self.ours, self.theirs = ours.members[0], theirs.members[0]
        self.folder = folder
        self._ours, self._theirs = ours, theirs

    def stray(self, store: Path, name: str, *, arbiter: str) -> Member:
        """Start a member on a store, with the list of the other cluster."""
        listed = ("--member", self.theirs.address.authority)
        shared = ("--users", str(self.folder / "theirs" / "users"))
        shared += ("--password-file", str(self._theirs.password_file))
        shared += ("--arbiter", f"directory:{self.folder / arbiter / 'arbiter'}", "--store", str(store))
        return Member(name, self._ours.members[1].address, self.folder, (*shared, *listed))

    def cluster_of(self, name: str) -> str:
        """Return the UUID of a cluster from its arbiter."""
        record = json.loads((self.folder / name / "arbiter" / "record").read_bytes())
        return str(record["cluster"])


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[Two]:
    async with AsyncExitStack() as stack:
        clusters = []
        for name in ("ours", "theirs"):
            (tmp_path / name).mkdir()
            clusters.append(await stack.enter_async_context(Cluster(tmp_path / name)))
        two = Two(clusters[0], clusters[1], tmp_path)
        for member in (two.ours, two.theirs):
            await member.start()
            await member.promote()
        await send(two.ours, "q", *BODIES)
        await send(two.theirs, "p", "theirs")
        await two.ours.stop()
        yield two


async def test_a_member_started_with_another_clusters_list_erases_nothing(two: Two) -> None:
    """The member's generation stays, too: with its own list it becomes primary, with every message."""
    stray = two.stray(two.ours.store, "stray", arbiter="ours")
    before = await contents(two.ours.store)
    await stray.start()
    try:
        await stray.said(f"this store belongs to cluster {two.cluster_of('ours')} and the primary to")
        assert two.cluster_of("theirs") in stray.log
        assert "--member" in stray.log
        status = await stray.status()
        assert (status.role, status.facts["replication"]["number"]) == ("connecting", 1)
    finally:
        await stray.stop()
    assert await contents(two.ours.store) == before
    await two.ours.start()
    await two.ours.promote()
    assert await bodies(two.ours, "q") == BODIES


async def test_a_member_does_not_start_with_another_clusters_arbiter(two: Two) -> None:
    before = await contents(two.ours.store)
    stray = two.stray(two.ours.store, "stray", arbiter="theirs")
    with pytest.raises(MemberStartError, match="does not start"):
        await stray.start()
    for name in ("ours", "theirs"):
        assert two.cluster_of(name) in stray.log
    assert await contents(two.ours.store) == before


@pytest.mark.slow
async def test_a_new_member_joins_no_cluster_but_that_of_its_arbiter(two: Two) -> None:
    """Otherwise it would count as ready there, and could never take over."""
    stray = two.stray(two.folder / "new", "stray", arbiter="ours")
    await stray.start()
    try:
        await stray.said("or --arbiter is another cluster's")
        assert (await stray.status()).role == "connecting"
    finally:
        await stray.stop()
    assert await contents(two.folder / "new") == {}


async def test_a_missing_arbiter_directory_is_named_at_the_start(tmp_path: Path) -> None:
    async with Cluster(tmp_path, arbiter=f"directory:{tmp_path}/nowhere") as cluster:
        member = cluster.members[0]
        with pytest.raises(MemberStartError, match="does not start"):
            await member.start()
        assert f"the arbiter's directory {tmp_path}/nowhere does not exist" in member.log
