"""Many queues: how start, catch-up, failover and answers of a pair slow down as their number doubles.

For each number of queues, a store with that many queues is filled, each with one message (``--empty``: none).
Then these are measured:

* start: a member with that store, until it listens;
* status: the answer to a supervisor's question, at the primary;
* join: a backup with an empty store, until it is ready;
* failover: the primary is killed and the backup promoted, until a client's message is settled;
* one message: settled by the pair, the median of a hundred.

Each is given in wall-clock seconds, and in seconds of the members' processors, on which other work of the
machine has less effect.  The growth since the previous number follows, per doubling (bar: 2.3).  Memory is
the members' growth per queue.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import logging
import math
import os
import statistics
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import measure
from proton import Message

from broker_stub.local_cluster import member_process
from broker_stub.queueing.duplicate_detection import DEFAULT_WINDOW
from broker_stub.queueing.message import SEQUENCE_BITS
from broker_stub.store import QueueRecord
from broker_stub.store.sqlite import open_store
from haclient import aio
from tests.broker_stub.replication.cluster import Cluster, Member

_BAR = 2.3
# Seconds: no step is expected to take that long, even with 100,000 queues on a busy machine.
_PATIENCE = 900.0
_SENDS = 100
# Seconds: below a few ticks of the processor clock a ratio is meaningless.
_SHORTEST = 0.04


@dataclass(slots=True)
class Figures:
    """The measurements with one number of queues."""

    queues: int
    seconds: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Wall-clock seconds, and seconds of the members' processors."""
    kib: dict[str, int] = field(default_factory=dict)
    """Resident memory of each member."""


async def fill(directory: Path, queues: int, *, empty: bool) -> None:
    """Fill the store of a member with ``queues`` queues."""
    store = await open_store(directory, duplicates=DEFAULT_WINDOW)
    data = bytes(Message(body="x" * 100).encode())
    try:
        for number in range(queues):
            identity = uuid.uuid4()
            store.put_queue(
                QueueRecord(identity=identity, name=f"queue-{number}", replicate="all", arguments={})
            )
            if not empty:
                store.put_message(store.queue_key(identity), (1 << SEQUENCE_BITS) + 1, data)
            if number % 1000 == 0:
                await store.when_committed(store.sequence)
        await store.when_committed(store.sequence)
    finally:
        await store.close()


async def logged(member: Member, text: str) -> None:
    """Wait until a member's log contains the text."""
    async with asyncio.timeout(_PATIENCE):
        while text not in member.log:  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0.02)


async def timed(figures: Figures, name: str, what: Callable[[], Awaitable[object]], *members: Member) -> None:
    """Measure one step; the processor seconds are the sum over ``members``."""
    before = sum(cpu_seconds(member) for member in members)
    began = time.perf_counter()
    await what()
    wall = time.perf_counter() - began
    figures.seconds[name] = (wall, sum(cpu_seconds(member) for member in members) - before)


def cpu_seconds(member: Member) -> float:
    """Return user and system time of all threads; 0 if the process does not run."""
    pid = member.process.pid
    return 0.0 if pid is None else measure.cpu_seconds(pid)


def kib(member: Member) -> int:
    """Return the resident memory."""
    assert member.process.pid is not None
    return measure.resident_kib(member.process.pid)


async def one_size(queues: int, *, empty: bool) -> Figures:
    """Measure every step with one number of queues."""
    figures = Figures(queues)
    with tempfile.TemporaryDirectory(prefix="bench-queues-") as scratch:
        cluster = Cluster(Path(scratch))
        a, b = cluster.members
        await fill(a.store, queues, empty=empty)
        async with cluster:
            await timed(figures, "start", a.start, a)
            await a.promote()
            await timed(figures, "status", lambda: a.call("READ"), a)

            async def join() -> None:
                await b.start()
                await logged(b, "is ready, generation")

            await timed(figures, "join", join, a, b)
            figures.kib = {"primary": kib(a), "backup": kib(b)}
            async with aio.connect(a.url) as connection:
                sender = await connection.create_sender("queue-0")
                before, seconds = cpu_seconds(a) + cpu_seconds(b), []
                for _ in range(_SENDS):
                    began = time.perf_counter()
                    await sender.send("one more")
                    seconds.append(time.perf_counter() - began)
                cpu = cpu_seconds(a) + cpu_seconds(b) - before
                figures.seconds["one message"] = statistics.median(seconds), cpu / _SENDS

            async def fail_over() -> None:
                await a.kill()
                await b.promote()
                async with aio.connect(b.url) as connection:
                    await (await connection.create_sender("queue-1")).send("after the failover")

            await timed(figures, "failover", fail_over, b)
    return figures


def growth(before: float, now: float, factor: float) -> float:
    """Return the growth of a value per doubling, if the queues grew by ``factor``."""
    if min(before, now) < _SHORTEST:
        return math.nan
    return float((now / before) ** (math.log(2) / math.log(factor)))


def print_row(figures: Figures, before: Figures | None) -> None:
    """Print one number of queues, with the growth since the previous number."""
    print(f"\n  {figures.queues:,} queues")
    for name, values in figures.seconds.items():
        print(f"    {name:<12}", end="")
        for index, unit in enumerate(("s", "s cpu")):
            value = values[index]
            grown = ""
            if before is not None:
                grown = f" x{growth(before.seconds[name][index], value, figures.queues / before.queues):.2f}"
            print(f"{value:>12.4f} {unit}{grown:<8}", end="")
        print()
    for name, size in figures.kib.items():
        each = ""
        if before is not None:
            each = f", {(size - before.kib[name]) / (figures.queues - before.queues):.1f} KiB a queue"
        print(f"    {name:<12}{size / 1024:>12.1f} MiB{each}")
    print(end="", flush=True)


def main() -> None:
    parser = measure.argument_parser(__doc__, first=1000, last=16_000)
    parser.add_argument("--empty", action="store_true", help="queues without a message")
    arguments = measure.parse_arguments(parser)
    last = arguments.first * 2 if arguments.quick else arguments.last
    measure.print_header("A pair with many queues", arguments)
    logging.getLogger("haclient").setLevel(logging.ERROR)
    member_process.START_TIMEOUT = _PATIENCE
    run(arguments.first, last, argparse.Namespace(empty=arguments.empty))


def run(first: int, last: int, options: argparse.Namespace) -> None:
    """Double the queues until ``last``; the final step may be shorter."""
    rows: list[Figures] = []
    queues = first
    while True:
        rows.append(asyncio.run(one_size(queues, empty=options.empty)))
        print_row(rows[-1], rows[-2] if len(rows) > 1 else None)
        if queues >= last:
            break
        queues = min(2 * queues, last)
    print()
    for name in ("start", "status", "join", "failover", "one message"):
        for index, unit in enumerate(("on the wall", "of the processors")):
            values = [row.seconds[name][index] for row in rows]
            factors = [row.queues for row in rows]
            pairs = zip(itertools.pairwise(values), itertools.pairwise(factors), strict=True)
            grown = [growth(*pair, after / before) for pair, (before, after) in pairs]
            known = [each for each in grown if not math.isnan(each)]
            if not known:
                print(f"too short to tell: {name}, seconds {unit}, per doubling: at most {max(values):.4f} s")
                continue
            worst = max(known)
            measure.print_bar(f"{name}, seconds {unit}, per doubling", worst, _BAR, at_least=False)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    main()
