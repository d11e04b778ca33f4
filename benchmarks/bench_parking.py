"""From a promotion to the first settled message of a warm client, beside a bare begin-attach-send.

Two members, one primary and one passive.  The client has ``standby=warm``: one connection to the
primary, and one that the passive member holds, with Open done and Begin not answered.  In each round the
primary is killed (SIGKILL), the client has a message in its ledger, and a moment later the passive
member is promoted.  Then the dead one is started again as the passive member of the next round.

``became`` is when the new primary's telemetry says that it serves.  The promotion's own time, from the
command to then, is printed beside it, and the time from the command to the settled message as well: what
the command goes through, a management request from a process that was asleep, is no part of parking.
The command comes from a process of its own, so that its answer takes none of the client's time.

The peer is a bare engine with a connection to the same member whose Open is done: Begin, Attach, one
message, its settle; once a round, after the failover, and after as long a rest as the client had before the
promotion, for processors forget.  Both of them send to a queue that the member makes when they
attach, for it was passive before.  The members have no arbiter and no store: a promotion in a
pair waits for both (``bench_takeover``), and the client cannot be faster than that.

Bar: from ``became`` to the settled message within 1.2 times the bare begin-attach-send.
"""

from __future__ import annotations

import asyncio
import logging
import random
import statistics
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import measure
from bare import BareClient
from bench_failover import _ADDRESS, _OUTAGE, _PASSWORD, Pair

import haclient
from broker_stub.admission.user_database import DEFAULT_ADMIN, write_users
from broker_stub.amqp.endpoints import parse_endpoint
from broker_stub.management_client import AdminClient
from haclient import Credentials, aio
from haclient.cluster_url.endpoint import Endpoint
from haclient.engine.codec import Encoder

_BARE_ADDRESS = "bare"
_LOOK = 0.02
# What is measured is over long before the commander closes, which takes processor time.
_QUIET = 0.2
_PATIENCE = 30.0


@dataclass(slots=True)
class Figures:
    """Seconds of each round."""

    promotion: list[float] = field(default_factory=list)
    from_command: list[float] = field(default_factory=list)
    from_became: list[float] = field(default_factory=list)
    bare: list[float] = field(default_factory=list)


async def _parked(admin: AdminClient) -> None:
    """Wait until the member holds the client's second connection."""
    async with asyncio.timeout(_PATIENCE):
        while (await admin.status()).facts["entrance"]["parked_now"] == 0:  # noqa: ASYNC110 - another process reports it
            await asyncio.sleep(_LOOK)


async def _command(member: str) -> None:
    """The commander: promotes the member when a line comes, and says when that was."""
    async with await AdminClient.connect(
        parse_endpoint(member), Credentials(user=DEFAULT_ADMIN, password=_PASSWORD)
    ) as admin:
        await _parked(admin)
        print("parked", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        commanded = time.monotonic()
        await admin.promote()
        await asyncio.sleep(_QUIET)
        print(commanded)


async def _commander(member: Endpoint) -> Process:
    """A process with a connection to a member that holds the client."""
    command = (sys.executable, __file__, "--command", str(member))
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
    assert process.stdout is not None
    assert await process.stdout.readline() == b"parked\n"
    return process


async def _round(pair: Pair, sender: aio.Sender, figures: Figures) -> None:
    loop = asyncio.get_running_loop()
    await sender.send(haclient.Message(body=b"before"))
    new_primary = pair.passive
    commander = await _commander(new_primary)
    pair.kill_primary()
    killed_at = time.monotonic()
    outcome = await sender.submit(haclient.Message(body=b"after"))
    settled = loop.create_future()
    outcome.add_done_callback(lambda _: settled.set_result(time.monotonic()))
    await asyncio.sleep(random.uniform(*_OUTAGE))
    assert commander.stdin is not None
    commander.stdin.write(b"promote\n")
    async with asyncio.timeout(_PATIENCE):
        settled_at = await settled
        output, _ = await commander.communicate()
    outcome.result()
    commanded = float(output)
    figures.bare.append(await _bare(new_primary))
    became = pair.became(killed_at)
    figures.promotion.append(became - commanded)
    figures.from_command.append(settled_at - commanded)
    figures.from_became.append(settled_at - became)
    await pair.revive()


async def _bare(primary: Endpoint) -> float:
    encoder = Encoder()
    client = BareClient(_BARE_ADDRESS)
    await client.connect(primary.host, primary.port)
    await asyncio.sleep(random.uniform(*_OUTAGE))
    began = time.monotonic()
    await client.begin()
    await client.send_all(1, lambda _: encoder.encode(haclient.Message(body=b"bare")), futures=True)
    seconds = time.monotonic() - began
    client.abort()
    return seconds


async def _run(pair: Pair, rounds: int) -> Figures:
    figures = Figures()
    async with aio.connect(pair.url, standby="warm") as connection:
        sender = await connection.create_sender(_ADDRESS)
        await _round(pair, sender, Figures())
        for _ in range(rounds):
            await _round(pair, sender, figures)
    return figures


def main() -> None:
    parser = measure.argument_parser(__doc__, rounds=20)
    parser.add_argument("--command", help="of the commander process; the benchmark gives it itself")
    arguments = measure.parse_arguments(parser)
    # Every round loses a connection; one line each is no news here.
    logging.getLogger("haclient").setLevel(logging.ERROR)
    if arguments.command is not None:
        asyncio.run(_command(arguments.command))
        return
    measure.print_header("From a promotion to the first settled message of a warm client", arguments)
    with tempfile.TemporaryDirectory(prefix="bench-parking-") as users:
        write_users(Path(users), {"cluster-admin": _PASSWORD})
        with closing(Pair(Path(users))) as pair:
            figures = asyncio.run(_run(pair, arguments.rounds))
    rows = {
        "bare begin, attach, send, settle": figures.bare,
        "warm client, from became to settled": figures.from_became,
        "the promotion, from the command to became": figures.promotion,
        "warm client, from the command to settled": figures.from_command,
    }
    measure.print_milliseconds(rows)
    ratio = statistics.median(figures.from_became) / statistics.median(figures.bare)
    measure.print_bar("first settled message after the promotion / bare", ratio, 1.2, at_least=False)


if __name__ == "__main__":
    main()
