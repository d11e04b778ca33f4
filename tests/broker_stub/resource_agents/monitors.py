"""Monitors a primary under full load, as Pacemaker does, and counts failed monitors, for which it would be
killed.

    python -m tests.broker_stub.resource_agents.monitors --count 1000

The agent starts a pair of members; clients in separate processes send at full speed.  Each monitor
is one run of the agent: if it fails, Pacemaker would kill a working primary.  The program prints the count
and the slowest after every hundred monitors and at the end, which may be an interrupt.  It exits with 1 if
any monitor failed.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import click

from haclient import Message, aio
from tests.broker_stub.resource_agents.nodes import PASSWORD, Node, cluster

_PROMOTED = 8
_BODY = b"x" * 1000
# More than the cores of most machines that run this: each is always busy.
_CLIENTS = 4
_READY = 60.0
_TIMEOUT_MS = 20_000
"""The time-out of a monitor in the documentation."""
_REPORT_EVERY = 100


def _flood(url: str, queue: str) -> None:
    async def send_and_receive() -> None:
        async with aio.connect(url) as connection:
            sender = await connection.create_sender(queue)
            receiver = await connection.create_receiver(queue, credit=500)

            async def consume() -> None:
                async for delivery in receiver:
                    await delivery.accept()

            consuming = asyncio.create_task(consume())
            while not consuming.done():
                await sender.submit(Message(body=_BODY, durable=True))

    asyncio.run(send_and_receive())


@contextlib.contextmanager
def _load(node: Node) -> Iterator[None]:
    url = f"amqp://cluster-admin:{PASSWORD}@{node.parameters['listen']}"
    context = multiprocessing.get_context("spawn")
    clients = [
        context.Process(target=_flood, args=(url, f"queue-{number}"), daemon=True)
        for number in range(_CLIENTS)
    ]
    for client in clients:
        client.start()
    try:
        yield
        dead = [client.pid for client in clients if not client.is_alive()]
        if dead:
            raise click.ClickException(f"{len(dead)} of the clients that made the load have ended")
    finally:
        for client in clients:
            client.kill()
            client.join()


def _pair(nodes: list[Node]) -> Node:
    """Start both members, and make the first one the primary of a ready second."""
    for node in nodes:
        started = node.agent("start")
        if started.code != 0:
            raise click.ClickException(started.errors)
    primary, backup = nodes
    if primary.agent("promote").code != 0:
        raise click.ClickException("the first member was not promoted")
    deadline = time.monotonic() + _READY
    while backup.score != "100":
        if time.monotonic() > deadline:
            raise click.ClickException("the second member did not become ready")
        time.sleep(0.1)
    return primary


class _Counted:
    """The results of the monitors so far."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.failures: list[str] = []

    def run(self, node: Node) -> None:
        """Run one more monitor."""
        began = time.monotonic()
        result = node.agent("monitor", timeout=_TIMEOUT_MS)
        self.times.append(time.monotonic() - began)
        if result.code != _PROMOTED:
            number = len(self.times)
            self.failures.append(f"monitor {number}: exit code {result.code}: {result.errors.strip()}")

    def __str__(self) -> str:
        if not self.times:
            return "no monitor has run"
        median, slowest = statistics.median(self.times), max(self.times)
        return (
            f"{len(self.times)} monitors beside full load: {len(self.failures)} failed;"
            f" median {median:.2f} s, slowest {slowest:.2f} s, the interpreter's start included"
        )


@click.command()
@click.option("--count", type=click.IntRange(1), default=1000, show_default=True, help="Monitors to run.")
def main(*, count: int) -> None:
    """Count the monitors of a busy primary that fail."""
    # Members outlive their parent, unless it ends normally.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(1))
    counted = _Counted()
    try:
        scratch = tempfile.TemporaryDirectory(prefix="monitors-")
        with scratch as folder, cluster(Path(folder), "a", "b") as nodes:
            primary = _pair(nodes)
            with _load(primary):
                for number in range(1, count + 1):
                    counted.run(primary)
                    if number % _REPORT_EVERY == 0 and number < count:
                        click.echo(counted)  # flushes
    finally:
        click.echo(counted)
        for failure in counted.failures[:10]:
            click.echo(failure, err=True)
    sys.exit(1 if counted.failures else 0)


if __name__ == "__main__":
    main()
