"""An arbiter in a directory: damaged, lost and locked records raise errors, and never count as new."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from broker_stub.election.arbiter import ArbiterUnavailableError, open_arbiter
from broker_stub.election.arbiter.directory import DirectoryArbiter
from broker_stub.election.generation import ArbiterRecord

FIRST = ArbiterRecord(1, "a")


@pytest.fixture
async def arbiter(tmp_path: Path) -> DirectoryArbiter:
    """Open an arbiter with a record."""
    arbiter = DirectoryArbiter(tmp_path, timeout=1.0)
    assert await arbiter.compare_and_set(ArbiterRecord(), FIRST)
    return arbiter


async def test_a_directory_that_is_not_there_is_no_new_cluster(tmp_path: Path) -> None:
    arbiter = open_arbiter(f"directory:{tmp_path}/share/cluster")
    with pytest.raises(ArbiterUnavailableError, match=r"share/cluster does not exist"):
        await arbiter.read()
    with pytest.raises(ArbiterUnavailableError, match=r"share/cluster does not exist"):
        await arbiter.compare_and_set(ArbiterRecord(), FIRST)


@pytest.mark.parametrize("call", ["read", "compare_and_set"])
async def test_a_deleted_record_is_no_new_cluster(
    arbiter: DirectoryArbiter, tmp_path: Path, call: str
) -> None:
    (tmp_path / "record").unlink()
    with pytest.raises(ArbiterUnavailableError, match="deleted"):
        await (arbiter.read() if call == "read" else arbiter.compare_and_set(ArbiterRecord(), FIRST))


@pytest.mark.parametrize("length", [0, 1, 20, 60])
async def test_a_truncated_record_is_no_record(
    arbiter: DirectoryArbiter, tmp_path: Path, length: int
) -> None:
    os.truncate(tmp_path / "record", length)
    with pytest.raises(ArbiterUnavailableError, match="record is corrupted"):
        await arbiter.read()
    with pytest.raises(ArbiterUnavailableError, match="record is corrupted"):
        await arbiter.compare_and_set(FIRST, ArbiterRecord(2, "b"))


@pytest.mark.parametrize(
    "corrupt",
    [b"\0" * 90, b'{"number": 1}', b"[]", b"7", b"\xff\xfe", b'{"number": "1", "claim": "a", "check": "x"}'],
)
async def test_what_is_not_a_record_is_not_believed(
    arbiter: DirectoryArbiter, tmp_path: Path, corrupt: bytes
) -> None:
    (tmp_path / "record").write_bytes(corrupt)
    with pytest.raises(ArbiterUnavailableError, match="record is corrupted"):
        await arbiter.read()


async def test_a_record_with_one_other_digit_is_not_believed(
    arbiter: DirectoryArbiter, tmp_path: Path
) -> None:
    record = tmp_path / "record"
    record.write_bytes(record.read_bytes().replace(b'"number": 1', b'"number": 4'))
    with pytest.raises(ArbiterUnavailableError, match="its check does not fit generation 4"):
        await arbiter.read()


async def test_what_one_left_that_died_before_the_rename_is_no_record(
    arbiter: DirectoryArbiter, tmp_path: Path
) -> None:
    (tmp_path / "record.new").write_bytes(b'{"number": 2, "cla')
    assert await arbiter.read() == FIRST
    assert await arbiter.compare_and_set(FIRST, ArbiterRecord(2, "b"))
    assert await arbiter.read() == ArbiterRecord(2, "b")


async def test_one_that_died_between_the_record_and_the_initialised_file_loses_neither(
    arbiter: DirectoryArbiter, tmp_path: Path
) -> None:
    (tmp_path / "initialised").unlink()
    assert await arbiter.read() == FIRST
    assert await arbiter.compare_and_set(FIRST, ArbiterRecord(2, "b"))
    assert (tmp_path / "initialised").exists()


async def test_a_stopped_holder_of_the_lock_makes_it_unavailable_in_time(
    arbiter: DirectoryArbiter, tmp_path: Path
) -> None:
    program = (
        "import fcntl, sys; f = open(sys.argv[1]); fcntl.flock(f, fcntl.LOCK_EX); print(flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "lock")], stdout=subprocess.PIPE, stdin=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        await asyncio.to_thread(holder.stdout.readline)
        holder.send_signal(signal.SIGSTOP)
        started = time.monotonic()
        with pytest.raises(ArbiterUnavailableError, match="held by another process"):
            await arbiter.compare_and_set(FIRST, ArbiterRecord(2, "b"))
        assert 1.0 <= time.monotonic() - started < 5.0
        assert await arbiter.read() == FIRST
        holder.kill()
        holder.wait()
        # The kernel has released the lock.
        assert await arbiter.compare_and_set(FIRST, ArbiterRecord(2, "b"))


async def test_a_disk_that_hangs_makes_it_unavailable_in_time_and_holds_up_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "record")  # opening it waits for a writer
    arbiter = DirectoryArbiter(tmp_path, timeout=0.2)
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    ticking = asyncio.create_task(tick())
    with pytest.raises(ArbiterUnavailableError, match="did not answer within"):
        await arbiter.read()
    ticking.cancel()
    assert ticks > 5
    (tmp_path / "record").open("wb").close()  # lets the thread end


async def test_a_lock_file_that_is_deleted_meanwhile_keeps_nobody_in(
    arbiter: DirectoryArbiter, tmp_path: Path
) -> None:
    (tmp_path / "lock").unlink()
    won = await asyncio.gather(*(arbiter.compare_and_set(FIRST, ArbiterRecord(2, str(n))) for n in range(8)))
    assert sum(won) == 1


async def test_a_directory_that_may_not_be_written_is_unavailable(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("not a directory")
    with pytest.raises(ArbiterUnavailableError, match="can't be used as arbiter"):
        await DirectoryArbiter(path, timeout=1.0).compare_and_set(ArbiterRecord(), FIRST)
