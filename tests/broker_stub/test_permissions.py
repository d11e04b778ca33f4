"""Files of a member are accessible to its user alone, whatever the umask."""

from __future__ import annotations

import asyncio
import logging
import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from broker_stub.election.arbiter import ArbiterUnavailableError, open_arbiter
from broker_stub.election.generation import ArbiterRecord
from broker_stub.local_cluster.member_process import MemberProcess
from broker_stub.queueing.duplicate_detection import DEFAULT_WINDOW
from broker_stub.store import StoreFailedError, open_store
from tests.broker_stub.replication.cluster import Cluster, send

FIRST = ArbiterRecord(1, "a")
NOBODY = 65534


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def modes(folder: Path) -> dict[str, str]:
    """Return the modes of a path, and of everything below, that give access to another user."""
    found = {str(path.relative_to(folder)): path.lstat().st_mode for path in (folder, *folder.rglob("*"))}
    return {name: f"{stat.S_IMODE(mode):04o}" for name, mode in found.items() if mode & 0o077}


@pytest.mark.slow
@pytest.mark.parametrize("umask", ["000", "022"])
async def test_a_pair_makes_nothing_that_another_user_may_open(tmp_path: Path, umask: str) -> None:
    telemetry = tmp_path / "telemetry"
    async with Cluster(tmp_path, arguments=("--telemetry", str(telemetry))) as cluster:
        for member in cluster.members:
            member.process = MemberProcess(
                member.process._arguments,
                member.log_file,
                wrapper=("sh", "-c", f'umask {umask}; exec "$@"', "sh"),
            )
        a, b = await cluster.pair()
        await send(a, "orders", *("x" * 4096 for _ in range(100)))
        await b.kill()
        folders = (a.store, b.store, tmp_path / "arbiter", telemetry)
        assert {"store.db", "store.db-wal", "identity", "committed", "lock"} <= names(a.store)
        assert {"record", "initialised", "lock"} <= names(tmp_path / "arbiter")
        assert any(telemetry.iterdir())
        assert [modes(folder) for folder in folders] == [{}] * 4


@pytest.mark.parametrize("umask", [0o000, 0o022])
async def test_a_store_is_private_without_any_help_of_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        store = await open_store(tmp_path / "store", duplicates=DEFAULT_WINDOW)
        await store.write_generation(1)
        assert (tmp_path / "store" / "store.db-wal").stat().st_size
        assert modes(tmp_path / "store") == {}
        await store.close()
        (tmp_path / "store" / "committed").write_bytes(b"what is corrupted")
        store = await open_store(tmp_path / "store", duplicates=DEFAULT_WINDOW)
        assert store.corruption
        assert modes(tmp_path / "store") == {}
        await store.close()
    finally:
        os.umask(before)


async def test_the_store_of_an_older_version_is_made_private(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = tmp_path / "store"
    await (await open_store(directory, duplicates=DEFAULT_WINDOW)).close()
    (directory / "lost+found").mkdir(mode=0o700)
    for path in (directory, *directory.iterdir()):
        path.chmod(0o755 if path.is_dir() else 0o644)
    store = await open_store(directory, duplicates=DEFAULT_WINDOW)
    (directory / "lost+found").chmod(0o700)
    assert modes(directory) == {}
    assert "was open to other users (mode 0755)" in caplog.text
    await store.close()


async def test_a_directory_with_other_things_in_it_is_left_as_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = tmp_path / "home"
    directory.mkdir()
    (directory / "letter").write_text("")
    (directory / "letter").chmod(0o644)
    directory.chmod(0o755)
    caplog.set_level(logging.WARNING)
    await (await open_store(directory, duplicates=DEFAULT_WINDOW)).close()
    assert modes(directory) == {".": "0755", "letter": "0644"}
    assert "may list the directory" in caplog.text
    directory.chmod(0o1777)
    with pytest.raises(StoreFailedError, match=r"other users may write to the directory .*home.*mode 1777"):
        await open_store(directory, duplicates=DEFAULT_WINDOW)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o1777


async def test_an_arbiter_whose_directory_others_may_write_to_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "letter").write_text("")
    tmp_path.chmod(0o777)
    arbiter = open_arbiter(f"directory:{tmp_path}")
    with pytest.raises(ArbiterUnavailableError, match=r"other users may write to .*mode 700"):
        await arbiter.compare_and_set(ArbiterRecord(), FIRST)
    tmp_path.chmod(0o700)
    assert await arbiter.compare_and_set(ArbiterRecord(), FIRST)


# Takes the lock as a user with read access; reports it, and ends with its input.
_HOLD = """
import fcntl, os, sys
uid, path = int(sys.argv[1]), sys.argv[2]
if uid:
    os.setgroups([]); os.setgid(uid); os.setuid(uid)
try:
    fcntl.flock(os.open(path, os.O_RDONLY), fcntl.LOCK_EX)
    print("held", flush=True)
except PermissionError:
    print("refused", flush=True)
sys.stdin.read()
"""


def holder(path: Path, uid: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _HOLD, str(uid), str(path)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


async def test_a_reader_who_is_another_user_cannot_hold_the_lock() -> None:
    """The directory and the lock of an older version: every user could open it for reading."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # pytest's directories are already closed to others
        await reader_is_refused(Path(folder) / "arbiter")


async def reader_is_refused(directory: Path) -> None:
    directory.mkdir(mode=0o755)
    (directory / "lock").touch()
    directory.chmod(0o755)
    (directory / "lock").chmod(0o644)
    arbiter = open_arbiter(f"directory:{directory}", timeout=10.0)
    assert await arbiter.compare_and_set(ArbiterRecord(), FIRST)
    assert modes(directory) == {}
    if os.geteuid() == 0:
        process = await asyncio.to_thread(holder, directory / "lock", NOBODY)
        with process:
            assert process.stdout is not None
            assert process.stdout.readline() == "refused\n"
            assert await arbiter.compare_and_set(FIRST, ArbiterRecord(2, "b"))
            process.kill()


async def test_members_of_one_user_share_an_arbiter_between_hosts(tmp_path: Path) -> None:
    """Hosts share the directory; a process in a separate mount namespace sees the same one."""
    script = (
        "import asyncio, sys\n"
        "from broker_stub.election.arbiter import open_arbiter\n"
        "from broker_stub.election.generation import ArbiterRecord\n"
        "arbiter = open_arbiter('directory:' + sys.argv[1])\n"
        "won = asyncio.run(arbiter.compare_and_set(ArbiterRecord(1, 'a'), ArbiterRecord(2, 'b')))\n"
        "print(won)\n"
    )
    arbiter = open_arbiter(f"directory:{tmp_path}")
    assert await arbiter.compare_and_set(ArbiterRecord(), FIRST)
    wrapper = ("unshare", "--mount") if os.geteuid() == 0 else ()
    command = (*wrapper, sys.executable, "-c", script, str(tmp_path))
    other = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert (await other.communicate())[0] == b"True\n"
    assert await arbiter.read() == ArbiterRecord(2, "b")
