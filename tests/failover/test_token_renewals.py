"""A hundred connections with tokens of seconds, renewed hundreds of times, while primaries are killed.

``make soak-tokens`` runs it whole: FAILOVERS=20 of them.  The bodies are counted: each one that was accepted
is received and confirmed exactly once.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from haclient import Token, aio
from haclient.errors import StaleDelivery
from haclient.events import Disconnected, Event, LossKind
from haclient.testing import HAPair, ha_pair
from tests.identity_provider import IdentityProvider

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]
FAILOVERS = int(os.environ.get("TOKEN_FAILOVERS", "20"))
CONNECTIONS = int(os.environ.get("TOKEN_CONNECTIONS", "100"))
LIFE = float(os.environ.get("TOKEN_LIFE", "20"))
_QUEUES = 10
# Seconds between two kills: three quarters of a token's life, so that most connections are renewed between.
_BETWEEN = 0.75 * LIFE


class Traffic:
    """The counts of all connections.

    :ivar waits: for each send, when it began, and its seconds.
    """

    def __init__(self) -> None:
        self.sent = 0
        self.confirmed = Counter[object]()
        self.losses = Counter[LossKind | None]()
        self.waits: list[tuple[float, float]] = []
        self.ending = False

    def count(self, event: Event) -> None:
        if isinstance(event, Disconnected):
            self.losses[event.kind] += 1

    async def send(self, connection: aio.Connection, number: int) -> None:
        sender = await connection.create_sender(f"q{number % _QUEUES}")
        while not self.ending:
            body, began = self.sent, time.monotonic()
            self.sent += 1
            assert (await sender.send(body, timeout=120)).accepted
            self.waits.append((began, time.monotonic() - began))
            await asyncio.sleep(random.uniform(0.2, 0.8))

    async def receive(self, connection: aio.Connection, number: int) -> None:
        receiver = await connection.create_receiver(f"q{number % _QUEUES}", credit=5, confirm=True)
        async for delivery in receiver:
            await asyncio.sleep(random.uniform(0, 0.05))
            with suppress(StaleDelivery):  # it comes again
                await delivery.accept(confirm=True)
                self.confirmed[delivery.message.body] += 1


async def test_no_message_is_lost_or_doubled(tmp_path: Path) -> None:
    provider, traffic = IdentityProvider(tmp_path), Traffic()
    options = tuple(part for name, value in provider.options.items() for part in (f"--{name}", value))

    async def supply() -> Token:
        return Token(provider.token(seconds=LIFE))

    def start() -> HAPair:
        return context.__enter__()

    context = ha_pair(anonymous=False, serve_arguments=options)
    pair = await asyncio.to_thread(start)
    try:
        kills = await _run(pair, traffic, supply)
    finally:
        await asyncio.to_thread(context.__exit__, None, None, None)
    assert traffic.confirmed == Counter(range(traffic.sent))
    _report(traffic, kills)
    assert traffic.losses[LossKind.RENEWAL] >= CONNECTIONS
    assert set(traffic.losses) <= {LossKind.RENEWAL, LossKind.CUT, LossKind.CLOSE}


async def _run(pair: HAPair, traffic: Traffic, supply: object) -> list[float]:
    url = f"{pair.url}?backoff_base=0.05&backoff_max=1"
    connections = [
        await aio.connect(url, credentials=supply, on_event=traffic.count)  # type: ignore[arg-type]
        for _ in range(CONNECTIONS)
    ]
    sending = [asyncio.create_task(traffic.send(each, n)) for n, each in enumerate(connections)]
    receiving = [asyncio.create_task(traffic.receive(each, n)) for n, each in enumerate(connections)]
    kills = []
    for _ in range(FAILOVERS):
        await asyncio.sleep(random.uniform(0.8, 1.2) * _BETWEEN)
        await asyncio.to_thread(pair.wait_ready)
        kills.append(time.monotonic())
        await asyncio.to_thread(pair.kill_primary)
    await asyncio.sleep(_BETWEEN)
    traffic.ending = True
    await asyncio.gather(*sending)
    async with asyncio.timeout(120):
        while len(traffic.confirmed) < traffic.sent:  # noqa: ASYNC110 - many receivers
            await asyncio.sleep(0.1)
    for task in receiving:
        task.cancel()
    await asyncio.gather(*receiving, return_exceptions=True)
    await asyncio.gather(*(each.close() for each in connections))
    return kills


def _report(traffic: Traffic, kills: list[float]) -> None:
    """Print the longest waits of a send, beside kills and apart from them."""
    beside = [
        took for began, took in traffic.waits if any(began - 1 < kill < began + took + 5 for kill in kills)
    ]
    apart = [
        took for began, took in traffic.waits if all(not began - 10 < kill < began + took for kill in kills)
    ]
    print(  # noqa: T201 - the numbers of a soak
        f"\n{CONNECTIONS} connections, {len(kills)} kills, {dict(traffic.losses)}, {traffic.sent} messages; "
        f"longest send beside a kill {max(beside, default=0):.3f} s, "
        f"apart from kills {max(apart, default=0):.3f} s"
    )
