"""Kill the primary of a broker pair in mid-stream, twice, and count what happened.

Starts two ``broker_stub`` members and their manager, a producer and a consumer that talk to them
through ``haclient``, and kills the primary with SIGKILL ``--kills`` times.  The manager promotes
the other member and starts the dead one again as the backup.  A live display shows it happening; the table
at the end says what became of every message.

    make demo
    python examples/failover_demo.py --rate 2000 --kills 3 --plain

Every message carries a number.  The producer notes each number as sent, and as settled when the
primary has accepted it; the consumer notes each number it is given.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import time
from collections import Counter, deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import click
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table

from broker_stub.local_cluster.supervisor import Pair, PairEvent, PairOptions
from haclient import Message, aio, events
from haclient.errors import HaclientError, ReceiveTimeout, StaleDelivery
from haclient.outcome import Outcome

QUEUE = "demo"
# The screen is redrawn as often as a person can follow.
FRAMES_PER_SECOND = 8
# Silence after the last settled message that ends the count: several times the longest backoff
# that a failover of a second or two can lead to.
QUIET = 3.0


@dataclass
class Tally:
    """What became of every number."""

    sent: int = 0
    settled: set[int] = field(default_factory=set)
    failed: dict[int, str] = field(default_factory=dict)
    received: Counter[int] = field(default_factory=Counter)
    stale: int = 0
    attempts: Counter[str] = field(default_factory=Counter)
    redirects: int = 0
    away: list[tuple[str, float]] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)
    marks: deque[tuple[float, dict[str, int]]] = field(
        default_factory=lambda: deque(maxlen=FRAMES_PER_SECOND)
    )

    @property
    def missing(self) -> set[int]:
        """Settled, and never given to the consumer."""
        return self.settled - self.received.keys()

    def counts(self) -> dict[str, int]:
        """Messages that each client has dealt with."""
        return {"producer": len(self.settled), "consumer": self.received.total()}

    def rates(self) -> dict[str, float]:
        """Messages per second over the last second of frames."""
        now, counts = time.monotonic(), self.counts()
        then, before = self.marks[0] if self.marks else (self.began, dict.fromkeys(counts, 0))
        self.marks.append((now, counts))
        return {name: (counts[name] - before[name]) / max(now - then, 0.001) for name in counts}

    def tell(self, text: str) -> None:
        """Put a line into the log of the display."""
        self.log.append(f"{time.monotonic() - self.began:6.2f} s  {text}")


async def produce(connection: aio.Connection, tally: Tally, rate: int, stop: asyncio.Event) -> None:
    """Send numbers, ``rate`` a second, until told to stop; then wait for the last outcomes."""
    sender = await connection.create_sender(QUEUE)
    pending: set[asyncio.Future[Outcome]] = set()

    def done(number: int, future: asyncio.Future[Outcome]) -> None:
        pending.discard(future)
        if future.cancelled():
            tally.failed[number] = "cancelled"
        elif (error := future.exception()) is not None:
            tally.failed[number] = type(error).__name__
        else:
            tally.settled.add(number)

    started = time.monotonic()
    while not stop.is_set():
        while tally.sent < (time.monotonic() - started) * rate and not stop.is_set():
            number = tally.sent
            future = await sender.send_nowait(Message(body=number))
            tally.sent += 1
            pending.add(future)
            future.add_done_callback(lambda future, number=number: done(number, future))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), 0.01)
    if pending:
        await asyncio.wait(pending, timeout=60)


async def consume(connection: aio.Connection, tally: Tally, finished: asyncio.Event) -> None:
    """Receive and accept until everything was sent and nothing came for a while."""
    receiver = await connection.create_receiver(QUEUE, credit=200)
    while True:
        try:
            delivery = await receiver.receive(timeout=QUIET)
        except ReceiveTimeout:
            if finished.is_set():
                return
            continue
        tally.received[int(delivery.message.body)] += 1
        try:
            await delivery.accept()
        except StaleDelivery:
            tally.stale += 1


async def watch(name: str, connection: aio.Connection, tally: Tally) -> None:
    """Note what the connection goes through."""
    async for event in connection.events():
        match event:
            case events.Lost():
                tally.tell(f"{name}: lost {event.endpoint}: {event.reason}")
            case events.AttemptStarted():
                tally.attempts[name] += 1
            case events.Redirected():
                tally.redirects += 1
                tally.tell(f"{name}: {event.by} redirects to {event.target}")
            case events.AttemptFailed():
                miss = event.record.miss
                tally.tell(f"{name}: {event.record.endpoint}: {miss.kind.value} {miss.condition or ''}")
            case events.Reconnected():
                tally.away.append((name, event.duration))
                tally.tell(
                    f"{name}: back at {event.endpoint}, generation {event.generation}, after "
                    f"{event.duration:.3f} s, {event.replayed} sent again"
                )


async def assassinate(pair: Pair, tally: Tally, kills: int, interval: float) -> None:
    """Kill the primary every ``interval`` seconds, never before the pair is whole again."""
    for _ in range(kills):
        await asyncio.sleep(interval)
        await pair.wait_ready()
        victim = await pair.kill_primary()
        tally.tell(f"SIGKILL for {victim.name}, the primary")
    await pair.wait_ready()
    await asyncio.sleep(interval)


def picture(pair: Pair, connections: dict[str, aio.Connection], tally: Tally) -> Group:
    """The live display."""
    members = Table("member", "address", "state", "generation", "process", expand=True)
    for member in pair.members:
        style = {"primary": "bold green", "dead": "bold red"}.get(str(member.state), "")
        members.add_row(
            member.name,
            member.address.authority,
            f"[{style}]{member.state}[/]" if style else str(member.state),
            str(member.generation),
            str(member.pid or "-"),
        )
    clients = Table("client", "state", "connected to", "attempts", "messages", "per second", expand=True)
    counts, rates = tally.counts(), tally.rates()
    for name, connection in connections.items():
        clients.add_row(
            name,
            connection.state.value,
            str(connection.endpoint or "-"),
            str(tally.attempts[name]),
            f"{counts[name]:,}",
            f"{rates[name]:,.0f}",
        )
    return Group(members, clients, Panel("\n".join(tally.log[-10:]) or "...", title="what happened"))


@contextlib.asynccontextmanager
async def display(
    console: Console, pair: Pair, connections: dict[str, aio.Connection], tally: Tally, *, plain: bool
) -> AsyncIterator[None]:
    """Show the picture while the body runs; print the log afterwards where there is no terminal."""
    if plain:
        yield
        for line in tally.log:
            console.print(line, highlight=False, soft_wrap=True)
        return
    with Live(console=console, refresh_per_second=FRAMES_PER_SECOND) as live:

        async def redraw() -> None:
            while True:
                live.update(picture(pair, connections, tally))
                await asyncio.sleep(1 / FRAMES_PER_SECOND)

        task = asyncio.create_task(redraw())
        try:
            yield
        finally:
            task.cancel()
            live.update(picture(pair, connections, tally))


def verdict(tally: Tally, kills: int) -> Table:
    """What happened, and how it was counted."""
    duplicates = sum(count - 1 for count in tally.received.values())
    who, longest = max(tally.away, key=lambda pair: pair[1], default=("-", 0.0))
    table = Table("", "count", "how it was counted", title=f"{kills} times SIGKILL")
    table.add_row("sent", f"{tally.sent:,}", "numbers given to send_nowait()")
    table.add_row("settled", f"{len(tally.settled):,}", "futures that resolved: accepted by a primary")
    table.add_row("not settled", f"{len(tally.failed):,}", "futures that raised")
    table.add_row("received", f"{len(tally.received):,}", "different numbers the consumer was given")
    table.add_row("duplicates", f"{duplicates:,}", "numbers given again, most after a failover")
    table.add_row("stale settles", f"{tally.stale:,}", "accept() after the loss: StaleDelivery, nothing sent")
    table.add_row("settled but missing", f"{len(tally.missing):,}", "settled, and never received")
    table.add_row("longest time away", f"{longest:.3f} s", f"{who}: from the loss to the next usable session")
    table.add_row(
        "attempts", f"{sum(tally.attempts.values()):,}", "endpoints dialled after the first connect"
    )
    table.add_row("redirects", f"{tally.redirects:,}", "answers of passive members that named the primary")
    return table


async def demonstrate(console: Console, *, rate: int, kills: int, interval: float, plain: bool) -> Tally:
    """Run the whole thing."""
    tally = Tally()

    def told(event: PairEvent) -> None:
        tally.tell(f"manager: {event.member} {event.kind}: {event.detail}")

    async with Pair(PairOptions(), on_event=told) as pair:
        console.print(f"cluster URL: [bold]{pair.url}[/]")
        console.print(f"store:       SQLite, one a member, in {pair.store}", soft_wrap=True)
        console.print(f"arbiter:     {pair.arbiter}", soft_wrap=True)
        async with aio.ConnectionFactory(pair.url) as factory:
            producer, consumer = await factory.connect(), await factory.connect()
            connections = {"producer": producer, "consumer": consumer}
            stop, finished = asyncio.Event(), asyncio.Event()
            async with display(console, pair, connections, tally, plain=plain), asyncio.TaskGroup() as tasks:
                for name, connection in connections.items():
                    tasks.create_task(watch(name, connection, tally))
                receiving = tasks.create_task(consume(consumer, tally, finished))
                sending = tasks.create_task(produce(producer, tally, rate, stop))
                await assassinate(pair, tally, kills, interval)
                stop.set()
                await sending
                finished.set()
                await receiving
                await factory.close()
    return tally


@click.command(context_settings={"show_default": True})
@click.option("--rate", default=1000, help="Messages per second.")
@click.option("--kills", default=2, help="How often the primary is killed.")
@click.option("--interval", default=4.0, help="Seconds of traffic before each kill and after the last.")
@click.option(
    "--plain", is_flag=True, default=not sys.stdout.isatty(), help="No live display: the log at the end."
)
def main(*, rate: int, kills: int, interval: float, plain: bool) -> None:
    """Kill the primary of a broker pair in mid-stream and count what happened."""
    console = Console()
    # What the log would say is in the display.
    logging.getLogger("haclient").setLevel(logging.CRITICAL)
    logging.getLogger("broker_stub").setLevel(logging.CRITICAL)
    try:
        tally = asyncio.run(demonstrate(console, rate=rate, kills=kills, interval=interval, plain=plain))
    except HaclientError as error:
        raise click.ClickException(str(error)) from error
    console.print(verdict(tally, kills))
    if tally.missing:
        raise click.ClickException("messages that a primary had settled are lost")


if __name__ == "__main__":
    main()
