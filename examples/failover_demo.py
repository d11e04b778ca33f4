"""Kill the primary of a broker pair twice under load, and account for every message.

The program starts two ``broker_stub`` members and their supervisor, a producer and a consumer that use
``haclient``.  It kills the primary with SIGKILL ``--kills`` times.  The supervisor promotes the other member
and starts the dead one again as the backup.  A live display shows it.  At the end the program prints a
table of all messages, a strip of settled messages over time, and one sentence.

    make demo
    python examples/failover_demo.py --rate 2000 --kills 3 --plain

The exit code is 1 if a message is missing.  Ctrl-C ends the program and its members, with exit code 130.

Every message carries a number.  The producer notes each number as sent, and as settled when the
primary has accepted it; the consumer notes each number that it receives.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
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
from settled_strip import SettledStrip, summary

from broker_stub.local_cluster.supervisor import LocalCluster, LocalClusterEvent, LocalClusterOptions
from haclient import aio, events
from haclient.errors import HaclientError, ReceiveTimeout, StaleDelivery
from haclient.outcome import Outcome

QUEUE = "demo"
# Faster redraws than a person can follow are useless.
FRAMES_PER_SECOND = 8
# Seconds without a message that end the count.  While messages are missing, this is several times the
# longest backoff after a failover of a second or two.
QUIET = 0.5
QUIET_IF_MISSING = 3.0


@dataclass
class Totals:
    """The numbers that were sent, settled and received."""

    sent: int = 0
    settled: set[int] = field(default_factory=set)
    settled_at: list[float] = field(default_factory=list)
    killed_at: list[float] = field(default_factory=list)
    sent_until: float = 0.0
    failed: dict[int, str] = field(default_factory=dict)
    received: Counter[int] = field(default_factory=Counter)
    stale: int = 0
    attempts: Counter[str] = field(default_factory=Counter)
    redirects: int = 0
    downtimes: list[tuple[str, float]] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)
    marks: deque[tuple[float, dict[str, int]]] = field(
        default_factory=lambda: deque(maxlen=FRAMES_PER_SECOND)
    )

    @property
    def missing(self) -> set[int]:
        """Return the numbers that were settled and never received."""
        return self.settled - self.received.keys()

    def elapsed(self) -> float:
        """Return the seconds since the beginning."""
        return time.monotonic() - self.began

    def counts(self) -> dict[str, int]:
        """Count the messages of each client."""
        return {"producer": len(self.settled), "consumer": self.received.total()}

    def rates(self) -> dict[str, float]:
        """Return messages per second over the last second of frames."""
        now, counts = time.monotonic(), self.counts()
        then, before = self.marks[0] if self.marks else (self.began, dict.fromkeys(counts, 0))
        self.marks.append((now, counts))
        return {name: (counts[name] - before[name]) / max(now - then, 0.001) for name in counts}

    def note(self, text: str) -> None:
        """Add a line to the log of the display."""
        self.log.append(f"{self.elapsed():6.2f} s  {text}")


async def produce(connection: aio.Connection, totals: Totals, rate: int, stop: asyncio.Event) -> None:
    """Send numbers, ``rate`` a second, until ``stop`` is set; then wait for the last outcomes."""
    sender = await connection.create_sender(QUEUE)
    pending: set[asyncio.Future[Outcome]] = set()

    def done(number: int, future: asyncio.Future[Outcome]) -> None:
        pending.discard(future)
        if future.cancelled():
            totals.failed[number] = "cancelled"
        elif (error := future.exception()) is not None:
            totals.failed[number] = type(error).__name__
        else:
            totals.settled.add(number)
            totals.settled_at.append(totals.elapsed())

    started = time.monotonic()
    while not stop.is_set():
        while totals.sent < (time.monotonic() - started) * rate and not stop.is_set():
            number = totals.sent
            future = await sender.submit(number)
            totals.sent += 1
            totals.sent_until = totals.elapsed()
            pending.add(future)
            future.add_done_callback(lambda future, number=number: done(number, future))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), 0.01)
    if pending:
        await asyncio.wait(pending, timeout=60)


async def consume(connection: aio.Connection, totals: Totals, finished: asyncio.Event) -> None:
    """Receive and accept until everything was sent and no message has arrived for a while."""
    receiver = await connection.create_receiver(QUEUE, credit=200)
    last = time.monotonic()
    while True:
        try:
            delivery = await receiver.receive(timeout=QUIET)
        except ReceiveTimeout:
            silence = time.monotonic() - last
            if finished.is_set() and (not totals.missing or silence > QUIET_IF_MISSING):
                return
            continue
        last = time.monotonic()
        totals.received[int(delivery.body)] += 1
        try:
            await delivery.accept()
        except StaleDelivery:
            totals.stale += 1


async def watch(name: str, connection: aio.Connection, totals: Totals) -> None:
    """Log the events of the connection."""
    async for event in connection.events():
        match event:
            case events.Disconnected():
                totals.note(f"{name}: lost {event.endpoint}: {event.reason}")
            case events.AttemptStarted():
                totals.attempts[name] += 1
            case events.Redirected():
                totals.redirects += 1
                totals.note(f"{name}: {event.by} redirects to {event.target}")
            case events.AttemptFailed():
                failure = event.record.failure
                reason = " ".join(filter(None, (failure.kind.value, failure.condition)))
                totals.note(f"{name}: {event.record.endpoint}: {reason}")
            case events.Reconnected():
                totals.downtimes.append((name, event.duration))
                totals.note(
                    f"{name}: back at {event.endpoint}, generation {event.generation}, after "
                    f"{event.duration:.3f} s, {event.replayed} sent again"
                )


async def assassinate(pair: LocalCluster, totals: Totals, kills: int, interval: float) -> None:
    """Kill the primary every ``interval`` seconds, each time once the pair is complete again."""
    for _ in range(kills):
        await asyncio.sleep(interval)
        await pair.wait_ready()
        totals.killed_at.append(totals.elapsed())
        victim = await pair.kill_primary()
        totals.note(f"SIGKILL for {victim.name}, the primary")
    await pair.wait_ready()
    await asyncio.sleep(interval)


def picture(pair: LocalCluster, connections: dict[str, aio.Connection], totals: Totals) -> Group:
    """Return the live display."""
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
    counts, rates = totals.counts(), totals.rates()
    for name, connection in connections.items():
        clients.add_row(
            name,
            connection.state.value,
            str(connection.endpoint or "-"),
            str(totals.attempts[name]),
            f"{counts[name]:,}",
            f"{rates[name]:,.0f}",
        )
    return Group(members, clients, Panel("\n".join(totals.log[-10:]) or "...", title="what happened"))


@contextlib.asynccontextmanager
async def display(
    console: Console,
    pair: LocalCluster,
    connections: dict[str, aio.Connection],
    totals: Totals,
    *,
    plain: bool,
) -> AsyncIterator[None]:
    """Show the picture while the body runs; without a terminal, print the log afterwards."""
    if plain:
        yield
        for line in totals.log:
            console.print(line, highlight=False, soft_wrap=True)
        return
    with Live(console=console, refresh_per_second=FRAMES_PER_SECOND) as live:

        async def redraw() -> None:
            while True:
                live.update(picture(pair, connections, totals))
                await asyncio.sleep(1 / FRAMES_PER_SECOND)

        task = asyncio.create_task(redraw())
        try:
            yield
        finally:
            task.cancel()
            live.update(picture(pair, connections, totals))


def verdict(totals: Totals, kills: int) -> Table:
    """Return a table of the totals, each with its definition."""
    duplicates = sum(count - 1 for count in totals.received.values())
    who, longest = max(totals.downtimes, key=lambda pair: pair[1], default=("-", 0.0))
    table = Table("", "count", "how it was counted", title=f"{kills} times SIGKILL")
    table.add_row("sent", f"{totals.sent:,}", "numbers given to submit()")
    table.add_row("settled", f"{len(totals.settled):,}", "futures that resolved: accepted by a primary")
    table.add_row("not settled", f"{len(totals.failed):,}", "futures that raised")
    table.add_row("received", f"{len(totals.received):,}", "different numbers the consumer was given")
    table.add_row("duplicates", f"{duplicates:,}", "numbers given again, most after a failover")
    table.add_row(
        "stale settles", f"{totals.stale:,}", "accept() after the loss: StaleDelivery, nothing sent"
    )
    table.add_row("settled but missing", f"{len(totals.missing):,}", "settled, and never received")
    table.add_row("longest reconnect", f"{longest:.3f} s", f"{who}: from the loss to the next usable session")
    table.add_row(
        "attempts", f"{sum(totals.attempts.values()):,}", "endpoints dialled after the first connect"
    )
    table.add_row("redirects", f"{totals.redirects:,}", "answers of passive members that named the primary")
    return table


async def demonstrate(console: Console, *, rate: int, kills: int, interval: float, plain: bool) -> Totals:
    """Run the whole demonstration."""
    totals = Totals()

    def on_pair_event(event: LocalClusterEvent) -> None:
        totals.note(f"supervisor: {event.member} {event.kind}: {event.detail}")

    async with LocalCluster(LocalClusterOptions(), on_event=on_pair_event) as pair:
        console.print(f"cluster URL: [bold]{pair.url}[/]")
        console.print(f"store:       SQLite, one a member, in {pair.store}", soft_wrap=True)
        console.print(f"arbiter:     {pair.arbiter}", soft_wrap=True)
        async with aio.ConnectionFactory(pair.url) as factory:
            producer, consumer = await factory.connect(), await factory.connect()
            connections = {"producer": producer, "consumer": consumer}
            stop, finished = asyncio.Event(), asyncio.Event()
            async with display(console, pair, connections, totals, plain=plain), asyncio.TaskGroup() as tasks:
                for name, connection in connections.items():
                    tasks.create_task(watch(name, connection, totals))
                receiving = tasks.create_task(consume(consumer, totals, finished))
                sending = tasks.create_task(produce(producer, totals, rate, stop))
                await assassinate(pair, totals, kills, interval)
                stop.set()
                await sending
                finished.set()
                await receiving
                await factory.close()
    return totals


def first_message(error: Exception) -> str:
    """Return the first error that the user can act on; raise any other error, which is a defect."""
    if not isinstance(error, ExceptionGroup):
        return str(error)
    if error.split((HaclientError, OSError))[1] is not None:
        raise error
    return first_message(error.exceptions[0])


def report(console: Console, totals: Totals) -> None:
    """Print the table, the picture and the sentence."""
    strip = SettledStrip(totals.settled_at, totals.killed_at, totals.sent_until)
    kills, received = len(totals.killed_at), len(totals.received)
    console.print(verdict(totals, kills), strip)
    sentence = summary(kills=kills, sent=totals.sent, received=received, longest_pause=strip.longest_pause)
    console.print(sentence, style="bold", highlight=False)


@click.command(context_settings={"show_default": True, "help_option_names": ["-h", "--help"]})
@click.option("--rate", default=1000, type=click.IntRange(min=1), help="Messages per second.")
@click.option("--kills", default=2, type=click.IntRange(min=0), help="How often the primary is killed.")
@click.option(
    "--interval",
    default=4.0,
    type=click.FloatRange(min=0.1),
    help="Seconds of traffic before each kill and after the last.",
)
@click.option(
    "--plain", is_flag=True, default=not sys.stdout.isatty(), help="No live display: the log at the end."
)
def main(*, rate: int, kills: int, interval: float, plain: bool) -> None:
    """Kill the primary of a broker pair under load and account for every message."""
    # Replace characters that the terminal's encoding lacks, instead of failing.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    console = Console()
    # The display shows the same facts as the log.
    logging.getLogger("haclient").setLevel(logging.CRITICAL)
    logging.getLogger("broker_stub").setLevel(logging.CRITICAL)
    try:
        totals = asyncio.run(demonstrate(console, rate=rate, kills=kills, interval=interval, plain=plain))
    except KeyboardInterrupt:
        console.print("Interrupted: the members have ended, and nothing was counted.")
        sys.exit(130)
    except (HaclientError, OSError, ExceptionGroup) as error:
        raise click.ClickException(first_message(error)) from error
    report(console, totals)
    if len(totals.received) < totals.sent:
        raise click.ClickException("messages are missing: see the table above")


if __name__ == "__main__":
    main()
