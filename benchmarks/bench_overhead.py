"""The overhead of ledger and discovery over the bare engine.

The same pipelined load, on the same broker, one after the other:

* bare              make the ``Message``, encode it, give it to the engine, count the settles
* bare, future      the same, and one future a message, each read at the end
* bare, future, id  the same, and a duplicate-detection id in each message
* haclient.aio      the public sender: ledger, replay, window, timeouts, future, id

Overheads are medians over the rounds of the quotient within a round.  The wall time is not significant: the
broker's process is busy longer than the client's, and a slower sender waits less for it.

The ledger is compared with the third line, which does the same job for the application.  The application
uses the future and the id, and a sender on a bare engine would need both too.  The other lines are printed
for other comparisons.

Discovery costs once per connection: the time from the TCP connect to the first settled message, bare and
through a new ``haclient.aio`` connection (URL parsed, topology, search, events).

Bar: below 20 % for the ledger, by wall and by processor time.
"""

from __future__ import annotations

import asyncio
import statistics
import uuid
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Literal

import bare
import measure
import ours
import proton
from measure import BrokerProcess, Sample, Stopwatch

import haclient
from haclient import aio
from haclient.engine.codec import Encoder

_PLAIN, _FUTURE, _SAME = "bare", "bare, future", "bare, future, id"
_OURS, _OURS_NO_ID = "haclient.aio", "haclient.aio, no id"


def _encode(body: bytes, *, ids: bool) -> Callable[[int], bytes]:
    encoder = Encoder()
    if not ids:
        return lambda _: encoder.encode(proton.Message(body=body))
    stem = f"{uuid.uuid4()}-"
    return lambda number: encoder.encode(proton.Message(body=body), f"{stem}{number}")


async def _bare_send(broker: BrokerProcess, body: bytes, count: int, *, futures: bool, ids: bool) -> Sample:
    client = bare.BareClient(ours.ADDRESS)
    await client.open(*_host_and_port(broker))
    encode = _encode(body, ids=ids)
    watch = Stopwatch()
    kept = await client.send_all(count, encode, futures=futures)
    assert all(future.result().accepted for future in kept)
    sample = watch.stop(count)
    client.abort()
    return sample


async def _bare_connect(broker: BrokerProcess, count: int) -> Sample:
    encode = _encode(b"x", ids=True)
    watch = Stopwatch()
    for _ in range(count):
        client = await bare.connect_and_send(*_host_and_port(broker), ours.ADDRESS, encode)
        client.abort()
    return watch.stop(count)


async def _aio_connect(broker: BrokerProcess, count: int) -> Sample:
    # A factory that knows the cluster, as in an application and after a reconnect.
    factory = aio.ConnectionFactory(broker.url, close_timeout=0)
    watch = Stopwatch()
    for _ in range(count):
        async with factory.connect() as connection:
            sender = await connection.create_sender(ours.ADDRESS, durable=False)
            await sender.send(haclient.Message(body=b"x"))
    sample = watch.stop(count)
    await factory.close()
    return sample


def _host_and_port(broker: BrokerProcess) -> tuple[str, int]:
    host, _, port = broker.address.rpartition(":")
    return host, int(port)


def main() -> None:
    parser = measure.argument_parser(__doc__, messages=20_000, rounds=9, size=100, setups=100)
    arguments = measure.parse_arguments(parser)
    measure.print_header("What ledger and discovery add over the bare engine", arguments)
    body, count, setups = b"x" * arguments.size, arguments.messages, arguments.setups

    with BrokerProcess() as broker:

        def sending(send: Callable[[], Coroutine[Any, Any, Sample]]) -> Callable[[], Mapping[str, Sample]]:
            return ours.sending(send, broker.url, count)

        def aio_send(*, ids: bool) -> Coroutine[Any, Any, Sample]:
            return ours.connect_and_send(broker.url, body, count, duplicate_detection=ids)

        sends = measure.interleave(
            {
                _PLAIN: sending(lambda: _bare_send(broker, body, count, futures=False, ids=False)),
                _FUTURE: sending(lambda: _bare_send(broker, body, count, futures=True, ids=False)),
                _SAME: sending(lambda: _bare_send(broker, body, count, futures=True, ids=True)),
                _OURS_NO_ID: sending(lambda: aio_send(ids=False)),
                _OURS: sending(lambda: aio_send(ids=True)),
            },
            arguments.rounds,
        )["send"]
        connects = measure.interleave(
            {
                _PLAIN: lambda: {"connect": asyncio.run(_bare_connect(broker, setups))},
                _OURS: lambda: {"connect": asyncio.run(_aio_connect(broker, setups))},
            },
            arguments.rounds,
        )["connect"]
    measure.print_rates("Sending, pipelined, until the last outcome", sends, _SAME)
    measure.print_rates("Connect, attach, send, settle, drop", connects, _PLAIN, unit="times")
    print(f"\n  microseconds a message   {'wall':>8}{'cpu':>8}")
    for name, samples in sends.items():
        wall, cpu = (1e6 / rate for rate in measure.median_rates(samples))
        print(f"  {name:<24}{wall:>9.2f}{cpu:>8.2f}")
    print()
    aio_sends = sends[_OURS]
    kinds: tuple[Literal["wall", "cpu"], ...] = ("wall", "cpu")
    for by in kinds:
        for peer in (_PLAIN, _FUTURE):
            print(f"haclient.aio over {peer!r}, {by}: {_overhead(sends[peer], aio_sends, by):.1f} %")
        added = _overhead(sends[_SAME], aio_sends, by)
        measure.print_bar(f"ledger over {_SAME!r}, {by}", added, 20, at_least=False, unit=" %")
    base, full = (
        1e3 * statistics.median(sample.wall / sample.count for sample in connects[name])
        for name in (_PLAIN, _OURS)
    )
    print(f"discovery adds {full - base:.2f} ms to a set-up of {base:.2f} ms")


def _overhead(base: list[Sample], ours: list[Sample], by: Literal["wall", "cpu"]) -> float:
    """Return the additional time per message over ``base``, in per cent, median over the rounds."""
    quotients = (
        our.wall / their.wall if by == "wall" else our.cpu / their.cpu
        for their, our in zip(base, ours, strict=True)
    )
    return 100 * (statistics.median(quotients) - 1)


if __name__ == "__main__":
    main()
