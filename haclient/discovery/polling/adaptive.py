"""Which member is dialled next and when, by what each of them answered: ``backoff_strategy=adaptive``.

Pure: one object for each search, without a clock.  Times are monotonic seconds.

Rules
-----
1. The first round after a loss follows the delay of ``Backoff``, at most ``backoff_base``: one broken
   connection must not cost its user a second while the broker is alive.  If it fails, the outage is real, and
   the second round is spread evenly over ``SPREAD``, so that a fleet does not arrive together.
2. A refusal (RST, unreachable) costs its host nothing worth mentioning, and a client that stays near is back
   at once: dial again after ``POLL`` seconds; with one address alone after ``POLL_ALONE`` when the first
   rounds (``ALONE_AT_FIRST``) have failed.
3. Silence is a dead host, or a full backlog (Linux drops the SYN): the kernel's repeats are polls that cost
   the server no connection.  So the client keeps the SYN, dials the others meanwhile, and backs off after it.
4. A server that accepts, and then drops the connection, closes it without a word of who serves, or times out
   is alive and overloaded: full jitter, from ``POLL`` by ``backoff_factor`` up to ``backoff_max``.  Where
   members give hints (rule 8) from ``backoff_base``: the drop is that of a forwarder whose member has died.
5. A passive member's close (``amqp:connection:forced``, a redirect, ``not-found`` and its like of one that
   recovers) is no overload: dial again after ``POLL``.
6. A suspect is a member that spoke AMQP in this episode and now refuses or is silent: it is probably the new
   primary with a full backlog.  It is polled alone: every ``POLL_SUSPECT`` where it refuses, and the first
   time after ``_FIRST_SUSPECT`` of that, because the polls of a fleet have to fill the longer period.  The
   others pause longer and longer, up to 6 s from one dial to the next.  One that accepts TCP and answers late
   keeps them waiting for ``_BESIDE_SLOW`` at most, and only the first time: a busy machine is late often.
   A suspect that is silent, and an address alone that has refused and is silent now, gets its next SYN at a
   time of the client's own (``_KEEP_ALONE``, ``_KEEP_SUSPECT``, ``_KEEP_AGAIN``): repeats of the kernel would
   come a second later, all together.
7. From the second round on the order is: suspects, passive members, unknown ones, those that refuse or are
   silent, and the lost primary last; stable within each.
8. Members that announce a generation and no fleet, or have given a hint in this episode (``retry-after``,
   parking), spread a fleet better than a client can: full jitter from ``backoff_base`` up to ``POLL``, no
   suspects, the order of the list, and a member that answers in the first round, where it is not asked to
   park the client, is not kept apart from its next dial.
9. Where the primary announced its fleet, clients spread themselves over the time that it needs for all
   of them: see ``spread``.  Rules 1, 2 and 8 do not hold then, unless a member gives a hint.
10. No other pause is longer than ``backoff_max``, and below that no poll is more frequent than
   ``backoff_base``.
11. After a loss a round waits no longer than ``stagger`` for a name that is being resolved, where an address
   is known: name servers fail together with hosts.  An address that is found later ends the pause.

The figures come from ``benchmarks/grid``: they hold the most cells of the grid in docs/storms.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from haclient.cluster_url.endpoint import Endpoint
from haclient.discovery.evidence import Failure, FailureReason
from haclient.discovery.pending_attempts import PendingAttempt
from haclient.discovery.polling.answer import Answer, answer_of
from haclient.discovery.polling.dial_times import REPEATS, DialTimes
from haclient.discovery.polling.spread import Spread
from haclient.discovery.topology import Topology
from haclient.retry.backoff import Backoff, Delay
from haclient.retry.fleet import NO_FLEET
from haclient.retry.policy import Policy

POLL = 0.56
"""s; two polls a second are the most, and a primary is dialled 0.28 s after it accepts, in the median."""
POLL_ALONE = 1.0
"""s; with one address a full backlog and a dead process look alike, and each poll costs the former."""
ALONE_AT_FIRST = 10
"""Rounds in which one address is polled as several are: most failovers have ended by then."""
POLL_SUSPECT = (1.15, 1.05, 1.5)
"""s, growth, s."""
_FIRST_SUSPECT = (0.5, 1.5)
"""Parts of the period, from and to."""
SPREAD = 0.55
"""s, after ``GAP``: so nearly every moment of a period has as many polls as any other."""
GAP = 0.4
"""s between two dials of one endpoint."""
_EVENLY = 0.9
"""Polls are drawn from this part of the period to the whole, so that clients drift apart; the sum of two is
above a second, so that ``dial_times`` holds none of them."""
_TOGETHER = 0.1
"""s that a round waits for members that only the distance of dials holds: else a passive one comes first."""
_KEEP_UNKNOWN: tuple[tuple[float, float, float], ...] = ((7.5, 1.0, 2.0), (4.05, 0.85, 0.95))
"""s that a SYN is kept, and the pause after it (from, to), where nothing has answered: its kernel repeats it
after 1, 3 and 7 s, since Linux 6.5 after 1, 2, 3, 4, 5, 7."""
_KEEP_FULL: tuple[tuple[float, float, float], ...] = ((3.9, 1.0, 3.0),)
"""The same where something has answered in this episode: the backlog is full."""
_KEEP_ALONE, _KEEP_SUSPECT = (0.85, 0.0, 0.1), (0.85, 0.0, 0.6)
"""The same for the first SYN that a backlog seems to drop, of one address and of several."""
_KEEP_AGAIN: tuple[tuple[float, float, float], ...] = ((0.85, 0.0, 0.95), (0.85, 0.0, 0.95), (3.9, 0.5, 1.5))
"""The same for those after it, in turn: a SYN that is kept reaches a member that is more than 0.85 s away."""
_KEEP_LOST: tuple[tuple[float, float, float], ...] = ((0.9, 2.0, 3.0), (0.9, 2.0, 3.0), (4.05, 2.0, 3.0))
"""The same at the lost primary while another member answers: its host is dead, or a second and more away."""
_KEEP_PAUSED = 0.9
"""s that a SYN is kept at a member that pauses: until before its first repeat."""
_IN_VAIN = 2
"""So many of these in a row say that it may be far away; then its SYN is kept for the whole time."""
_BESIDE_SUSPECT = (3.0, 2.0, 6.0)
"""s, growth, s."""

_SHORTEST = 0.01
"""s: no mistake makes a round follow the other without a pause."""
_BESIDE_SLOW = 1.3
"""s at most, from one dial of the others to the next: 128 setups take 0.64 s at 200 a second."""

_MOST = 256
"""Members that are remembered; redirects may lead to ever new ones."""

_RENEWED = frozenset({FailureReason.AUTHENTICATION_TEMPORARY})
_ORDER = {Answer.PASSIVE: 1, Answer.NONE: 2, Answer.OVERLOADED: 3, Answer.REFUSED: 3, Answer.SILENT: 3}


@dataclass(slots=True)
class _Member:
    """What is known of one member in this episode.

    :ivar answered: whether it answered anything; ``was_passive``: whether it spoke AMQP.
    :ivar is_slow: TCP is connected, and the answer takes longer than ``stagger``; ``was_late``: one did.
    :ivar hangs: dials in a row that nothing answered; ``overloads``: how often it was overloaded in a row.
    :ivar due_at: not dialled from the list before.
    :ivar pause: how long it is not dialled beside a suspect, in seconds, and ``paused_until``.
    """

    answer: Answer = Answer.NONE
    answered: bool = False
    is_slow: bool = False
    was_late: bool = False
    was_passive: bool = False
    hangs: int = 0
    overloads: int = 0
    due_at: float = -math.inf
    pause: float = 0.0
    paused_until: float = -math.inf


@dataclass(frozen=True, slots=True)
class _Drawn:
    """When the next round may begin, in monotonic seconds.

    :param earliest: ``at`` was drawn evenly from here to ``latest``; ``None`` where nothing was drawn.
    """

    earliest: float | None
    latest: float
    at: float


class Polling:
    """The members of one episode.

    :param first: whether this is the first connect; ``began``: when the search did.
    :param times: those that the searches of a factory share.
    """

    __slots__ = (
        "_asked",
        "_backoff",
        "_coordinated",
        "_first",
        "_listed",
        "_lost",
        "_members",
        "_policy",
        "_round",
        "_spread",
        "_suspected",
        "_times",
    )

    adaptive = True

    def __init__(
        self, policy: Policy, backoff: Backoff, times: DialTimes, *, first: bool, began: float = 0.0
    ) -> None:
        self._policy = policy
        self._backoff = backoff
        self._times = times
        self._first = first
        self._members: dict[Endpoint, _Member] = {}
        self._listed: tuple[Endpoint, ...] = ()
        self._asked = False
        self._round = 0
        self._lost: Endpoint | None = None
        self._coordinated = False
        self._suspected = 0
        self._spread = Spread(policy, backoff.rng, began)

    # -- which --------------------------------------------------------------------------------

    def order(
        self, topology: Topology, candidates: tuple[Endpoint, ...], round_number: int
    ) -> tuple[Endpoint, ...]:
        """The candidates in the order to try them (rule 7)."""
        self._listed, self._lost, self._asked = candidates, topology.former, True
        self._round = round_number
        self._use_fleet(topology)
        if self._spread and round_number <= 1:
            return self._alone(candidates)
        if self._coordinated or round_number <= 1 or len(candidates) == 1:
            return candidates
        here = len(topology.candidates())
        return (*sorted(candidates[:here], key=self._rank), *candidates[here:])

    def _use_fleet(self, topology: Topology) -> None:
        self._coordinated |= topology.generation is not None and topology.fleet == NO_FLEET
        if self._coordinated or self._first:
            self._spread.stop()
        else:
            self._spread.use(topology.fleet, self._poll)

    def _alone(self, candidates: tuple[Endpoint, ...]) -> tuple[Endpoint, ...]:
        """What the first round of a client with a fleet dials."""
        if len(candidates) == 1 and self._spread.comes_within(self._policy.backoff_base + self.gap):
            return ()
        return (self._lost,) if self._lost in candidates else candidates[:1]

    def _rank(self, endpoint: Endpoint) -> int:
        member = self._members.get(endpoint)
        if self._is_suspect(endpoint):
            return 0
        if endpoint == self._lost and (member is None or member.answer is not Answer.PASSIVE):
            return 4
        return _ORDER[Answer.NONE if member is None else member.answer]

    def _is_suspect(self, endpoint: Endpoint) -> bool:
        member = self._members.get(endpoint)
        if member is None or self._coordinated or len(self._listed) == 1:
            return False
        return member.was_passive and member.answer in {Answer.REFUSED, Answer.SILENT}

    def _may_be_full(self, member: _Member) -> bool:
        """Whether silence of this member is that of a full backlog, and nobody else spreads the clients."""
        if self._spread or self._coordinated:
            return False
        return member.was_passive or (member.answered and len(self._listed) == 1)

    def _seems_full(self, endpoint: Endpoint) -> bool:
        member = self._members.get(endpoint)
        silent = member is not None and member.answer is Answer.SILENT and not member.is_slow
        return silent and self._may_be_full(self._member(endpoint))

    # -- when ---------------------------------------------------------------------------------

    @property
    def _poll(self) -> float:
        alone = len(self._listed) == 1 and not self._coordinated and self._round > ALONE_AT_FIRST
        period = POLL_ALONE if alone else POLL
        return self._capped(max(period, self._policy.backoff_base))

    def _capped(self, seconds: float) -> float:
        return min(seconds, self._policy.backoff_max)

    @property
    def gap(self) -> float:
        """Seconds that two dials of one endpoint are apart at least."""
        return min(GAP, GAP / POLL * self._policy.backoff_max)

    def free_at(self, endpoint: Endpoint) -> float:
        """When an endpoint may be dialled, whatever leads there."""
        return self._times.free_at(endpoint, self.gap)

    def due_at(self, endpoint: Endpoint) -> float:
        """When it may be dialled because it is listed."""
        return max(self._own_time(endpoint), self.free_at(endpoint))

    def _own_time(self, endpoint: Endpoint) -> float:
        member = self._members.get(endpoint)
        return -math.inf if member is None else max(member.due_at, member.paused_until)

    def due(self, ordered: tuple[Endpoint, ...], now: float) -> tuple[Endpoint, ...]:
        """Those whose time has come, but for the distance of two dials."""
        return tuple(each for each in ordered if self._own_time(each) <= now)

    def next_due(self, ordered: tuple[Endpoint, ...], now: float) -> float:
        """When the first of the others may be dialled; infinite when there are none."""
        return min((self.due_at(each) for each in ordered if self._own_time(each) > now), default=math.inf)

    def keep(self, endpoint: Endpoint, round_number: int) -> float:
        """How long a SYN is kept that nothing answers, in seconds."""
        if self._coordinated:
            return math.inf
        if round_number == 1 and not self._first:
            return self._policy.stagger
        keep = self._cycle(endpoint)[0]
        member = self._member(endpoint)
        if self._spread and not member.answered:
            keep = self._spread.keep(keep)
        if member.hangs >= _IN_VAIN or self._is_suspect(endpoint):
            return keep
        beside = any(self._is_suspect(each) for each in self._listed)
        return min(keep, _KEEP_PAUSED) if beside else keep

    def pause(self, now: float, round_number: int, began: float) -> Delay:
        """The delay after a round that has failed; ``began`` is when that was."""
        if self._coordinated:
            return self._coordinated_pause(now, round_number)
        drawn = self._draw(now, round_number, began)
        self._pause_others(now)
        due = max(now, min((self.due_at(each) for each in self._listed), default=now))
        moment = max(drawn.at, due)
        if drawn.earliest is None:
            return Delay(base=max(drawn.latest, moment) - now, delay=moment - now)
        held = [self.free_at(each) for each in self._listed if self._own_time(each) <= moment]
        moment = max((each for each in held if moment < each <= moment + _TOGETHER), default=moment)
        least = max([due, *held])
        if drawn.at <= least:
            return Delay(base=max(drawn.latest, moment) - now, delay=moment - now)
        # Of the draws that are later than ``least`` each is as likely as any other.
        return Delay(base=drawn.latest - now, delay=moment - now, floor=max(drawn.earliest, least) - now)

    def _draw(self, now: float, round_number: int, began: float) -> _Drawn:
        suspects = any(self._is_suspect(each) and not self._members[each].is_slow for each in self._listed)
        if self._spread:
            moment = self._spread.after(now, first=round_number <= 1, suspects=suspects)
            return _Drawn(None, now + self._spread.period, moment)
        if round_number <= 1:
            widest = max(self.gap, self._policy.backoff_max)
            longest = min(self.gap + max(SPREAD, self._policy.backoff_base), widest)
            start = began if len(self._listed) == 1 else now
            return self._evenly(start + self.gap, start + longest)
        period = self._poll
        full = [self.due_at(each) for each in self._listed if self._seems_full(each)]
        if full:
            moment = max(min(full), now + _SHORTEST)
            return _Drawn(None, moment, moment)
        least, most = _FIRST_SUSPECT if suspects and not self._suspected else (_EVENLY, 1.0)
        if suspects:
            first, growth, longest = POLL_SUSPECT
            period = self._capped(min(longest, first * growth**self._suspected))
        self._suspected = self._suspected + 1 if suspects else 0
        # Members that answer one after the other do not make the period longer.
        start = now if suspects or now - began >= period else began
        return self._evenly(start + least * period, start + most * period)

    def _evenly(self, earliest: float, latest: float) -> _Drawn:
        return _Drawn(earliest, latest, self._backoff.rng.uniform(earliest, latest))

    def _coordinated_pause(self, now: float, round_number: int) -> Delay:
        growth = self._policy.backoff_factor ** min(round_number, 64)
        ceiling = min(self._policy.backoff_base * growth, self._poll)
        drawn = self._backoff.rng.uniform(0, ceiling)
        floor = max(min((self.due_at(each) for each in self._listed), default=now) - now, 0.0)
        return Delay(base=floor + ceiling, delay=floor + drawn, floor=floor)

    # -- what happened ------------------------------------------------------------------------

    def waits_for_names(self, began: float) -> float:
        """Until when a round that began then stays open for names that are being resolved (rule 11)."""
        return began + self._policy.stagger if self._listed and not self._first else math.inf

    def has_new_address(self, candidates: Iterable[Endpoint]) -> bool:
        """Whether one of them was not known when the last round failed."""
        return self._asked and candidates is not self._listed and not set(candidates) <= set(self._listed)

    def dialled(self, endpoint: Endpoint, now: float) -> None:
        """It is being dialled."""
        self._times.note(endpoint, now)
        member = self._members.get(endpoint)
        if member is not None and self._may_be_full(member):
            keep, least, most = self._cycle(endpoint)
            member.due_at = now + keep + self._backoff.rng.uniform(self._capped(least), self._capped(most))

    def syn_sent(self, endpoint: Endpoint, at: float) -> None:
        """The SYN of that dial is sent; at an infinite time it will be, later."""
        if at < math.inf:
            self._times.move(endpoint, at)

    def hang(self, attempts: Iterable[PendingAttempt], now: float) -> None:
        """Those of these that have no answer after ``stagger``: their members are silent so far."""
        for each in attempts:
            member = self._member(each.endpoint)
            if each.parked_at is not None or each.syn_at + self._policy.stagger > now:
                continue
            is_slow = each.connected_at is not None
            if member.answer is Answer.SILENT:
                changed = is_slow and not member.is_slow
            else:
                changed = not is_slow or (member.was_passive and not member.was_late)
            if changed:
                member.answer, member.is_slow = Answer.SILENT, is_slow
                self._pause_others(now)

    def ended(self, pending: PendingAttempt, failure: Failure, now: float) -> None:
        """An attempt ended without a usable session."""
        connected = pending.connected_at is not None
        answer = answer_of(failure, connected=connected)
        if pending.parked_at is not None and answer is Answer.OVERLOADED:
            answer = Answer.PASSIVE
        self._coordinated |= failure.retry_after is not None or pending.parked_at is not None
        if not connected and now - pending.syn_at >= REPEATS:
            self._times.prolong(pending.endpoint, now)
        if answer is Answer.NONE:
            return
        self._times.close(pending.endpoint)
        member = self._member(pending.endpoint)
        member.answer, member.is_slow = answer, False
        member.was_late |= connected and now - pending.syn_at > self._policy.stagger
        if answer is Answer.SILENT:
            self._silent(pending, member, failure, now)
        else:
            member.answered, member.hangs = True, 0
            member.was_passive |= answer is Answer.PASSIVE
            self._answered(pending.endpoint, member, failure, now)
        self._pause_others(now)

    def usable(self, pending: PendingAttempt) -> None:
        """Its member serves, and those that redirected there may be asked again."""
        for endpoint in pending.visited:
            self._times.open(endpoint)

    def _member(self, endpoint: Endpoint) -> _Member:
        member = self._members.setdefault(endpoint, _Member())
        if len(self._members) > _MOST:
            unlisted = (each for each in self._members if each != endpoint and each not in self._listed)
            self._members.pop(next(unlisted, endpoint))
        return member

    def _silent(self, pending: PendingAttempt, member: _Member, failure: Failure, now: float) -> None:
        """Back off after a SYN that was kept for its time; one that made room is dialled again soon."""
        if failure.kind is FailureReason.DISPLACED or pending.keep <= self._policy.stagger:
            return
        _, least, most = self._cycle(pending.endpoint)
        member.hangs += 1
        if self._spread or self._may_be_full(member):
            return
        member.due_at = now + self._backoff.rng.uniform(self._capped(least), self._capped(most))

    def _answered(self, endpoint: Endpoint, member: _Member, failure: Failure, now: float) -> None:
        early = self._coordinated and self._round <= 1 and member.answer is Answer.PASSIVE
        if failure.retry_after is not None or early:
            self._times.open(endpoint)
        if member.answer is not Answer.OVERLOADED:
            member.overloads, member.due_at = 0, -math.inf
            return
        member.overloads = min(member.overloads + 1, 64)
        growth = self._policy.backoff_factor ** min(member.overloads + self._backoff.failures, 64)
        # Credentials that the application renews are soon right.
        soon = failure.kind in _RENEWED or self._coordinated
        first = min(POLL, self._policy.backoff_base) if soon else POLL
        ceiling = self._capped(first * growth)
        member.due_at = now + max(self.gap, self._backoff.rng.uniform(0, ceiling))

    def _pause_others(self, now: float) -> None:
        """Beside a suspect the other members pause, each for another time (rule 6)."""
        suspects = [each for each in self._listed if self._is_suspect(each)]
        if not suspects:
            for member in self._members.values():
                member.pause, member.paused_until = 0.0, -math.inf
            return
        first, growth, longest = _BESIDE_SUSPECT
        if all(self._members[each].is_slow for each in suspects):
            longest = _BESIDE_SLOW
        others = [each for each in reversed(self._listed) if each not in suspects]
        for place, endpoint in enumerate(others):
            member = self._member(endpoint)
            if member.paused_until > now:
                continue
            if not member.pause:
                member.pause = first * growth ** (place / 2)
            elif self._times.last(endpoint) >= member.paused_until:
                member.pause *= growth
            else:
                continue
            member.pause = min(member.pause, longest, 2 * self._policy.backoff_max)
            until = now + member.pause * self._backoff.rng.uniform(0.8, 1)
            # A suspect that speaks now and then must not begin the pauses of the others anew.
            member.paused_until = min(until, self._times.last(endpoint) + longest)

    def _cycle(self, endpoint: Endpoint) -> tuple[float, float, float]:
        """How long a SYN at this member is kept, and from when to when the pause after it lasts."""
        member = self._members.get(endpoint) or _Member()
        if self._may_be_full(member):
            first = _KEEP_ALONE if len(self._listed) == 1 else _KEEP_SUSPECT
            return _KEEP_AGAIN[(member.hangs - 1) % len(_KEEP_AGAIN)] if member.hangs else first
        cycles = _KEEP_FULL if member.answered else _KEEP_UNKNOWN
        if endpoint == self._lost and any(each.answered for each in self._members.values()):
            cycles = cycles if member.answered else _KEEP_LOST
        return cycles[min(member.hangs, len(cycles) - 1)]
