"""Pipelined throughput of small messages, compared with proton's Container on the same broker.

Both sides include everything: making the ``Message``, encoding it, sending it, reading its outcome. haclient
adds features that a Container lacks: a ledger for replay, a duplicate-detection id in every message, and one
future per message, each read at the end.

Bar: 1.2 times the Container by wall and by processor time. Aim: 2 times.
"""

from __future__ import annotations

import asyncio
import cProfile
import pstats
from collections.abc import Callable, Mapping

import measure
import ours
import peers
from measure import BrokerProcess, Sample, Stopwatch

import haclient
from haclient import aio

_CREDIT = 1000
_PEER = "proton Container"


async def _aio_receive(url: str, count: int) -> Sample:
    async with aio.connect(url) as connection:
        watch = Stopwatch()
        receiver = await connection.create_receiver(ours.ADDRESS, credit=_CREDIT)
        for _ in range(count):
            delivery = await receiver.receive()
            assert delivery.message.body is not None
            await delivery.accept()
        return watch.stop(count)


def _blocking_send(url: str, body: bytes, count: int) -> Sample:
    with haclient.connect(url) as connection:
        sender = connection.create_sender(ours.ADDRESS, durable=False)
        watch = Stopwatch()
        futures = [sender.submit(haclient.Message(body=body)) for _ in range(count)]
        sender.flush()
        assert all(future.result().accepted for future in futures)
        return watch.stop(count)


def _blocking_receive(url: str, count: int) -> Sample:
    with haclient.connect(url) as connection:
        watch = Stopwatch()
        receiver = connection.create_receiver(ours.ADDRESS, credit=_CREDIT)
        for _ in range(count):
            delivery = receiver.receive()
            assert delivery.message.body is not None
            delivery.accept()
        return watch.stop(count)


def contestants(url: str, body: bytes, count: int) -> dict[str, Callable[[], Mapping[str, Sample]]]:
    """Return the contestants; each sends all messages, then receives them, to empty the queue."""

    def container() -> Mapping[str, Sample]:
        return {
            "send": peers.container_send(url, ours.ADDRESS, body, count),
            "receive": peers.container_receive(url, ours.ADDRESS, count, prefetch=_CREDIT),
        }

    def on_loop(name: str) -> Callable[[], Mapping[str, Sample]]:
        def run() -> Mapping[str, Sample]:
            with asyncio.Runner(loop_factory=measure.loop_factory(name)) as runner:
                return {
                    "send": runner.run(ours.connect_and_send(url, body, count)),
                    "receive": runner.run(_aio_receive(url, count)),
                }

        return run

    def blocking() -> Mapping[str, Sample]:
        return {"send": _blocking_send(url, body, count), "receive": _blocking_receive(url, count)}

    loops = ["asyncio", "uvloop"] if measure.has_uvloop() else ["asyncio"]
    apis = {f"haclient.aio {name}": on_loop(name) for name in loops}
    return {_PEER: container, **apis, "haclient blocking": blocking}


def profile(url: str, body: bytes, count: int, top: int = 25) -> None:
    """Print the functions in which the asyncio client spends most time of their own."""
    profiler = cProfile.Profile()
    profiler.enable()
    asyncio.run(ours.connect_and_send(url, body, count))
    profiler.disable()
    print(f"\nhaclient.aio sending, own time of the first {top} functions (the profiler adds to each call):")
    pstats.Stats(profiler).strip_dirs().sort_stats("tottime").print_stats(top)
    asyncio.run(_aio_receive(url, count))


def main() -> None:
    parser = measure.argument_parser(__doc__, messages=20_000, rounds=5, size=100)
    parser.add_argument("--profile", action="store_true", help="print where the time goes, and no ratios")
    arguments = measure.parse_arguments(parser)
    measure.print_header("Pipelined throughput", arguments)
    body = b"x" * arguments.size
    with BrokerProcess() as broker:
        if arguments.profile:
            profile(broker.url, body, arguments.messages)
            return
        samples = measure.interleave(
            contestants(broker.url, body, arguments.messages), max(1, arguments.rounds)
        )
    measure.print_rates("Sending, pipelined, until the last outcome", samples["send"], _PEER)
    measure.print_rates("Receiving and accepting (informative)", samples["receive"], _PEER)
    print()
    peer_wall, peer_cpu = measure.median_rates(samples["send"][_PEER])
    for name in ("haclient.aio asyncio", "haclient blocking"):
        wall, cpu = measure.median_rates(samples["send"][name])
        measure.print_bar(f"{name} / Container, wall", wall / peer_wall, 1.2, at_least=True)
        measure.print_bar(f"{name} / Container, cpu", cpu / peer_cpu, 1.2, at_least=True)


if __name__ == "__main__":
    main()
