"""A backup that its primary dropped is not eligible, whatever it is asked; force is the only way."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker_stub.management_client import MemberRefusedError
from tests.broker_stub.replication.cluster import Cluster, Member, bodies, send, stop_equal

REASON = "the arbiter is at generation 2 and this member has generation 1"


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with Cluster(tmp_path) as cluster:
        yield cluster


async def left_behind(cluster: Cluster) -> tuple[Member, Member]:
    """Make a pair whose first member settled a message alone and is dead, and whose second is up."""
    a, b = await cluster.pair()
    await send(a, "orders", "both have it")
    await b.stop()
    await send(a, "orders", "settled alone")
    assert (await a.status()).generation == 2
    await a.kill()
    await b.start()
    return a, b


@pytest.mark.slow
async def test_a_backup_that_its_primary_went_on_without_is_refused_and_the_reason_names_both_generations(
    cluster: Cluster,
) -> None:
    _, b = await left_behind(cluster)
    await b.refused(REASON)
    assert (await b.status()).role == "connecting"


@pytest.mark.slow
async def test_the_command_line_says_why_and_exits_with_1(cluster: Cluster) -> None:
    _, b = await left_behind(cluster)
    arguments = ("promote", b.address.authority, "--password-file", str(cluster.password_file))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "broker_stub", *arguments, stderr=asyncio.subprocess.PIPE
    )
    _, said = await process.communicate()
    assert REASON in said.decode()
    assert process.returncode == 1


async def refuse(member: Member, operation: str, **arguments: object) -> None:
    with pytest.raises(MemberRefusedError):
        await member.call(operation, **arguments)


async def test_no_sequence_of_commands_makes_it_primary(cluster: Cluster) -> None:
    a, b = await left_behind(cluster)
    where = {"primary": a.address.authority, "generation": 2}
    await refuse(b, "PROMOTE", generation=7)
    await refuse(b, "DEMOTE", primary=None)
    await b.call("SET-PRIMARY", **where)
    await refuse(b, "PROMOTE", generation=0)
    await b.call("SET-PRIMARY", primary=b.address.authority, generation=9)
    await refuse(b, "PROMOTE", generation=9)
    await b.stop()
    await b.start()
    await refuse(b, "PROMOTE", generation=0)
    await b.kill()
    await b.start()
    await refuse(b, "DEMOTE", primary=b.address.authority)
    await asyncio.gather(*(refuse(b, "PROMOTE", generation=number) for number in range(5)))
    await a.start()
    await a.promote()
    await b.until("ready")
    assert await bodies(a, "orders") == ["both have it", "settled alone"]


async def test_one_that_was_silent_while_its_primary_went_on_is_refused_when_it_wakes(tmp_path: Path) -> None:
    async with Cluster(tmp_path, backup_timeout=1.0) as cluster:
        a, b = await cluster.pair()
        b.pause()
        await send(a, "orders", "settled alone")
        await a.kill()
        b.resume()
        await b.until("connecting")
        with pytest.raises(MemberRefusedError, match=REASON):
            await b.promote()


@pytest.mark.slow
async def test_force_makes_it_primary_without_what_was_settled_alone_and_the_other_one_follows(
    cluster: Cluster,
) -> None:
    a, b = await left_behind(cluster)
    assert (await b.promote(force=True)).generation == 3
    await send(b, "orders", "after")
    await a.start()
    await a.until("ready")
    content = await stop_equal(b, a)
    assert [b"settled alone" in data for _, data, _ in content["orders"]] == [False, False]
    assert b"after" in content["orders"][-1][1]
