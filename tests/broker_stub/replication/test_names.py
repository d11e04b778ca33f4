"""A member's name belongs to its store: members with the same name do not replace each other."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from broker_stub.durability.guard import Guard
from broker_stub.local_cluster.member_process import MemberStartError
from broker_stub.replication.replica import Phase
from tests.broker_stub.replication.cluster import Cluster, Member, bodies, send
from tests.broker_stub.replication.test_wiring import replica_set


def named(cluster: Cluster, place: int, name: str) -> Member:
    """Make a member of the cluster with another member's name, and its own store."""
    member = cluster.members[place]
    return Member(
        name, member.address, member.store.parent / "twin", (*member.arguments, "--store", str(member.store))
    )


@pytest.mark.slow
async def test_members_named_alike_burn_no_generation_and_say_why(tmp_path: Path) -> None:
    """The members: a primary, a ready backup, and two named like the backup or the primary."""
    (tmp_path / "twin").mkdir()
    async with Cluster(tmp_path, ("a", "b", "c", "d")) as cluster:
        a, b = await cluster.pair()
        like_b, like_a = named(cluster, 2, "b"), named(cluster, 3, "a")
        await asyncio.gather(like_b.start(), like_a.start())
        try:
            await like_b.said("another member of this cluster is named 'b': give each member its own --name")
            await like_a.said("another member of this cluster is named 'a' and is its primary")
            await send(a, "q", *range(20))
            # Each refused member tries repeatedly: the third refusal is as harmless as the first.
            for member in (like_a, like_b):
                await member.said("another member of this cluster is named", 3)
            status = await a.status()
            assert status.generation == 1
            assert [each["name"] for each in status.facts["replication"]["replicas"]] == ["b"]
            assert (await b.status()).role == "ready"
            assert (await like_b.status()).facts["replication"]["number"] == 0
        finally:
            await asyncio.gather(like_b.kill(), like_a.kill())
        assert await bodies(a, "q") == list(range(20))


class Control:
    """The control link of an idle backup."""

    credit = 0
    owner: object = None


class Connection:
    """A connection whose peer may be gone, unnoticed."""

    congested = False

    def sent(self, size: int) -> None: ...

    def leaving(self) -> int | None: ...

    def close(self, why: str) -> None: ...


async def test_the_same_store_replaces_its_half_open_predecessor_and_another_is_refused() -> None:
    primary = replica_set(Guard(), name="a")
    connection: Any = Connection()
    control: Any = Control()
    first = primary.join("b", "store 1", connection, control)
    assert "another member of this cluster is named 'b'" in str(primary.refusal("b", "store 2"))
    assert "is its primary" in str(primary.refusal("a", "store 2"))
    for name, identity in (("", "store 2"), ("c", "")):
        assert primary.refusal(name, identity) is not None
    assert primary.refusal("b", "store 1") is None
    second = primary.join("b", "store 1", connection, control)
    assert (first.phase, primary.replicas) == (Phase.DROPPED, {"b": second})
    # A name is free when its member leaves: a lost store returns as another one.
    primary.replica_failed(second, "its connection ended")
    assert primary.refusal("b", "store 2") is None
    await primary.close()


async def test_a_member_that_is_started_again_has_its_name_at_once(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        a, b = await cluster.pair()
        await b.kill()
        await b.start()
        await b.until("ready")
        assert (await a.status()).generation == 2
        assert "another member of this cluster" not in b.log


async def test_a_member_with_an_arbiter_needs_a_name(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        member = cluster.members[0]
        with pytest.raises(MemberStartError, match="--arbiter needs --name"):
            await Member("", member.address, tmp_path, member.arguments).start()
