"""The drop-in compared with the original: proton's ``Container`` and ``BlockingConnection``, and haclient's.

The same handlers and blocking calls run with proton's classes and with ``haclient.reactor`` and
``haclient.utils``, in turns against one broker. Failover is on: haclient keeps a ledger and adds a
duplicate-detection id to every message.

Bar: not slower, by wall and by processor time. Aim: 1.5 times as fast.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import measure
import peers
import proton
from measure import BrokerProcess, Sample, Stopwatch
from proton import reactor as proton_reactor
from proton import utils as proton_utils

from haclient import reactor, utils

_HEARTBEAT = 10
_PREFETCH = 500
_THEIRS, _OURS = "proton", "haclient drop-in"
_CONTAINERS: Mapping[str, Any] = {_THEIRS: proton_reactor.Container, _OURS: reactor.Container}
_BLOCKING: Mapping[str, Any] = {_THEIRS: proton_utils.BlockingConnection, _OURS: utils.BlockingConnection}


def _container(name: str, url: str, body: bytes, count: int) -> dict[str, Sample]:
    peers.Container = _CONTAINERS[name]
    return {
        "Container: send": peers.container_send(url, "container", body, count),
        "Container: receive and accept": peers.container_receive(url, "container", count, prefetch=_PREFETCH),
    }


def _blocking(name: str, url: str, body: bytes, count: int) -> dict[str, Sample]:
    connection = _BLOCKING[name](url, heartbeat=_HEARTBEAT)
    try:
        sender = connection.create_sender("blocking")
        watch = Stopwatch()
        for _ in range(count):
            sender.send(proton.Message(body=body))
        sent = watch.stop(count)
        receiver = connection.create_receiver("blocking")
        watch = Stopwatch()
        for _ in range(count):
            receiver.receive()
            receiver.accept()
        return {
            "BlockingConnection: send": sent,
            "BlockingConnection: receive and accept": watch.stop(count),
        }
    finally:
        connection.close()


def main() -> None:
    parser = measure.argument_parser(__doc__, messages=20_000, calls=2_000, rounds=5, size=100)
    arguments = measure.parse_arguments(parser)
    measure.print_header("The drop-in beside proton", arguments)
    body = b"x" * arguments.size

    def contestant(name: str) -> dict[str, Sample]:
        return _container(name, broker.url, body, arguments.messages) | _blocking(
            name, broker.url, body, arguments.calls
        )

    with BrokerProcess() as broker:
        samples = measure.interleave(
            {name: lambda name=name: contestant(name) for name in (_THEIRS, _OURS)}, arguments.rounds
        )
    for what, measured in samples.items():
        measure.print_rates(what, measured, _THEIRS)
    print()
    for what, measured in samples.items():
        ratios = [
            ours / theirs
            for ours, theirs in zip(
                measure.median_rates(measured[_OURS]), measure.median_rates(measured[_THEIRS]), strict=True
            )
        ]
        for ratio, by in zip(ratios, ("wall", "cpu"), strict=True):
            measure.print_bar(f"{what}, {by}", ratio, 1.0, at_least=True)


if __name__ == "__main__":
    main()
