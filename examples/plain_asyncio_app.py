"""One factory with two connections, pipelined sends, and the events of both connections.

    python examples/plain_asyncio_app.py [URL]

A producer sends a number every tenth of a second without waiting for its outcome; a consumer receives
them.  Kill the primary meanwhile and watch the events.  Ctrl-C ends the program.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import sys

from haclient import Outcome, aio, events


async def produce(connection: aio.Connection) -> None:
    sender = await connection.create_sender("numbers")
    for number in itertools.count(1):
        # Waits only if the window is full: during an outage after 1000 messages, or ``?window=``.
        settled = await sender.submit(number)
        settled.add_done_callback(functools.partial(on_settled, number))
        await asyncio.sleep(0.1)


def on_settled(number: int, settled: asyncio.Future[Outcome]) -> None:
    if not settled.cancelled():
        print(f"sent {number}: {settled.exception() or 'accepted'}", flush=True)


async def consume(connection: aio.Connection) -> None:
    async with await connection.create_receiver("numbers") as receiver:
        async for delivery in receiver:
            async with delivery:
                print(f"received {delivery.body!r}", flush=True)


async def watch(name: str, connection: aio.Connection) -> None:
    async for event in connection.events():
        match event:
            case events.Disconnected():
                print(f"{name}: lost {event.endpoint}, {event.unsettled} unsettled", flush=True)
            case events.AttemptFailed(record=record):
                print(f"{name}: {record.endpoint}: {record.failure.kind.value}", flush=True)
            case events.BackingOff():
                print(f"{name}: no primary, next round in {event.delay:.2f} s", flush=True)
            case events.Reconnected():
                print(f"{name}: back at {event.endpoint} after {event.duration:.2f} s", flush=True)


async def main(url: str) -> None:
    # Both connections share their knowledge of the cluster.
    async with (
        aio.ConnectionFactory(url) as factory,
        factory.connect() as producer,
        factory.connect() as consumer,
        asyncio.TaskGroup() as tasks,
    ):
        tasks.create_task(watch("producer", producer))
        tasks.create_task(watch("consumer", consumer))
        tasks.create_task(consume(consumer))
        tasks.create_task(produce(producer))


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "amqp://127.0.0.1:5672"))
