"""A backup whose disk hangs: an fsync that never returns raises no error."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker_stub.replication.cluster import Cluster, send, stop_equal

# No commit ends while a file exists.
HOOK = """
import os, time
from broker_stub.store.commit_count import CommitCount

_write = CommitCount.write

def write(self, count):
    while os.path.exists(os.environ["TEST_DISK_HANGS"]):
        time.sleep(0.02)
    _write(self, count)

CommitCount.write = write
"""


class Disk:
    """The disk of one member, which hangs from ``hang`` to ``work``."""

    def __init__(self, folder: Path) -> None:
        hook = folder / "hook"
        hook.mkdir()
        (hook / "sitecustomize.py").write_text(HOOK)
        self._hangs = folder / "disk hangs"
        root = Path(__file__).resolve().parents[3]
        self.wrapper = ("env", f"PYTHONPATH={hook}:{root}", f"TEST_DISK_HANGS={self._hangs}")

    def hang(self) -> None:
        self._hangs.touch()

    def work(self) -> None:
        self._hangs.unlink()


@pytest.mark.slow
async def test_a_backup_whose_store_hangs_says_so_and_is_dropped_and_comes_back(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    async with Cluster(tmp_path, backup_timeout=1.0, wrappers={"b": disk.wrapper}) as cluster:
        a, b = await cluster.pair()
        disk.hang()
        await send(a, "orders", *range(10))
        assert (await a.status()).generation == 2
        await b.until("connecting")
        await b.until(lambda _status: "the own store has committed nothing for 1 s" in b.log)
        disk.work()
        await b.until("ready")
        assert len((await stop_equal(a, b))["orders"]) == 10


@pytest.mark.slow
async def test_one_whose_store_hangs_while_it_catches_up_is_dropped_for_lack_of_progress(
    tmp_path: Path,
) -> None:
    """No client waits for it, and it acknowledges nothing: otherwise it would stay for ever, and grow."""
    disk = Disk(tmp_path)
    async with Cluster(tmp_path, backup_timeout=1.0, wrappers={"b": disk.wrapper}) as cluster:
        a, b = cluster.members
        await a.start()
        await a.promote()
        await send(a, "orders", *range(100))
        await b.start()
        disk.hang()
        await a.until(lambda _status: "dropped the replica b" in a.log)
        await b.until(lambda _status: "the own store has committed nothing for 1 s" in b.log)
        disk.work()
        await b.until("ready")
        assert len((await stop_equal(a, b))["orders"]) == 100
