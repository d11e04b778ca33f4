"""The state machine of one episode of one connection: it answers the question "what now?".

The driver tells facts (``tcp_connected``, ``parked``, ``usable``, ``missed``) and asks ``next`` after each
fact, after each answer other than ``Wait``, ``Found`` and ``GiveUp``, when a ``Wait`` is over,
and when the topology, the lead or the free dials changed.  There is no I/O and no clock here.

Rules
-----
1. Candidates in turn, without delay within a round.  A jittered delay before the first attempt
   after a loss, and between rounds; the largest hint of a round decides over its delay.
2. An attempt has one deadline, from the dial to a usable session.  ``stagger`` after the last
   dial, or at once when an attempt fails, the next candidate is dialled.  At the cap (own or the
   factory's) the oldest attempt that hangs without TCP makes room.  Attempts that hang do
   not hold up the next round.  The first usable one wins.
3. Usable with a generation that the topology calls stale is a miss.
4. A redirect goes ahead of the list.  Hops are capped, a loop is refused, an endpoint is
   dialled once a round at most because of redirects, and not at all after it gave a hint.
5. Any other miss: next candidate.
6. Wrong credentials or a wrong certificate: never again at that endpoint, and the end when
   the round is over.  ``not-found`` or ``invalid-field`` from every member: the end as well.
   A member that only redirected has not spoken about either.
7. The end at ``deadline`` (``startup_deadline`` for the first connect) and at ``max_attempts``.
8. Without the lead only the primary is dialled, once an epoch, when another connection has
   found it.  A leading search does the same while it backs off.
9. A hint that names a member (its slot, or the target of a redirect) begins a wait at once.  After it
   that member is dialled first and alone, with or without the lead: see ``appointments``.  The wait
   ends early for a primary elsewhere that another connection has found.  When ``backoff`` does
   not obey hints any more, they are not there: a miss is a miss.  The same goes for the Close that ended
   the connection: what it asked for is the delay before the first attempt.
10. The members of the site that is not in use are candidates when the episode has lasted ``dr_after``,
   behind the others.  A redirect to one of them is followed at once, as any other.
11. An attempt that a member parked holds no dial and has no deadline.  The list of its round is walked to its
   end all the same: the primary may be alive, and what the rounds before failed of be over.  Then the
   round stays open until the parked attempt has ended, a redirect or a newly known primary has come, or
   ``park_timeout`` is over; after that rounds go on.  Two are never parked at once.

Theory of operation
-------------------
    state     left when              to        dials
    firm      the wait is over       idle      nothing (rule 9): the wait after a loss, or of a hint
    backoff   the wait is over       idle      redirects, a newly known primary
    idle      a hint came in         firm      an appointment, a newly known primary
              the lead is held       walking
    walking   the list is walked     backoff   an appointment, the list, redirects,
                                     or firm   a newly known primary
              an appointment         firm
    any       Found, GiveUp          ended     nothing

Only ``firm`` and ``backoff`` lead to ``idle``, so every round but the first is preceded by a
delay.  A round itself is finite: the list as ``rounds`` tells, redirects as ``redirects``
tells and each endpoint once because of them, the primary once an epoch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from haclient.cluster_url.endpoint import Endpoint
from haclient.discovery.decision import (
    Abandon,
    BackOff,
    Decision,
    Dial,
    Found,
    GiveUp,
    StartRound,
    Wait,
)
from haclient.discovery.evidence import AttemptRecord, Claimed, Failure, FailureReason, valid_hint
from haclient.discovery.limits import Limits, Verdict
from haclient.discovery.pending_attempts import Claim, PendingAttempt, PendingAttempts
from haclient.discovery.redirects import Target, targets
from haclient.discovery.reservation import Reservation
from haclient.discovery.rounds import Round
from haclient.discovery.topology import Topology, update
from haclient.retry.backoff import Backoff
from haclient.retry.policy import Policy


@dataclass(slots=True)
class _View:
    """What ``next`` was asked with.  ``candidates`` leaves out those that rule 6 bars."""

    now: float
    topology: Topology
    candidates: tuple[Endpoint, ...]
    lead: bool
    room: int | None
    resolving: bool


class Search:
    """One episode: from the start, or the loss of a connection, to the next usable one.

    :param backoff: lives as long as the connection; the driver resets it once a connection
        was usable for ``policy.stable_after``.
    :param now: monotonic seconds; the deadline counts from here.
    :param first: whether this is the first connect, and not the search after a loss.
    :param credentials: whether attempts send credentials, which a redirect could divert.
    :param unstable: the member whose connection was lost before it was stable: the others come first.
    :param farewell: the member that closed the connection, and what it said.
    """

    __slots__ = (
        "_ahead",
        "_announced",
        "_appointment",
        "_backoff",
        "_credentials",
        "_dial_at",
        "_ended",
        "_flights",
        "_limits",
        "_make_room_at",
        "_other_site_at",
        "_pause",
        "_policy",
        "_referrals",
        "_round",
        "_unstable",
        "_verdict",
        "_visited",
        "_visited_epoch",
        "_walking",
    )

    def __init__(
        self,
        *,
        policy: Policy,
        backoff: Backoff,
        now: float,
        first: bool,
        credentials: bool = False,
        unstable: Endpoint | None = None,
        farewell: tuple[Endpoint, Failure] | None = None,
    ) -> None:
        self._policy = policy
        self._backoff = backoff
        self._credentials = credentials
        self._unstable = unstable
        self._limits = Limits(policy, now, first=first)
        self._flights = PendingAttempts()
        self._round = Round()
        self._appointment = Reservation()
        self._walking = False
        if farewell is not None:
            self._heed(*farewell)
        self._pause = None if first else self._back_off(now)
        self._announced = first
        self._dial_at = now
        self._other_site_at = now + policy.dr_after if policy.dr else math.inf
        self._make_room_at = now
        self._referrals: list[tuple[PendingAttempt, Failure, Endpoint]] = []
        self._ahead: list[Target] = []
        self._visited: frozenset[Endpoint] = frozenset()
        self._visited_epoch = 0
        self._verdict: Verdict | None = None
        self._ended: Found | GiveUp | None = None

    def _heed(self, lost: Endpoint, miss: Failure) -> None:
        hint = self._obeyed(miss)
        if hint is not None and miss.is_slot:
            self._appointment.make((Target(lost),), hint)
        elif hint is not None:
            self._round.note(lost, miss)

    def _obeyed(self, miss: Failure) -> float | None:
        return valid_hint(miss.retry_after) if self._backoff.obeys_hints else None

    @property
    def history(self) -> tuple[AttemptRecord, ...]:
        """The attempts that ended, in the order in which they did; the last 1000 of them."""
        return self._flights.records

    def record(self, attempt: int) -> AttemptRecord | None:
        """How one attempt ended; ``None`` while it is in flight and when the history forgot it."""
        return self._flights.record(attempt)

    @property
    def attempts(self) -> int:
        """All attempts of this episode, ended or not."""
        return self._flights.total

    @property
    def in_flight(self) -> int:
        """Dials that this search holds of those of the factory; a parked attempt holds none."""
        return self._flights.dials

    @property
    def may_park(self) -> bool:
        """Whether an attempt that is dialled now should ask to be parked.

        Only in an outage, that is when a round has failed: a member that parks whoever asks would
        otherwise keep the redirect to a living primary to itself.  And not on the way to an
        appointment: the primary keeps that slot for the client that was refused.
        """
        if self._policy.standby == "none" or self._flights.parked is not None:
            return False
        return self._round.number > 1 and self._appointment.attempt != self._flights.total

    def resume(self, endpoint: Endpoint, now: float) -> int:
        """Take over an attempt that was parked before this episode; the number that it has here."""
        attempt = self._flights.launch(endpoint, (), now).attempt
        self._flights.connected(attempt, now)
        self._flights.park(attempt, now)
        return attempt

    def tcp_connected(self, attempt: int, now: float) -> None:
        """TCP is connected: the attempt no longer makes room for others."""
        self._flights.connected(attempt, now)

    def parked(self, attempt: int, now: float) -> None:
        """A member holds the connection until it serves: the attempt has no dial and no deadline any more."""
        self._flights.connected(attempt, now)
        self._flights.park(attempt, now)
        self._dial_at = now

    def usable(
        self, attempt: int, now: float, generation: int | None = None, cluster: str | None = None
    ) -> None:
        """Open came without an error and Begin was answered."""
        self._flights.connected(attempt, now)
        self._flights.claim(attempt, Claim(generation, cluster))

    def missed(self, attempt: int, now: float, miss: Failure) -> Failure:
        """The attempt ended without a usable session.

        :returns: what the topology is to learn: the miss, without a hint that is not obeyed.
        """
        if self._ended is not None:
            return miss
        flight = self._flights.end(attempt, now, miss)
        if flight is None:
            return miss
        hint = self._obeyed(miss)
        if miss.retry_after is not None and hint is None:
            miss = replace(miss, retry_after=None)
        self._note(flight.endpoint, miss, now)
        if miss.kind is FailureReason.REDIRECTED and miss.redirect is not None:
            self._referrals.append((flight, miss, miss.redirect))
        elif miss.is_slot and hint is not None:
            self._appointment.make((Target(flight.endpoint, flight.chain),), hint)
        return miss

    def next(
        self,
        now: float,
        topology: Topology,
        *,
        lead: bool = True,
        room: int | None = None,
        resolving: bool = False,
    ) -> Decision:
        """What to do now.

        :param lead: whether this search walks the list for the factory; one at a time does.
        :param room: dials still free in the factory; ``None`` for no limit.
        :param resolving: whether names are being resolved.
        """
        if self._ended is not None:
            return self._ended
        view = _View(now, topology, self._candidates(topology, now), lead, room, resolving)
        if self._referrals or self._ahead:
            self._judge(view)
        return (
            self._settle(view)
            or self._stop(view)
            or self._time_out(view)
            or self._rest(view)
            or self._keep_appointment(view)
            or self._skip_ahead(view)
            or self._walk(view)
            or self._wait(view)
        )

    def _candidates(self, topology: Topology, now: float) -> tuple[Endpoint, ...]:
        candidates = topology.candidates(other_site=now >= self._other_site_at)
        barred = self._limits.barred
        if barred:
            candidates = tuple(c for c in candidates if c not in barred)
        if self._unstable is not None and self._unstable in candidates:
            # A member that opens and drops must not keep the others from their turn.
            turn = candidates.index(self._unstable) + 1
            candidates = candidates[turn:] + candidates[:turn]
        return candidates

    def _settle(self, view: _View) -> Decision | None:
        if not self._flights.claimed:
            return None
        claims = [(flight, flight.claim) for flight in self._flights if flight.claim is not None]
        topology = view.topology
        for flight, claim in claims:
            # Two claims may come in together, before the driver has told the topology.
            told = Claimed(flight.endpoint, claim.generation, claim.cluster, topology.epoch)
            topology = update(topology, told)
        for flight, claim in claims:
            if topology.is_stale(claim.generation, claim.cluster):
                detail = f"generation {claim.generation} is not the newest of cluster {claim.cluster}"
                return self._abandon(flight, view.now, FailureReason.STALE_PRIMARY, detail)
        return self._win(claims[0][0], view.now)

    def _win(self, winner: PendingAttempt, now: float) -> Decision:
        for flight in self._flights:
            if flight.attempt != winner.attempt:
                detail = f"attempt {winner.attempt} at {winner.endpoint} was usable first"
                return self._abandon(flight, now, FailureReason.LOST_RACE, detail)
        self._ended = Found(winner.attempt)
        return self._ended

    def _stop(self, view: _View) -> Decision | None:
        if self._verdict is None:
            self._verdict = self._limits.overdue(view.now, self._flights, view.candidates)
        if self._verdict is None:
            return None
        reason, detail = self._verdict
        for flight in self._flights:
            return self._abandon(flight, view.now, FailureReason.STOPPED, f"{reason.value}: {flight.phase()}")
        self._ended = GiveUp(reason, detail, self.history)
        return self._ended

    def _time_out(self, view: _View) -> Decision | None:
        if not self._flights:
            return None
        held, surplus = self._flights.parked, self._flights.surplus
        if held is not None and surplus is not None:
            detail = f"attempt {held.attempt} at {held.endpoint} is parked already"
            return self._abandon(surplus, view.now, FailureReason.LOST_RACE, detail)
        limit = self._policy.attempt_timeout
        flight = self._flights.overdue(limit, view.now)
        if flight is None:
            return None
        detail = f"not usable within {limit:g} s: {flight.phase()}"
        return self._abandon(flight, view.now, FailureReason.TIMED_OUT, detail)

    def _abandon(self, flight: PendingAttempt, now: float, kind: FailureReason, detail: str) -> Abandon:
        order = Abandon(flight.attempt, kind, detail)
        self._flights.end(flight.attempt, now, order.miss)
        self._note(flight.endpoint, order.miss, now)
        return order

    def _note(self, endpoint: Endpoint, miss: Failure, now: float) -> None:
        self._dial_at = now
        self._round.note(endpoint, miss)
        self._limits.bar(endpoint, miss)

    def _judge(self, view: _View) -> None:
        for flight, miss, target in self._referrals:
            found = targets(flight, target, view.topology, self._policy, credentials=self._credentials)
            if isinstance(found, str):
                refused = replace(miss, kind=FailureReason.REDIRECT_REFUSED, detail=found)
                self._flights.amend(flight.attempt, refused)
                self._round.note(flight.endpoint, refused)
            elif miss.retry_after is None:
                self._ahead.extend(found)
            elif any(target.endpoint not in self._round.redirected for target in found):
                # Once a round, as without a hint: else two members could send a client to and fro.
                self._round.hints.pop(flight.endpoint, None)
                self._appointment.make(found, miss.retry_after)
        self._referrals.clear()
        if not view.lead:
            self._ahead.clear()

    def _back_off(self, now: float) -> BackOff:
        self._walking = False
        delay = self._backoff.next(
            self._appointment.take_hint() if self._appointment else self._round.take_hint()
        )
        self._pause = BackOff(now + delay.delay, delay, self._round.number)
        self._announced = True
        return self._pause

    def _rest(self, view: _View) -> Decision | None:
        if self._appointment.hint is not None:
            return self._back_off(view.now)
        if self._pause is None:
            return None
        if not self._announced:
            self._announced = True
            return self._pause
        if self._pause.until <= view.now:
            self._pause = None
        return None

    def _keep_appointment(self, view: _View) -> Decision | None:
        if not self._appointment or self._pause is not None or self._exhausted:
            return None
        if view.lead and not self._walking:
            return self._set_out(view)
        target = self._appointment.due(self._is_open)
        if target is None:
            return None
        order = self._dial(view, target)
        if isinstance(order, Dial):
            self._appointment.kept(order.attempt)
        return order

    @property
    def _firm(self) -> bool:
        pause = self._pause
        return pause is not None and (pause.round == 0 or pause.delay.hint is not None)

    def _skip_ahead(self, view: _View) -> Decision | None:
        if not (self._ahead or view.topology.primary) or self._exhausted:
            return None
        if self._firm:
            elsewhere = bool(self._appointment) and view.topology.primary not in self._appointment
            target = self._news(view) if elsewhere else None
        elif self._is_alone(view):
            target = self._news(view)
        else:
            target = self._next_referral() or self._news(view)
        return None if target is None else self._dial(view, target)

    def _is_alone(self, view: _View) -> bool:
        kept = self._appointment
        return kept.attempt > 0 and kept.is_alone(self._flights, self._policy.stagger, view.now)

    def _next_referral(self) -> Target | None:
        while self._ahead:
            target = self._ahead[0]
            if self._is_open(target.endpoint) and target.endpoint not in self._round.redirected:
                return target
            del self._ahead[0]
        return None

    def _news(self, view: _View) -> Target | None:
        primary = view.topology.primary
        if primary is None or not self._is_open(primary):
            return None
        visited = view.topology.epoch == self._visited_epoch and primary in self._visited
        return None if visited else Target(primary)

    def _is_open(self, endpoint: Endpoint) -> bool:
        closed = endpoint in self._limits.barred or endpoint in self._round.hints
        return not closed and endpoint not in self._flights

    def _walk(self, view: _View) -> Decision | None:
        if self._pause is not None or self._exhausted:
            return None
        if not self._walking:
            return self._set_out(view)
        if not view.lead or self._is_alone(view):
            return None
        endpoint = self._round.next_listed(view.candidates, self._flights)
        if endpoint is None:
            return self._end_round(view)
        return self._dial(view, Target(endpoint), listed=1) if view.now >= self._dial_at else None

    def _set_out(self, view: _View) -> Decision | None:
        if self._round.hints and not self._appointment:
            return self._back_off(view.now)
        if not view.lead:
            return None
        self._walking = True
        self._round = Round(self._round.number + 1)
        return StartRound(self._round.number)

    def _end_round(self, view: _View) -> Decision | None:
        if self._ahead or self._appointment or view.resolving or self._is_hopeful(view):
            return None
        self._verdict = self._limits.after_round(self._round, view.topology, view.candidates)
        return self._stop(view) or self._back_off(view.now)

    def _is_hopeful(self, view: _View) -> bool:
        if not self._flights:
            return False
        if self._rest_until(view) is not None:
            return True
        if view.now < self._flights.last_dial + self._policy.stagger:
            return True
        return not self._limits.barred and all(candidate in self._flights for candidate in view.candidates)

    def _rest_until(self, view: _View) -> float | None:
        """Until when a parked attempt lets the search rest; ``None`` when there is none, or no longer."""
        flight = self._flights.parked
        if flight is None or flight.parked_at is None or flight.overstayed:
            return None
        until = flight.parked_at + self._policy.park_timeout
        flight.overstayed = until <= view.now
        return None if flight.overstayed else until

    def _dial(self, view: _View, target: Target, *, listed: int = 0) -> Decision | None:
        if self._flights.dials >= self._policy.max_dials or (view.room is not None and view.room <= 0):
            return self._make_room(view)
        self._round.listed += listed
        return self._launch(view, target)

    def _make_room(self, view: _View) -> Decision | None:
        flight = self._flights.hanging(self._policy.stagger, view.now)
        if flight is None or view.now < self._make_room_at:
            return None
        # Should another search take the dial that this frees, the next must not go at once.
        self._make_room_at = view.now + self._policy.stagger
        return self._abandon(flight, view.now, FailureReason.MADE_ROOM, flight.phase())

    def _launch(self, view: _View, target: Target) -> Dial:
        endpoint, chain = target.endpoint, target.chain
        flight = self._flights.launch(endpoint, chain, view.now)
        self._dial_at = view.now + self._policy.stagger
        self._make_room_at = view.now
        self._round.dialled.add(endpoint)
        if chain:
            self._round.redirected |= {endpoint}
            self._ahead = [t for t in self._ahead if t.endpoint != endpoint]
        if endpoint == view.topology.primary:
            self._visit(endpoint, view.topology.epoch)
        return Dial(flight.attempt, endpoint, len(chain), chain[-1] if chain else None)

    def _visit(self, primary: Endpoint, epoch: int) -> None:
        if self._visited_epoch != epoch:
            self._visited_epoch = epoch
            self._visited = frozenset()
        self._visited |= {primary}

    @property
    def _exhausted(self) -> bool:
        return self._flights.total >= self._limits.attempts

    def _wait(self, view: _View) -> Wait:
        times = [self._limits.deadline, self._other_site_at]
        if self._pause is not None:
            times.append(self._pause.until)
        looking = bool(self._walking or self._ahead or self._appointment) or view.topology.primary is not None
        if looking:
            times += (self._dial_at, self._make_room_at)
        for flight in self._flights:
            if flight.parked_at is None:
                times.append(flight.dialled_at + self._policy.attempt_timeout)
                times.append(flight.dialled_at + self._policy.stagger if looking else math.inf)
        rest_until = self._rest_until(view)
        if rest_until is not None:
            times.append(rest_until)
        until = min((time for time in times if time > view.now), default=math.inf)
        return Wait(None if until == math.inf else until)
