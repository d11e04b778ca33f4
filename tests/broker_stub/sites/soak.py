"""The soak of two sites: numbered messages, a link that is cut, failovers of both clusters, the reckoning.

    python -m tests.broker_stub.sites.soak --messages 100000 --cuts 30 --failovers 3 --seed 7
    make soak-sites

Half of the messages go to ``orders`` (mode ``all``), whose consumer accepts, rejects and releases, and
where some expire; half go to ``audit`` (mode ``enqueues``).  The seed decides at which points of the
sending the faults occur.  At the end, when the source has no events left:

1. ``orders`` is the same at both sites, message by message, in order;
2. ``audit`` at the DR site has every settled message, none twice, in order;
3. the link has seen no gap, and no invalid event.

It prints a summary in JSON, and exits with 0 or 1.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import random
import secrets
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
from proton import Message

from haclient import aio
from haclient.errors import StaleDelivery
from haclient.testing.peers.listening import Peer
from haclient.testing.proxy import Proxy, proxy
from tests.broker_stub.replication.cluster import Cluster, bodies
from tests.broker_stub.sites.clusters import Sites, as_user, fail_over, looked_at, serving, sites

_OPTIONS = (
    "redirects=none&pushed_members=ignore&heartbeat=2&attempt_timeout=3&backoff_base=0.02&backoff_max=0.2"
)
_WINDOW = 200
_SHORT_LIFE = 0.05
# Seconds until expired messages are removed everywhere.
_QUIESCENCE = 30.0


@dataclass(frozen=True, slots=True)
class Plan:
    """The parameters of a soak."""

    messages: int
    cuts: int
    failovers: int
    seed: int


@dataclass(slots=True)
class Result:
    """The result of a soak.

    :param wrong: every violation; empty if the soak passed.
    """

    seed: int
    sent: int = 0
    settled: int = 0
    cuts: int = 0
    failovers: int = 0
    seconds: float = 0.0
    link: dict[str, Any] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)


class Sending:
    """Sends numbers to two queues, at the speed of their settlement."""

    def __init__(self, url: str, plan: Plan) -> None:
        self.settled: dict[str, set[int]] = {"orders": set(), "audit": set()}
        self.progress = 0
        self._url, self._plan = url, plan
        self._moved = asyncio.Event()

    async def run(self) -> None:
        """Send everything, and wait until it is settled."""
        async with aio.connect(self._url, window=_WINDOW) as connection:
            senders = {name: await connection.create_sender(name) for name in self.settled}
            for number in range(self._plan.messages):
                name = "audit" if number % 2 else "orders"
                ttl = _SHORT_LIFE if number % 50 == 0 else 0.0
                future = await senders[name].submit(Message(body=number, ttl=ttl))
                future.add_done_callback(lambda f, n=name, i=number: self._done(f, n, i))
                self.progress = number
                self._moved.set()
            for sender in senders.values():
                await sender.flush()

    def _done(self, future: asyncio.Future[Any], name: str, number: int) -> None:
        if not future.cancelled() and future.exception() is None:
            self.settled[name].add(number)

    async def reached(self, number: int) -> None:
        """Wait until ``count`` are sent."""
        while self.progress < number:
            self._moved.clear()
            await self._moved.wait()


@asynccontextmanager
async def disturbing(url: str, rng: random.Random) -> AsyncIterator[None]:
    """Run a consumer of ``orders`` that uses every outcome."""

    async def run(connection: aio.Connection) -> None:
        receiver = await connection.create_receiver("orders", credit=20)
        async for delivery in receiver:
            with suppress(StaleDelivery):
                settle = rng.choice([delivery.accept, delivery.accept, delivery.reject, delivery.release])
                await settle()
            await asyncio.sleep(0.002)

    async with aio.connect(url) as connection:
        task = asyncio.create_task(run(connection))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])


async def soak(plan: Plan, folder: Path) -> Result:
    """Run a plan; the result has the violations."""
    result = Result(plan.seed)
    began = time.monotonic()
    async with sites(folder) as both, AsyncExitStack() as stack:
        ways = [await stack.enter_async_context(_way(member)) for member in both.source.members]
        way = as_user(f"amqp://{','.join(each.address for each in ways)}/?{_OPTIONS}")
        await both.begin(way=way, orders="all", audit="enqueues")
        await _run(plan, both, ways, result)
        await _reckon(both, result)
    result.seconds = round(time.monotonic() - began, 1)
    return result


def _way(member: Any) -> Any:
    return proxy(Peer(member.address.host, member.address.port))


async def _run(plan: Plan, both: Sites, ways: list[Proxy], result: Result) -> None:
    rng = random.Random(plan.seed)
    sending = Sending(both.url, plan)
    faults = ["cut"] * plan.cuts + ["source", "dr"] * plan.failovers
    rng.shuffle(faults)
    points = sorted(rng.randrange(plan.messages) for _ in faults)
    async with disturbing(both.url, rng), asyncio.TaskGroup() as group:
        group.create_task(sending.run())
        for fault, point in zip(faults, points, strict=True):
            await sending.reached(point)
            await _fault(fault, both, ways, rng, result)
    result.sent = plan.messages
    result.settled = sum(len(numbers) for numbers in sending.settled.values())
    await both.equal()
    audit = await bodies(await serving(both.dr), "audit")
    result.wrong += _check_audit(audit, sending.settled["audit"])


async def _fault(fault: str, both: Sites, ways: list[Proxy], rng: random.Random, result: Result) -> None:
    if fault == "cut":
        result.cuts += 1
        for way in ways:
            way.cut_after(rng.randrange(200_000)) if rng.random() < 0.5 else way.cut()
        return
    clusters: dict[str, Cluster] = {"source": both.source, "dr": both.dr}
    await fail_over(clusters[fault])
    result.failovers += 1


def _check_audit(got: list[int], settled: set[int]) -> list[str]:
    wrong = []
    if len(got) != len(set(got)):
        wrong.append(f"audit: {len(got) - len(set(got))} messages came twice")
    if not settled <= set(got):
        wrong.append(f"audit: settled and missing: {sorted(settled - set(got))[:10]}")
    if got != sorted(got):
        wrong.append("audit: out of order")
    return wrong


async def _both(both: Sites) -> tuple[list[Any], list[Any]]:
    there = await looked_at(await serving(both.source), "orders")
    return there, await looked_at(await serving(both.dr), "orders")


async def _reckon(both: Sites, result: Result) -> None:
    there, here = await _both(both)
    end = time.monotonic() + _QUIESCENCE
    while here != there and time.monotonic() < end:
        await both.equal()
        there, here = await _both(both)
    if here != there:
        lost, more = set(there) - set(here), set(here) - set(there)
        result.wrong.append(f"orders: {len(lost)} only at the source, {len(more)} only at the DR site")
    result.link = await both.link()
    result.wrong += [f"{what}: {result.link[what]}" for what in ("gaps", "malformed") if result.link[what]]


@click.command(context_settings={"show_default": True})
@click.option("--messages", default=100_000)
@click.option("--cuts", default=30, help="Of the link.")
@click.option("--failovers", default=3, help="Of each cluster.")
@click.option("--seed", type=int, help="What decides on the faults.  [default: a new one]")
def main(*, messages: int, cuts: int, failovers: int, seed: int | None) -> None:
    """Replicate between two sites that fail, and compare them."""
    for name in ("haclient", "broker_stub"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    plan = Plan(messages, cuts, failovers, secrets.randbits(32) if seed is None else seed)
    click.echo(f"seed {plan.seed}")
    folder = Path(tempfile.mkdtemp(prefix="soak-sites-"))
    result = asyncio.run(soak(plan, folder))
    click.echo(json.dumps({"ok": not result.wrong, **dataclasses.asdict(result)}, indent=2))
    if result.wrong:
        click.echo(f"FAILED; replay with --seed {plan.seed}.  Logs and stores: {folder}")
        sys.exit(1)


if __name__ == "__main__":
    main()
