"""Pipelined sends by clients of three languages to one member: go-amqp, rhea, proton and haclient.

Each client is a process of its own; its start and a first portion that warms it up do not count.  Each
makes the message, encodes it, sends it and learns its outcome, and has as many messages without an
outcome as the others at most.  One table for messages that are not durable, one for durable ones.

go-amqp and rhea are installed by their package managers at the first run; without go, node or a
registry they are missing, and the table says why.  Aim: our asyncio API ahead of rhea and level with
go-amqp by processor time, our blocking API within 1.3 times of our asyncio one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import measure
import ours
from measure import BrokerProcess, Sample, Samples

from broker_stub.admission.user_database import DEFAULT_ADMIN
from broker_stub.amqp.endpoints import parse_endpoint
from broker_stub.amqp.node_names import QUEUE_TYPE
from broker_stub.management_client import AdminClient, Credentials

_HERE = Path(__file__).resolve().parent
_GO, _NODE = _HERE / "go", _HERE / "node"
_GO_PROGRAM = _HERE.parent / ".interop" / "bin" / "go_send"
# The credit that a member of ours gives, which is also the default of haclient's window.
_WINDOW = 1000
# After so many messages V8 has compiled what rhea runs, and the member grants credit as it will.
_WARM = 5000
# A registry that does not answer must not hold up the others.
_INSTALL_TIMEOUT = 120.0
_RUN_TIMEOUT = 60.0
_PASSWORD = "of-this-benchmark"  # noqa: S105 - of a member that lives for this benchmark
_PYTHON_CLIENTS = {
    "proton Container": "proton",
    "haclient.aio submit": "submit",
    "haclient.aio send_many": "send_many",
    "haclient blocking submit": "blocking",
    "haclient blocking send_many": "blocking_send_many",
}
_BASELINES = ("go-amqp", "rhea")


class MissingClient(Exception):
    """A client cannot be installed; the text says why."""


def _install(tool: str, directory: Path, *arguments: str) -> None:
    if shutil.which(tool) is None:
        raise MissingClient(f"{tool} is not installed")
    try:
        done = subprocess.run(
            (tool, *arguments),
            cwd=directory,
            capture_output=True,
            text=True,
            timeout=_INSTALL_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise MissingClient(f"{tool} {arguments[0]} took over {_INSTALL_TIMEOUT:.0f} s") from None
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no reason given"]
        raise MissingClient(f"{tool} {arguments[0]} failed: {lines[-1]}")


def _go_command() -> list[str]:
    _GO_PROGRAM.parent.mkdir(parents=True, exist_ok=True)
    _install("go", _GO, "build", "-trimpath", "-o", str(_GO_PROGRAM), ".")
    return [str(_GO_PROGRAM)]


def _node_command() -> list[str]:
    if shutil.which("node") is None:
        raise MissingClient("node is not installed")
    if not (_NODE / "node_modules" / "rhea").is_dir():
        _install("npm", _NODE, "ci", "--no-audit", "--no-fund", "--silent")
    return ["node", str(_NODE / "send.js")]


def commands() -> tuple[dict[str, list[str]], dict[str, str]]:
    """How to start each client, and why the others are missing."""
    found, missing = {}, {}
    makers: Mapping[str, Callable[[], list[str]]] = {"go-amqp": _go_command, "rhea": _node_command}
    for name, make in makers.items():
        try:
            found[name] = make()
        except MissingClient as reason:
            missing[name] = str(reason)
    program = str(_HERE / "pipelined.py")
    found |= {name: [sys.executable, program, client] for name, client in _PYTHON_CLIENTS.items()}
    return found, missing


async def _delete_queue(member: str) -> None:
    """Leave the member empty for the next client, which takes less time than receiving the messages."""
    admin = await AdminClient.connect(parse_endpoint(member), Credentials(_PASSWORD))
    await admin.delete(QUEUE_TYPE, ours.ADDRESS)
    await admin.close()


def _contestant(
    command: Sequence[str], broker: BrokerProcess, job: Sequence[str], count: int
) -> Callable[[], Mapping[str, Sample]]:
    def run() -> Mapping[str, Sample]:
        arguments = (*command, broker.address, ours.ADDRESS, *job)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (_HERE.parent, _HERE)))}
        output = subprocess.run(
            arguments, stdout=subprocess.PIPE, timeout=_RUN_TIMEOUT, check=True, env=environment
        ).stdout
        facts = json.loads(output)
        asyncio.run(_delete_queue(broker.address))
        return {"send": Sample(count, facts["wall"], facts["cpu"])}

    return run


def _run(found: Mapping[str, Sequence[str]], arguments: argparse.Namespace, durability: str) -> Samples:
    count = arguments.messages
    job = [*map(str, (count, _WARM, _WINDOW, arguments.size)), durability]
    with tempfile.NamedTemporaryFile("w", suffix=".users") as file:
        file.write(f"{DEFAULT_ADMIN}:{_PASSWORD}\n")
        file.flush()
        broker = BrokerProcess("--users", file.name, "--anonymous")
        broker.address  # noqa: B018 - waits until the member has read the file
    with broker:
        contestants = {name: _contestant(command, broker, job, count) for name, command in found.items()}
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


def main() -> None:
    parser = measure.argument_parser(__doc__, messages=10_000, rounds=5, size=100)
    arguments = measure.parse_arguments(parser)
    measure.print_header("Clients", arguments)
    found, missing = commands()
    for durability, title in (("not-durable", "Not durable"), ("durable", "Durable")):
        samples = _run(found, arguments, durability)["send"]
        _print_table(f"{title}, window of {_WINDOW} messages", samples, missing)
        print()
        _print_bars(samples)


if __name__ == "__main__":
    main()
