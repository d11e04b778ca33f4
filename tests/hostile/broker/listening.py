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
# Of the connections that are served by the book, so that a client gets further than its first frame.
_GOOD = 0.25


@dataclass(slots=True)
class HostileBrokers:
    """All of them.

    :param behaviours: what they do, all of it on each connection.
    :ivar drawn: the numbers of each connection, for a report.
    :ivar met: whether there was a connection.
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
        """A connection: the next row of numbers."""
        number = next(self._numbers)
        self.met.set()
        rng = random.Random(f"{self.seed} {number}")
        connection = HostileConnection(self, rng)
        names = () if number and rng.random() < self.good else self.behaviours
        facts = [f"{name}: {BEHAVIOURS[name](connection, rng)}" for name in names]
        self.drawn.append("; ".join(facts) or "serves")
        return connection

    def url(self, **options: object) -> str:
        """The cluster URL of the first two; the others are reached by redirects."""
        return url(*self.peers[:2], **options)

    @property
    def connections(self) -> int:
        """Return how many there were."""
        return len(self.drawn)


@asynccontextmanager
async def hostile_brokers(
    seed: int, behaviours: Sequence[str], *, good: float = _GOOD
) -> AsyncIterator[HostileBrokers]:
    """Listen; the same seed draws the same numbers for the same row of connections.

    :param good: the share of connections, never the first, that are served by the book.
    """
    brokers = HostileBrokers(seed, tuple(behaviours), good)
    async with AsyncExitStack() as stack:
        for _ in range(_COUNT):
            brokers.peers.append(await stack.enter_async_context(listening(brokers.serve)))
        yield brokers
