"""When a search gives up, and with which reason (rules 6 and 7 of ``search``).

A member that refused the credentials, or whose certificate is wrong, is barred: the search does not dial it
again in this episode.  After a loss this holds only for credentials that cannot change.  If a function of the
application provides them, the search calls it in each round, and dials the member when it returns others.

``refusals`` decides when a refusal of the credentials, or of the client's requests, becomes the verdict.
"""

from __future__ import annotations

import math

from haclient.cluster_url.endpoint import Endpoint
from haclient.discovery.decision import GiveUpReason, Verdict
from haclient.discovery.evidence import Failure, FailureReason
from haclient.discovery.pending_attempts import PendingAttempts
from haclient.discovery.refusals import Refusals, held_here, is_every_member
from haclient.discovery.rounds import FATAL, Round
from haclient.discovery.topology import Topology
from haclient.retry.policy import Policy

_ABOUT_CREDENTIALS = frozenset({FailureReason.AUTHENTICATION, FailureReason.AUTHENTICATION_TEMPORARY})

_STOPPED_HERE = frozenset({FailureReason.STOPPED, FailureReason.LOST_RACE})


class Limits:
    """The limits of one episode.

    :param now: monotonic seconds; the deadline counts from here.
    :param refusals: shared by the searches of a factory.
    :param rounds: how many are allowed; infinite when there is no limit.
    :ivar attempts: how many are allowed; infinite when there is no limit.
    :ivar deadline: monotonic seconds; infinite when there is none.
    :ivar barred: the members that are not dialled again, and why.
    :ivar refusing: the members that refuse the credentials, and may get others.
    :ivar verdict: why nothing more is to be tried, whatever other members say.
    :ivar waits_for_dial: true if the search would dial, and all dials of its factory are in use.
    :ivar follows: true if another search dials for the factory.
    """

    __slots__ = (
        "_first",
        "_policy",
        "_rounds",
        "_started",
        "attempts",
        "barred",
        "deadline",
        "follows",
        "refusals",
        "refusing",
        "verdict",
        "waits_for_dial",
    )

    def __init__(
        self, policy: Policy, now: float, refusals: Refusals, *, first: bool, rounds: float = math.inf
    ) -> None:
        limit = policy.startup_deadline if first else policy.deadline
        self.deadline = math.inf if limit is None else now + limit
        self.barred: dict[Endpoint, Failure] = {}
        self.refusing: dict[Endpoint, Failure] = {}
        self.verdict: Verdict | None = None
        self.refusals = refusals
        self.waits_for_dial = self.follows = False
        self._policy = policy
        self._first = first
        self._started = now
        self._rounds = rounds
        self.attempts = math.inf if policy.max_attempts is None else policy.max_attempts

    def note(self, endpoint: Endpoint, failure: Failure) -> None:
        """An attempt has ended: if the failure is of that kind, do not dial this member again."""
        self.refusals.heard(endpoint, failure)
        if failure.id_held_here:
            self.verdict = held_here(endpoint, failure)
        if failure.kind in FATAL and (self._first or not failure.may_change):
            self.barred.setdefault(endpoint, failure)
        elif failure.kind in _ABOUT_CREDENTIALS:
            self.refusing[endpoint] = failure
        elif failure.kind not in _STOPPED_HERE:
            self.refusing.pop(endpoint, None)

    def overdue(
        self, now: float, pending: PendingAttempts, candidates: tuple[Endpoint, ...]
    ) -> Verdict | None:
        """The verdict when time or attempts are used up, or nothing more is to be tried."""
        if self.verdict is not None:
            return self.verdict
        late = now >= self.deadline
        if not late and (pending or pending.total < self.attempts):
            return None
        nowhere = "" if candidates or self.barred else ", no address is known"
        detail = f"no usable session: {pending.total} attempts in {now - self._started:.3g} s{nowhere}"
        refused = self._refused()
        text = self.refusals.text or (refused[1] if refused else "")
        if text:
            detail += f"; {text}"
        detail += self._without_dial(pending)
        if late:
            return GiveUpReason.DEADLINE, detail
        return refused or (GiveUpReason.MAX_ATTEMPTS, detail)

    def _without_dial(self, pending: PendingAttempts) -> str:
        dials = f"of the {self._policy.max_dials} dials of its factory (max_dials)"
        if self.waits_for_dial:
            return f"; it waits for one {dials}" if pending.total else f"; it was given none {dials}"
        if self.follows and not pending.total:
            return f"; it was given none {dials}: another connection searched for all of them"
        return ""

    def names_until(self, began: float, candidates: tuple[Endpoint, ...]) -> float:
        """Until when a round that began then waits for names that are being resolved.

        After a loss for ``stagger`` at most, if there are candidates: name servers fail together with hosts.
        """
        return math.inf if self._first or not candidates else began + self._policy.stagger

    def after_round(
        self, tried: Round, topology: Topology, candidates: tuple[Endpoint, ...], now: float
    ) -> Verdict | None:
        """The verdict of a round that has failed."""
        if tried.number >= self._rounds:
            self.attempts = 0  # no more dials; ``overdue`` waits for attempts that hang
        nowhere = not candidates and not topology.seeds
        return (
            self._refused_by_some(topology, now)
            or self._refused_by_all(tried, topology, now)
            or ((GiveUpReason.NO_ENDPOINTS, "the seed list is empty") if nowhere else None)
        )

    def _refused_by_some(self, topology: Topology, now: float) -> Verdict | None:
        verdict, streak = self._refused(), self.refusals.by_some
        if verdict is None:
            streak.restart()
            return None
        if self._first or is_every_member(self.barred, topology):
            return verdict
        streak.extend(self._policy, now)
        return verdict if streak.is_final(self._policy.refusal_timeout, now - self._started) else None

    def _refused_by_all(self, tried: Round, topology: Topology, now: float) -> Verdict | None:
        verdict = self.refusals.round_ended(tried, topology, self._policy, now)
        if verdict is None:
            return None
        lasted = now - self._started
        final = self.refusals.are_final(verdict[0], self._policy, lasted, first=self._first)
        return verdict if final else None

    def _refused(self) -> Verdict | None:
        fatal = {each: failure for each, failure in self.refusing.items() if failure.kind in FATAL}
        for endpoint, failure in (self.barred | fatal).items():
            return FATAL[failure.kind], f"{endpoint}: {failure.detail or failure.kind.value}"
        return None
