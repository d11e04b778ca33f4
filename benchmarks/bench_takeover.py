"""The time without settlement: after a requested promotion, and after the kill of a primary.

A pair with its own supervisor, everything at default settings, and a client that sends one message after
the other.  In each round either the primary is killed with SIGKILL, or an operator hands over: ``demote``
to the primary, then ``promote`` to its backup.  The time to the first settled send is split into phases:

``noticed``    the supervisor knows that the process is dead (not for a hand-over)
``promoted``   the backup is primary: the arbiter's record and the store are written
``found``      the client has a usable session at the new primary
``settled``    the message in flight is settled there

With default settings, the client's first delay after a loss is drawn from 0 to ``backoff_base``.  Only
``stable_after`` is shorter, because otherwise the backoff would grow from round to round.
"""

from __future__ import annotations

import asyncio
import logging
import statistics
import time
from dataclasses import dataclass, field

import measure

import haclient
from broker_stub.local_cluster.supervisor import LocalCluster, LocalClusterEvent, LocalClusterOptions
from broker_stub.management_client import AdminClient
from haclient import aio, events

_PHASES = ("noticed", "promoted", "found", "settled")


@dataclass(slots=True)
class Round:
    """Seconds from the kill or the order to each phase."""

    began: float = 0.0
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    at: dict[str, float] = field(default_factory=dict)

    def mark(self, phase: str) -> None:
        """Record that a phase is reached now; only the first time counts."""
        self.at.setdefault(phase, time.monotonic() - self.began)


class Watch:
    """Marks the events of supervisor and client in the current round."""

    def __init__(self) -> None:
        self.round = Round()
        self.generation = 0

    def manager(self, event: LocalClusterEvent) -> None:
        """Mark the supervisor's events."""
        if event.kind == "died":
            self.round.mark("noticed")
        elif event.kind == "promoted":
            self.round.mark("promoted")

    async def client(self, connection: aio.Connection) -> None:
        """Mark the client's events."""
        async for event in connection.events():
            if isinstance(event, events.Reconnected):
                self.round.mark("found")


async def _kill(pair: LocalCluster, watch: Watch) -> None:
    watch.round = Round(time.monotonic())
    await pair.kill_primary()


async def _hand_over(pair: LocalCluster, watch: Watch) -> None:
    old = pair.primary
    assert old is not None
    [new] = [member for member in pair.members if member is not old]
    async with (
        await AdminClient.connect(old.address, pair.credentials) as at_old,
        await AdminClient.connect(new.address, pair.credentials) as at_new,
    ):
        watch.round = Round(time.monotonic())
        await at_old.demote(new.address)
        watch.generation = (await at_new.promote()).generation
        watch.round.mark("promoted")


async def _send_on(sender: aio.Sender, watch: Watch) -> None:
    """Send one message after the other; the first one settled after the loss ends the round."""
    while True:
        await sender.send(haclient.Message(body=b"x"))
        if "found" in watch.round.at:
            watch.round.mark("settled")
            watch.round.settled.set()


async def _run(rounds: int) -> dict[str, list[Round]]:
    watch = Watch()
    measured: dict[str, list[Round]] = {"SIGKILL": [], "hand-over": []}
    async with (
        LocalCluster(LocalClusterOptions(), on_event=watch.manager) as pair,
        aio.connect(pair.url, stable_after=0.1) as connection,
    ):
        sender = await connection.create_sender("bench")
        async with asyncio.TaskGroup() as tasks:
            background = [
                tasks.create_task(watch.client(connection)),
                tasks.create_task(_send_on(sender, watch)),
            ]
            for _ in range(rounds):
                for name, begin in (("SIGKILL", _kill), ("hand-over", _hand_over)):
                    # The supervisor learns of a hand-over by its next probe.
                    await pair.wait_until(lambda pair: pair.ready and pair.generation >= watch.generation)
                    await begin(pair, watch)
                    async with asyncio.timeout(30):
                        await watch.round.settled.wait()
                    measured[name].append(watch.round)
            for task in background:
                task.cancel()
    return measured


def _print(name: str, rounds: list[Round]) -> None:
    print(f"\n{name}: milliseconds until")
    print(f"  {'':<12}{'median':>10}{'p90':>10}{'step':>10}")
    before = 0.0
    for phase in _PHASES:
        values = [1e3 * found.at[phase] for found in rounds if phase in found.at]
        if values:
            median = statistics.median(values)
            p90 = measure.percentile(values, 90)
            print(f"  {phase:<12}{median:>10.1f}{p90:>10.1f}{median - before:>10.1f}")
            before = median


def main() -> None:
    parser = measure.argument_parser(__doc__, rounds=15)
    arguments = measure.parse_arguments(parser)
    measure.print_header(
        "From the death of the primary, or the order to hand over, to the first settle", arguments
    )
    logging.getLogger("haclient").setLevel(logging.ERROR)
    logging.getLogger("broker_stub").setLevel(logging.ERROR)
    for name, rounds in asyncio.run(_run(arguments.rounds)).items():
        _print(name, rounds)


if __name__ == "__main__":
    main()
