"""The cost of committed delivery: a pair with stores, and queues that deliver when safe or at once.

One client sends and another receives and accepts, on the same machine. The queues take turns with two loads.
The first is a burst, whose rate counts from the first send to the last accept. The second is single messages,
each sent when the previous one was settled. Their latency is measured from the send to the consumer, and to
the producer's outcome. The consumer of the early queue receives a message before its producer knows that it
is safe. After a failover it may receive the message again.
"""

from __future__ import annotations

import asyncio
import logging
import statistics
import time
from collections.abc import Callable

import measure
import proton

import haclient
from broker_stub.local_cluster.supervisor import LocalCluster, LocalClusterOptions, MemberState
from broker_stub.queueing.options import DELIVER, Deliver
from haclient import aio

_PATIENCE = 120.0


def _delivers(when: Deliver) -> Callable[[proton.Sender], None]:
    def configure(link: proton.Sender) -> None:
        link.target.properties.put_dict({proton.symbol(DELIVER): str(when)})

    return configure


class Ends:
    """A producer and a consumer of one queue."""

    def __init__(self, sender: aio.Sender, receiver: aio.Receiver) -> None:
        self._sender = sender
        self._receiver = receiver

    async def _take(self, count: int) -> None:
        for _ in range(count):
            await (await self._receiver.receive(timeout=_PATIENCE)).accept()

    async def rate(self, body: bytes, count: int) -> float:
        """Return messages per second, from the first send to the last accept."""
        began = time.perf_counter()
        taking = asyncio.create_task(self._take(count))
        for _ in range(count):
            await self._sender.submit(haclient.Message(body=body, durable=True))
        await taking
        await self._sender.flush()
        return count / (time.perf_counter() - began)

    async def latencies(self, body: bytes, count: int) -> tuple[list[float], list[float]]:
        """Return the seconds from each send to the consumer, and to the outcome."""
        received, settled = list[float](), list[float]()
        for _ in range(count):
            began = time.perf_counter()
            taking = asyncio.create_task(self._receiver.receive(timeout=_PATIENCE))
            taking.add_done_callback(lambda _, began=began: received.append(time.perf_counter() - began))
            await self._sender.send(haclient.Message(body=body, durable=True))
            settled.append(time.perf_counter() - began)
            await (await taking).accept()
        return received, settled


async def run(messages: int, singles: int, rounds: int, size: int) -> None:
    """Let both queues take turns on one pair, and print the results."""
    body = b"x" * size
    rates: dict[Deliver, list[float]] = {when: [] for when in Deliver}
    rows: dict[str, list[float]] = {}
    async with (
        LocalCluster(LocalClusterOptions()) as pair,
        aio.connect(pair.url) as sending,
        aio.connect(pair.url) as receiving,
    ):
        await pair.wait_until(lambda _: any(each.state is MemberState.READY for each in pair.members), 60)
        ends = {
            when: Ends(
                await sending.create_sender(str(when), configure=_delivers(when)),
                await receiving.create_receiver(str(when), credit=1000),
            )
            for when in Deliver
        }
        for number in range(rounds + 1):
            for when in tuple(Deliver) if number % 2 else tuple(reversed(Deliver)):
                rate = await ends[when].rate(body, messages)
                received, settled = await ends[when].latencies(body, singles)
                if number:  # the first round is warm-up
                    rates[when].append(rate)
                    rows.setdefault(f"{when}: to the consumer", []).extend(received)
                    rows.setdefault(f"{when}: to the outcome", []).extend(settled)
    print()
    for when in Deliver:
        print(f"  {when:<12}{statistics.median(rates[when]):>8,.0f} messages/s, sent, received and accepted")
    ratios = [new / old for new, old in zip(rates[Deliver.COMMITTED], rates[Deliver.EARLY], strict=True)]
    print(f"  committed/early, median of the rounds: {statistics.median(ratios):.2f}")
    measure.print_milliseconds(rows)


def main() -> None:
    parser = measure.argument_parser(__doc__, messages=5000, singles=200, rounds=10, size=100)
    arguments = measure.parse_arguments(parser)
    logging.getLogger("haclient").setLevel(logging.ERROR)
    logging.getLogger("broker_stub").setLevel(logging.ERROR)
    measure.print_header("Committed and early delivery of replicated durable messages", arguments)
    asyncio.run(run(arguments.messages, arguments.singles, arguments.rounds, arguments.size))


if __name__ == "__main__":
    main()
