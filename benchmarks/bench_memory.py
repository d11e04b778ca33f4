"""Resident memory per idle connection, separately for the client process and the broker process.

A client process opens the connections, all with heartbeats, and waits until all are usable. Each process's
share is the growth of its resident memory, divided by the number of connections. Growth counts from the tenth
connection on, to exclude memory that is loaded once. proton's Container gets as many connections as its
select() supports.

No bar: the numbers are shown next to the peer's.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

import measure
import proton
from measure import BrokerProcess, resident_kib
from proton.handlers import MessagingHandler
from proton.reactor import Container

from haclient import aio

_WARM = 10
_AT_ONCE = 100
_HEARTBEAT = 10
# select() accepts file descriptors below 1024, and the process needs some others.
_CONTAINER_LIMIT = 400
# Seconds for both processes to settle before they are measured: the interpreter keeps freed memory.
_SETTLE = 1.0


async def _aio(url: str, count: int, report: Callable[[], None]) -> None:
    """Open ``count`` connections of one factory; report after the first few and at the end."""
    async with aio.ConnectionFactory(url, heartbeat=_HEARTBEAT) as factory:
        kept: list[aio.Connection] = []
        for size in (_WARM, *_batches(count)):
            kept += await asyncio.gather(*(_connect(factory) for _ in range(size)))
            if len(kept) in (_WARM, _WARM + count):
                await asyncio.sleep(_SETTLE)
                report()


async def _connect(factory: aio.ConnectionFactory) -> aio.Connection:
    return await factory.connect()


def _batches(count: int) -> list[int]:
    return [min(_AT_ONCE, count - start) for start in range(0, count, _AT_ONCE)]


class _Idle(MessagingHandler):
    """Opens connections one after the other; reports after the first few and at the end."""

    def __init__(self, url: str, count: int, report: Callable[[], None]) -> None:
        super().__init__()
        self._url = url
        self._count = count
        self._report = report
        self._connections: list[proton.Connection] = []

    def on_start(self, event: proton.Event) -> None:
        """Open the first connection."""
        self._next(event.container)

    def on_connection_opened(self, event: proton.Event) -> None:
        """Open the next connection, or report a little later."""
        if len(self._connections) in (_WARM, _WARM + self._count):
            event.container.schedule(_SETTLE, self)
        else:
            self._next(event.container)

    def on_timer_task(self, event: proton.Event) -> None:
        """Report, then continue or finish."""
        self._report()
        if len(self._connections) < self._count:
            self._next(event.container)
        else:
            for connection in self._connections:
                connection.close()

    def _next(self, container: Container) -> None:
        # No handler per connection: all connections report to this one.
        self._connections.append(container.connect(self._url, reconnect=False, heartbeat=_HEARTBEAT))


def _client(arguments: Namespace) -> None:
    """Run the client process: print its own and the broker's memory, twice."""

    def report() -> None:
        print(resident_kib(os.getpid()), resident_kib(arguments.broker), flush=True)

    if arguments.client == "aio":
        asyncio.run(_aio(arguments.url, arguments.connections, report))
    else:
        Container(_Idle(arguments.url, arguments.connections, report)).run()


def _measure(kind: str, count: int) -> tuple[float, float]:
    """Return the KiB per connection in the client and in the broker."""
    with BrokerProcess() as broker:
        command = [sys.executable, str(Path(__file__)), "--client", kind, "--url", broker.url]
        command += ["--broker", str(broker.pid), "--connections", str(count)]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    before, after = (tuple(map(int, line.split())) for line in output.splitlines())
    return (after[0] - before[0]) / count, (after[1] - before[1]) / count


def main() -> None:
    parser = measure.argument_parser(__doc__, connections=1_000)
    for name in ("client", "url"):
        parser.add_argument(f"--{name}", help="of the client process; the benchmark gives it itself")
    parser.add_argument("--broker", type=int, help="the same")
    arguments = measure.parse_arguments(parser)
    with measure.many_sockets():
        if arguments.client is not None:
            _client(arguments)
            return
        measure.print_header("Memory per idle connection", arguments)
        few = min(arguments.connections, _CONTAINER_LIMIT)
        print(f"\n  {'KiB a connection':<34}{'client':>10}{'broker':>10}{'together':>10}", flush=True)
        for name, kind, count in (
            ("haclient.aio", "aio", arguments.connections),
            ("haclient.aio", "aio", few),
            ("proton Container", "container", few),
        ):
            client, broker = _measure(kind, count)
            row = f"{f'{name}, {count:,}':<34}{client:>10.1f}{broker:>10.1f}{client + broker:>10.1f}"
            print(f"  {row}", flush=True)


if __name__ == "__main__":
    main()
