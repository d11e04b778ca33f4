"""From the new primary being ready to the first settled message, beside a bare connect and send.

Two members, one primary and one passive.  In each round the primary is killed (SIGKILL) while a
client of both is connected; the client has a message in its ledger and goes round the members,
refused by the dead one and sent away by the passive one; a moment later the passive one is
promoted.  Then the dead one is started again as the passive member of the next round.

``ready`` is read from the new primary's own clock: the answer to the promotion says how long the
member had been up when it was primary, and a few status requests before the round tell, to within
a tenth of a millisecond, when that clock started.  The client draws every backoff as zero, because
the question is what it adds when no backoff is pending; how long to back off is policy.  What is
counted beside the new connection is therefore the attempt that was under way at that moment, which
the member, still passive, was about to turn away.

The peer is a bare engine, told where the primary is: TCP connect, SASL, Open, Begin, Attach, one
message, its settle; once a round, after the failover, to the same member.

Bar: within 1.5 times the bare connect-attach-send.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import statistics
import tempfile
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import bare
import measure
from measure import BrokerProcess

import haclient
from broker_stub.access import write_users
from broker_stub.address import Address
from broker_stub.admin import AdminClient, Credentials
from broker_stub.member_process import free_addresses
from haclient import aio
from haclient.engine.codec import Encoder

_ADDRESS = "bench"
_PASSWORD = "benchmark"  # noqa: S105 - of brokers that live for a minute on this machine
# Longer than any attempt, so that the promotion falls anywhere in the client's going round.
_OUTAGE = (0.05, 0.10)
_CLOCK_READINGS = 20


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
    """Two members at fixed addresses, one of them primary."""

    def __init__(self, users: Path) -> None:
        any_port = Address("127.0.0.1", 0)
        self._users = str(users)
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
    def passive(self) -> Address:
        """Where the passive member is."""
        return self.addresses[1 - self._primary]

    def _start(self, number: int, role: str) -> BrokerProcess:
        listen = self.addresses[number].authority
        # uvloop's clock stands still during a turn of its loop; asyncio's can be read exactly.
        arguments = ("--name", f"member-{number}", "--users", self._users, "--loop", "asyncio")
        return BrokerProcess(*arguments, role=role, listen=listen)

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


async def _started_at(admin: AdminClient) -> float:
    """When the member's clock started, in this process's time: each answer narrows it down."""
    loop = asyncio.get_running_loop()
    earliest, latest = -math.inf, math.inf
    for _ in range(_CLOCK_READINGS):
        asked = loop.time()
        uptime = (await admin.status()).facts["uptime"]
        earliest, latest = max(earliest, asked - uptime), min(latest, loop.time() - uptime)
    return (earliest + latest) / 2


async def _round(pair: Pair, sender: aio.Sender, figures: Figures) -> None:
    loop = asyncio.get_running_loop()
    await sender.send(haclient.Message(body=b"before"))
    new_primary = pair.passive
    async with await AdminClient.connect(new_primary, Credentials(_PASSWORD)) as admin:
        started_at = await _started_at(admin)
        pair.kill_primary()
        outcome = await sender.send_nowait(haclient.Message(body=b"after"))
        settled = loop.create_future()
        outcome.add_done_callback(lambda _: settled.set_result(loop.time()))
        await asyncio.sleep(random.uniform(*_OUTAGE))
        ready = started_at + (await admin.promote()).facts["uptime"]
        settled_at = await settled
        outcome.result()
    figures.from_ready.append(settled_at - ready)
    figures.bare.append(await _bare(new_primary))
    await pair.revive()


async def _bare(primary: Address) -> float:
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
    async with aio.connect(pair.url, rng=NoDelay()) as connection:
        sender = await connection.create_sender(_ADDRESS)
        await _round(pair, sender, warm_up)
        for _ in range(rounds):
            await _round(pair, sender, figures)
    return figures


def main() -> None:
    parser = measure.argument_parser(__doc__, rounds=40)
    arguments = measure.parse_arguments(parser)
    measure.print_header("From the new primary being ready to the first settled message", arguments)
    # Every round loses a connection; one line each is no news here.
    logging.getLogger("haclient").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory(prefix="bench-failover-") as users:
        write_users(Path(users), {"cluster-admin": _PASSWORD})
        with closing(Pair(Path(users))) as pair:
            figures = asyncio.run(_run(pair, arguments.rounds))
    rows = {
        "bare connect, attach, send, settle": figures.bare,
        "haclient, from ready to settled": figures.from_ready,
    }
    measure.print_milliseconds(rows)
    ratio = statistics.median(figures.from_ready) / statistics.median(figures.bare)
    measure.print_bar("first settled message after ready / bare", ratio, 1.5, at_least=False)


if __name__ == "__main__":
    main()
