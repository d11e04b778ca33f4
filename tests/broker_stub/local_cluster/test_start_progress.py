"""The supervisor waits for a member with a large store as long as its start makes progress."""

from __future__ import annotations

import re
import uuid
from pathlib import Path

import pytest

from broker_stub.local_cluster import member_process
from broker_stub.local_cluster.member_process import MemberProcess
from broker_stub.local_cluster.supervisor import LocalCluster, LocalClusterOptions
from broker_stub.queueing.duplicate_detection import DEFAULT_WINDOW
from broker_stub.store import QueueRecord, open_store
from tests.broker_stub.replication.cluster import Cluster

# Reading a thousand messages takes a while.
HOOK = """
import time
from broker_stub.store import reading

_chunk = reading.chunk

def chunk(*arguments):
    time.sleep(0.7)
    return _chunk(*arguments)

reading.chunk = chunk
"""
COUNT = 3500
TIME_OUT = 2.0
# A member that reports progress five times a second, and listens after twice the time-out.
READS_ON = """
for number in $(seq 20); do
    echo '{"event": "starting", "detail": "read '$number' messages"}'
    sleep 0.2
done
echo '{"event": "listening"}'
exec sleep 60
"""
STOPS_TO_READ = """
echo '{"event": "starting", "detail": "read 1 messages"}'
exec sleep 60
"""


def stand_in(script: str) -> tuple[str, ...]:
    """Return a command that runs a script in place of a member."""
    return ("sh", "-c", script)


async def fill(directory: Path) -> None:
    store = await open_store(directory, duplicates=DEFAULT_WINDOW)
    identity = uuid.uuid4()
    store.put_queue(QueueRecord(identity=identity, name="orders"))
    key = store.queue_key(identity)
    for number in range(1, COUNT + 1):
        store.put_message(key, number, b"\x00\x53\x77\x40")
    await store.close()


@pytest.mark.slow
async def test_a_member_reports_how_it_reads_a_large_store_with_the_rate(tmp_path: Path) -> None:
    hook = tmp_path / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(HOOK)
    wrapper = ("env", f"PYTHONPATH={hook}:{Path(__file__).resolve().parents[3]}")
    async with Cluster(tmp_path, wrappers={"a": wrapper}) as cluster:
        a = cluster.members[0]
        await fill(a.store)
        reports: list[str] = []
        a.process.on_progress = reports.append
        await a.start()
        assert await a.depth("orders") == COUNT
        assert re.fullmatch(r"read [1-9][\d,]* messages, [\d,]+ a second", reports[-1])
        assert f"a starts: {reports[-1]}" in a.log


@pytest.mark.slow
async def test_a_start_is_waited_for_while_it_reports_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member_process, "START_TIMEOUT", TIME_OUT)
    process = MemberProcess((), tmp_path / "log", wrapper=stand_in(READS_ON))
    reports: list[str] = []
    process.on_progress = reports.append
    try:
        await process.start()
        assert reports == [f"read {number} messages" for number in range(1, 21)]
    finally:
        await process.kill()


async def test_a_start_that_makes_no_progress_any_more_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member_process, "START_TIMEOUT", TIME_OUT)
    process = MemberProcess((), tmp_path / "log", wrapper=stand_in(STOPS_TO_READ))
    with pytest.raises(TimeoutError):
        await process.start()
    assert process.pid is None


@pytest.mark.slow
async def test_whoever_waits_for_a_cluster_waits_for_the_start_of_its_members() -> None:
    scripts = {name: stand_in(READS_ON) for name in ("member-1", "member-2")}
    cluster = LocalCluster(LocalClusterOptions(wrappers=scripts))
    try:
        await cluster.start()
        await cluster.wait_until(
            lambda pair: [event.detail for event in pair.events].count("read 20 messages") == 2, TIME_OUT
        )
        with pytest.raises(TimeoutError):
            await cluster.wait_until(lambda pair: pair.ready, 0.1)
    finally:
        await cluster.stop()
