"""The list in its order, and one delay between two rounds: every ``backoff_strategy`` but ``adaptive``.

The counterpart of ``by_answer``, with the same methods; the answers of members decide nothing here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from haclient.cluster_url.endpoint import Endpoint
from haclient.discovery.evidence import Failure
from haclient.discovery.pending_attempts import PendingAttempt
from haclient.discovery.topology import Topology
from haclient.retry.backoff import Backoff, Delay


class PlainRounds:
    """See ``Polling``."""

    __slots__ = ("_backoff",)

    def __init__(self, backoff: Backoff) -> None:
        self._backoff = backoff

    def order(
        self, topology: Topology, candidates: tuple[Endpoint, ...], round_number: int
    ) -> tuple[Endpoint, ...]:
        """The candidates as they are."""
        del topology, round_number
        return candidates

    def free_at(self, endpoint: Endpoint) -> float:
        """At any time."""
        del endpoint
        return -math.inf

    def due(self, ordered: tuple[Endpoint, ...], now: float) -> tuple[Endpoint, ...]:
        """All of them."""
        del now
        return ordered

    def next_due(self, ordered: tuple[Endpoint, ...], now: float) -> float:
        """Never: none of them waits."""
        del ordered, now
        return math.inf

    def keep(self, endpoint: Endpoint, round_number: int) -> float:
        """As long as the attempt has."""
        del endpoint, round_number
        return math.inf

    def pause(self, now: float, round_number: int, began: float) -> Delay:
        """The next delay of the series."""
        del now, round_number, began
        return self._backoff.next()

    def dialled(self, endpoint: Endpoint, now: float) -> None:
        """Ignore it."""

    def syn_sent(self, endpoint: Endpoint, at: float) -> None:
        """Ignore it."""

    def hang(self, attempts: Iterable[PendingAttempt], now: float) -> None:
        """Ignore it."""

    def ended(self, pending: PendingAttempt, failure: Failure, now: float) -> None:
        """Ignore it."""

    def usable(self, pending: PendingAttempt) -> None:
        """Ignore it."""
