"""A member stops producers before its disk is full, and a full member can be started and emptied.

The disks are real ones that can be filled to the last byte (``tests.small_disk``).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from proton import Message

from broker_stub.management_client import MemberRefusedError, MemberStatus
from haclient import aio
from tests.broker_stub.replication.cluster import PATIENCE, Cluster, Member, bodies, send
from tests.broker_stub.replication.load import load
from tests.forked import ForkedMember
from tests.small_disk import SmallDisk
from tests.telemetry.lines import lines
from tests.telemetry.test_recorder import check_form

MIB = 1024 * 1024
LEVELS = ("--disk-warn", "32", "--disk-hold", "24", "--disk-stop", "12")
SIZE = "96m"


def on(member: Member, disk: SmallDisk) -> Member:
    """Put a member's store on that disk from its next start on."""
    member.process = ForkedMember(member.process._arguments, member.log_file, wrapper=disk.wrapper)
    return member


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """The disk of member a."""
    with SmallDisk(tmp_path / "a", SIZE) as small:
        yield small


def at(*levels: str) -> Callable[[MemberStatus], bool]:
    """Test for a disk state; it is ``None`` until the first measurement, just after the start."""
    return lambda status: (status.facts["replication"]["disk"] or {}).get("level") in levels


@asynccontextmanager
async def alone(folder: Path, disk: SmallDisk) -> AsyncIterator[Member]:
    """One member, which serves."""
    arguments = (*LEVELS, "--telemetry", str(folder / "telemetry"))
    async with Cluster(folder, ("a",), arguments=arguments, backup_timeout=5.0) as cluster:
        a = on(cluster.members[0], disk)
        await a.start()
        await a.promote()
        yield a


@pytest.mark.slow
async def test_producers_are_held_up_until_consumers_have_made_room(tmp_path: Path, disk: SmallDisk) -> None:
    async with alone(tmp_path, disk) as a, aio.connect(a.url, window=100) as connection:
        sender = await connection.create_sender("orders")
        sent, body = 1500, "x" * 100_000

        async def produce() -> None:
            futures = [await sender.submit(Message(body=f"{number} {body}")) for number in range(sent)]
            assert all(outcome.accepted for outcome in await asyncio.gather(*futures))

        producing = asyncio.create_task(produce())
        # A window of 10 MB may skip a state in a single commit.
        status = await a.until(at("hold", "stop"))
        assert "make room on that file system" in status.facts["replication"]["disk"]["text"]
        assert not producing.done()
        async with aio.connect(a.url) as other, await other.create_receiver("orders", credit=100) as receiver:
            for number in range(sent):
                delivery = await receiver.receive(timeout=PATIENCE)
                assert delivery.message.body.split()[0] == str(number)
                await delivery.accept()
        async with asyncio.timeout(PATIENCE):
            await producing
        await a.until(at("ok"))
        assert "the store failed" not in a.log


@pytest.mark.slow
async def test_a_member_with_a_full_disk_is_started_and_emptied_and_goes_on_by_itself(
    tmp_path: Path, disk: SmallDisk
) -> None:
    async with alone(tmp_path, disk) as a:
        await send(a, "orders", *(f"{number} {'x' * 10_000}" for number in range(1000)))
        disk.fill()
        await a.until(at("stop"))
        async with aio.connect(a.url, window=100) as connection:
            sender = await connection.create_sender("orders")
            held = [await sender.submit(Message(body=f"{number} late")) for number in range(1000, 1050)]
            status = await a.status()
            assert str(a.store) in status.facts["replication"]["disk"]["text"]
            assert not any(future.done() for future in held)
            await a.kill()
            await a.start()
            await a.promote()
            await a.until(at("stop"))
            assert await a.depth("orders") == 1000
            taken = await bodies(a, "orders")
            assert [body.split()[0] for body in taken] == [str(number) for number in range(1000)]
            await a.stop()
            await a.start()
            await a.promote()
            assert await a.depth("orders") == 0, "what was taken has left the store, too"
            assert not any(future.done() for future in held)
            disk.make_room()
            async with asyncio.timeout(PATIENCE):
                assert all(outcome.accepted for outcome in await asyncio.gather(*held))
        assert [body.split()[0] for body in await bodies(a, "orders")] == [str(n) for n in range(1000, 1050)]
        await a.until(at("ok"))
        await a.stop()
        found = lines(tmp_path / "telemetry", "disk")
        check_form(found)
        levels = [line["data"]["haclient.state"] for line in found]
        assert "stop" in levels
        assert levels[-1] == "ok"


@pytest.mark.slow
async def test_a_full_disk_without_a_store_is_an_error_that_says_what_to_do(
    tmp_path: Path, disk: SmallDisk
) -> None:
    disk.fill()
    async with Cluster(tmp_path, ("a",), arguments=LEVELS) as cluster:
        a = on(cluster.members[0], disk)
        with pytest.raises(
            RuntimeError, match=rf"exit code 1.*{a.store}.* full .*make room on that file system"
        ):
            await a.start()
        disk.make_room()
        await a.start()
        await a.promote()


@pytest.mark.slow
async def test_a_backup_with_a_full_disk_leaves_and_comes_back_and_its_primary_goes_on(
    tmp_path: Path,
) -> None:
    with SmallDisk(tmp_path / "b", SIZE) as full:
        async with Cluster(tmp_path, arguments=LEVELS) as cluster:
            on(cluster.members[1], full)
            a, b = await cluster.pair()
            async with load(cluster.url) as made:
                await made.goes_on()
                full.fill()
                await b.until(at("stop"))
                await b.until("connecting")
                await a.until(lambda status: not status.facts["replication"]["replicas"])
                await made.goes_on()
                await b.kill()
                await b.start()
                await b.until(at("stop"))
                assert (await b.status()).role == "connecting"
                await b.refused("stored any more")
                full.make_room()
                await b.until("ready")
                await made.goes_on()
            await a.kill()
            await b.promote()
            assert made.settled <= set(await bodies(b, "orders"))


@pytest.mark.slow
async def test_a_primary_with_a_full_disk_stays_primary_until_an_operator_moves_it(
    tmp_path: Path, disk: SmallDisk
) -> None:
    async with Cluster(tmp_path, arguments=LEVELS) as cluster:
        on(cluster.members[0], disk)
        a, b = await cluster.pair()
        async with load(cluster.url) as made:
            await made.goes_on()
            disk.fill()
            await a.until(at("stop"))
            async with aio.connect(a.url) as connection:
                sender = await connection.create_sender("others")
                held = asyncio.ensure_future(sender.send(Message(body="held"), timeout=PATIENCE))
                assert [each["phase"] for each in (await a.status()).facts["replication"]["replicas"]] == [
                    "ready"
                ]
                assert (await a.status()).role == "primary"
                assert not held.done()
                held.cancel()
            await a.demote()
            await b.promote()
            await made.goes_on()
            assert (await a.status()).role == "connecting", "its disk is full"
            await a.refused("stored any more")
            disk.make_room()
            await a.until("ready")
            await made.goes_on()
        got = await bodies(b, "orders")
        assert made.settled <= set(got)
        assert got == sorted(set(got))


async def test_an_arbiter_on_a_full_disk_refuses_and_says_so_until_there_is_room(tmp_path: Path) -> None:
    async with Cluster(tmp_path, ("a",)) as cluster:
        with SmallDisk(tmp_path / "arbiter", "1m") as disk:
            a = on(cluster.members[0], disk)
            await a.start()
            disk.fill()
            await a.refused(rf"{tmp_path / 'arbiter'} can't be used.*full.*make room on that file system")
            assert (await a.status()).role == "connecting"
            disk.make_room()
            await a.promote()
            await a.stop()


@pytest.mark.slow
async def test_on_the_full_disk_of_its_arbiter_a_member_is_promoted_or_says_what_to_do(
    tmp_path: Path, disk: SmallDisk
) -> None:
    """The result depends on the free space after the log and the reserve of the store."""
    (disk.inside / "arbiter").mkdir()
    arbiter = f"directory:{tmp_path / 'a' / 'arbiter'}"
    async with Cluster(tmp_path, ("a",), arguments=LEVELS, arbiter=arbiter) as cluster:
        a = on(cluster.members[0], disk)
        await a.start()
        await a.promote()
        await send(a, "orders", *(f"{number} {'x' * 10_000}" for number in range(1000)))
        disk.fill()
        await a.until(at("stop"))
        await a.kill()
        await a.start()
        refusal = ""
        try:
            await a.promote()
        except MemberRefusedError as refused:
            refusal = str(refused)
        if refusal:
            assert re.search(rf"{a.store}.*make room on that file system", refusal)
            assert (await a.status()).role == "connecting"
            disk.make_room()
            await a.promote()
        assert len(await bodies(a, "orders")) == 1000


@pytest.mark.slow
async def test_a_primary_at_the_border_holds_the_pair_up_and_says_so(tmp_path: Path, disk: SmallDisk) -> None:
    async with Cluster(tmp_path, arguments=LEVELS) as cluster:
        on(cluster.members[0], disk)
        a, b = await cluster.pair()
        async with aio.connect(a.url) as connection:
            disk.fill(leave=20 * MIB)
            await a.until(at("hold"))
            sender = await connection.create_sender("orders")
            future = asyncio.ensure_future(sender.send(Message(body="held"), timeout=PATIENCE))
            status = await a.status()
            assert [each["phase"] for each in status.facts["replication"]["replicas"]] == ["ready"]
            assert not future.done()
            disk.make_room()
            assert (await future).accepted
        await a.kill()
        await b.promote()
        assert await bodies(b, "orders") == ["held"]
