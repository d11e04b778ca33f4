"""The memory of one round: one pass over all candidates.

A round is finite whatever the peers do.  The list is computed anew at every step, so that an
address that DNS finds meanwhile is dialled in the same round, but at most twice its greatest
length is dialled: enough for a list that resolving replaces as a whole, and an end for one
that a peer keeps rewriting.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field

from haclient.cluster_url.endpoint import Endpoint
from haclient.discovery.decision import GiveUpReason
from haclient.discovery.evidence import Failure, FailureReason
from haclient.retry.backoff import valid_retry_after

# Asking the same member again would meet the same answer, or lock the account.
FATAL = {
    FailureReason.AUTHENTICATION: GiveUpReason.AUTHENTICATION,
    FailureReason.TLS_VERIFICATION: GiveUpReason.TLS_VERIFICATION,
}


@dataclass(slots=True)
class Round:
    """The dials of one round and their results.

    :param redirected: the endpoints that were dialled because of a redirect.
    :param earlier: the answers in earlier rounds, valid for members that this round has not dialled.
    :param retry_after: the delays that members asked for since the last wait, in seconds; no reservations.
    :param candidates: what the list was when the round last looked.
    """

    number: int = 0
    dialled: set[Endpoint] = field(default_factory=set)
    redirected: frozenset[Endpoint] = frozenset()
    failures: dict[Endpoint, Failure] = field(default_factory=dict)
    earlier: dict[Endpoint, Failure] = field(default_factory=dict)
    retry_after: dict[Endpoint, float] = field(default_factory=dict)
    listed: int = 0
    longest: int = 0
    candidates: tuple[Endpoint, ...] | None = None

    def note(self, endpoint: Endpoint, failure: Failure) -> None:
        """Remember how an attempt failed, and the delay that the member asked for if it is no reservation."""
        self.failures[endpoint] = failure
        if failure.retry_after is not None and not failure.is_reservation:
            seconds = valid_retry_after(failure.retry_after)
            if seconds is not None:
                self.retry_after[endpoint] = seconds

    def following(self, candidates: tuple[Endpoint, ...]) -> Round:
        """Return the next round: empty, except for the last answers of these candidates."""
        answers = self.earlier | self.failures
        return Round(self.number + 1, earlier={each: answers[each] for each in candidates if each in answers})

    @property
    def answers(self) -> dict[Endpoint, Failure]:
        """Return the last failure of each member: of this round, or of an earlier one.

        An earlier one counts if this round has not dialled the member: rounds skip members that are not due.
        """
        return {**{e: each for e, each in self.earlier.items() if e not in self.dialled}, **self.failures}

    def take_retry_after(self) -> float | None:
        """Return the longest delay that members asked for, and forget all of them."""
        longest = max(self.retry_after.values(), default=None)
        self.retry_after.clear()
        return longest

    def has_failed_elsewhere(self, endpoint: Endpoint) -> bool:
        """Return whether this round's last failure was at another name or port; False without a failure.

        Addresses of one name count as one.
        """
        last = next(reversed(self.failures), None)
        return last is not None and (last.tls_name, last.port) != (endpoint.tls_name, endpoint.port)

    def has_new(self, candidates: tuple[Endpoint, ...]) -> bool:
        """Return whether a candidate was not on the list of this round."""
        known = self.candidates
        return known is not None and candidates is not known and not set(candidates) <= set(known)

    def next_listed(self, candidates: tuple[Endpoint, ...], pending: Container[Endpoint]) -> Endpoint | None:
        """Return the next candidate to dial: not dialled in this round, and not pending.

        Return ``None`` if there is none, or if the round has dialled twice the greatest length of the list.
        The caller records the dial.
        """
        self.longest = max(self.longest, len(candidates))
        if self.listed >= 2 * self.longest:
            return None
        for candidate in candidates:
            if candidate not in self.dialled and candidate not in pending:
                return candidate
        return None


class DialledPrimaries:
    """The primaries that a search has dialled: each once for one version of the topology."""

    __slots__ = ("_endpoints", "_version")

    def __init__(self) -> None:
        self._version = 0
        self._endpoints: frozenset[Endpoint] = frozenset()

    def has(self, primary: Endpoint, version: int) -> bool:
        """Return whether a primary was dialled under this version of the topology."""
        return version == self._version and primary in self._endpoints

    def add(self, primary: Endpoint, version: int) -> None:
        """Record a primary that is being dialled; forget the primaries of another version."""
        if self._version != version:
            self._version = version
            self._endpoints = frozenset()
        self._endpoints |= {primary}
