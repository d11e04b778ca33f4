"""From the new primary being ready to the first settled message, compared with a bare connect and send.

There are two members, one primary and one passive. In each round the primary is killed (SIGKILL) while a
client of both is connected. The client has a message in its ledger and tries the members: the dead one
refuses, the passive one parks it. A moment later the passive member is promoted. The dead member is then
started again as the passive member of the next round.

``ready`` is the time when the new primary's telemetry reports that it serves. The client draws every backoff
as zero, because the benchmark measures the cost without a pending backoff; the length of the backoff is
policy.

The peer is a bare engine with the primary's address: TCP connect, SASL, Open, Begin, Attach, one message, its
settle. It runs once a round, after the failover, against the same member.

Bar: within 1.5 times the bare connect-attach-send.

``--every 4`` measures downtimes instead. The primary of a pair is killed every four seconds, before any
connection has lived for ``stable_after``. Clients with default delays, each with its own factory, send a
message at each kill. A client's downtime ends when its message is settled. The first failover of a connection
is compared with the following ones. If a client is not back when the primary is killed again, it has one
downtime for both. Each sequence has its own pair and clients.

A downtime has two parts. The time until the first of all clients is back is mostly the pair's; the rest is
the client's own. A pair that takes over late makes all clients late. Since there are few first failovers, a
single one decides their 99th percentile.

Bar: median and 99th percentile of the following failovers within 1.5 times the first one's. It applies to the
downtimes and to the client's own part.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import math
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path

import bare
import measure
from measure import BrokerProcess

import haclient
from benchmarks.storm.environment import LocalPair
from benchmarks.storm.member_lines import served_between
from broker_stub.admission.user_file import DEFAULT_ADMIN, write_users
from broker_stub.local_cluster.member_process import free_addresses
from broker_stub.management_client import AdminClient
from haclient import Credentials, aio
from haclient.cluster_url.endpoint import Endpoint
from haclient.engine.codec import Encoder
from haclient.testing.seeded_backoff import random_source

_ADDRESS = "bench"
_PASSWORD = "benchmark"  # noqa: S105 - of brokers that live for a minute on this machine
# Longer than any attempt, so that the promotion falls at a random point of the client's search.
_OUTAGE = (0.05, 0.10)
# Seconds until a member has started on a busy machine.
_PATIENCE = 60.0


class NoDelay(random.Random):
    """Always draws the minimum, so that no backoff is ever pending."""

    def uniform(self, a: float, b: float) -> float:
        """Return the lower bound."""
        return a


@dataclass(slots=True)
class Figures:
    """Seconds of each round."""

    from_ready: list[float] = field(default_factory=list)
    bare: list[float] = field(default_factory=list)


class Pair:
    """Two members at fixed addresses, one of them primary, that record their role changes.

    :param folder: folder of the user database and the telemetry.
    """

    def __init__(self, folder: Path) -> None:
        any_port = Endpoint("127.0.0.1", 0)
        self._users, self._telemetry = str(folder / "users"), folder / "telemetry"
        self.addresses = free_addresses((any_port, any_port))
        self._primary = 0
        self._members = [self._start(0, "primary"), self._start(1, "passive")]
        for member in self._members:
            assert member.address

    @property
    def url(self) -> str:
        """The URL of both members."""
        return "amqp://" + ",".join(address.authority for address in self.addresses)

    @property
    def passive(self) -> Endpoint:
        """The address of the passive member."""
        return self.addresses[1 - self._primary]

    def _start(self, number: int, role: str) -> BrokerProcess:
        arguments = (
            "--name",
            f"member-{number}",
            "--users",
            self._users,
            "--anonymous",
            "--telemetry",
            str(self._telemetry),
        )
        return BrokerProcess(*arguments, role=role, listen=self.addresses[number].authority)

    def became(self, killed_at: float) -> float:
        """Return the monotonic time at which a member became primary after ``killed_at``."""
        served = served_between(self._telemetry, killed_at, time.monotonic())
        assert served is not None
        return served.since

    def kill_primary(self) -> None:
        """Send SIGKILL to the primary; the other member counts as the next primary."""
        self._members[self._primary].kill()
        self._primary = 1 - self._primary

    async def revive(self) -> None:
        """Start the dead member as the passive one."""
        number = 1 - self._primary
        self._members[number] = member = self._start(number, "passive")
        await asyncio.to_thread(lambda: member.address)

    def close(self) -> None:
        """Stop both members."""
        for member in self._members:
            member.stop()


async def _round(pair: Pair, sender: aio.Sender, figures: Figures) -> None:
    loop = asyncio.get_running_loop()
    await sender.send(haclient.Message(body=b"before"))
    new_primary = pair.passive
    async with await AdminClient.connect(
        new_primary, Credentials(user=DEFAULT_ADMIN, password=_PASSWORD)
    ) as admin:
        pair.kill_primary()
        killed_at = time.monotonic()
        outcome = await sender.submit(haclient.Message(body=b"after"))
        settled = loop.create_future()
        outcome.add_done_callback(lambda _: settled.set_result(time.monotonic()))
        await asyncio.sleep(random.uniform(*_OUTAGE))
        await admin.promote()
        settled_at = await settled
        outcome.result()
    figures.bare.append(await _bare(new_primary))
    figures.from_ready.append(settled_at - pair.became(killed_at))
    await pair.revive()


@dataclass(slots=True)
class Downtimes:
    """Seconds from a kill to a settled message.

    :ivar failovers: the downtimes of all clients, by sequence and number of the kill, from 1.
    """

    failovers: dict[tuple[int, int], list[float]] = field(default_factory=dict)

    def note(self, sequence: int, kill: int, seconds: float) -> None:
        """Add the downtime of one client."""
        self.failovers.setdefault((sequence, kill), []).append(seconds)

    def of(self, *, first: bool) -> list[list[float]]:
        """Return the downtimes of first or of later failovers; a list for each failover."""
        return [seconds for (_, kill), seconds in self.failovers.items() if (kill == 1) == first]


def behind_first_client(failovers: Sequence[Sequence[float]]) -> list[float]:
    """Return each client's delay, in seconds, after the first client back in that failover."""
    return [each - min(seconds) for seconds in failovers for each in seconds]


class _Kills:
    """The times at which the primary was killed."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self._next = asyncio.Event()

    def note(self, at: float) -> None:
        """Record a kill at this monotonic time."""
        self.times.append(at)
        self._next.set()
        self._next = asyncio.Event()

    async def after(self, count: int) -> int:
        """Wait until there are more than ``count`` kills; return their number."""
        while len(self.times) <= count:
            await self._next.wait()
        return len(self.times)


async def _client(url: str, kills: _Kills, ready: asyncio.Event, note: Callable[[int, float], None]) -> None:
    """Measure the downtimes of one client until cancelled."""
    async with aio.connect(url) as connection:
        sender = await connection.create_sender(_ADDRESS)
        await sender.send(haclient.Message(body=b"before"))
        ready.set()
        seen = 0
        while True:
            number = await kills.after(seen)
            killed_at = kills.times[-1]
            await sender.send(haclient.Message(body=b"after"), timeout=math.inf)
            note(number, time.monotonic() - killed_at)
            seen = len(kills.times)


async def _one_sequence(
    arguments: argparse.Namespace, folder: Path, note: Callable[[int, float], None]
) -> None:
    """Kill the primary of a new pair repeatedly."""
    pair, kills = LocalPair(folder), _Kills()
    await pair.start()
    try:
        ready = [asyncio.Event() for _ in range(arguments.clients)]
        clients = [asyncio.create_task(_client(pair.url, kills, each, note)) for each in ready]
        for event in ready:
            await event.wait()
        due = time.monotonic()
        for _ in range(arguments.failovers):
            due = max(due + arguments.every, time.monotonic())
            await asyncio.sleep(due - time.monotonic())
            kills.note(await pair.kill())
            await pair.follow()
            await pair.pair.wait_ready(_PATIENCE)
        await asyncio.sleep(arguments.every)
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
    finally:
        await pair.stop()


async def _run_sequences(arguments: argparse.Namespace, folder: Path) -> Downtimes:
    downtimes = Downtimes()
    for number in range(arguments.sequences):
        await _one_sequence(arguments, folder / str(number), partial(downtimes.note, number))
    return downtimes


async def _bare(primary: Endpoint) -> float:
    encoder = Encoder()
    loop = asyncio.get_running_loop()
    began = loop.time()
    client = await bare.connect_and_send(
        primary.host, primary.port, _ADDRESS, lambda _: encoder.encode(haclient.Message(body=b"bare"))
    )
    seconds = loop.time() - began
    client.abort()
    return seconds


async def _run(pair: Pair, rounds: int) -> Figures:
    figures = Figures()
    warm_up = Figures()
    with random_source(NoDelay()):
        connecting = aio.connect(pair.url)
    async with connecting as connection:
        sender = await connection.create_sender(_ADDRESS)
        await _round(pair, sender, warm_up)
        for _ in range(rounds):
            await _round(pair, sender, figures)
    return figures


def main() -> None:
    parser = measure.argument_parser(__doc__, rounds=40)
    parser.add_argument(
        "--every", type=float, help="seconds between two failovers, for the downtimes of many"
    )
    parser.add_argument("--clients", type=int, default=20, help="with --every, default 20")
    parser.add_argument("--failovers", type=int, default=8, help="of one connection, with --every; default 8")
    parser.add_argument(
        "--sequences", type=int, default=4, help="of so many failovers, with --every; default 4"
    )
    arguments = measure.parse_arguments(parser)
    # Every round loses a connection: do not log it.
    logging.getLogger("haclient").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory(prefix="bench-failover-") as folder:
        if arguments.every is None:
            write_users(Path(folder) / "users", {"cluster-admin": _PASSWORD})
            with closing(Pair(Path(folder))) as pair:
                _first_message(pair, arguments)
        else:
            _downtimes(Path(folder), arguments)


def _first_message(pair: Pair, arguments: argparse.Namespace) -> None:
    measure.print_header("From the new primary being ready to the first settled message", arguments)
    figures = asyncio.run(_run(pair, arguments.rounds))
    rows = {
        "bare connect, attach, send, settle": figures.bare,
        "haclient, from ready to settled": figures.from_ready,
    }
    measure.print_milliseconds(rows)
    ratio = statistics.median(figures.from_ready) / statistics.median(figures.bare)
    measure.print_bar("first settled message after ready / bare", ratio, 1.5, at_least=False)


def _downtimes(folder: Path, arguments: argparse.Namespace) -> None:
    measure.print_header(f"Downtimes with a failover every {arguments.every:g} s", arguments)
    found = asyncio.run(_run_sequences(arguments, folder))
    first, following = found.of(first=True), found.of(first=False)
    _compare("downtime", list(chain(*first)), list(chain(*following)))
    _compare("behind the first client back", behind_first_client(first), behind_first_client(following))


def _compare(what: str, first: Sequence[float], following: Sequence[float]) -> None:
    rows = {"first failover of a connection": first, "those that follow": following}
    for name, seconds in rows.items():
        at = {part: 1e3 * measure.percentile(seconds, part) for part in (50, 99, 100)}
        print(
            f"{what}, {name}: {len(seconds)}, median {at[50]:.0f} ms, p99 {at[99]:.0f} ms,"
            f" most {at[100]:.0f} ms"
        )
    for part, name in ((50, "median"), (99, "p99")):
        ratio = measure.percentile(following, part) / measure.percentile(first, part)
        measure.print_bar(f"{what}, {name} of those that follow / of the first", ratio, 1.5, at_least=False)


if __name__ == "__main__":
    main()
