"""A process that is killed while it writes loses no message that was reported as committed."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from broker_stub.store import open_store
from tests.broker_stub.store.contents import declare, messages, scratch

KILLS, STORES = 20, 4

# Puts messages in small turns, removes each tenth, and reports its progress after each commit.
WRITER = """
import asyncio, os, sys, uuid
from broker_stub.store import QueueRecord, open_store

async def main(directory, first):
    store = await open_store(directory, duplicates=50)
    store.put_queue(QueueRecord(identity=uuid.UUID(int=1), name="orders"))
    queue, numbers = store.queue_key(uuid.UUID(int=1)), {}
    store.on_committed(lambda sequence: os.write(1, b"%d\\n" % numbers.get(sequence, 0)))
    number = first
    while True:
        for _ in range(number % 17 + 1):
            data = b"%d " % number * (number % 50)
            store.put_message(queue, number, data, duplicate_id=b"%d" % number)
            if number % 10 == 0:
                store.remove_messages(queue, [number - 5])
            number += 1
        numbers[store.sequence] = number - 1
        if store.sequence - store.committed > 200:
            await store.when_committed(store.sequence - 100)
        await asyncio.sleep(0)

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


def write_until_killed(directory: Path, first: int, commits: int, delay: float) -> int:
    """Kill the writer after some reported commits; return the last reported number."""
    command = [sys.executable, "-c", WRITER, str(directory), str(first)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for _ in range(commits):
            assert process.stdout.readline(), "the writer died by itself"
        time.sleep(delay)  # so that it dies anywhere in a commit, and not only after one
        os.kill(process.pid, signal.SIGKILL)
        reported = [int(line) for line in process.stdout.read().split(b"\n")[:-1]]
    return max(reported, default=0)


async def live_and_die(directory: Path, source: random.Random) -> None:
    """Run one store through several lives, each ended by a kill."""
    last = 0
    for _ in range(KILLS // STORES):
        commits, delay = source.randrange(1, 60), source.random() * 0.005
        reported = await asyncio.to_thread(write_until_killed, directory, last + 1, commits, delay)
        store = await open_store(directory, duplicates=50)
        snapshot = await store.load()
        assert (store.corruption, snapshot.was_clean) == ("", False)
        queue = declare(store)
        last = snapshot.queues[0].last_id
        assert last >= reported
        # Each tenth removes one, in the turn that put it: nothing is missing in between.
        removed = {number - 5 for number in range(10, last + 1, 10)}
        found = await messages(store, queue)
        assert [message.id for message in found] == [n for n in range(1, last + 1) if n not in removed]
        assert all(message.data == b"%d " % message.id * (message.id % 50) for message in found)
        remembered = await store.duplicates(queue)
        assert remembered == [(b"%d" % n, n) for n in range(max(1, last - 49), last + 1)]
        await store.close(clean=False)
    assert last > KILLS // STORES


@pytest.mark.slow
async def test_a_killed_writer_loses_nothing_that_it_reported() -> None:
    with scratch() as path:
        await asyncio.gather(*(live_and_die(path / str(seed), random.Random(seed)) for seed in range(STORES)))
