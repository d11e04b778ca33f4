"""A member's name belongs to its store: members that are named alike do not replace each other."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from broker_stub.local_cluster.member_process import MemberStartError
from tests.broker_stub.replication.cluster import Cluster, Member, bodies, send


def named(cluster: Cluster, place: int, name: str) -> Member:
    """A member of the cluster under another's name, with a store of its own."""
    member = cluster.members[place]
    return Member(
        name, member.address, member.store.parent / "twin", (*member.arguments, "--store", str(member.store))
    )


async def test_members_named_alike_burn_no_generation_and_say_why(tmp_path: Path) -> None:
    """The primary, a ready one of another name, and two that are both named as that one or as the primary."""
    (tmp_path / "twin").mkdir()
    async with Cluster(tmp_path, ("a", "b", "c", "d")) as cluster:
        a, b = await cluster.pair()
        like_b, like_a = named(cluster, 2, "b"), named(cluster, 3, "a")
        await asyncio.gather(like_b.start(), like_a.start())
        try:
            await like_b.said("another member of this cluster is named 'b': give each member its own --name")
            await like_a.said("another member of this cluster is named 'a' and is its primary")
            await send(a, "q", *range(20))
            # Each refused member tries again and again: the third refusal is as harmless as the first.
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


async def test_a_paused_member_replaces_its_half_open_predecessor(tmp_path: Path) -> None:
    """The same store under the same name: killed so that the primary keeps the old connection for a while."""
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
