"""The cost of telemetry for a client: throughput, time to reconnect, and time per event.

* Pipelined sends until the last outcome, with telemetry on and off, in turns on the same broker. A working
  connection writes nothing. So in a second pair of runs, another connection of the process keeps losing its
  socket and reconnecting.
* A connection whose socket is cut, until it is connected again, on and off, in turns; the backoff is drawn as
  zero.
* One ``put`` of the recorder, and one line made of it on the writer's thread.

Overheads are medians over the rounds of the quotient within a round.

Bar: below 3 % of throughput.
"""

from __future__ import annotations

import asyncio
import logging
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

import measure
import ours
from measure import BrokerProcess, Sample, Stopwatch

from haclient import aio
from haclient.cluster_url.endpoint import Endpoint
from haclient.discovery.evidence import AttemptRecord, Failure, FailureReason
from haclient.events import AttemptFailed, Reconnected, Stamp
from haclient.telemetry import TelemetrySettings, flush
from haclient.telemetry.record import Recorder
from haclient.telemetry.redact import Redactor
from haclient.testing.seeded_backoff import random_source

_OFF, _ON = "off", "on"
_STORM_OFF, _STORM_ON = "off, reconnecting", "on, reconnecting"
_STORM_INTERVAL = 0.01


class NoDelay(random.Random):
    """Always draws the minimum, so that no backoff is ever pending."""

    def uniform(self, a: float, b: float) -> float:
        """Return the lower bound."""
        return a


async def _send(broker: BrokerProcess, body: bytes, count: int, folder: str, *, storm: bool) -> Sample:
    async with aio.connect(broker.url, telemetry=folder) as connection:
        sender = await connection.create_sender(ours.ADDRESS, durable=False)
        stormy = asyncio.create_task(_reconnect_for_ever(broker, folder)) if storm else None
        sample = await ours.send_all(sender, body, count)
        if stormy is not None:
            stormy.cancel()
            await asyncio.wait([stormy])
        return sample


async def _reconnect_for_ever(broker: BrokerProcess, folder: str) -> None:
    with random_source(NoDelay()):
        connecting = aio.connect(broker.url, telemetry=folder)
    async with connecting as connection:
        while True:
            await connection._core.cut("benchmark")
            await asyncio.sleep(_STORM_INTERVAL)


async def _reconnect(broker: BrokerProcess, count: int, folder: str) -> Sample:
    with random_source(NoDelay()):
        connecting = aio.connect(broker.url, telemetry=folder)
    async with connecting as connection:
        events = connection.events()
        watch = Stopwatch()
        for _ in range(count):
            await connection._core.cut("benchmark")
            async for event in events:
                if isinstance(event, Reconnected):
                    break
        return watch.stop(count)


def _overhead(off: list[Sample], on: list[Sample], by: Literal["wall", "cpu"]) -> float:
    """Return the additional time with telemetry, in per cent, median over the rounds."""
    quotients = (
        full.wall / bare.wall if by == "wall" else full.cpu / bare.cpu
        for bare, full in zip(off, on, strict=True)
    )
    return 100 * (statistics.median(quotients) - 1)


def _prices(folder: str, rounds: int) -> tuple[float, float]:
    """Return the microseconds of one ``put``, and of making one line."""
    count = 2000
    recorder = Recorder(TelemetrySettings(folder), Redactor(), backoff_max=10.0)
    failure = Failure(kind=FailureReason.REFUSED, detail="connection refused")
    record = AttemptRecord(
        number=1, endpoint=Endpoint("127.0.0.1", 5672), started=0.0, ended=1.0, failure=failure
    )
    events = [
        AttemptFailed(
            Stamp(
                client_id="c", connection=1, sequence=number + 1, time=time.time(), monotonic=0.0, episode=1
            ),
            record,
        )
        for number in range(count)
    ]
    puts, lines = [], []
    for _ in range(rounds):
        flush()
        began = time.perf_counter()
        for event in events:
            recorder.put(event)
        puts.append(1e6 * (time.perf_counter() - began) / count)
        flush()
        began = time.perf_counter()
        for event in events:
            list(recorder.lines(event))
        lines.append(1e6 * (time.perf_counter() - began) / count)
    return statistics.median(puts), statistics.median(lines)


def main() -> None:
    parser = measure.argument_parser(__doc__, messages=60_000, rounds=9, size=100, reconnects=100)
    arguments = measure.parse_arguments(parser)
    measure.print_header("What telemetry costs a client", arguments)
    # Every cut is a log line: do not log it here.
    logging.getLogger("haclient").setLevel(logging.ERROR)
    body, count, reconnects = b"x" * arguments.size, arguments.messages, arguments.reconnects

    with tempfile.TemporaryDirectory(prefix="bench-telemetry-") as folder, BrokerProcess() as broker:

        def sending(telemetry: str, *, storm: bool) -> Callable[[], Mapping[str, Sample]]:
            return ours.sending(lambda: _send(broker, body, count, telemetry, storm=storm), broker.url, count)

        sends = measure.interleave(
            {
                _OFF: sending("", storm=False),
                _ON: sending(folder, storm=False),
                _STORM_OFF: sending("", storm=True),
                _STORM_ON: sending(folder, storm=True),
            },
            arguments.rounds,
        )["send"]
        backs = measure.interleave(
            {
                _OFF: lambda: {"back": asyncio.run(_reconnect(broker, reconnects, ""))},
                _ON: lambda: {"back": asyncio.run(_reconnect(broker, reconnects, folder))},
            },
            arguments.rounds,
        )["back"]
        put, line = _prices(folder, arguments.rounds)
        flush()
        written = sum(path.stat().st_size for path in Path(folder).iterdir())
    measure.print_rates("Sending, pipelined, until the last outcome", sends, _OFF)
    measure.print_rates("Cut, connected again", backs, _OFF, unit="times")
    off, on = (1e3 * statistics.median(s.wall / s.count for s in backs[name]) for name in (_OFF, _ON))
    print(f"\none reconnect takes {off:.3f} ms without telemetry, {on:.3f} ms with it")
    print(
        f"one put takes {put:.2f} us, one line is made in {line:.2f} us beside it; {written:,} bytes written"
    )
    for by in ("wall", "cpu"):
        measure.print_bar(
            f"throughput, {by}", _overhead(sends[_OFF], sends[_ON], by), 3, at_least=False, unit=" %"
        )
        slower = _overhead(sends[_STORM_OFF], sends[_STORM_ON], by)
        print(f"beside a connection that reconnects for ever, {by}: {slower:.1f} %")
        print(f"reconnect, {by}: {_overhead(backs[_OFF], backs[_ON], by):.1f} %")


if __name__ == "__main__":
    main()
