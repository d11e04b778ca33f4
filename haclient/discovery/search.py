"""The state machine of one episode of one connection: it decides what the driver does next.

The driver reports facts (``tcp_connected``, ``parked``, ``usable``, ``attempt_ended``) and asks ``next``
after each fact, after each answer other than ``Wait``, ``Found`` and ``GiveUp``, when a ``Wait`` ends,
and when the topology, the search owner or the free dials changed.  There is no I/O and no clock here.
The states, and every move between them, are in ``states``.

Rules
-----
1. Candidates in turn, without delay within a round, unless the delays are fixed (``retry.backoff``, rule 6).
   A jittered delay before the first attempt after a loss, and between rounds; the longest ``retry_after``
   of a round decides over its delay.  With ``backoff_strategy=adaptive`` what each member answered decides
   about the order, about when it is dialled again, and about how long its SYN is kept: see ``polling``.
2. An attempt has one deadline, from the dial to a usable session; ``setup_answers`` renews it.  ``stagger``
   after the last dial, or at once when an attempt fails, the search dials the next candidate.  At the cap
   (own or the factory's) it abandons the oldest attempt without TCP to free a dial.  Attempts that hang do
   not delay the next round.  The first usable one wins.
3. A usable session whose generation the topology calls stale is a failure.
4. A redirect goes ahead of the list.  Hops are capped, a loop is refused, and because of redirects
   an endpoint is dialled once a round at most, and not at all after it sent ``retry_after``.
5. Any other failure: next candidate.
6. Wrong credentials or a wrong certificate: never again at that endpoint, and at the first connect the
   search ends with the round.  After a loss it goes on with the others for a while.  ``not-found``,
   ``invalid-field`` or ``not-allowed`` from every member ends it, most when they last: see ``refusals``.
7. The search ends at ``deadline`` (``startup_deadline`` for the first connect) and at ``max_attempts``.
8. A search that does not own the search of its factory dials the primary only, once for each version
   of the topology, when another connection has found it.  The owner does the same while it backs off.
9. A ``retry_after`` with a member (a reservation, or the target of a redirect) begins a wait at once.
   After it the search dials that member first and alone, owner or not: see ``reservation``.  The wait
   ends early for a primary elsewhere that another connection has found.  When ``backoff`` does not honor
   ``retry_after`` any more, the search ignores it: the failure is like any other.  The same goes for the
   Close that ended the connection: its ``retry_after`` is the delay before the first attempt.
10. The members of the site that is not in use become candidates when the episode has lasted ``dr_after``,
    behind the others.  The search follows a redirect to one of them at once, as any other.
11. A round waits for names; with ``adaptive``, after a loss, only ``stagger``.  A new address ends its pause.
12. An attempt that a member parked holds no dial and has no deadline.  The search still dials the rest of
    the list of that round: the primary may be alive, and the cause of the earlier failures gone.  Then the
    round stays open until the parked attempt ends, a redirect or a newly known primary arrives, or
    ``park_timeout`` has passed; after that the search starts rounds again.  Two are never parked at once.
"""

from __future__ import annotations

import math
from dataclasses import replace

from haclient.cluster_url.endpoint import Endpoint
from haclient.discovery import decision as decide
from haclient.discovery.candidates import Candidates
from haclient.discovery.candidates import View as _View
from haclient.discovery.decision import Abandon, BackOff, Decision, Dial, Found, GiveUp, Wait
from haclient.discovery.evidence import AttemptRecord, Failure, FailureReason
from haclient.discovery.limits import Limits
from haclient.discovery.pending_attempts import NO_CLAIM, Claim, PendingAttempt, PendingAttempts, Target
from haclient.discovery.polling.by_answer import Polling
from haclient.discovery.polling.dial_times import DialTimes
from haclient.discovery.polling.plain_rounds import PlainRounds
from haclient.discovery.polling.setup_answers import SetupAnswers
from haclient.discovery.redirects import Redirects
from haclient.discovery.refusals import Refusals
from haclient.discovery.reservation import Reservation
from haclient.discovery.rounds import DialledPrimaries, Round
from haclient.discovery.states import SearchState, Trigger, after
from haclient.discovery.topology import Topology
from haclient.discovery.winner import Loser, choose
from haclient.retry.backoff import Backoff, valid_retry_after
from haclient.retry.policy import Policy


class Search:
    """One episode: from the start, or the loss of a connection, to the next usable one.

    :param backoff: the connection's backoff; the driver resets it after ``policy.stable_after``.
    :param now: monotonic seconds; the deadline counts from here.
    :param first: true for the first connect, false for a search after a loss.
    :param planned: true if the client itself ended the session: the primary serves, and is dialled at once.
    :param credentials: true if attempts send credentials, which a redirect could divert.
    :param unstable: the member whose connection was lost before it was stable; it is dialled last.
    :param peer_close: the member that closed the connection, and its Close.
    :param refusals: shared by the searches of a factory, as ``dial_times``; a process shares ``answers``.
    :ivar reservation: the time that a member has reserved for this connection.
    """

    __slots__ = (
        "_announced",
        "_backoff",
        "_candidates",
        "_dial_at",
        "_dialled_primaries",
        "_ended",
        "_free_dial_at",
        "_limits",
        "_open_at",
        "_pause",
        "_pending",
        "_policy",
        "_polling",
        "_redirects",
        "_round",
        "_round_began",
        "_state",
        "_verdict",
        "reservation",
    )

    def __init__(
        self,
        *,
        policy: Policy,
        backoff: Backoff,
        now: float,
        first: bool,
        planned: bool = False,
        credentials: bool = False,
        unstable: Endpoint | None = None,
        peer_close: tuple[Endpoint, Failure] | None = None,
        refusals: Refusals | None = None,
        dial_times: DialTimes | None = None,
        answers: SetupAnswers | None = None,
    ) -> None:
        self._policy, self._backoff = policy, backoff
        self._limits = Limits(policy, now, refusals or Refusals(), first=first, rounds=backoff.rounds)
        self._polling: Polling | PlainRounds = PlainRounds(backoff)
        at_once, times = first or planned, dial_times or DialTimes()
        if backoff.adaptive:
            self._polling = Polling(policy, backoff, times, first=at_once, at=now)
        self._pending, self._round, self._round_began = PendingAttempts(answers), Round(), now
        self._open_at, self.reservation = math.inf, Reservation()
        self._state = SearchState.IDLE
        self._pause: BackOff | None = None
        if peer_close is not None:
            self._apply_retry_after(*peer_close)
        if not at_once:
            self._start_backoff(now)
        self._announced = at_once
        self._candidates = Candidates(policy, now, unstable)
        self._dial_at = self._free_dial_at = now
        self._redirects = Redirects(policy, credentials=credentials)
        self._dialled_primaries = DialledPrimaries()
        self._verdict: decide.Verdict | None = None
        self._ended: Found | GiveUp | None = None

    def _move(self, trigger: Trigger) -> None:
        self._state = after(self._state, trigger)

    def _apply_retry_after(self, lost: Endpoint, failure: Failure) -> None:
        seconds = self._honored_retry_after(failure)
        if seconds is not None and failure.is_reservation:
            self.reservation.make((Target(lost),), seconds)
        elif seconds is not None:
            self._round.note(lost, failure)

    def _honored_retry_after(self, failure: Failure) -> float | None:
        return valid_retry_after(failure.retry_after) if self._backoff.honors_retry_after else None

    @property
    def history(self) -> tuple[AttemptRecord, ...]:
        """The attempts that ended, in the order in which they did; the last 1000 of them."""
        return self._pending.records

    def record(self, attempt: int) -> AttemptRecord | None:
        """How one attempt ended; ``None`` while it is pending, or when the history has dropped it."""
        return self._pending.record(attempt)

    @property
    def deadline(self) -> float:
        """When it gives up, in monotonic seconds; infinite when there is no deadline."""
        return self._limits.deadline

    @property
    def attempts(self) -> int:
        """The number of attempts in this episode, ended or not; an attempt given to ``resume`` is one."""
        return self._pending.total

    @property
    def gave_up(self) -> bool:
        """Whether it has ended without a usable session."""
        return isinstance(self._ended, GiveUp)

    @property
    def dials(self) -> int:
        """The number of the factory's dials in use here: one for each pending attempt that is not parked."""
        return self._pending.dials

    @property
    def may_park(self) -> bool:
        """Return whether the attempt that was dialled last should ask to be parked.

        Not with ``standby=none``, or while another is parked.  Not before a round has failed: such a member
        may know a living primary.  Not for a reservation: the primary keeps that time for the client.  And
        not while a member refuses the credentials: it may be the primary, and is to be asked again.
        """
        if self._policy.standby == "none" or self._pending.parked is not None or self._limits.refusing:
            return False
        return self._round.number > 1 and self.reservation.attempt != self._pending.total

    def resume(self, endpoint: Endpoint, now: float) -> int:
        """Take over an attempt that was parked before this episode; the number that it has here."""
        attempt = self._pending.launch(endpoint, (), now).attempt
        self._pending.connected(attempt, now)
        self._pending.park(attempt, now)
        return attempt

    def syn_sent(self, attempt: int, at: float) -> None:
        """Record when the attempt sends its SYN; see ``PendingAttempt.syn_at``.  Ignored if it has ended."""
        pending = self._pending.get(attempt)
        if pending is not None:
            pending.syn_at = at
            self._polling.syn_sent(pending.endpoint, at)

    def tcp_connected(self, attempt: int, now: float) -> None:
        """Record that TCP is connected: the search no longer abandons the attempt to free its dial."""
        self._pending.connected(attempt, now)

    def parked(self, attempt: int, now: float) -> None:
        """A member holds the connection until it serves: the attempt has no dial and no deadline any more."""
        self._pending.connected(attempt, now)
        self._pending.park(attempt, now)
        self._dial_at = now

    def usable(self, attempt: int, now: float, claim: Claim = NO_CLAIM) -> None:
        """The peer sent Open without an error and answered Begin."""
        self._pending.connected(attempt, now)
        self._pending.claim(attempt, claim)

    def attempt_ended(self, attempt: int, now: float, failure: Failure) -> Failure:
        """The attempt ended without a usable session.

        :returns: the failure for the topology, without a ``retry_after`` that the search does not honor.
        """
        if self._ended is not None:
            return failure
        pending = self._pending.end(attempt, now, failure)
        if pending is None:
            return failure
        if attempt == self.reservation.attempt:
            self._backoff.charge(now - pending.dialled_at)
        seconds = self._honored_retry_after(failure)
        if failure.retry_after is not None and seconds is None:
            failure = replace(failure, retry_after=None)
        self._note(pending, failure, now)
        if failure.kind is FailureReason.REDIRECTED and failure.redirect is not None:
            self._redirects.add(pending, failure, failure.redirect)
        elif failure.is_reservation and seconds is not None:
            self.reservation.make((Target(pending.endpoint, pending.chain),), seconds)
        return failure

    def next(
        self,
        now: float,
        topology: Topology,
        *,
        search_owner: bool = True,
        free_dials: int | None = None,
        resolving: bool = False,
    ) -> Decision:
        """Return the next decision.

        :param search_owner: whether this search dials the list for the factory; one search at a time does.
        :param free_dials: dials still free in the factory; ``None`` for no limit.
        :param resolving: whether names are being resolved; no round ends before ``Limits.names_until``.
        """
        if self._ended is not None:
            return self._ended
        candidates = self._candidates.of(topology, now, self._limits.barred)
        view = _View(now, topology, candidates, search_owner, free_dials, resolving)
        self._open_at = math.inf
        if self._redirects:
            self._redirects.check(topology, self._pending, self._round, self.reservation)
            if not search_owner:
                self._redirects.clear()
        decision = self._pick_winner(view) or self._stop(view)
        self._limits.waits_for_dial, self._limits.follows = False, not search_owner
        return (
            decision
            or self._time_out(view)
            or self._back_off(view)
            or self._use_reservation(view)
            or self._skip_ahead(view)
            or self._try_list(view)
            or self._wait(view)
        )

    def _pick_winner(self, view: _View) -> Decision | None:
        if not self._pending.claimed:
            return None
        choice = choose(self._pending, view.topology)
        if isinstance(choice, Loser):
            return self._abandon(choice.pending, view.now, choice.reason, choice.detail)
        self._limits.refusals.reset()
        self._polling.usable(choice)
        self._move(Trigger.USABLE)
        self._ended = Found(choice.attempt)
        return self._ended

    def _stop(self, view: _View) -> Decision | None:
        if self._verdict is None:
            self._verdict = self._limits.overdue(view.now, self._pending, view.candidates)
        if self._verdict is None:
            return None
        reason, detail = self._verdict
        for pending in self._pending:
            why = f"{reason.value}: {pending.phase()}"
            return self._abandon(pending, view.now, FailureReason.STOPPED, why)
        self._move(Trigger.LIMIT_REACHED)
        self._ended = GiveUp(reason, detail, self.history)
        return self._ended

    def _time_out(self, view: _View) -> Decision | None:
        if not self._pending:
            return None
        held, surplus = self._pending.parked, self._pending.surplus
        if held is not None and surplus is not None:
            detail = f"attempt {held.attempt} at {held.endpoint} is parked already"
            return self._abandon(surplus, view.now, FailureReason.LOST_RACE, detail)
        overdue = self._pending.overdue(self._policy.attempt_timeout, view.now)
        if overdue is None:
            return None
        pending, limit = overdue
        detail = f"not usable within {limit:g} s: {pending.phase()}"
        return self._abandon(pending, view.now, FailureReason.TIMED_OUT, detail)

    def _abandon(self, pending: PendingAttempt, now: float, kind: FailureReason, detail: str) -> Abandon:
        action = Abandon(pending.attempt, kind, detail)
        self._pending.end(pending.attempt, now, action.failure)
        self._note(pending, action.failure, now)
        return action

    def _note(self, pending: PendingAttempt, failure: Failure, now: float) -> None:
        self._dial_at = now
        self._round.note(pending.endpoint, failure)
        self._limits.note(pending.endpoint, failure)
        self._polling.ended(pending, failure, now)

    def _start_backoff(self, now: float) -> BackOff:
        asked = self.reservation.take_retry_after() if self.reservation else self._round.take_retry_after()
        if asked is not None or self._round.number == 0:
            delay = self._backoff.next(asked)
        else:
            delay = self._polling.pause(now, self._round.number, self._round_began)
        # A wait that a wait interrupts was imposed as well: a server asked for it, honored or not any more.
        imposed = self._pause is not None or self._round.number == 0 or delay.retry_after is not None
        self._move(Trigger.DELAY_IMPOSED if imposed else Trigger.ROUND_FAILED)
        self._pause = BackOff(now + delay.delay, delay, self._round.number)
        self._announced = True
        return self._pause

    def _back_off(self, view: _View) -> Decision | None:
        if self.reservation.retry_after is not None:
            return self._start_backoff(view.now)
        if self._pause is None:
            return None
        if not self._announced:
            self._announced = True
            return self._pause
        own = self._state is SearchState.BACKING_OFF and self._backoff.adaptive
        if self._pause.until <= view.now or (own and self._round.has_new(view.candidates)):
            self._pause = None
            self._move(Trigger.WAIT_ENDED)
        return None

    def _use_reservation(self, view: _View) -> Decision | None:
        if not self.reservation or self._pause is not None or self._exhausted:
            return None
        if view.search_owner and self._state is SearchState.IDLE:
            return self._start_round(view)
        target = self.reservation.due(self._is_open)
        if target is None:
            return None
        action = self._dial(view, target)
        if isinstance(action, Dial):
            self.reservation.dialled(action.attempt)
        return action

    def _skip_ahead(self, view: _View) -> Decision | None:
        if not (self._redirects or view.topology.primary) or self._exhausted:
            return None
        if self._state is SearchState.DELAYED:
            elsewhere = bool(self.reservation) and view.topology.primary not in self.reservation
            target = self._newly_known_primary(view) if elsewhere else None
        elif self._is_alone(view):
            target = self._newly_known_primary(view)
        else:
            target = self._redirects.next(self._is_open, self._round) or self._newly_known_primary(view)
        return None if target is None else self._dial(view, target)

    def _is_alone(self, view: _View) -> bool:
        own = self.reservation
        return own.attempt > 0 and own.is_alone(self._pending, self._policy.stagger, view.now)

    def _newly_known_primary(self, view: _View) -> Target | None:
        primary = view.topology.primary
        if primary is None or not self._is_open(primary):
            return None
        return None if self._dialled_primaries.has(primary, view.topology.version) else Target(primary)

    def _is_open(self, endpoint: Endpoint) -> bool:
        closed = endpoint in self._limits.barred or endpoint in self._round.retry_after
        return not closed and endpoint not in self._pending

    def _try_list(self, view: _View) -> Decision | None:
        if self._pause is not None or self._exhausted:
            return None
        if self._state is SearchState.IDLE:
            return self._start_round(view)
        if not view.search_owner or self._is_alone(view):
            return None
        self._round.candidates = view.candidates
        self._polling.hang(self._pending, view.now)
        ordered = self._polling.order(view.topology, view.candidates, self._round.number)
        due = self._polling.due(ordered, view.now)
        free = tuple(each for each in due if self._polling.free_at(each) <= view.now)
        endpoint = self._round.next_listed(free, self._pending) or self._round.next_listed(due, self._pending)
        if endpoint is None:
            self._open_at = min(self._open_at, self._polling.next_due(ordered, view.now))
            return self._end_round(view)
        at = self._dial_at + (self._backoff.spacing if self._round.has_failed_elsewhere(endpoint) else 0)
        return self._dial(view, Target(endpoint), listed=1) if view.now >= at else None

    def _start_round(self, view: _View) -> Decision | None:
        if self._round.retry_after and not self.reservation:
            return self._start_backoff(view.now)
        if not view.search_owner:
            return None
        self._move(Trigger.ROUND_STARTS)
        self._round = self._round.following(view.candidates if self._backoff.adaptive else ())
        self._round_began = view.now
        return decide.StartRound(self._round.number)

    def _end_round(self, view: _View) -> Decision | None:
        if self._redirects or self.reservation or self._is_hopeful(view):
            return None
        until = self._limits.names_until(self._round_began, view.candidates if self._backoff.adaptive else ())
        if view.resolving and view.now < until:
            self._open_at = min(self._open_at, until)
            return None
        self._verdict = self._limits.after_round(self._round, view.topology, view.candidates, view.now)
        return self._stop(view) or self._start_backoff(view.now)

    def _is_hopeful(self, view: _View) -> bool:
        if not self._pending:
            return False
        if self._pending.waits_for_parked(self._policy.park_timeout, view.now):
            return True
        if view.now < self._pending.last_dial + self._policy.stagger:
            return True
        return not self._limits.barred and all(candidate in self._pending for candidate in view.candidates)

    def _dial(self, view: _View, target: Target, *, listed: int = 0) -> Decision | None:
        free_at = self._polling.free_at(target.endpoint)
        if free_at > view.now:
            self._open_at = min(self._open_at, free_at)
            return None
        factory_full = view.free_dials is not None and view.free_dials <= 0
        if factory_full or self._pending.dials >= self._policy.max_dials:
            self._limits.waits_for_dial = factory_full
            return self._free_a_dial(view)
        self._round.listed += listed
        return self._launch(view, target)

    def _free_a_dial(self, view: _View) -> Decision | None:
        pending = self._pending.hanging(self._policy.stagger, view.now)
        if pending is None or view.now < self._free_dial_at:
            return None
        # Should another search take the dial that this frees, the next must not go at once.
        self._free_dial_at = view.now + self._policy.stagger
        return self._abandon(pending, view.now, FailureReason.DISPLACED, pending.phase())

    def _launch(self, view: _View, target: Target) -> Dial:
        endpoint, chain = target.endpoint, target.chain
        keep = self._polling.keep(endpoint, self._round.number)
        self._polling.dialled(endpoint, view.now)
        pending = self._pending.launch(endpoint, chain, view.now, keep)
        self._dial_at = view.now + self._policy.stagger
        self._free_dial_at = view.now
        self._round.dialled.add(endpoint)
        if chain:
            self._round.redirected |= {endpoint}
            self._redirects.remove(endpoint)
        if endpoint == view.topology.primary:
            self._dialled_primaries.add(endpoint, view.topology.version)
        return Dial(pending.attempt, endpoint, len(chain))

    @property
    def _exhausted(self) -> bool:
        return self._pending.total >= self._limits.attempts

    def _wait(self, view: _View) -> Wait:
        paused = math.inf if self._pause is None else self._pause.until
        times = [self._limits.deadline, self._candidates.other_site_at, self._open_at, paused]
        targets = bool(self._redirects or self.reservation) or view.topology.primary is not None
        looking = targets or self._state is SearchState.IN_ROUND
        if looking:
            times += (self._dial_at, self._dial_at + self._backoff.spacing, self._free_dial_at)
        stagger = self._policy.stagger if looking else math.inf
        times += self._pending.times(self._policy.attempt_timeout, stagger, self._policy.park_timeout)
        until = min((time for time in times if time > view.now), default=math.inf)
        return Wait(None if until == math.inf else until, self._limits.waits_for_dial)
