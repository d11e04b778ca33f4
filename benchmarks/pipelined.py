"""Sends pipelined with one of the Python clients and prints the times, for bench_clients.py.

    python pipelined.py CLIENT HOST:PORT ADDRESS COUNT WARM WINDOW SIZE durable|not-durable

WARM messages go first and are not counted.  At most WINDOW messages have no outcome.  The output is one line
of JSON: wall-clock seconds and processor seconds, all threads.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace

import proton
from measure import Sample, Stopwatch
from proton.handlers import MessagingHandler
from proton.reactor import Container

import haclient
from haclient import aio


@dataclass(frozen=True, slots=True)
class Job:
    """The messages to send, and their destination."""

    member: str
    address: str
    count: int
    warm: int
    window: int
    body: bytes
    durable: bool
    duplicate_detection: bool = True

    @property
    def url(self) -> str:
        """The member's URL with the window, for haclient."""
        ids = str(self.duplicate_detection).lower()
        return f"amqp://{self.member}?window={self.window}&duplicate_detection={ids}"


async def _submit(job: Job) -> Sample:
    async def send_all(count: int) -> Sample:
        watch = Stopwatch()
        futures = [await sender.submit(job.body) for _ in range(count)]
        await sender.flush()
        assert all(future.result().accepted for future in futures)
        return watch.stop(count)

    async with aio.connect(job.url) as connection:
        sender = await connection.create_sender(job.address, durable=job.durable)
        await send_all(job.warm)
        return await send_all(job.count)


def _blocking(job: Job) -> Sample:
    def send_all(count: int) -> Sample:
        watch = Stopwatch()
        futures = [sender.submit(job.body) for _ in range(count)]
        sender.flush()
        assert all(future.result().accepted for future in futures)
        return watch.stop(count)

    with haclient.connect(job.url) as connection:
        sender = connection.create_sender(job.address, durable=job.durable)
        send_all(job.warm)
        return send_all(job.count)


async def _send_many(job: Job) -> Sample:
    async def send_all(count: int) -> Sample:
        watch = Stopwatch()
        outcomes = await sender.send_many(job.body for _ in range(count))
        assert len(outcomes) == count
        return watch.stop(count)

    async with aio.connect(job.url) as connection:
        sender = await connection.create_sender(job.address, durable=job.durable)
        await send_all(job.warm)
        return await send_all(job.count)


def _blocking_send_many(job: Job) -> Sample:
    def send_all(count: int) -> Sample:
        watch = Stopwatch()
        outcomes = sender.send_many(job.body for _ in range(count))
        assert len(outcomes) == count
        return watch.stop(count)

    with haclient.connect(job.url) as connection:
        sender = connection.create_sender(job.address, durable=job.durable)
        send_all(job.warm)
        return send_all(job.count)


class _Sending(MessagingHandler):
    """proton's own client: sends whenever credit and window allow."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        self._job = job
        self._goal = job.warm
        self._sent = self._settled = 0
        self._watch = Stopwatch()
        self.sample: Sample | None = None

    def on_start(self, event: proton.Event) -> None:
        """Open connection and link."""
        event.container.create_sender(f"amqp://{self._job.member}/{self._job.address}")

    def on_sendable(self, event: proton.Event) -> None:
        """Send as many messages as credit and window allow."""
        self._fill(event.sender)

    def on_accepted(self, event: proton.Event) -> None:
        """Count an accepted message; the last warm-up message starts the watch, the last of all stops it."""
        self._settled += 1
        if self._settled == self._goal:
            if self._settled > self._job.warm:
                self.sample = self._watch.stop(self._job.count)
                event.connection.close()
                return
            self._goal += self._job.count
            self._watch = Stopwatch()
        self._fill(event.sender)

    def _fill(self, sender: proton.Sender) -> None:
        goal, last = self._goal, self._settled + self._job.window
        while self._sent < goal and self._sent < last and sender.credit:
            sender.send(proton.Message(body=self._job.body, durable=self._job.durable))
            self._sent += 1


def _proton(job: Job) -> Sample:
    handler = _Sending(job)
    Container(handler).run()
    assert handler.sample is not None, "the container ended early"
    return handler.sample


CLIENTS: dict[str, Callable[[Job], Sample]] = {
    "proton": _proton,
    "submit": lambda job: asyncio.run(_submit(job)),
    "submit_without_ids": lambda job: asyncio.run(_submit(replace(job, duplicate_detection=False))),
    "send_many": lambda job: asyncio.run(_send_many(job)),
    "blocking": _blocking,
    "blocking_send_many": _blocking_send_many,
}


def main() -> None:
    client, member, address, count, warm, window, size, durable = sys.argv[1:]
    job = Job(member, address, int(count), int(warm), int(window), b"x" * int(size), durable == "durable")
    sample = CLIENTS[client](job)
    print(json.dumps({"wall": sample.wall, "cpu": sample.cpu}))


if __name__ == "__main__":
    main()
