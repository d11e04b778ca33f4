"""The order and the times of dials, by the last answer of each member: ``backoff_strategy=adaptive``.  Pure.

For the search that dials for its factory (``search``).  The first round after a loss begins within
``backoff_base``.  If it fails, the outage is real: the second round begins at a random time in the period of
a poll, so that a fleet does not arrive together.  From then on this table has the times.  ``backoff_base``
is the least pause and ``backoff_max`` the longest; limits such as ``deadline`` end the search.

==========  =======================================  ===========  ============================================
row         the last thing that the member did       next dial    why
==========  =======================================  ===========  ============================================
full        was passive, now refuses or hangs        0.9 - 1.8 s  the new primary, and its backlog is full
passive     closed with ``forced``, redirects        each round   alive, and may be promoted at any time
refused     RST, unreachable                         each round   nothing listens: a poll costs nearly nothing
overloaded  dropped the connection, or was too slow  full jitter  grows each time, by ``backoff_factor``
silent      no answer, while others answer           3 - 4 s      its host is dead: it starts in minutes
==========  =======================================  ===========  ============================================

1. A SYN without an answer is closed after ``SYN``, before its kernel repeats it: every SYN comes at a time
   that the client chose.  Every third in a row is kept for ``KEPT_FAR``, and the next dial follows later.
   Exceptions: ``stagger`` in the first round after a loss, the whole attempt at the first connect.
2. *Was passive* means in this search.  Beside a full member the others have the times of the row *silent*:
   none is the primary.  While a member that was passive has accepted TCP and is late, the others have the
   times of the row *full*.
3. ``EACH_SECOND`` replaces a row where a dead host looks like a full backlog: one address, or only silence.
4. Members that gave a hint (``retry-after``, parking), or announce a generation but no fleet, spread clients
   better than this table: the pause is drawn from 0 to a ceiling, which grows from ``backoff_base`` to a
   poll's period.  In a fleet, ``spread`` has the times.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable
from dataclasses import dataclass

from haclient.cluster_url.endpoint import Endpoint
from haclient.discovery.evidence import Failure
from haclient.discovery.evidence import FailureReason as Reason
from haclient.discovery.pending_attempts import PendingAttempt
from haclient.discovery.polling.dial_times import REPEATS, DialTimes
from haclient.discovery.polling.spread import Spread
from haclient.discovery.topology import Topology
from haclient.retry.backoff import Backoff, Delay
from haclient.retry.fleet import NO_FLEET
from haclient.retry.policy import Policy


class Answer(enum.IntEnum):
    """The last answer of a member, in the order in which a round dials them."""

    FULL, PASSIVE, NONE, OVERLOADED, REFUSED, SILENT = range(6)


# Seconds.
POLL = (0.504, 0.56)  # from round to round: two dials a second (``dial_times``), and clients drift apart
EACH_SECOND = (0.9, 1.0)  # as often as a kernel repeats a SYN at first (RFC 6298)
FULL = (REPEATS, 2 * REPEATS)  # a backlog of 128 takes 0.64 s at 200 setups a second, 3.2 s at 40
SILENT = (3.0, 4.0)  # a host takes a minute to start: a small part of it
GAP = 0.4  # between two dials of an endpoint: below it an operator takes a client for one that spins
SYN = 0.85  # a kernel repeats it after 1 s, and timers of a busy machine are late
FAR, KEPT_FAR = 3, 3.9  # each third is kept for the repeats after 1 and 3 s: two satellite hops take 1.2 s
AT_FIRST = 10  # rounds, about 5 s: most failovers have ended by then

Endpoints = tuple[Endpoint, ...]
# Such a member may be promoted.  ``refusals`` ends a search that meets only the last three.
_PASSIVE = {"amqp:connection:forced", "amqp:not-found", "amqp:invalid-field", "amqp:not-allowed"}


def answer_of(failure: Failure, *, connected: bool) -> Answer:
    """Classify a failed attempt; ``connected`` if the member accepted the TCP connection."""
    match failure.kind:
        case Reason.LOST_RACE | Reason.STOPPED:
            return Answer.NONE
        case Reason.REFUSED | Reason.UNREACHABLE | Reason.UNRESOLVED:
            return Answer.REFUSED
        case Reason.TIMED_OUT | Reason.DISPLACED if not connected:
            return Answer.SILENT
        case Reason.REDIRECTED | Reason.REDIRECT_REFUSED | Reason.STALE_PRIMARY:
            return Answer.PASSIVE
    passive = failure.condition in _PASSIVE or failure.retry_after is not None
    return Answer.PASSIVE if passive else Answer.OVERLOADED


@dataclass(slots=True)
class _Member:
    answer: Answer = Answer.NONE
    in_a_row: int = 0
    was_passive: bool = False  # in this search
    due_at: float = -math.inf  # no round dials it before


class Polling:
    """The members of one episode; ``dials`` covers the whole factory."""

    def __init__(self, policy: Policy, backoff: Backoff, dials: DialTimes, *, first: bool, at: float) -> None:
        self._policy, self._backoff, self._times, self._first = policy, backoff, dials, first
        self._gap = min(GAP, GAP / POLL[1] * policy.backoff_max)
        self._members: dict[Endpoint, _Member] = {}
        self._listed: Endpoints = ()
        self._round, self._is_outage, self._hinted, self._is_busy = 0, False, False, False
        self._spread = Spread(policy, backoff.rng, at)

    def order(self, topology: Topology, candidates: Endpoints, number: int) -> Endpoints:
        """Return the candidates that the round of a number dials, in the order to try them.

        The first round keeps the order of ``candidates``, and so does each round while rule 4 applies.
        Otherwise the last answers decide.  In a fleet the first round after a loss has one candidate at most.
        ``dialled``, ``hang``, ``ended`` and ``pause`` use the candidates and the number of the last call.
        """
        self._listed, self._round, self._is_outage = candidates, number, self._first or number > 1
        if len(self._members) > len(candidates):
            self._members = {each: self._members[each] for each in candidates if each in self._members}
        self._hinted |= topology.generation is not None and topology.fleet == NO_FLEET
        self._spread.use(NO_FLEET if self._hinted or self._first else topology.fleet, self._capped(POLL[1]))
        if self._spread and number <= 1:
            return self._spread.first_round(candidates, topology.former, self._gap)
        if self._hinted or number <= 1:
            return candidates
        site = len(topology.candidates())
        return (*sorted(candidates[:site], key=self._answer), *candidates[site:])

    def _of(self, endpoint: Endpoint) -> _Member:
        return self._members.setdefault(endpoint, _Member())

    def _answer(self, endpoint: Endpoint) -> Answer:
        member = self._of(endpoint)
        looks_full = member.was_passive and member.answer in {Answer.REFUSED, Answer.SILENT}
        return Answer.FULL if looks_full and len(self._listed) > 1 and not self._hinted else member.answer

    def _capped(self, seconds: float) -> float:
        return min(max(seconds, self._policy.backoff_base), self._policy.backoff_max)

    def _ceiling(self, first: float, failures: int) -> float:
        return min(first * self._policy.backoff_factor ** min(failures, 64), self._policy.backoff_max)

    def free_at(self, endpoint: Endpoint) -> float:
        """When an endpoint may be dialled, whatever leads there."""
        return self._times.free_at(endpoint, self._gap)

    def due(self, ordered: Endpoints, now: float) -> Endpoints:
        """Return the members whose next dial is due.

        The caller checks ``free_at`` as well, which keeps the dials of one endpoint apart.
        """
        return tuple(each for each in ordered if self._of(each).due_at <= now)

    def next_due(self, ordered: Endpoints, now: float) -> float:
        """When the first of the members that are not due may be dialled; infinite if all are due."""
        times = (max(at, self.free_at(each)) for each in ordered if (at := self._of(each).due_at) > now)
        return min(times, default=math.inf)

    def keep(self, endpoint: Endpoint, number: int) -> float:
        """How long a SYN that nothing answers is kept in the round of that number, in seconds."""
        if self._hinted or number == 1:
            return math.inf if self._hinted or self._first else self._policy.stagger
        member = self._of(endpoint)
        is_third = member.answer is Answer.SILENT and member.in_a_row % FAR == FAR - 1
        return KEPT_FAR if (self._spread.keeps_long() if self._spread else is_third) else SYN

    def pause(self, now: float, number: int, began: float) -> Delay:
        """The delay after a round that has failed.

        :param number: the number of the round.
        :param began: when the round began, in monotonic seconds.
        """
        free = {each: max(now, self.free_at(each)) for each in self._listed}
        due = min((max(self._of(each).due_at, at) for each, at in free.items()), default=now)
        if self._spread and not self._hinted:  # a hint came in this round
            full = Answer.FULL in map(self._answer, self._listed)
            at = max(due, self._spread.after(now, first=number <= 1, suspects=full))
            return Delay(base=max(at - now, self._spread.period), delay=at - now)
        if self._hinted:
            ceiling = self._ceiling(self._policy.backoff_base, number)
            least, most = due, due + min(ceiling, self._capped(POLL[1]))
        elif number <= 1:
            least = max(free.values(), default=now)
            most = max(least, min(least + self._capped(POLL[1]), now + self._policy.backoff_max))
        else:
            row = EACH_SECOND if len(self._listed) == 1 and number > AT_FIRST else POLL
            start = now if due <= now and now - began >= row[1] else began  # a round may last for long
            least, most = (start + self._capped(each) for each in row)
        at = self._backoff.rng.uniform(least, most)
        floor = max(least, due) - now if at > due else None  # the due time decides, or the draw
        return Delay(base=max(most, due) - now, delay=max(at, due) - now, floor=floor)

    def dialled(self, endpoint: Endpoint, now: float) -> None:
        """Record a dial, and when the next one is due if nothing answers."""
        self._times.note(endpoint, now)
        if not self._is_outage or self._hinted or self._spread:
            return
        keep = min(self.keep(endpoint, self._round), self._policy.attempt_timeout)
        member = self._of(endpoint)
        others = {each.answer for where, each in self._members.items() if where != endpoint}
        unknown = len(self._listed) == 1 or not (member.was_passive or others - {Answer.NONE, Answer.SILENT})
        row = EACH_SECOND if unknown else FULL if member.was_passive else SILENT
        member.due_at = self._after(now + max(keep - SYN, 0.0), row)

    def _after(self, dialled: float, row: tuple[float, float]) -> float:
        return dialled + self._backoff.rng.uniform(*map(self._capped, row))

    def syn_sent(self, endpoint: Endpoint, at: float) -> None:
        """The SYN of that dial is sent; at an infinite time it will be, later."""
        self._times.move(endpoint, at)

    def hang(self, attempts: Iterable[PendingAttempt], now: float) -> None:
        """Mark the members of attempts without an answer after ``stagger`` as silent, or late."""
        was_busy, self._is_busy, changed = self._is_busy, False, False
        for each in attempts:
            member, overdue = self._of(each.endpoint), each.syn_at + self._policy.stagger <= now
            if each.connected_at is not None:
                member.due_at = -math.inf
                self._is_busy |= overdue and member.was_passive and each.parked_at is None
            elif overdue and member.answer is not Answer.SILENT:
                member.answer, member.in_a_row, changed = Answer.SILENT, 0, True
        if changed or (self._is_busy and not was_busy):
            self._delay_others()

    def ended(self, pending: PendingAttempt, failure: Failure, now: float) -> None:
        """An attempt ended without a usable session."""
        endpoint, parked = pending.endpoint, pending.parked_at is not None
        answer = answer_of(failure, connected=pending.connected_at is not None)
        answer = Answer.PASSIVE if parked and answer is Answer.OVERLOADED else answer
        self._hinted |= parked or failure.retry_after is not None
        if pending.connected_at is None and now - pending.syn_at >= REPEATS:
            self._times.prolong(endpoint, now)
        member = self._of(endpoint)
        if answer is not Answer.SILENT or failure.kind is Reason.DISPLACED:
            member.due_at = -math.inf
        if answer is Answer.NONE:
            return
        self._times.close(endpoint)
        hinted_passive = self._hinted and self._round <= 1 and answer is Answer.PASSIVE
        if failure.retry_after is not None or hinted_passive:
            self._times.open(endpoint)
        if answer is not Answer.SILENT or (self._is_outage and failure.kind is not Reason.DISPLACED):
            member.in_a_row = member.in_a_row + 1 if member.answer is answer else 1
        was_full = self._answer(endpoint) is Answer.FULL
        member.answer, member.was_passive = answer, member.was_passive or answer is Answer.PASSIVE
        if answer is Answer.OVERLOADED:
            first = min(POLL[1], self._policy.backoff_base) if self._hinted else POLL[1]
            ceiling = self._ceiling(first, member.in_a_row + self._backoff.failures)
            member.due_at = now + max(self._gap, self._backoff.rng.uniform(0, ceiling))
        elif answer is not Answer.SILENT:
            member.due_at = self._answered_due_at(endpoint, pending.syn_at)
        if was_full or self._answer(endpoint) is Answer.FULL:
            self._delay_others()

    def _answered_due_at(self, endpoint: Endpoint, dialled: float) -> float:
        if self._answer(endpoint) is Answer.FULL:
            return -math.inf if self._spread else self._after(dialled, FULL)
        if Answer.FULL in map(self._answer, self._listed):
            return self._after(dialled, SILENT)
        return self._after(dialled, FULL) if self._is_busy else -math.inf

    def _delay_others(self) -> None:
        for each in self._listed:
            if self._answer(each) is not Answer.FULL:
                member, due_at = self._of(each), self._answered_due_at(each, self._times.last(each))
                backs_off = member.answer in {Answer.SILENT, Answer.OVERLOADED}
                member.due_at = max(member.due_at, due_at) if backs_off else due_at

    def usable(self, pending: PendingAttempt) -> None:
        """Open the members that redirected to a member that serves: they may be dialled again."""
        for endpoint in pending.visited:
            self._times.open(endpoint)
