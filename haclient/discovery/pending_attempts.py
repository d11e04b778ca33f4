"""The attempts of one search: those in flight, and how the others ended.

Bookkeeping only: nothing here decides.  In flight means dialled, and neither ended by a fact
nor abandoned.  A parked attempt is in flight but holds no dial.  The history is bounded, because
an episode without a deadline may last for days.

Every step of a search asks most of these questions, and a simulation has a million searches: a
flight is one mutable object, and nothing is computed for a search that has none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from haclient.cluster_url.endpoint import Endpoint
from haclient.discovery.evidence import AttemptRecord, Failure

# As many as an error can usefully list; about a day of rounds at the longest delay per member.
HISTORY = 1000


@dataclass(frozen=True, slots=True)
class Claim:
    """What a usable session told about its member."""

    generation: int | None
    cluster: str | None


@dataclass(slots=True, eq=False)
class PendingAttempt:
    """One attempt under way.

    :param chain: the members that redirected to here, the first one first.
    :param connected_at: when TCP was connected, in monotonic seconds; ``parked_at``: when it was parked.
    :param overstayed: parked for so long that the search goes on beside it.
    :param claim: set when the session is usable.
    """

    attempt: int
    endpoint: Endpoint
    dialled_at: float
    chain: tuple[Endpoint, ...] = ()
    connected_at: float | None = None
    parked_at: float | None = None
    overstayed: bool = False
    claim: Claim | None = None

    @property
    def visited(self) -> tuple[Endpoint, ...]:
        """The redirect chain up to and with this endpoint."""
        return (*self.chain, self.endpoint)

    def phase(self) -> str:
        """What this attempt is waiting for, for people."""
        if self.connected_at is None:
            return "no TCP connection"
        if self.parked_at is not None:
            return f"parked after {self.parked_at - self.dialled_at:.3g} s, and its turn did not come"
        return f"TCP connected after {self.connected_at - self.dialled_at:.3g} s, then silence"


class PendingAttempts:
    """A mutable register; iterating gives the flights in the order of their dials.

    :ivar total: all attempts, ended or not.
    :ivar parked: the parked one; ``surplus``: one that was parked beside it.
    :ivar claimed: whether a session is usable.
    """

    __slots__ = ("_in_flight", "_records", "_undialled", "claimed", "parked", "surplus", "total")

    def __init__(self) -> None:
        self._in_flight: dict[int, PendingAttempt] = {}
        self._records: dict[int, AttemptRecord] = {}
        self._undialled = 0
        self.total = 0
        self.parked: PendingAttempt | None = None
        self.surplus: PendingAttempt | None = None
        self.claimed = False

    def __iter__(self) -> Iterator[PendingAttempt]:
        return iter(tuple(self._in_flight.values()))

    def __len__(self) -> int:
        return len(self._in_flight)

    def __contains__(self, endpoint: object) -> bool:
        for flight in self._in_flight.values():
            if flight.endpoint == endpoint and not flight.overstayed:
                return True
        return False

    def get(self, attempt: int) -> PendingAttempt | None:
        """The one of that number, if it is in flight."""
        return self._in_flight.get(attempt)

    @property
    def dials(self) -> int:
        """How many hold a dial."""
        return len(self._in_flight) - self._undialled

    @property
    def last_dial(self) -> float:
        """When the youngest one that is not parked was dialled; long ago when there is none."""
        return max((each.dialled_at for each in self if each.parked_at is None), default=-math.inf)

    def overdue(self, limit: float, now: float) -> PendingAttempt | None:
        """One that was dialled at least ``limit`` seconds ago, and not parked."""
        for flight in self._in_flight.values():
            if flight.parked_at is None and flight.dialled_at + limit <= now:
                return flight
        return None

    def hanging(self, stagger: float, now: float) -> PendingAttempt | None:
        """The oldest one without TCP, if it was dialled at least ``stagger`` seconds ago."""
        for flight in self._in_flight.values():
            if flight.connected_at is None:
                return flight if flight.dialled_at + stagger <= now else None
        return None

    @property
    def records(self) -> tuple[AttemptRecord, ...]:
        """The attempts that ended, in the order in which they did; the last ``HISTORY`` of them."""
        return tuple(self._records.values())

    def record(self, attempt: int) -> AttemptRecord | None:
        """How one attempt ended; ``None`` while it is in flight and when it is forgotten."""
        return self._records.get(attempt)

    def launch(self, endpoint: Endpoint, chain: tuple[Endpoint, ...], now: float) -> PendingAttempt:
        """Number and register a new attempt."""
        self.total += 1
        flight = PendingAttempt(self.total, endpoint, now, chain)
        self._in_flight[flight.attempt] = flight
        return flight

    def connected(self, attempt: int, now: float) -> None:
        """TCP is connected; unknown attempts and repetitions are ignored."""
        flight = self._in_flight.get(attempt)
        if flight is not None and flight.connected_at is None:
            flight.connected_at = now

    def park(self, attempt: int, now: float) -> None:
        """A member holds it; unknown attempts and repetitions are ignored."""
        flight = self._in_flight.get(attempt)
        if flight is None or flight.parked_at is not None:
            return
        flight.parked_at = now
        self._undialled += 1
        if self.parked is None:
            self.parked = flight
        else:
            self.surplus = flight

    def claim(self, attempt: int, claim: Claim) -> None:
        """The session is usable; unknown attempts are ignored."""
        flight = self._in_flight.get(attempt)
        if flight is not None:
            flight.claim = claim
            self.claimed = True

    def end(self, attempt: int, now: float, miss: Failure) -> PendingAttempt | None:
        """Move it to the history; ``None`` if it is not in flight."""
        flight = self._in_flight.pop(attempt, None)
        if flight is None:
            return None
        if flight.parked_at is not None:
            self._unpark(flight)
        if self.claimed:
            self.claimed = any(other.claim for other in self._in_flight.values())
        if len(self._records) == HISTORY:
            del self._records[next(iter(self._records))]
        self._records[attempt] = AttemptRecord(
            number=attempt, endpoint=flight.endpoint, started=flight.dialled_at, ended=now, miss=miss
        )
        return flight

    def _unpark(self, flight: PendingAttempt) -> None:
        self._undialled -= 1
        held = [other for other in self._in_flight.values() if other.parked_at is not None]
        self.parked = held[0] if held else None
        self.surplus = held[1] if len(held) > 1 else None

    def amend(self, attempt: int, miss: Failure) -> None:
        """Correct how an attempt ended, if the history still holds it."""
        record = self._records.get(attempt)
        if record is not None:
            self._records[attempt] = replace(record, miss=miss)
