"""When a search gives up, and with which reason (rules 6 and 7 of ``search``).

A member that refused the credentials, or whose certificate is wrong, is barred: the search does not
dial it again in this episode.  Its refusal becomes the verdict only when no other member is left to try.
"""

from __future__ import annotations

import math

from haclient.cluster_url.endpoint import Endpoint
from haclient.discovery.decision import GiveUpReason
from haclient.discovery.evidence import Failure
from haclient.discovery.pending_attempts import PendingAttempts
from haclient.discovery.rounds import FATAL, Round
from haclient.discovery.topology import Topology
from haclient.retry.policy import Policy

Verdict = tuple[GiveUpReason, str]


class Limits:
    """The limits of one episode.

    :param now: monotonic seconds; the deadline counts from here.
    :ivar attempts: how many are allowed; infinite when there is no limit.
    :ivar deadline: monotonic seconds; infinite when there is none.
    :ivar barred: the members that are not dialled again, and why.
    """

    __slots__ = ("_started", "attempts", "barred", "deadline")

    def __init__(self, policy: Policy, now: float, *, first: bool) -> None:
        limit = policy.startup_deadline if first else policy.deadline
        self.deadline = math.inf if limit is None else now + limit
        self.barred: dict[Endpoint, Failure] = {}
        self._started = now
        self.attempts = math.inf if policy.max_attempts is None else policy.max_attempts

    def bar(self, endpoint: Endpoint, failure: Failure) -> None:
        """Do not dial this member again, if the failure is of that kind."""
        if failure.kind in FATAL:
            self.barred.setdefault(endpoint, failure)

    def overdue(
        self, now: float, pending: PendingAttempts, candidates: tuple[Endpoint, ...]
    ) -> Verdict | None:
        """The verdict when time or attempts are used up."""
        late = now >= self.deadline
        if not late and (pending or pending.total < self.attempts):
            return None
        nowhere = "" if candidates or self.barred else ", no address is known"
        detail = f"no usable session: {pending.total} attempts in {now - self._started:.3g} s{nowhere}"
        if late:
            return GiveUpReason.DEADLINE, detail
        return self._refused() or (GiveUpReason.MAX_ATTEMPTS, detail)

    def after_round(
        self, tried: Round, topology: Topology, candidates: tuple[Endpoint, ...]
    ) -> Verdict | None:
        """The verdict of a round that has failed."""
        nowhere = not candidates and not topology.seeds
        return (
            self._refused()
            or tried.unknown_everywhere(candidates)
            or ((GiveUpReason.NO_ENDPOINTS, "the seed list is empty") if nowhere else None)
        )

    def _refused(self) -> Verdict | None:
        for endpoint, failure in self.barred.items():
            return FATAL[failure.kind], f"{endpoint}: {failure.detail or failure.kind.value}"
        return None
