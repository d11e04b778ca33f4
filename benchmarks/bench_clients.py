"""Pipelined sends by clients of four languages to one broker: go-amqp, rhea, Qpid JMS, proton and haclient.

Each client runs in its own process; its start and a first batch for warming up do not count. Each makes,
encodes and sends the message and reads its outcome. All have the same limit of messages without an outcome.
There is one table for nondurable and one for durable messages. The first broker is a haclient member (in
memory), the second is Artemis (journal on disk) if it is installed (``scripts/setup_brokers.sh``).

haclient adds a duplicate-detection id to each durable message; the other clients add none. The row without
ids shows the cost of the ids.

Package managers install go-amqp, rhea and Qpid JMS at the first run. If a client cannot be installed, the
table shows the reason. Aims, by processor time: haclient's asyncio API ahead of rhea and level with go-amqp;
its blocking API within 1.3 times of the asyncio one; ids within 1.2 times of none.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import brokers
import clients
import measure
import ours
from brokers import Broker
from measure import Sample, Samples

_HERE = Path(__file__).resolve().parent
# The credit given by a haclient member, which is also the default of haclient's window.
_WINDOW = 1000
# After this many messages V8 has compiled rhea's code, and the member's credit is stable. Java's compiler
# takes longer.
_WARM = 5000
_WARM_OF = {clients.JMS: 50_000}
_RUN_TIMEOUT = 120.0
_DURABILITIES = ("not-durable", "durable")
_BASELINES = ("go-amqp", "rhea")


def _contestant(
    command: Sequence[str], broker: Broker, job: Sequence[str], messages: int, count: int
) -> Callable[[], Mapping[str, Sample]]:
    def run() -> Mapping[str, Sample]:
        arguments = (*command, broker.address, ours.ADDRESS, *job)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (_HERE.parent, _HERE)))}
        output = subprocess.run(
            arguments, stdout=subprocess.PIPE, timeout=_RUN_TIMEOUT, check=True, env=environment
        ).stdout
        facts = json.loads(output)
        broker.empty(messages)
        return {"send": Sample(count, facts["wall"], facts["cpu"])}

    return run


def _run(
    broker: Broker, found: Mapping[str, Sequence[str]], arguments: argparse.Namespace, durability: str
) -> Samples:
    count = arguments.messages
    contestants = {}
    for name, command in found.items():
        if name == clients.WITHOUT_IDS and durability != "durable":
            continue  # messages that are not durable have no ids
        warm = _WARM_OF.get(name, _WARM)
        job = [*map(str, (count, warm, _WINDOW, arguments.size)), durability]
        contestants[name] = _contestant(command, broker, job, warm + count, count)
    return measure.interleave(contestants, max(1, arguments.rounds))


def _microseconds(samples: Sequence[Sample]) -> float:
    return 1e6 * statistics.median(sample.cpu / sample.count for sample in samples)


def _print_table(title: str, samples: Mapping[str, Sequence[Sample]], missing: Mapping[str, str]) -> None:
    baselines = [name for name in _BASELINES if name in samples]
    columns = "".join(f"{'cpu to ' + name:>16}" for name in baselines)
    print(f"\n{title}")
    print(f"  {'':<28}{'1000 msg/s':>12}{'cpu µs/msg':>12}{columns}")
    for name, measured in samples.items():
        cpu = _microseconds(measured)
        ratios = "".join(f"{cpu / _microseconds(samples[each]):>15.2f}x" for each in baselines)
        print(f"  {name:<28}{measure.median_rates(measured)[0] / 1e3:>12.1f}{cpu:>12.1f}{ratios}")
    for name, reason in missing.items():
        print(f"  {name:<28}missing: {reason}")


def _print_bars(samples: Mapping[str, Sequence[Sample]]) -> None:
    def bar(name: str, other: str, bar: float) -> None:
        if other in samples:
            ratio = _microseconds(samples[name]) / _microseconds(samples[other])
            measure.print_bar(f"{name} / {other}, cpu a message", ratio, bar, at_least=False)

    for name in ("haclient.aio send_many", "haclient.aio submit"):
        bar(name, "go-amqp", 1.0)
        bar(name, "rhea", 1.0)
        if "rhea" in samples:
            rate = measure.median_rates(samples[name])[0] / measure.median_rates(samples["rhea"])[0]
            measure.print_bar(f"{name} / rhea, wall", rate, 1.0, at_least=True)
    bar("haclient blocking submit", "haclient.aio submit", 1.3)
    bar("haclient blocking send_many", "haclient.aio send_many", 1.3)
    bar("haclient.aio submit", clients.WITHOUT_IDS, 1.2)


def main() -> None:
    parser = measure.argument_parser(__doc__, messages=10_000, rounds=5, size=100)
    parser.add_argument("--broker", choices=("member", "artemis"), help="only with this one")
    parser.add_argument("--durability", choices=_DURABILITIES, help="only such messages")
    arguments = measure.parse_arguments(parser)
    measure.print_header("Clients", arguments)
    found, missing = clients.commands()
    launchers: Mapping[str, Callable[[], AbstractContextManager[Broker]]] = {
        "member": brokers.member,
        "artemis": brokers.artemis,
    }
    for name, launch in launchers.items():
        if arguments.broker not in (None, name):
            continue
        if name == "artemis" and (reason := brokers.artemis_missing()):
            print(f"\nartemis skipped: {reason}")
            continue
        with launch() as broker:
            for durability in _DURABILITIES:
                if arguments.durability not in (None, durability):
                    continue
                samples = _run(broker, found, arguments, durability)["send"]
                title = f"{name}, {durability}, window of {_WINDOW} messages"
                _print_table(title, samples, missing)
                print(flush=True)
                _print_bars(samples)


if __name__ == "__main__":
    main()
