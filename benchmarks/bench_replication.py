"""The cost of losing nothing: settled sends per second, replicated and durable, and with weaker guarantees.

One client (``haclient.aio``, pipelined, every outcome awaited) takes turns with

* one member alone, in memory: a message is settled when it is in the queue;
* a pair in memory: settled when the backup has it too;
* a pair with stores: settled when both have committed it to disk (SQLite, WAL, ``synchronous=FULL``);
* RabbitMQ, one node, a durable queue and durable messages, if it is installed.

All members, both stores and the client share the machine. With two cores a pair in memory cannot exceed about
half the rate of one member. Receiving everything again, to empty the queue, is not counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import measure
from measure import BrokerProcess, Sample, Stopwatch

import haclient
from broker_stub.local_cluster.supervisor import LocalCluster, LocalClusterOptions
from haclient import aio
from tests.interop import rabbitmq

_ALONE = "alone, in memory"
_PAIR_IN_MEMORY = "pair, in memory"
_PAIR = "pair, durable"
_RABBITMQ = "RabbitMQ, one node, durable"


@dataclass(frozen=True, slots=True)
class Contestant:
    """The destination of the sends."""

    url: str
    address: str = "bench"
    configure: Callable[[Any], None] | None = None


async def _send(contestant: Contestant, body: bytes, count: int) -> Sample:
    async with aio.connect(contestant.url) as connection:
        sender = await connection.create_sender(contestant.address, configure=contestant.configure)
        watch = Stopwatch()
        futures = [await sender.submit(haclient.Message(body=body, durable=True)) for _ in range(count)]
        await sender.flush()
        assert all(future.result().accepted for future in futures)
        sample = watch.stop(count)
        receiver = await connection.create_receiver(
            contestant.address, credit=1000, configure=contestant.configure
        )
        for _ in range(count):
            await (await receiver.receive(timeout=30)).accept()
        return sample


async def _latency(contestant: Contestant, body: bytes, count: int) -> list[float]:
    """Return the seconds of each of ``count`` sends, one at a time."""
    seconds = []
    loop = asyncio.get_running_loop()
    async with aio.connect(contestant.url) as connection:
        sender = await connection.create_sender(contestant.address, configure=contestant.configure)
        for _ in range(count):
            began = loop.time()
            await sender.send(haclient.Message(body=body, durable=True))
            seconds.append(loop.time() - began)
        receiver = await connection.create_receiver(
            contestant.address, credit=1000, configure=contestant.configure
        )
        for _ in range(count):
            await (await receiver.receive(timeout=30)).accept()
    return seconds


@contextlib.asynccontextmanager
async def _contestants() -> AsyncIterator[Mapping[str, Contestant]]:
    async with contextlib.AsyncExitStack() as stack:
        alone = stack.enter_context(BrokerProcess())
        in_memory = await stack.enter_async_context(LocalCluster(LocalClusterOptions(memory=True)))
        durable = await stack.enter_async_context(LocalCluster(LocalClusterOptions()))
        found = {
            _ALONE: Contestant(alone.url),
            _PAIR_IN_MEMORY: Contestant(in_memory.url),
            _PAIR: Contestant(durable.url),
        }
        if rabbitmq.installed():
            node = rabbitmq.RabbitMQ()
            stack.callback(node.stop)
            await asyncio.to_thread(node.start)
            found[_RABBITMQ] = Contestant(node.url, "/queue/bench", rabbitmq.durable)
        else:
            print("RabbitMQ is not installed: apt-get install rabbitmq-server")
        yield found


async def _run(
    body: bytes, messages: int, rounds: int
) -> tuple[dict[str, list[Sample]], dict[str, list[float]]]:
    samples: dict[str, list[Sample]] = {}
    latencies: dict[str, list[float]] = {}
    async with _contestants() as contestants:
        for number in range(rounds + 1):
            for name, contestant in contestants.items():
                sample = await _send(contestant, body, messages)
                seconds = await _latency(contestant, body, max(20, messages // 100))
                if number > 0:
                    samples.setdefault(name, []).append(sample)
                    latencies.setdefault(name, []).extend(seconds)
    return samples, latencies


def main() -> None:
    parser = measure.argument_parser(__doc__, messages=20_000, rounds=5, size=100)
    arguments = measure.parse_arguments(parser)
    measure.print_header("Settled sends a second: what losing nothing costs", arguments)
    samples, latencies = asyncio.run(
        _run(b"x" * arguments.size, arguments.messages, max(1, arguments.rounds))
    )
    measure.print_rates("Sending, pipelined, until the last outcome", samples, _ALONE)
    print("\nOne at a time, milliseconds until settled")
    print(f"  {'':<32}{'median':>8}{'p99':>8}")
    for name, seconds in latencies.items():
        p99 = measure.percentile(seconds, 99)
        print(f"  {name:<32}{1e3 * statistics.median(seconds):>8.2f}{1e3 * p99:>8.2f}")


if __name__ == "__main__":
    main()
