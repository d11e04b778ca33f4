"""Hostile brokers that know each other."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from haclient.testing.peers.listening import Peer, listening, url
from tests.hostile.broker.behaviours import BEHAVIOURS
from tests.hostile.broker.connection import HostileConnection, Sent

# More than a client follows in one chain: ``max_redirects`` is 5.
_COUNT = 8
# The share of connections that are served correctly, so that a client gets beyond its first frame.
_GOOD = 0.25


@dataclass(slots=True)
class HostileBrokers:
    """Several hostile brokers.

    :param behaviours: their behaviours, all applied to each connection.
    :ivar drawn: the numbers of each connection, for a report.
    :ivar met: set by the first connection.
    """

    seed: int
    behaviours: Sequence[str]
    good: float = _GOOD
    peers: list[Peer] = field(default_factory=list)
    sent: Sent = field(default_factory=Sent)
    drawn: list[str] = field(default_factory=list)
    met: asyncio.Event = field(default_factory=asyncio.Event)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def serve(self, _peer: Peer) -> HostileConnection:
        """Return the server side of a connection, with the next sequence of numbers."""
        number = next(self._numbers)
        self.met.set()
        rng = random.Random(f"{self.seed} {number}")
        connection = HostileConnection(self, rng)
        names = () if number and rng.random() < self.good else self.behaviours
        facts = [f"{name}: {BEHAVIOURS[name](connection, rng)}" for name in names]
        self.drawn.append("; ".join(facts) or "serves")
        return connection

    def url(self, **options: object) -> str:
        """Return the cluster URL of the first two brokers. Redirects lead to the others."""
        return url(*self.peers[:2], **options)

    @property
    def connections(self) -> int:
        """Return the number of connections so far."""
        return len(self.drawn)


@asynccontextmanager
async def hostile_brokers(
    seed: int, behaviours: Sequence[str], *, good: float = _GOOD
) -> AsyncIterator[HostileBrokers]:
    """Listen. The same seed draws the same numbers for the same sequence of connections.

    :param good: the share of connections, never the first, that are served correctly.
    """
    brokers = HostileBrokers(seed, tuple(behaviours), good)
    async with AsyncExitStack() as stack:
        for _ in range(_COUNT):
            brokers.peers.append(await stack.enter_async_context(listening(brokers.serve)))
        yield brokers
