"""A reconnect storm at a RabbitMQ node that is stopped and started: ``compare_storms.py --broker rabbitmq``.

One node, one address, no hints: the node is killed (SIGKILL), and starts again ``--outage`` seconds later.
Times count from the moment when it listens. The storms run one after the other at the same node: haclient,
haclient with Kafka's delays, proton and rhea. The simulator's prediction for such a fleet is shown with each.

- ``attempts``: dials of all clients, and SYNs on loopback (``syn_counter``), since the node listens.
- ``processor``: user and system time of the node's processes, from then until the last client is back.
- mu, for the simulator: the rate of one processor of the node, that is, the clients divided by that processor
  time. Arrivals would mislead. The node accepts all connections at once and sets them up in parallel.  So
  most arrive at the end, much denser than they were set up.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import os
import resource
import threading
import time
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from rich.console import Console
from rich.table import Table
from syn_counter import SynCounter

from benchmarks.grid.preset_clients import simulate
from benchmarks.grid.presets import PRESETS
from benchmarks.storm.fleet import FleetError
from benchmarks.storm.member_lines import Served
from benchmarks.storm.run import Outcome, Plan, Screen, run
from haclient.retry.policy import Policy
from haclient.simulation.result import Result
from haclient.simulation.scenario import Scenario
from tests.interop.rabbitmq import Node, RabbitMQ

# A quorum queue writes every message before it accepts it.
_QUEUE = """{"queues": [{"name": "storm", "vhost": "/", "durable": true, "auto_delete": false,
    "arguments": {"x-queue-type": "quorum"}}]}"""
_ADDRESS = "/amq/queue/storm"
_PATIENCE = 120.0
_POLL = 0.02
# Files of the node besides its connections, and of a worker besides its own.
_SPARE_FILES = 1_500
# Resident memory of the node for one AMQP 1.0 connection, generously estimated.
_MEMORY_EACH = 600 * 1024
_LISTENS = "0A"  # /proc/net/tcp
_TICKS = os.sysconf("SC_CLK_TCK")
# An Open, a Begin and SASL, each with its answer, after TCP's handshake.
_ROUND_TRIPS = 4
_HORIZON = 900.0


# -- the node ---------------------------------------------------------------------------------------


class ProcessorTime:
    """Samples the processor time of all processes of a session.

    :ivar samples: monotonic times, and seconds of processor time until then.
    """

    def __init__(self, session: int) -> None:
        self.samples: list[tuple[float, float]] = []
        self._pids = [int(each.name) for each in Path("/proc").glob("[0-9]*") if _session(each) == session]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def between(self, since: float, until: float) -> float:
        """Return the processor seconds between two times."""
        return self._at(until) - self._at(since)

    def _at(self, moment: float) -> float:
        place = bisect_left(self.samples, (moment, 0.0))
        return self.samples[min(place, len(self.samples) - 1)][1]

    def _run(self) -> None:
        while True:
            self.samples.append((time.monotonic(), sum(map(_processor_time, self._pids))))
            if self._over.wait(0.1):
                return


def _fields(process: Path) -> list[str]:
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _session(process: Path) -> int:
    fields = _fields(process)
    return int(fields[3]) if fields else 0


def _processor_time(pid: int) -> float:
    fields = _fields(Path(f"/proc/{pid}"))
    return (int(fields[11]) + int(fields[12])) / _TICKS if fields else 0.0


class RestartedNode:
    """One RabbitMQ node as the cluster of a storm (``benchmarks.storm.environment.Environment``).

    :ivar listens_at: monotonic time at which it listened again.
    """

    def __init__(self, rabbitmq: RabbitMQ) -> None:
        self.url = rabbitmq.url
        self.node: Node = rabbitmq.nodes[0]
        self.listens_at = 0.0
        self.processor: ProcessorTime | None = None
        self._stack = ExitStack()

    def served(self, killed_at: float, over_at: float) -> Served | None:
        """Return the node itself; only the clients know which of them it served."""
        if not killed_at < self.listens_at:
            return None
        return Served("rabbitmq", self.listens_at, (), (), 0)

    def primary(self) -> str:
        """Return the node's ``host:port``."""
        return self.node.address

    def processes(self) -> Mapping[str, int]:
        """Return the process of the Erlang VM."""
        found = [pid for pid in map(_pid, _erlang()) if _session(Path(f"/proc/{pid}")) == self.node.session]
        return {"rabbitmq": found[0]} if found else {}

    def primary_process(self) -> None:
        """Return nothing: no process is kept apart from the node."""

    def parked(self) -> None:
        """Return nothing: the node parks no client."""

    def accept_rate(self) -> None:
        """Return nothing: the node has no limit."""

    async def start(self) -> None:
        """Do nothing: the node runs already, with the queue."""

    async def kill(self) -> float:
        """Send SIGKILL; return the monotonic time."""
        await asyncio.to_thread(self.node.kill)
        return time.monotonic()

    async def follow(self) -> None:
        """Start the node again; return when it listens."""
        self.node.launch()
        await asyncio.to_thread(self._wait_until_it_listens)
        self.processor = self._stack.enter_context(ProcessorTime(self.node.session))

    def _wait_until_it_listens(self) -> None:
        wanted = f":{self.node.port:04X} 00000000:0000 {_LISTENS}"
        until = time.monotonic() + _PATIENCE
        while time.monotonic() < until:
            # Listening sockets are the first ones in the list.
            with Path("/proc/net/tcp").open(encoding="ascii") as sockets:
                if wanted in sockets.read(32_768):
                    self.listens_at = time.monotonic()
                    return
            time.sleep(_POLL)
        raise RuntimeError(f"{self.node.name} does not listen: {self.node.tail()}")

    async def stop(self) -> None:
        """End the measurement; the node keeps running for the next storm."""
        self._stack.close()


def _erlang() -> list[Path]:
    return [each.parent for each in Path("/proc").glob("[0-9]*/comm") if _name(each) == "beam.smp"]


def _name(comm: Path) -> str:
    try:
        return comm.read_text().strip()
    except OSError:
        return ""


def _pid(process: Path) -> int:
    return int(process.name)


# -- the storms -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One storm.

    :param preset: the client policy for the simulator; ``None`` for haclient's default.
    :param syns: SYNs from the start of listening until the last client was back.
    :param syns_before: SYNs from the kill until the node listened.
    :param busiest: the most SYNs in a second.
    :param processor: processor seconds of the node.
    """

    outcome: Outcome
    preset: str | None
    syns: int
    syns_before: int
    busiest: int
    processor: float

    @property
    def last(self) -> float:
        """Seconds until the last client was back."""
        return self.outcome.figures.last

    @property
    def rate(self) -> float:
        """Connection setups per second that one processor of the node manages."""
        return self.outcome.figures.clients / max(self.processor, 1 / _TICKS)


def storms(arguments: argparse.Namespace, rhea: Path | None) -> list[tuple[Plan, str | None]]:
    """Return the plans, each with its preset for the simulator."""

    def plan(**given: Any) -> Plan:
        return Plan(
            connections=arguments.connections,
            outage=arguments.outage,
            deadline=arguments.deadline,
            address=_ADDRESS,
            **given,
        )

    plans = [(plan(), None), (plan(delays="kafka"), "kafka"), (plan(kind="proton"), "proton")]
    if rhea is not None:
        plans.append((plan(kind="rhea", node_modules=rhea), "rhea"))
    return [(each, preset) for each, preset in plans if arguments.only in each.name]


async def run_storm(node: RestartedNode, plan: Plan, preset: str | None, screen: Screen) -> Row:
    """Run one storm at the node.

    :raises FleetError: if the workers fail.
    """
    with SynCounter(node.node.port) as syns:
        outcome = await run(plan, screen, node)
    figures = outcome.figures
    since = node.listens_at
    last = figures.arrivals[-1] if figures.arrivals else 0.0
    after = syns.between(since, since + last)
    before = syns.between(since - figures.outage, since)
    assert node.processor is not None
    return Row(
        outcome=outcome,
        preset=preset,
        syns=len(after),
        syns_before=len(before),
        busiest=max((bisect_left(after, at + 1.0) - place for place, at in enumerate(after)), default=0),
        processor=node.processor.between(since, since + last),
    )


def predict(row: Row) -> Result:
    """Return the simulator's prediction for such a fleet at such a node.

    Clients waiting for their setup wait in the node, which accepts at once, and not in the kernel's backlog.
    """
    figures = row.outcome.figures
    scenario = Scenario(
        clients=figures.clients,
        setup_rate=row.rate,
        backlog=figures.clients,
        outage=figures.outage,
        retry_after=False,
        handshake_round_trips=_ROUND_TRIPS,
        horizon=_HORIZON,
    )
    return simulate(scenario, Policy() if row.preset is None else PRESETS[row.preset])


def check_limits(connections: int) -> None:
    """Check that this machine can hold the connections.

    :raises SystemExit: if it cannot; the text names the missing resource.
    """
    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files < connections + _SPARE_FILES:
        raise SystemExit(
            f"{connections} connections take {connections + _SPARE_FILES} files, {files} are allowed"
        )
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    if free < connections * _MEMORY_EACH:
        raise SystemExit(
            f"{connections} connections take {connections * _MEMORY_EACH:,} bytes, {free:,} are free"
        )


def run_all(arguments: argparse.Namespace, rhea: Path | None, screen: Screen) -> list[Row]:
    """Run all storms, at one node."""
    check_limits(arguments.connections)
    rows: list[Row] = []
    with RabbitMQ() as rabbitmq:
        definitions = rabbitmq.nodes[0].folder / "queues.json"
        definitions.write_text(_QUEUE)
        rabbitmq.nodes[0].control("import_definitions", str(definitions))
        for plan, preset in storms(arguments, rhea):
            try:
                rows.append(asyncio.run(run_storm(RestartedNode(rabbitmq), plan, preset, screen)))
            except FleetError as error:
                print(f"{plan.name}: no figures: {error}", flush=True)
    return rows


# -- output -----------------------------------------------------------------------------------------


def report(rows: Sequence[Row], out: Path) -> None:
    """Print the table, and write ``rabbitmq.json``."""
    predicted = [predict(row) for row in rows]
    table = Table(box=None, pad_edge=False)
    for title in (
        "clients",
        "back",
        "outage",
        "p50",
        "last",
        "dials",
        "SYNs",
        "before",
        "busiest s",
        "processor",
        "mu",
    ):
        table.add_column(title, justify="left" if title == "clients" else "right")
    for title in ("simulated p50", "last", "SYNs", "before"):
        table.add_column(title, justify="right")
    for row, result in zip(rows, predicted, strict=True):
        table.add_row(*_cells(row), *_simulated(result))
    Console(width=180).print(table)
    facts = [
        {**_facts(row), "simulated": result.figures()} for row, result in zip(rows, predicted, strict=True)
    ]
    (out / "rabbitmq.json").write_text(json.dumps(facts))


def _cells(row: Row) -> list[str]:
    one = row.outcome.figures
    return [
        one.name,
        f"{one.back:,} of {one.clients:,}",
        f"{one.outage:.2f} s",
        f"{one.p50:.2f} s",
        f"{one.last:.2f} s",
        f"{one.attempts_after:.2f}",
        f"{row.syns / one.clients:.2f}",
        f"{row.syns_before / one.clients:.2f}",
        f"{row.busiest:,}",
        f"{row.processor:.1f} s",
        f"{row.rate:,.0f}/s",
    ]


def _simulated(result: Result) -> list[str]:
    return [
        f"{result.quantile(0.5):.2f} s",
        f"{result.last:.2f} s",
        f"{result.attempts_per_client:.2f}",
        f"{result.earlier / result.scenario.clients:.2f}",
    ]


def _facts(row: Row) -> dict[str, Any]:
    figures = dataclasses.asdict(row.outcome.figures)
    names = ("preset", "syns", "syns_before", "busiest", "processor", "rate")
    return {**figures, **{name: getattr(row, name) for name in names}}
