"""The attempts of one search: the pending ones, and the history of the others.

This module only keeps records, and decides nothing.  An attempt is pending from its dial until a fact ends it
or the search abandons it.  A parked attempt is pending but holds no dial.  The history is bounded, because an
episode without a deadline may last for days.

Every step of a search calls most of these methods, and a simulation has a million searches.  So a pending
attempt is one mutable object, and a search without attempts computes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from haclient.cluster_url.endpoint import Endpoint
from haclient.discovery.evidence import AttemptRecord, Failure, FailureReason
from haclient.discovery.polling.setup_answers import SetupAnswers

# Enough for the list in an error; about a day of rounds at the longest delay per member.
HISTORY = 1000
LONGEST = 60.0
"""Seconds to which the limit of an attempt grows; Qpid JMS waits as long for the answer to its Open."""


@dataclass(frozen=True, slots=True)
class Target:
    """An endpoint to dial, and the chain of members that redirected there, in order."""

    endpoint: Endpoint
    chain: tuple[Endpoint, ...] = ()


@dataclass(frozen=True, slots=True)
class Claim:
    """The claim of a usable session about its member.

    :param proven: whether the member has proved its identity, see ``Claimed``.
    """

    generation: int | None = None
    cluster: str | None = None
    proven: bool = False


NO_CLAIM = Claim()


@dataclass(slots=True, eq=False)
class PendingAttempt:
    """One pending attempt.

    :param chain: the members that redirected to this endpoint, in order.
    :param syn_at: when the SYN was sent, in monotonic seconds; infinite while credentials or an address are
        still missing.  ``keep`` counts from it.  With ``adaptive`` a member without an answer ``stagger``
        later is silent.
    :param keep: how long an unanswered SYN is kept, in seconds.
    :param connected_at: when TCP was connected, in monotonic seconds.
    :param parked_at: when the member parked the connection, in monotonic seconds.
    :param renewed_at: when the time limit was restarted, see ``polling.setup_answers``.
    :param overstayed: whether it has been parked so long that the search continues meanwhile.
    :param claim: the member's claim; set once the session is usable.
    """

    attempt: int
    endpoint: Endpoint
    dialled_at: float
    chain: tuple[Endpoint, ...] = ()
    syn_at: float = math.inf
    keep: float = math.inf
    connected_at: float | None = None
    parked_at: float | None = None
    renewed_at: float = -math.inf
    overstayed: bool = False
    claim: Claim | None = None

    @property
    def visited(self) -> tuple[Endpoint, ...]:
        """Return the redirect chain including this endpoint."""
        return (*self.chain, self.endpoint)

    def ends_at(self, limit: float) -> float:
        """Return when the attempt has used up its ``limit`` seconds."""
        return max(self.dialled_at, self.renewed_at) + limit

    def phase(self) -> str:
        """Return how far the attempt got, for people."""
        if self.connected_at is None:
            return "no TCP connection"
        if self.parked_at is not None:
            parked = self.parked_at - self.dialled_at
            return f"parked after {parked:.3g} s, and the member did not become primary"
        return f"TCP connected after {self.connected_at - self.dialled_at:.3g} s, then silence"


class PendingAttempts:
    """Register of a search's attempts; iteration yields the pending ones in the order of their dials.

    :param answers: answers of peers to all attempts of the process.
    :ivar total: number of all attempts, ended or not.
    :ivar parked: the parked attempt.
    :ivar surplus: a second parked attempt.
    :ivar claimed: whether a session is usable.
    """

    __slots__ = (
        "_answers",
        "_pending",
        "_records",
        "_slow",
        "_undialled",
        "claimed",
        "parked",
        "surplus",
        "total",
    )

    def __init__(self, answers: SetupAnswers | None = None) -> None:
        self._answers = answers
        self._pending: dict[int, PendingAttempt] = {}
        self._records: dict[int, AttemptRecord] = {}
        self._slow: dict[Endpoint, int] = {}  # attempts in a row that had TCP and ran out of time
        self._undialled = 0
        self.total = 0
        self.parked: PendingAttempt | None = None
        self.surplus: PendingAttempt | None = None
        self.claimed = False

    def __iter__(self) -> Iterator[PendingAttempt]:
        return iter(tuple(self._pending.values()))

    def __len__(self) -> int:
        return len(self._pending)

    def __contains__(self, endpoint: object) -> bool:
        for pending in self._pending.values():
            if pending.endpoint == endpoint and not pending.overstayed:
                return True
        return False

    def get(self, attempt: int) -> PendingAttempt | None:
        """Return the attempt with this number if it is pending."""
        return self._pending.get(attempt)

    @property
    def dials(self) -> int:
        """Return the number of pending attempts that hold a dial."""
        return len(self._pending) - self._undialled

    @property
    def last_dial(self) -> float:
        """Return when the newest attempt that is not parked was dialled; minus infinity if there is none."""
        return max((each.dialled_at for each in self if each.parked_at is None), default=-math.inf)

    def overdue(self, limit: float, now: float) -> tuple[PendingAttempt, float] | None:
        """Return an attempt that has run out of time, and its limit in seconds.

        An attempt that is not parked has ``limit`` seconds, and an unanswered SYN its ``keep``.  ``limit``
        doubles, up to ``LONGEST``, with each attempt in a row at the endpoint that had TCP and ran out of
        time.  A broker with a long backlog works through the connections of clients that gave up; if all of
        them gave up after the same time, it would never reach one that still waits.
        """
        for pending in self._pending.values():
            most = self._limit(pending, limit)
            if pending.parked_at is None and pending.ends_at(most) <= now:
                self._renew(pending, now)
                if pending.ends_at(most) <= now:
                    return pending, most
            if pending.connected_at is None and pending.syn_at + pending.keep <= now:
                return pending, pending.keep
        return None

    def _limit(self, pending: PendingAttempt, limit: float) -> float:
        if pending.connected_at is None:
            return limit
        doublings = min(self._slow.get(pending.endpoint, 0), 64)  # a float has no more than 1,023
        return max(limit, min(limit * 2.0**doublings, LONGEST))

    def _renew(self, pending: PendingAttempt, now: float) -> None:
        """Restart the time limit of an attempt with TCP if its peer has answered other attempts."""
        if self._answers is not None and pending.connected_at is not None:
            pending.renewed_at = self._answers.last(pending.endpoint, pending.dialled_at, now)

    def times(self, limit: float, stagger: float, park_limit: float) -> list[float]:
        """Return the times at which an attempt's limits expire, in monotonic seconds; see ``overdue``.

        :param stagger: seconds after which an attempt without TCP frees its dial; infinite: never.
        :param park_limit: seconds for which the search waits for a parked attempt.
        """
        times: list[float] = []
        if self.parked is not None and self.parked.parked_at is not None and not self.parked.overstayed:
            times.append(self.parked.parked_at + park_limit)
        for pending in self._pending.values():
            if pending.parked_at is None:
                times += (pending.ends_at(self._limit(pending, limit)), pending.dialled_at + stagger)
            if pending.connected_at is None:
                times += (pending.syn_at + stagger, pending.syn_at + pending.keep)
        return times

    def waits_for_parked(self, limit: float, now: float) -> bool:
        """Return whether the search still waits for the parked attempt, at most ``limit`` seconds."""
        pending = self.parked
        if pending is None or pending.parked_at is None or pending.overstayed:
            return False
        pending.overstayed = pending.parked_at + limit <= now
        return not pending.overstayed

    def hanging(self, stagger: float, now: float) -> PendingAttempt | None:
        """Return the oldest attempt without TCP, if it was dialled at least ``stagger`` seconds ago."""
        for pending in self._pending.values():
            if pending.connected_at is None:
                return pending if pending.dialled_at + stagger <= now else None
        return None

    @property
    def records(self) -> tuple[AttemptRecord, ...]:
        """Return the last ``HISTORY`` ended attempts, in the order of their ends."""
        return tuple(self._records.values())

    def record(self, attempt: int) -> AttemptRecord | None:
        """Return the record of an ended attempt; ``None`` if it is pending or no longer in the history."""
        return self._records.get(attempt)

    def launch(
        self, endpoint: Endpoint, chain: tuple[Endpoint, ...], now: float, keep: float = math.inf
    ) -> PendingAttempt:
        """Number and register a new attempt.

        :param keep: how long an unanswered SYN is kept, in seconds.
        """
        self.total += 1
        pending = PendingAttempt(self.total, endpoint, now, chain, syn_at=now, keep=keep)
        self._pending[pending.attempt] = pending
        return pending

    def connected(self, attempt: int, now: float) -> None:
        """Record that TCP is connected; unknown attempts and repetitions are ignored."""
        pending = self._pending.get(attempt)
        if pending is not None and pending.connected_at is None:
            pending.connected_at = now

    def park(self, attempt: int, now: float) -> None:
        """Record that a member parked the attempt; unknown attempts and repetitions are ignored."""
        pending = self._pending.get(attempt)
        if pending is None or pending.parked_at is not None:
            return
        pending.parked_at = now
        self._undialled += 1
        if self.parked is None:
            self.parked = pending
        else:
            self.surplus = pending

    def claim(self, attempt: int, claim: Claim) -> None:
        """Record that the session is usable; unknown attempts are ignored."""
        pending = self._pending.get(attempt)
        if pending is not None:
            pending.claim = claim
            self.claimed = True

    def end(self, attempt: int, now: float, failure: Failure) -> PendingAttempt | None:
        """Move an attempt to the history and return it; ``None`` if it is not pending."""
        pending = self._pending.pop(attempt, None)
        if pending is None:
            return None
        if pending.parked_at is not None:
            self._unpark(pending)
        if failure.kind is FailureReason.TIMED_OUT and pending.connected_at is not None:
            self._slow[pending.endpoint] = self._slow.pop(pending.endpoint, 0) + 1
            if len(self._slow) > HISTORY:  # a peer may redirect to any number of endpoints
                del self._slow[next(iter(self._slow))]
        elif failure.kind is not FailureReason.STOPPED:
            self._slow.pop(pending.endpoint, None)
        if self.claimed:
            self.claimed = any(other.claim for other in self._pending.values())
        if len(self._records) == HISTORY:
            del self._records[next(iter(self._records))]
        self._records[attempt] = AttemptRecord(
            number=attempt, endpoint=pending.endpoint, started=pending.dialled_at, ended=now, failure=failure
        )
        return pending

    def _unpark(self, pending: PendingAttempt) -> None:
        self._undialled -= 1
        held = [other for other in self._pending.values() if other.parked_at is not None]
        self.parked = held[0] if held else None
        self.surplus = held[1] if len(held) > 1 else None

    def amend(self, attempt: int, failure: Failure) -> None:
        """Replace the failure of an ended attempt, if the history still holds it."""
        record = self._records.get(attempt)
        if record is not None:
            self._records[attempt] = replace(record, failure=failure)
