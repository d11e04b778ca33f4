"""The attempts of one search: those in flight, and how the others ended.

Bookkeeping only: nothing here decides.  In flight means dialled, and neither ended by a fact
nor abandoned.  The history is bounded, because an episode without a deadline may last for days.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from haclient.discovery.endpoint import Endpoint
from haclient.discovery.evidence import AttemptRecord, Miss

# As many as an error can usefully list; about a day of rounds at the longest delay per member.
HISTORY = 1000


@dataclass(frozen=True, slots=True)
class Claim:
    """What a usable session told about its member."""

    generation: int | None
    cluster: str | None


@dataclass(frozen=True, slots=True)
class Flight:
    """One attempt under way.

    :param chain: the members that redirected to here, the first one first.
    :param connected_at: when TCP was connected, in monotonic seconds.
    :param claim: set when the session is usable.
    """

    attempt: int
    endpoint: Endpoint
    dialled_at: float
    chain: tuple[Endpoint, ...] = ()
    connected_at: float | None = None
    claim: Claim | None = None

    @property
    def visited(self) -> tuple[Endpoint, ...]:
        """The redirect chain up to and with this endpoint."""
        return (*self.chain, self.endpoint)

    def phase(self) -> str:
        """What this attempt is waiting for, for people."""
        if self.connected_at is None:
            return "no TCP connection"
        return f"TCP connected after {self.connected_at - self.dialled_at:.3g} s, then silence"


class Flights:
    """A mutable register; iterating gives the flights in the order of their dials."""

    def __init__(self) -> None:
        self._in_flight: dict[int, Flight] = {}
        self._records: dict[int, AttemptRecord] = {}
        self.total = 0

    def __iter__(self) -> Iterator[Flight]:
        return iter(tuple(self._in_flight.values()))

    def __len__(self) -> int:
        return len(self._in_flight)

    def __contains__(self, endpoint: object) -> bool:
        return any(flight.endpoint == endpoint for flight in self._in_flight.values())

    @property
    def youngest(self) -> Flight:
        """The one dialled last; there must be one."""
        return self._in_flight[max(self._in_flight)]

    def overdue(self, limit: float, now: float) -> Flight | None:
        """One that was dialled at least ``limit`` seconds ago."""
        return next((flight for flight in self if flight.dialled_at + limit <= now), None)

    def hanging(self, stagger: float, now: float) -> Flight | None:
        """The oldest one without TCP, if it was dialled at least ``stagger`` seconds ago."""
        pending = (flight for flight in self if flight.connected_at is None)
        return next((flight for flight in pending if flight.dialled_at + stagger <= now), None)

    @property
    def records(self) -> tuple[AttemptRecord, ...]:
        """The attempts that ended, in the order in which they did; the last ``HISTORY`` of them."""
        return tuple(self._records.values())

    def record(self, attempt: int) -> AttemptRecord | None:
        """How one attempt ended; ``None`` while it is in flight and when it is forgotten."""
        return self._records.get(attempt)

    def launch(self, endpoint: Endpoint, chain: tuple[Endpoint, ...], now: float) -> Flight:
        """Number and register a new attempt."""
        self.total += 1
        flight = Flight(self.total, endpoint, now, chain)
        self._in_flight[flight.attempt] = flight
        return flight

    def connected(self, attempt: int, now: float) -> None:
        """TCP is connected; unknown attempts and repetitions are ignored."""
        flight = self._in_flight.get(attempt)
        if flight is not None and flight.connected_at is None:
            self._in_flight[attempt] = replace(flight, connected_at=now)

    def claimed(self, attempt: int, claim: Claim) -> None:
        """The session is usable; unknown attempts are ignored."""
        flight = self._in_flight.get(attempt)
        if flight is not None:
            self._in_flight[attempt] = replace(flight, claim=claim)

    def end(self, attempt: int, now: float, miss: Miss) -> Flight | None:
        """Move it to the history; ``None`` if it is not in flight."""
        flight = self._in_flight.pop(attempt, None)
        if flight is None:
            return None
        if len(self._records) == HISTORY:
            del self._records[next(iter(self._records))]
        self._records[attempt] = AttemptRecord(
            number=attempt, endpoint=flight.endpoint, started=flight.dialled_at, ended=now, miss=miss
        )
        return flight

    def amend(self, attempt: int, miss: Miss) -> None:
        """Correct how an attempt ended, if the history still holds it."""
        record = self._records.get(attempt)
        if record is not None:
            self._records[attempt] = replace(record, miss=miss)
