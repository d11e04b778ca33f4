"""Measures a broker's connection setups per second, by the processor time of each setup.

    python -m tests.brokers.setup_rate artemis-single rabbitmq

A setup is TCP, SASL PLAIN, Open, Begin, an Attach and a Close of a bare client. The first setups meet a
process that has just started, like a backup that was never primary; the later ones a warm process. The
rate is per processor used by the broker alone, so other load on the machine does not change it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from haclient.cluster_url.endpoint import Endpoint
from tests.brokers import bare, clusters
from tests.brokers.topology import BrokerCluster, Launch

_COLD, _WARM_UP, _MEASURED, _AT_ONCE = 200, 2000, 1000, 20
_TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Listening:
    """A listening process: its id, and the size of its backlog."""

    pid: int
    backlog: int


def listening(port: int) -> Listening:
    """Find the process that listens at a port.

    :raises LookupError: if there is none.
    """
    command = ["ss", "-ltnpH", f"sport = :{port}"]
    line = subprocess.run(command, check=True, capture_output=True, text=True).stdout.partition("\n")[0]
    found = re.search(r"pid=(\d+)", line)
    if found is None:
        raise LookupError(f"nobody listens at port {port}: {line!r}")
    return Listening(int(found[1]), int(line.split()[2]))


def processor_seconds(pid: int) -> float:
    """Return the processor time of all threads of a process since its start."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


async def set_up(endpoint: Endpoint, account: bare.Account, address: str, count: int) -> None:
    """Set up ``count`` connections, some of them concurrently.

    :raises RuntimeError: if the broker refuses one.
    """
    todo = iter(range(count))

    async def one_after_the_other() -> None:
        for _ in todo:
            if refused := await bare.refusal(endpoint, account, address):
                raise RuntimeError(refused)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(_AT_ONCE):
            tasks.create_task(one_after_the_other())


async def measure(cluster: BrokerCluster) -> None:
    """Print the rates of a running broker."""
    address = cluster.queue("setups")
    url = urlsplit(cluster.url.partition("?")[0])
    account = bare.Account(unquote(url.username or ""), unquote(url.password or ""))
    endpoint = (await cluster.serving()).endpoint
    process = listening(endpoint.port)
    show(f"{cluster.name} {cluster.version}: backlog {process.backlog}")
    for name, count in (("cold", _COLD), ("warming up", _WARM_UP), ("warm", _MEASURED)):
        before = processor_seconds(process.pid)
        await set_up(endpoint, account, address, count)
        each = (processor_seconds(process.pid) - before) / count
        show(f"  {name}: {each * 1000:.2f} ms of a processor, {1 / each:,.0f} setups a second")


async def run(name: str) -> None:
    """Start a broker, measure, and stop it."""
    with tempfile.TemporaryDirectory() as folder:
        cluster = clusters.launch(name, Launch(Path(folder)))
        try:
            await cluster.start()
            await measure(cluster)
        finally:
            await cluster.stop()


def show(line: str) -> None:
    """Print a line and flush it."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    """Measure the named brokers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+", choices=clusters.NAMES)
    for name in parser.parse_args().names:
        if reason := clusters.missing(name):
            show(f"{name}: skipped, {reason}")
        else:
            asyncio.run(run(name))


if __name__ == "__main__":
    main()
