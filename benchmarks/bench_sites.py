"""The cost of a second site, and its lag.

Two pairs with stores run on this machine. The link between them goes through a proxy that delays bytes by
``--delay`` milliseconds in each direction. One client sends to three queues of the source in turn, pipelined,
every outcome awaited:

* ``plain``, which is not replicated to another site;
* ``enqueues`` and ``all``, which the second pair follows through the link.

Before each turn the link has caught up. The lag is then measured at 80 % of the rate of ``enqueues``: the
source is asked for it ten times a second. Five processes share the machine, so on two cores the rates measure
the processor rather than the design. The ratio is from the same run.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
from collections.abc import AsyncIterator

import measure
from measure import Sample, Stopwatch

import haclient
from broker_stub.amqp.node_names import EXCHANGE_TYPE, QUEUE_TYPE
from broker_stub.local_cluster.supervisor import LocalCluster, LocalClusterOptions
from broker_stub.management_client import AdminClient
from broker_stub.queueing.site_state import SITE_PROPERTY, SiteMode
from broker_stub.sites.source_config import FROM, PASSWORD_FILE
from haclient import aio

_QUEUES = {"plain": SiteMode.NONE, "enqueues": SiteMode.ENQUEUES, "all": SiteMode.ALL}
_LOOK = 0.1
_SHARE = 0.8
_STRAIGHT = "redirects=none&pushed_members=ignore"


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: float) -> None:
    """Forward bytes, delayed by ``delay`` seconds."""
    loop = asyncio.get_running_loop()
    while data := await reader.read(1 << 16):
        loop.call_later(delay, writer.write, data)
    loop.call_later(delay, writer.close)


@contextlib.asynccontextmanager
async def _delayed(host: str, port: int, delay: float) -> AsyncIterator[str]:
    """Run a proxy to a member; yield its ``host:port``."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection(host, port)
        await asyncio.gather(_pass_on(reader, there[1], delay), _pass_on(there[0], writer, delay))

    server = await asyncio.start_server(serve, "127.0.0.1")
    async with server:
        own_host, own_port = server.sockets[0].getsockname()
        yield f"{own_host}:{own_port}"


@contextlib.asynccontextmanager
async def _two_sites(delay: float) -> AsyncIterator[tuple[LocalCluster, AdminClient]]:
    """Run a source with its queues and a site that follows it; yield the source and its management."""
    async with (
        LocalCluster(LocalClusterOptions()) as source,
        LocalCluster(
            LocalClusterOptions(serve_arguments=("--link-passwords", str(source.directory)))
        ) as other,
    ):
        assert source.primary is not None
        assert other.primary is not None
        where = source.primary.address
        async with (
            _delayed(where.host, where.port, delay) as route,
            await AdminClient.connect(where, source.credentials) as admin,
            await AdminClient.connect(other.primary.address, other.credentials) as follower,
        ):
            for name, mode in _QUEUES.items():
                await admin.create(QUEUE_TYPE, name, **{SITE_PROPERTY: str(mode)})
            url = f"amqp://{source.credentials.user}@{route}/?{_STRAIGHT}"
            options = {FROM: url, PASSWORD_FILE: str(source.password_file)}
            await follower.create(EXCHANGE_TYPE, "from-a", type="replication", **options)
            yield source, admin


async def _lag(admin: AdminClient) -> tuple[int, float]:
    """Return the lag in events and in seconds."""
    source = (await admin.status()).facts["site"]["source"]
    return source["lag_events"], source["lag_seconds"]


async def _caught_up(admin: AdminClient) -> None:
    while (await _lag(admin))[0]:  # noqa: ASYNC110 - another process can only be asked
        await asyncio.sleep(_LOOK)


async def _send(connection: aio.Connection, queue: str, body: bytes, count: int) -> Sample:
    sender = await connection.create_sender(queue)
    watch = Stopwatch()
    for _ in range(count):
        await sender.submit(haclient.Message(body=body, durable=True))
    await sender.flush()
    sample = watch.stop(count)
    await sender.close()
    receiver = await connection.create_receiver(queue, credit=1000)
    for _ in range(count):
        await (await receiver.receive(timeout=30)).accept()
    await receiver.close()
    return sample


async def _lags(
    connection: aio.Connection, admin: AdminClient, body: bytes, rate: float, count: int
) -> list[tuple[int, float]]:
    """Return the lags while messages are sent at a steady rate."""
    found: list[tuple[int, float]] = []

    async def look() -> None:
        while True:
            await asyncio.sleep(_LOOK)
            found.append(await _lag(admin))

    looking = asyncio.create_task(look())
    sender = await connection.create_sender("enqueues")
    loop = asyncio.get_running_loop()
    began = loop.time()
    for number in range(count):
        ahead = began + number / rate - loop.time()
        if ahead > 0:
            await asyncio.sleep(ahead)
        await sender.submit(haclient.Message(body=body, durable=True))
    await sender.flush()
    looking.cancel()
    await asyncio.wait([looking])
    return found


async def _run(body: bytes, messages: int, rounds: int, delay: float, seconds: int) -> None:
    samples: dict[str, list[Sample]] = {}
    async with _two_sites(delay) as (source, admin), aio.connect(source.url) as connection:
        for number in range(rounds + 1):
            for name in _QUEUES:
                await _caught_up(admin)
                sample = await _send(connection, name, body, messages)
                if number > 0:
                    samples.setdefault(name, []).append(sample)
        measure.print_rates("Sending, pipelined, until the last outcome", samples, "plain")
        await _caught_up(admin)
        rate = _SHARE * statistics.median(each.wall_rate for each in samples["enqueues"])
        lags = await _lags(connection, admin, body, rate, int(rate * seconds))
    _print_lags(rate, delay, lags)


def _print_lags(rate: float, delay: float, lags: list[tuple[int, float]]) -> None:
    print(f"\nLag at {rate:,.0f} messages/s, {1e3 * delay:g} ms added each way ({len(lags)} looks)")
    print(f"  {'':<10}{'median':>10}{'p95':>10}{'p99':>10}{'most':>10}")
    for name, column in (("events", [each[0] for each in lags]), ("seconds", [each[1] for each in lags])):
        shown = [measure.percentile(column, percent) for percent in (50, 95, 99, 100)]
        print(f"  {name:<10}" + "".join(f"{value:>10.4g}" for value in shown))


def main() -> None:
    parser = measure.argument_parser(__doc__, messages=20_000, rounds=5, size=100, delay=50, seconds=10)
    arguments = measure.parse_arguments(parser)
    measure.print_header("Settled sends a second with a second site, and its lag", arguments)
    rounds = max(1, arguments.rounds)
    body, delay = b"x" * arguments.size, arguments.delay / 1000
    asyncio.run(_run(body, arguments.messages, rounds, delay, arguments.seconds))


if __name__ == "__main__":
    main()
