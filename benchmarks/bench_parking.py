"""From a promotion to the first settled message of a warm client, compared with a bare begin-attach-send.

There are two members, one primary and one passive. The client has ``standby=warm``: one connection to the
primary, and one parked at the passive member, with Open done and Begin unanswered. In each round the primary
is killed (SIGKILL) while the client has a message in its ledger. A moment later the passive member is
promoted. The dead member is then started again as the passive member of the next round.

``became`` is the time when the new primary's telemetry reports that it serves. The promotion's own time, from
the command to ``became``, is printed too, and so is the time from the command to the settled message. The
command includes a management request from a process that was asleep, which is not part of parking. It runs in
its own process, so that its answer takes none of the client's time.

The peer is a bare engine with a connection to the same member whose Open is done: Begin, Attach, one message,
its settle. It runs once a round, after the failover, and after a rest as long as the client's, because caches
of idle processors go cold. Both send to a queue that the member creates at the Attach, since it was passive
before. The members have no arbiter and no store. A promotion in a pair waits for both (``bench_takeover``),
and the client cannot be faster than that.

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
from broker_stub.admission.user_file import DEFAULT_ADMIN, write_users
from broker_stub.amqp.endpoints import parse_endpoint
from broker_stub.management_client import AdminClient
from haclient import Credentials, aio
from haclient.cluster_url.endpoint import Endpoint
from haclient.engine.codec import Encoder

_BARE_ADDRESS = "bare"
_LOOK = 0.02
# Seconds until the commander closes, which takes processor time; the measurement ends long before.
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
    """Wait until the member has parked the client's second connection."""
    async with asyncio.timeout(_PATIENCE):
        while (await admin.status()).facts["entrance"]["parked_now"] == 0:  # noqa: ASYNC110 - another process reports it
            await asyncio.sleep(_LOOK)


async def _command(member: str) -> None:
    """Promote the member when a line arrives on standard input, and print the time of the command."""
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
    """Return a process with a connection to a member that has parked the client."""
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
    # Every round loses a connection: do not log it.
    logging.getLogger("haclient").setLevel(logging.ERROR)
    if arguments.command is not None:
        asyncio.run(_command(arguments.command))
        return
    measure.print_header("From a promotion to the first settled message of a warm client", arguments)
    with tempfile.TemporaryDirectory(prefix="bench-parking-") as users:
        write_users(Path(users) / "users", {"cluster-admin": _PASSWORD})
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
