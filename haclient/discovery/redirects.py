"""The redirects of one search: the targets to dial, or the reason to refuse them.

Three limits prevent endless redirects and leaked credentials.  A target that the chain has visited is refused
as a loop, a chain has at most ``max_redirects`` hops, and ``Topology.may_follow`` checks TLS and credentials.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from haclient.cluster_url.endpoint import Endpoint, Origin
from haclient.discovery.evidence import Failure, FailureReason
from haclient.discovery.pending_attempts import PendingAttempt, PendingAttempts, Target
from haclient.discovery.reservation import Reservation
from haclient.discovery.rounds import Round
from haclient.discovery.topology import Topology
from haclient.retry.policy import Policy


def targets(
    pending: PendingAttempt, target: Endpoint, topology: Topology, policy: Policy, *, credentials: bool
) -> tuple[Target, ...] | str:
    """Return the targets to dial for a redirect, or the reason to refuse it, for people.

    There is one target for each known address of the name, except the ones that the chain has visited.

    :param pending: the attempt that was redirected.
    :param target: the endpoint that the redirect names.
    """
    fresh = tuple(address for address in _addresses(target, topology) if address not in pending.visited)
    if not fresh:
        return f"loop: {target} is in this chain already"
    if len(pending.chain) >= policy.max_redirects:
        return f"chain longer than {policy.max_redirects}: {target}; a larger max_redirects allows it"
    refusal_reason = topology.may_follow(pending.endpoint, target, policy, credentials=credentials)
    return refusal_reason or tuple(Target(address, pending.visited) for address in fresh)


def _addresses(target: Endpoint, topology: Topology) -> tuple[Endpoint, ...]:
    # Use a known name's addresses, as the list does.  So a member is always the same endpoint: it is not
    # dialled twice, and a loop is detected.
    addresses = topology.addresses(target) or (target,)
    return tuple(replace(a, server_name=target.tls_name, origin=Origin.REDIRECT) for a in addresses)


class Redirects:
    """The redirects of one search: the ones received since its last step, and the targets to dial.

    :param credentials: whether attempts send credentials, which a redirect could divert.
    """

    __slots__ = ("_arrived", "_credentials", "_policy", "_targets")

    def __init__(self, policy: Policy, *, credentials: bool) -> None:
        self._policy = policy
        self._credentials = credentials
        self._arrived: list[tuple[PendingAttempt, Failure, Endpoint]] = []
        self._targets: list[Target] = []

    def __bool__(self) -> bool:
        return bool(self._targets or self._arrived)

    def add(self, pending: PendingAttempt, failure: Failure, target: Endpoint) -> None:
        """Record an attempt that ended with a redirect."""
        self._arrived.append((pending, failure, target))

    def check(
        self, topology: Topology, attempts: PendingAttempts, tried: Round, reservation: Reservation
    ) -> None:
        """Process the redirects recorded since the last call.

        A forbidden redirect becomes a failure of its attempt.  The targets of any other are queued.  If it
        carries a ``retry-after``, they are reserved for that time instead, unless this round has already
        followed a redirect to all of them.
        """
        for pending, failure, target in self._arrived:
            found = targets(pending, target, topology, self._policy, credentials=self._credentials)
            if isinstance(found, str):
                refused = replace(failure, kind=FailureReason.REDIRECT_REFUSED, detail=found)
                attempts.amend(pending.attempt, refused)
                tried.note(pending.endpoint, refused)
            elif failure.retry_after is None:
                self._targets.extend(found)
            elif any(each.endpoint not in tried.redirected for each in found):
                # Once a round, as without retry_after: else two members could redirect a client for ever.
                tried.retry_after.pop(pending.endpoint, None)
                reservation.make(found, failure.retry_after)
        self._arrived.clear()

    def next(self, is_open: Callable[[Endpoint], bool], tried: Round) -> Target | None:
        """Return the next target to dial without removing it; ``None`` if there is none.

        Targets are dropped if they are not open, or if a redirect led to them earlier in this round.

        :param is_open: returns whether the search may dial an endpoint now.
        """
        while self._targets:
            target = self._targets[0]
            if is_open(target.endpoint) and target.endpoint not in tried.redirected:
                return target
            del self._targets[0]
        return None

    def remove(self, endpoint: Endpoint) -> None:
        """Remove an endpoint that is being dialled from the targets."""
        self._targets = [target for target in self._targets if target.endpoint != endpoint]

    def clear(self) -> None:
        """Drop the queued targets: only the search owner follows redirects without a reservation.

        Redirects that were not checked yet stay.
        """
        self._targets.clear()
