"""The worker of kind ``haclient``: many connections of ``haclient.aio``, each with its own factory.

Separate factories share nothing, like so many separate applications.

Run by ``fleet``: ``python -m benchmarks.storm.worker URL --first 0 --count 1000 --address storm --seed 1``.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import random
import resource
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import islice

import haclient
from benchmarks.grid.presets import PRESETS
from benchmarks.storm.lines import Command, body, format_line, read_command
from broker_stub.cli import event_loop
from haclient import aio
from haclient.core.cluster import Shared
from haclient.errors import HaclientError
from haclient.events import AttemptStarted, Disconnected, Event, GaveUp, Reconnected
from haclient.factory.factory_core import FactoryCore
from haclient.retry.backoff import FixedDelays
from haclient.testing.seeded_backoff import random_source

# Seconds between two writes to the pipe: a write for each line would cost too much.
_FLUSH_PAUSE = 0.05
# Delays taken from a preset's endless series: more than a client waits in any storm.
_DELAYS = 1_000


class Reporter:
    """Collects lines and writes them in batches."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._loop = asyncio.get_running_loop()

    def write_line(self, what: str, **facts: object) -> None:
        """Queue a line for the next flush."""
        if not self._lines:
            self._loop.call_later(_FLUSH_PAUSE, self.flush)
        self._lines.append(format_line(what, **facts))

    def flush(self) -> None:
        """Write the queued lines."""
        if self._lines:
            text = "".join(self._lines)
            self._lines.clear()
            sys.stdout.write(text)
            sys.stdout.flush()


class _CoreWithDelays(FactoryCore):
    """A factory whose connections wait fixed delays, as connections of the drop-in do."""

    def __init__(self, url: str, delays: FixedDelays) -> None:
        super().__init__(url)
        self._delays = delays

    def _share(self) -> Shared:
        return replace(super()._share(), fixed_delays=self._delays)


class _FactoryWithDelays(aio.ConnectionFactory):
    __slots__ = ()

    def __init__(self, url: str, rng: random.Random, preset: str) -> None:
        delays = FixedDelays(tuple(islice(PRESETS[preset].series(rng, 1), _DELAYS)))
        super().__init__(url)
        self._core = _CoreWithDelays(url, delays)


class Client:
    """One connection and its sender."""

    def __init__(self, number: int, arguments: argparse.Namespace, reporter: Reporter) -> None:
        self._number = number
        self._url: str = arguments.url
        self._address: str = arguments.address
        self._delays: str = arguments.delays
        self._write = partial(reporter.write_line, client=number)
        self._rng = random.Random(f"{arguments.seed}/{number}")
        self._sender: aio.Sender | None = None
        self._sent = 0
        self._connected = asyncio.Event()

    async def obey(self, command: Command) -> None:
        """Execute a command."""
        match command.do:
            case "connect":
                await self.connect(command.over)
            case "send":
                await self.send(command.count, command.over)
            case "steady":
                await self.steady(command.over)

    async def connect(self, over: float) -> None:
        """Dial at a random moment of the next ``over`` seconds, then report events until cancelled."""
        await asyncio.sleep(self._rng.uniform(0, over))
        try:
            # Events before the first connect are not published; none is missed after it.
            connection = await self._dial()
            events = connection.events()
            self._write("usable", at=time.monotonic())
            self._sender = await connection.create_sender(self._address)
        except HaclientError as error:
            self._write("gave_up", at=time.monotonic(), why=str(error)[:300])
            return
        self._connected.set()
        async for event in events:
            self._report(event)

    def _dial(self) -> aio.Opening[aio.Connection]:
        with random_source(self._rng):
            if self._delays:
                return _FactoryWithDelays(self._url, self._rng, self._delays).connect()
            return aio.connect(self._url)

    def _report(self, event: Event) -> None:
        at = event.stamp.monotonic
        match event:
            case AttemptStarted():
                self._write("attempt", at=at, to=f"{event.endpoint.host}:{event.endpoint.port}")
            case Reconnected():
                self._write("usable", at=at)
            case Disconnected():
                self._write("lost", at=at)
            case GaveUp():
                self._write("gave_up", at=at, why=event.reason)

    async def send(self, count: int, over: float) -> None:
        """Send messages one after the other at random moments."""
        await self._connected.wait()
        sender = self._sender
        assert sender is not None
        began = time.monotonic()
        for moment in sorted(self._rng.uniform(0, over) for _ in range(count)):
            await asyncio.sleep(max(0.0, began + moment - time.monotonic()))
            await self._send_one(sender)

    async def steady(self, pause: float) -> None:
        """Send for ever, with this mean pause."""
        await self._connected.wait()
        assert self._sender is not None
        while True:
            await asyncio.sleep(self._rng.uniform(0, 2 * pause))
            await self._send_one(self._sender)

    async def _send_one(self, sender: aio.Sender) -> None:
        number, self._sent = self._sent, self._sent + 1
        asked = time.monotonic()
        try:
            await sender.send(haclient.Message(body=body(self._number, number)))
        except HaclientError:
            return  # an unacknowledged message may be lost; the count shows it
        now = time.monotonic()
        self._write("settled", at=now, number=number, took=now - asked)


async def _work(arguments: argparse.Namespace) -> int:
    loop = asyncio.get_running_loop()
    reporter = Reporter()
    numbers = range(arguments.first, arguments.first + arguments.count)
    clients = [Client(number, arguments, reporter) for number in numbers]
    tasks: set[asyncio.Task[None]] = set()
    over = asyncio.Event()

    def end_of(task: asyncio.Task[None]) -> None:
        tasks.discard(task)
        if error := task.exception():
            traceback.print_exception(error)
            os._exit(1)

    def obey(command: Command) -> None:
        for client in clients:
            task = loop.create_task(client.obey(command))
            tasks.add(task)
            task.add_done_callback(end_of)

    threading.Thread(target=read_commands, args=(loop, obey, over.set), daemon=True).start()
    reporter.write_line("ready")
    await over.wait()
    reporter.flush()
    # Skip thousands of Closes: they would show nothing, and only delay the end.
    os._exit(0)


def read_commands(
    loop: asyncio.AbstractEventLoop, obey: Callable[[Command], None], end: Callable[[], object]
) -> None:
    """Hand the lines of standard input to an event loop; runs on its own thread."""
    for text in sys.stdin:
        loop.call_soon_threadsafe(obey, read_command(text))
    loop.call_soon_threadsafe(end)


def arguments_of(description: str | None) -> argparse.Namespace:
    """Parse the command-line arguments of every worker."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("url", help="a cluster URL")
    parser.add_argument("--first", type=int, default=0, help="number of the first client")
    parser.add_argument("--count", type=int, default=1, help="how many clients")
    parser.add_argument("--address", default="storm", help="the queue that they send to")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--delays", default="", help="the preset whose delays are waited")
    return parser.parse_args()


def main() -> None:
    """Run until the input ends."""
    # All clients lose their connection in the same second; a log line each is of no use.
    logging.getLogger("haclient").setLevel(logging.CRITICAL)
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    event_loop.run(_work(arguments_of(__doc__)), loop="auto")


if __name__ == "__main__":
    main()
