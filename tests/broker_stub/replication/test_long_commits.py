"""A commit longer than a time-out: a slow disk is told from a hanging one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from proton import Message

from broker_stub.replication.commit_watch import TICKS
from haclient import aio
from tests.broker_stub.replication.cluster import PATIENCE, Cluster, Member, send, stop_equal

# No commit ends while one file exists.  If a second one exists too, each check finds progress;
# with a third, the writer computes, and each check measures its true progress.
HOOK = """
import os, time
from broker_stub.store.commit_count import CommitCount
from broker_stub.store.commit_progress import CommitProgress

folder = os.environ["TEST_DISK"]
_write, _tick = CommitCount.write, CommitProgress.tick
looks = 0

def write(self, count):
    while os.path.exists(folder + "/hangs"):
        if not os.path.exists(folder + "/computes"):
            time.sleep(0.02)
    _write(self, count)

def tick(self):
    global looks
    computes = os.path.exists(folder + "/computes")
    if not computes and not os.path.exists(folder + "/goes on"):
        return looks
    looks += 1
    with open(folder + "/looks", "w") as file:
        file.write(str(looks))
    return _tick(self) if computes else looks

CommitCount.write, CommitProgress.tick = write, tick
"""
MIB = 1024 * 1024


class Disk:
    """The disk of one member."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "disk"
        self._folder.mkdir()
        (self._folder / "sitecustomize.py").write_text(HOOK)
        root = Path(__file__).resolve().parents[3]
        self.wrapper = ("env", f"PYTHONPATH={self._folder}:{root}", f"TEST_DISK={self._folder}")

    def is_slow(self) -> None:
        (self._folder / "goes on").touch()
        (self._folder / "hangs").touch()

    def is_slow_while_the_writer_computes(self) -> None:
        (self._folder / "computes").touch()
        (self._folder / "hangs").touch()

    def hangs(self) -> None:
        (self._folder / "goes on").unlink()

    def works(self) -> None:
        (self._folder / "hangs").unlink()

    async def looked_at(self, times: int) -> None:
        looks = self._folder / "looks"
        async with asyncio.timeout(PATIENCE):
            while not looks.exists() or int(looks.read_text() or 0) < times:  # noqa: ASYNC110 - a process writes it
                await asyncio.sleep(0.02)


def dropped(member: Member) -> int:
    return member.log.count("dropped the replica")


@pytest.mark.slow
@pytest.mark.parametrize("begin", [Disk.is_slow, Disk.is_slow_while_the_writer_computes])
@pytest.mark.parametrize("slow", ["a", "b"])
async def test_a_member_stays_what_it_is_while_its_commit_goes_on(
    tmp_path: Path, slow: str, begin: Callable[[Disk], None]
) -> None:
    disk = Disk(tmp_path)
    async with Cluster(tmp_path, backup_timeout=0.5, wrappers={slow: disk.wrapper}) as cluster:
        a, b = await cluster.pair()
        begin(disk)
        async with asyncio.TaskGroup() as group:
            sending = group.create_task(send(a, "orders", "large"))
            await disk.looked_at(4 * TICKS)
            assert not sending.done()
            disk.works()
        assert dropped(a) == 0
        assert ((await a.status()).generation, (await b.status()).role) == (1, "ready")
        assert len((await stop_equal(a, b))["orders"]) == 1


@pytest.mark.slow
async def test_a_backup_whose_disk_hangs_in_the_middle_of_a_commit_is_dropped(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    async with Cluster(tmp_path, backup_timeout=0.5, wrappers={"b": disk.wrapper}) as cluster:
        a, b = await cluster.pair()
        disk.is_slow()
        async with asyncio.TaskGroup() as group:
            group.create_task(send(a, "orders", "large"))
            await disk.looked_at(2 * TICKS)
            assert dropped(a) == 0
            disk.hangs()
        assert (await a.status()).generation == 2
        await b.until(lambda _status: "the own store has committed nothing for 0.5 s" in b.log)
        disk.works()
        await b.until("ready")
        assert len((await stop_equal(a, b))["orders"]) == 1


@pytest.mark.slow
async def test_a_primary_whose_disk_hangs_in_the_middle_of_a_commit_steps_down(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    async with Cluster(tmp_path, backup_timeout=0.5, wrappers={"a": disk.wrapper}) as cluster:
        a, b = await cluster.pair()
        disk.is_slow()
        async with aio.connect(cluster.url) as connection:
            sender = await connection.create_sender("orders")
            sending = await sender.submit("large")
            await disk.looked_at(2 * TICKS)
            disk.hangs()
            await a.said("the store has committed nothing for 0.5 s")
            await b.promote()
            async with asyncio.timeout(PATIENCE):
                assert (await sending).accepted
        disk.works()


@pytest.mark.slow
@pytest.mark.parametrize("catches_up", [False, True])
async def test_the_largest_message_leaves_a_pair_as_it_was(tmp_path: Path, catches_up: bool) -> None:
    """The commit ends within the command's time-out; the member announces 256 MiB.

    The tests above cover a commit longer than a time-out; they wait for checks, not for time.
    """
    body = b"x" * (250 * MIB)
    async with Cluster(tmp_path, backup_timeout=10.0) as cluster:
        a, b = cluster.members
        if not catches_up:
            await cluster.pair()
        else:
            await a.start()
            await a.promote()
        async with asyncio.timeout(3 * PATIENCE), aio.connect(cluster.url) as connection:
            sender = await connection.create_sender("orders")
            assert (await sender.send(Message(body=body, durable=True))).accepted
            if catches_up:
                await b.start()
                await b.until("ready")
            receiver = await connection.create_receiver("orders")
            delivery = await receiver.receive()
            assert delivery.message.body == body
            await delivery.accept()
        assert dropped(a) == 0
        # By new connections: a test that has copied so much is too late for the heartbeats of the old ones.
        assert (await a.until("primary")).generation == 1
        await b.until("ready")
        assert "committed nothing" not in a.log + b.log
