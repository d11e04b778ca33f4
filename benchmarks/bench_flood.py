"""A flood of bad connections, and a hundred good clients that arrive during it.

    python benchmarks/bench_flood.py [--bad 5000] [--good 100]

The bad connections are of three kinds, a third each: half-open ones send nothing, slow ones send a handshake
of one byte a second, garbage ones send noise and reconnect when cut.  They run in their own process.
The good clients connect, attach, send one message and wait until it is settled.  The benchmark prints their
times without and with the flood, and the memory of the member before, at its peak, and after.

    python benchmarks/bench_flood.py --storm 1500

Connected clients, while many newcomers arrive at once.  Twenty clients repeatedly send a message and wait
until it is settled; the benchmark prints their times before and during the storm.  The newcomers run in
their own process, retry after the given delay, and stay connected.  With ``--pair`` the member is the
primary of a pair with stores, and each message is on both disks before it is settled.

    python benchmarks/bench_flood.py --cost

The member's processor time for a refusal, a connection setup and a parked client, anonymous and with a
password (SCRAM-SHA-256).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import multiprocessing
import os
import random
import resource
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import proton
import psutil
from measure import percentile, print_bar, print_header

from broker_stub.admission.user_file import write_users
from broker_stub.local_cluster.member_process import MemberProcess, free_addresses
from broker_stub.local_cluster.supervisor import LocalCluster, LocalClusterOptions
from haclient.cluster_url.endpoint import Endpoint
from haclient.engine.owner import CloseReason
from haclient.engine.protocol import Engine
from haclient.engine.settings import Settings

_SASL_HEADER = b"AMQP\x03\x01\x00\x00"
_USER, _PASSWORD = "alice", "wonder"
_TIMEOUT = 60.0
# Newcomers simulate other machines: they yield the processor to the member and the connected clients.
_NICE = 10
# Seconds between two messages of a connected client, and seconds of measuring before the storm.
_PAUSE = 0.01
_BEFORE = 4.0


# -- the member -------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def member(*arguments: str) -> AsyncIterator[tuple[Endpoint, psutil.Process]]:
    with tempfile.TemporaryDirectory(prefix="bench-flood-") as scratch:
        directory = Path(scratch)
        if "--users" in arguments:
            write_users(directory / "users", {_USER: _PASSWORD})
            arguments = tuple(str(directory / "users") if each == "USERS" else each for each in arguments)
        [address] = free_addresses((Endpoint("127.0.0.1", 0),))
        common = ("--listen", address.authority, "--role", "primary", "--log-level", "error")
        process = MemberProcess((*common, *arguments), directory / "log")
        await process.start()
        try:
            yield address, psutil.Process(process.pid)
        finally:
            await process.stop()


def mebibytes(process: psutil.Process) -> float:
    return float(process.memory_info().rss / 2**20)


@contextlib.asynccontextmanager
async def pair(*arguments: str) -> AsyncIterator[tuple[Endpoint, psutil.Process]]:
    """Yield the primary of a pair with its default stores."""
    with tempfile.TemporaryDirectory(prefix="bench-flood-") as scratch:
        if "--users" in arguments:
            write_users(Path(scratch) / "users", {_USER: _PASSWORD})
            arguments = tuple(f"{scratch}/users" if each == "USERS" else each for each in arguments)
        options = LocalClusterOptions(serve_arguments=("--log-level", "error", *arguments), restart=False)
        async with LocalCluster(options) as both:
            await both.wait_ready(_TIMEOUT)
            primary = both.primary
            assert primary is not None
            assert primary.pid is not None
            yield primary.address, psutil.Process(primary.pid)


# -- the good clients -------------------------------------------------------------------------------


class Good:
    """One client: Open, Begin, Attach, one message."""

    def __init__(self, name: str) -> None:
        loop = asyncio.get_running_loop()
        self.name = name
        self.began = loop.time()
        self.done: asyncio.Future[float] = loop.create_future()
        self.retry_after: float | None = None
        self.engine: Engine | None = None

    async def come(self, address: Endpoint, *, sends: bool = True, **settings: Any) -> Good:
        """Dial, and send Open and Begin."""
        self._sends = sends
        loop = asyncio.get_running_loop()
        made = Settings(container_id=self.name, **settings)
        async with asyncio.timeout(_TIMEOUT):
            _, self.engine = await loop.create_connection(
                lambda: Engine(self, made, loop), address.host, address.port
            )
        self.engine.open()
        self.engine.begin()
        return self

    def _finish(self) -> None:
        if not self.done.done():
            self.done.set_result(asyncio.get_running_loop().time() - self.began)

    def opened(self, engine: Engine) -> None:
        """Finish if the client was parked."""
        if "haclient:park" in map(str, engine.connection.remote_offered_capabilities or ()):
            self._finish()

    def session_opened(self, engine: Engine, session: proton.Session) -> None:
        """Attach, or finish if the client does not send."""
        if not self._sends:
            self._finish()
            return
        link = engine.sender(session, "good", self)
        link.endpoint.target.address = "good"
        engine.attach(link)

    def credit_given(self, link: Any) -> None:
        """Send the message."""
        if not link.unsettled and not self.done.done():
            link.send(bytes(proton.Message(body="x").encode()), None)

    def settled(self, link: Any, token: Any, outcome: Any) -> None:
        """Finish: the message is safe."""
        self._finish()

    def link_opened(self, link: Any) -> None:
        """Do nothing."""

    def link_closed(self, link: Any, condition: proton.Condition | None) -> None:
        """Do nothing."""

    def link_requested(self, engine: Engine, link: Any) -> None:
        """Do nothing."""

    def writable_again(self, engine: Engine) -> None:
        """Do nothing."""

    def peer_closed(self, engine: Engine, condition: proton.Condition | None) -> None:
        """Finish after a refusal; note its ``retry-after``, if any."""
        info = condition.info if condition is not None and isinstance(condition.info, dict) else {}
        self.retry_after = {str(key): value for key, value in info.items()}.get("retry-after")
        self._finish()

    def ended(self, engine: Engine, reason: CloseReason) -> None:
        """Fail if the connection was lost."""
        if not self.done.done():
            self.done.set_exception(ConnectionError(str(reason)))


async def good_clients(address: Endpoint, count: int) -> list[float]:
    """Return the seconds of each client, from the dial to the settled message."""
    seconds = []
    for number in range(count):
        client = await Good(f"good {number}").come(address)
        async with asyncio.timeout(_TIMEOUT):
            seconds.append(await client.done)
        assert client.engine is not None
        client.engine.abort()
    return seconds


# -- the bad clients --------------------------------------------------------------------------------


def flood(address: Endpoint, count: int, standing: Any) -> None:
    """Keep ``count`` bad connections forever; set ``standing`` when all of them have connected once."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    asyncio.run(_flood(address, count, standing))


async def _flood(address: Endpoint, count: int, standing: Any) -> None:
    came = 0

    async def bad(number: int) -> None:
        nonlocal came
        first = True
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection(address.host, address.port)
                if first:
                    first = False
                    came += 1
                    if came == count:
                        standing.set()
                await _misbehave(number % 3, reader, writer)
            await asyncio.sleep(0.5 + random.random())

    async with asyncio.TaskGroup() as group:
        for number in range(count):
            group.create_task(bad(number))
            if number % 50 == 49:
                await asyncio.sleep(0.005)


async def _misbehave(kind: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        if kind == 1:
            for byte in _SASL_HEADER * 10:
                writer.write(bytes([byte]))
                await asyncio.sleep(1.0)
        elif kind == 2:
            writer.write(random.randbytes(512))
        while await reader.read(4096):
            pass
    finally:
        writer.close()


@contextlib.contextmanager
def flooded(address: Endpoint, count: int) -> Iterator[Any]:
    context = multiprocessing.get_context("spawn")
    standing = context.Event()
    process = context.Process(target=flood, args=(address, count, standing), daemon=True)
    process.start()
    try:
        yield standing
    finally:
        process.kill()
        process.join()


async def run_flood(bad: int, good: int) -> None:
    async with member() as (address, process):
        alone = await good_clients(address, good)
        before = mebibytes(process)
        _show(f"{good} good ones alone", alone)
        with flooded(address, bad) as standing:
            during = asyncio.create_task(good_clients(address, good))
            peak = before
            while not during.done():
                peak = max(peak, mebibytes(process))
                await asyncio.sleep(0.05)
            _show(f"with {bad} bad ones arriving", await during)
            await asyncio.to_thread(standing.wait, _TIMEOUT)
            _show(f"with {bad} bad ones there", await good_clients(address, good))
            peak = max(peak, mebibytes(process))
        await asyncio.sleep(2.0)
        after = mebibytes(process)
    print(f"memory of the member: {before:.0f} MiB before, {peak:.0f} at the peak, {after:.0f} after")


def _show(what: str, seconds: Sequence[float]) -> None:
    ordered = sorted(seconds)
    p99 = ordered[int(len(ordered) * 0.99)]
    median = statistics.median(ordered)
    print(
        f"{what:>32}: {sum(seconds):.2f} s in turn; "
        f"median {median * 1000:.1f} ms, p99 {p99 * 1000:.1f} ms, slowest {ordered[-1] * 1000:.1f} ms"
    )


# -- connected clients --------------------------------------------------------------------------------


class Regular(Good):
    """One client that sends repeatedly; ``seconds`` has the time of each message."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.seconds: list[float] = []
        self.link: Any = None
        self._sent_at = 0.0

    def credit_given(self, link: Any) -> None:
        """Send the first message."""
        if self.link is None:
            self.link = link
            self._send()

    def _send(self) -> None:
        self._sent_at = time.perf_counter()
        self.link.send(bytes(proton.Message(body="x").encode()), None)

    def settled(self, link: Any, token: Any, outcome: Any) -> None:
        """Record the time of the settled message, and send the next one."""
        self.seconds.append(time.perf_counter() - self._sent_at)
        self._finish()
        asyncio.get_running_loop().call_later(_PAUSE, self._send)


def storm(address: Endpoint, count: int, settings: dict[str, Any], begin: Any, over: Any) -> None:
    """Connect ``count`` newcomers at once, and keep them until the process ends."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    _make_nice()
    begin.wait()
    asyncio.run(_storm(address, count, settings, over))


def _make_nice() -> None:
    os.nice(_NICE)
    session = Path("/proc/self/autogroup")
    if session.exists():  # then niceness counts within a session, and sessions have their own
        os.setsid()
        session.write_text(str(_NICE))


async def _storm(address: Endpoint, count: int, settings: dict[str, Any], over: Any) -> None:
    attempts = 0

    async def newcomer(number: int) -> Good:
        nonlocal attempts
        while True:
            attempts += 1
            wait = 0.5
            with contextlib.suppress(OSError):
                client = await Good(f"newcomer {number}").come(address, sends=False, **settings)
                async with asyncio.timeout(_TIMEOUT):
                    await client.done
                if client.retry_after is None:
                    return client
                wait = client.retry_after / 1000
            await asyncio.sleep(wait + random.random() * 0.2)

    clients = await asyncio.gather(*(newcomer(number) for number in range(count)))
    over.put(attempts)
    await asyncio.sleep(_TIMEOUT)
    del clients


async def run_storm(count: int, sasl: str, rate: str, *, paired: bool) -> None:
    users, settings = _SASL[sasl]
    async with (pair if paired else member)("--accept-rate", rate, *users) as (address, process):
        regulars = [await Regular(f"regular {number}").come(address, **settings) for number in range(20)]
        context = multiprocessing.get_context("spawn")
        begin, over = context.Event(), context.SimpleQueue()
        newcomers = context.Process(target=storm, args=(address, count, settings, begin, over), daemon=True)
        newcomers.start()
        try:
            await asyncio.sleep(_BEFORE)
            before = _taken(regulars)
            used, started = sum(process.cpu_times()[:2]), time.perf_counter()
            begin.set()
            attempts = await asyncio.to_thread(over.get)
            length = time.perf_counter() - started
            used = sum(process.cpu_times()[:2]) - used
            during = _taken(regulars)
        finally:
            newcomers.kill()
            newcomers.join()
    _show("before", before)
    _show(f"while {count} come", during)
    print(
        f"all in after {length:.2f} s, {attempts / count:.2f} attempts each, "
        f"processor of the member {used / length:.0%}"
    )
    ratio = percentile(during, 99) / percentile(before, 99)
    print_bar("p99 of those already in, during over before", ratio, 3.0, at_least=False)


def _taken(regulars: Sequence[Regular]) -> list[float]:
    seconds = [each for regular in regulars for each in regular.seconds]
    for regular in regulars:
        regular.seconds.clear()
    return seconds


# -- cost per connection ----------------------------------------------------------------------------

_CASES: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "set-up": (("--accept-rate", "unlimited"), {"sends": False}),
    "refusal": (("--accept-rate", "0.001", "--accept-burst", "1"), {}),
    "parked": (
        ("--accept-rate", "0.001", "--accept-burst", "1"),
        {"desired_capabilities": ("haclient:park",)},
    ),
}
_SASL: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "anonymous": ((), {}),
    "scram": (
        ("--users", "USERS"),
        {"user": _USER, "password": _PASSWORD, "mechanisms": ("SCRAM-SHA-256",)},
    ),
}


async def cost(count: int, arguments: tuple[str, ...], settings: dict[str, Any]) -> float:
    """Return the member's processor seconds per client."""
    async with member(*arguments) as (address, process):
        for number in range(20):
            await (await Good(f"warm {number}").come(address, **settings)).done
        begin = sum(process.cpu_times()[:2])
        clients = []
        for number in range(count):
            clients.append(await Good(f"client {number}").come(address, **settings))
            if number % 10 == 9:
                await asyncio.gather(*(client.done for client in clients))
        await asyncio.gather(*(client.done for client in clients))
        used = sum(process.cpu_times()[:2]) - begin
        for client in clients:
            assert client.engine is not None
            client.engine.abort()
    return used / count


async def run_cost(count: int) -> None:
    for sasl, (users, credentials) in _SASL.items():
        for case, (limits, settings) in _CASES.items():
            seconds = await cost(count, (*users, *limits), {**credentials, **settings})
            print(f"{sasl:>10} {case:>8}: {seconds * 1e6:6.0f} us, {1 / seconds:6.0f} a second")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bad", type=int, default=5000)
    parser.add_argument("--good", type=int, default=100)
    parser.add_argument("--storm", type=int, metavar="NEWCOMERS")
    parser.add_argument("--sasl", choices=sorted(_SASL), default="anonymous", help="with --storm")
    parser.add_argument("--rate", default="measured", help="accept rate, with --storm")
    parser.add_argument("--pair", action="store_true", help="with --storm: replicated, and on disk")
    parser.add_argument("--cost", action="store_true")
    parser.add_argument("--count", type=int, default=1000, help="with --cost")
    given = parser.parse_args()
    print_header("A flood of bad connections", given)
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    if given.storm:
        asyncio.run(run_storm(given.storm, given.sasl, given.rate, paired=given.pair))
    else:
        asyncio.run(run_cost(given.count) if given.cost else run_flood(given.bad, given.good))


if __name__ == "__main__":
    main()
