"""From the new primary being ready to the first settled message, beside a bare connect and send.

Two members, one primary and one passive.  In each round the primary is killed (SIGKILL) while a
client of both is connected; the client has a message in its ledger and goes round the members,
refused by the dead one and held by the passive one; a moment later the passive one is promoted.
Then the dead one is started again as the passive member of the next round.

``ready`` is when the new primary's telemetry says that it serves.  The client draws every backoff
as zero, because the question is what it adds when no backoff is pending; how long to back off is
policy.

The peer is a bare engine, which is given the primary's address: TCP connect, SASL, Open, Begin, Attach, one
message, its settle; once a round, after the failover, to the same member.

Bar: within 1.5 times the bare connect-attach-send.

``--every 4`` measures another thing: the primary of a pair is killed every four seconds, before any
connection has lived for ``stable_after``.  Clients with their default delays, each with a factory of its own,
send a message at each kill; its downtime is the time from there until the message is settled.  The first
failover of a connection is set beside those that follow.  A client that is not back when the primary is
killed again has one downtime, the whole of it.  Each sequence has a pair and clients of its own.

A downtime has two parts: until the first client of all is back, which is mostly the pair's, and from there
on, which is the client's own.  A pair that takes over late makes all clients late; there are few first
failovers, so one of those decides about their 99th percentile.

Bar: the median and the 99th percentile of those that follow are within 1.5 times those of the first one, for
the downtimes and for the client's own part.
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
from broker_stub.admission.user_database import DEFAULT_ADMIN, write_users
from broker_stub.local_cluster.member_process import free_addresses
from broker_stub.management_client import AdminClient
from haclient import Credentials, aio
from haclient.cluster_url.endpoint import Endpoint
from haclient.engine.codec import Encoder
from haclient.testing.seeded_backoff import random_source

_ADDRESS = "bench"
_PASSWORD = "benchmark"  # noqa: S105 - of brokers that live for a minute on this machine
# Longer than any attempt, so that the promotion falls anywhere in the client's going round.
_OUTAGE = (0.05, 0.10)
# A member that starts, on a busy machine.
_PATIENCE = 60.0


class NoDelay(random.Random):
    """Draws the least: no backoff is ever pending."""

    def uniform(self, a: float, b: float) -> float:
        """The lower end."""
        return a


@dataclass(slots=True)
class Figures:
    """Seconds of each round."""

    from_ready: list[float] = field(default_factory=list)
    bare: list[float] = field(default_factory=list)


class Pair:
    """Two members at fixed addresses, one of them primary, that write down what they become.

    :param folder: of the user database, and for the telemetry.
    """

    def __init__(self, folder: Path) -> None:
        any_port = Endpoint("127.0.0.1", 0)
        self._users, self._telemetry = str(folder), folder / "telemetry"
        self.addresses = free_addresses((any_port, any_port))
        self._primary = 0
        self._members = [self._start(0, "primary"), self._start(1, "passive")]
        for member in self._members:
            assert member.address

    @property
    def url(self) -> str:
        """Both members."""
        return "amqp://" + ",".join(address.authority for address in self.addresses)

    @property
    def passive(self) -> Endpoint:
        """Where the passive member is."""
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
        """When somebody became primary after that, in monotonic seconds."""
        served = served_between(self._telemetry, killed_at, time.monotonic())
        assert served is not None
        return served.since

    def kill_primary(self) -> None:
        """SIGKILL; the other one is about to be promoted."""
        self._members[self._primary].kill()
        self._primary = 1 - self._primary

    async def revive(self) -> None:
        """Start the dead member as the passive one."""
        number = 1 - self._primary
        self._members[number] = member = self._start(number, "passive")
        await asyncio.to_thread(lambda: member.address)

    def close(self) -> None:
        """Stop both."""
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

    :ivar failovers: the downtimes of all clients, by sequence and by the number of the kill, from 1.
    """

    failovers: dict[tuple[int, int], list[float]] = field(default_factory=dict)

    def note(self, sequence: int, kill: int, seconds: float) -> None:
        """Add that of one client."""
        self.failovers.setdefault((sequence, kill), []).append(seconds)

    def of(self, *, first: bool) -> list[list[float]]:
        """Those of first failovers, or of those that followed; a list for each failover."""
        return [seconds for (_, kill), seconds in self.failovers.items() if (kill == 1) == first]


def behind_first_client(failovers: Sequence[Sequence[float]]) -> list[float]:
    """Seconds of each client beyond those of the first client that was back in that failover."""
    return [each - min(seconds) for seconds in failovers for each in seconds]


class _Kills:
    """When the primary was killed, one after the other."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self._next = asyncio.Event()

    def note(self, at: float) -> None:
        """It was killed then, by the monotonic clock."""
        self.times.append(at)
        self._next.set()
        self._next = asyncio.Event()

    async def after(self, count: int) -> int:
        """Wait until there are more than that many; how many."""
        while len(self.times) <= count:
            await self._next.wait()
        return len(self.times)


async def _client(url: str, kills: _Kills, ready: asyncio.Event, note: Callable[[int, float], None]) -> None:
    """Measure its downtimes until it is cancelled."""
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
    """A pair of its own, whose primary is killed again and again."""
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
    # Every round loses a connection; one line each is no news here.
    logging.getLogger("haclient").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory(prefix="bench-failover-") as folder:
        if arguments.every is None:
            write_users(Path(folder), {"cluster-admin": _PASSWORD})
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
