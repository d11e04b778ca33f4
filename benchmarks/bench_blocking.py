"""Blocking send-and-settle, one message at a time, compared with proton's BlockingConnection.

Both heartbeat every ten seconds. proton heartbeats only during its own calls. haclient uses its own thread,
and pays for each message with two hops between threads.

Bar: not slower, by wall and by processor time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import measure
import proton
from measure import BrokerProcess, Sample, Stopwatch
from proton.utils import BlockingConnection

import haclient

_ADDRESS = "bench"
_HEARTBEAT = 10
_PEER = "proton BlockingConnection"
_OURS = "haclient blocking"


def _timed(send: Callable[[proton.Message], object], body: bytes, count: int) -> tuple[Sample, list[float]]:
    """Send ``count`` messages; return the sample and each latency in seconds."""
    clock, latencies = time.perf_counter, []
    watch = Stopwatch()
    for _ in range(count):
        began = clock()
        send(proton.Message(body=body))
        latencies.append(clock() - began)
    return watch.stop(count), latencies


def _ours(url: str, body: bytes, count: int) -> tuple[Sample, list[float]]:
    with haclient.connect(url, heartbeat=_HEARTBEAT) as connection:
        sender = connection.create_sender(_ADDRESS, durable=False)
        return _timed(sender.send, body, count)


def _theirs(url: str, body: bytes, count: int) -> tuple[Sample, list[float]]:
    connection = BlockingConnection(url, heartbeat=_HEARTBEAT)
    try:
        sender = connection.create_sender(_ADDRESS)
        return _timed(sender.send, body, count)
    finally:
        connection.close()


def main() -> None:
    parser = measure.argument_parser(__doc__, messages=2_000, rounds=7, size=100)
    arguments = measure.parse_arguments(parser)
    measure.print_header("Blocking send-and-settle, one at a time", arguments)
    body = b"x" * arguments.size
    latencies: dict[str, list[float]] = {}

    def contestant(name: str, send: Callable[..., tuple[Sample, list[float]]]) -> Mapping[str, Sample]:
        sample, measured = send(broker.url, body, arguments.messages)
        latencies.setdefault(name, []).extend(measured)
        return {"send": sample}

    with BrokerProcess() as broker:
        samples = measure.interleave(
            {_PEER: lambda: contestant(_PEER, _theirs), _OURS: lambda: contestant(_OURS, _ours)},
            arguments.rounds,
        )["send"]
    measure.print_rates("Blocking send, one at a time", samples, _PEER)
    print(f"\n  {'':<26}{'p50 us':>10}{'p99 us':>10}")
    for name, measured in latencies.items():
        low, high = (measure.percentile(measured, percent) * 1e6 for percent in (50, 99))
        print(f"  {name:<26}{low:>10.0f}{high:>10.0f}")
    print()
    (peer_wall, peer_cpu), (wall, cpu) = (measure.median_rates(samples[name]) for name in (_PEER, _OURS))
    measure.print_bar("blocking send / BlockingConnection, wall", wall / peer_wall, 1.0, at_least=True)
    measure.print_bar("blocking send / BlockingConnection, cpu", cpu / peer_cpu, 1.0, at_least=True)


if __name__ == "__main__":
    main()
