"""A backup that returns without the last 100,000 messages, during continuous traffic.

The backup of a pair is killed; the primary continues alone and receives ``--messages`` of ``--size`` bytes.
Then the backup is started again, and the time until it is ready is measured. Meanwhile a client keeps sending
``--rate`` messages a second. Its settle times before and during the catch-up show the effect on clients.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import statistics
import time

import measure

import haclient
from broker_stub.local_cluster.supervisor import (
    LocalCluster,
    LocalClusterEvent,
    LocalClusterOptions,
    MemberState,
)
from haclient import aio

_CALM = 2.0


class Traffic:
    """Sends at a fixed rate, and records the settle time of each message."""

    def __init__(self, sender: aio.Sender, rate: int, body: bytes) -> None:
        self._sender = sender
        self._rate = rate
        self._body = body
        self.seconds: list[float] = []

    async def run(self) -> None:
        """Send until cancelled."""
        loop = asyncio.get_running_loop()
        began, sent = loop.time(), 0
        while True:
            while sent < (loop.time() - began) * self._rate:
                sent += 1
                future = await self._sender.submit(haclient.Message(body=self._body))
                future.add_done_callback(functools.partial(self._settled, loop.time()))
            await asyncio.sleep(1 / self._rate)

    def _settled(self, sent: float, future: asyncio.Future[haclient.Outcome]) -> None:
        if not future.cancelled() and future.exception() is None:
            self.seconds.append(asyncio.get_running_loop().time() - sent)


async def _fill(sender: aio.Sender, body: bytes, count: int) -> None:
    for _ in range(count):
        await sender.submit(haclient.Message(body=body))
    await sender.flush()


async def _round(messages: int, body: bytes, rate: int) -> tuple[float, list[float], list[float]]:
    """Return the seconds of the catch-up, and the settle times before and during it."""
    started = 0.0

    def note(event: LocalClusterEvent) -> None:
        nonlocal started
        if event.kind == "started":
            started = time.monotonic()

    async with (
        LocalCluster(LocalClusterOptions(restart=False), on_event=note) as pair,
        aio.connect(pair.url) as connection,
    ):
        backup = next(member for member in pair.members if member is not pair.primary)
        await backup.process.kill()
        await pair.wait_until(lambda _: backup.state is MemberState.DEAD)
        await _fill(await connection.create_sender("backlog"), body, messages)
        traffic = Traffic(await connection.create_sender("traffic"), rate, body)
        task = asyncio.create_task(traffic.run())
        try:
            await asyncio.sleep(_CALM)
            before, traffic.seconds = traffic.seconds, []
            pair.restart(backup)
            await pair.wait_until(lambda _: backup.state is MemberState.READY, 300)
            seconds = time.monotonic() - started
            return seconds, before, traffic.seconds
        finally:
            task.cancel()


def main() -> None:
    parser = measure.argument_parser(__doc__, messages=100_000, rounds=3, size=1000, rate=500)
    arguments = measure.parse_arguments(parser)
    measure.print_header("Catching up with traffic going on", arguments)
    logging.getLogger("haclient").setLevel(logging.ERROR)
    logging.getLogger("broker_stub").setLevel(logging.ERROR)
    body = b"x" * arguments.size
    caught_up, calm, busy = [], [], []
    for _ in range(max(1, arguments.rounds)):
        seconds, before, during = asyncio.run(_round(arguments.messages, body, arguments.rate))
        caught_up.append(seconds)
        calm += before
        busy += during
    median = statistics.median(caught_up)
    rate, megabytes = arguments.messages / median, arguments.messages * arguments.size / 1e6
    print(f"\n  ready after {median:.2f} s: {rate:,.0f} msg/s, {megabytes / median:.1f} MB/s")
    print(f"\n  milliseconds to settle{'':<14}{'median':>8}{'p99':>8}")
    for name, values in (("the primary alone", calm), ("while the backup catches up", busy)):
        p99 = measure.percentile(values, 99)
        print(f"  {name:<36}{1e3 * statistics.median(values):>8.2f}{1e3 * p99:>8.2f}")


if __name__ == "__main__":
    main()
