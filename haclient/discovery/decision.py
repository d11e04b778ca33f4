"""The decisions that ``Search.next`` returns.

Each is an action for the driver, or means that there is nothing to do yet.  ``Found`` and ``GiveUp`` end the
search.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from haclient.cluster_url.endpoint import Endpoint
from haclient.discovery.evidence import AttemptRecord, Failure, FailureReason
from haclient.retry.backoff import Delay


class GiveUpReason(enum.Enum):
    """The reason why a search ended without a usable session."""

    DEADLINE = "deadline"
    MAX_ATTEMPTS = "max-attempts"
    AUTHENTICATION = "authentication"
    TLS_VERIFICATION = "tls-verification"
    NOT_FOUND = "not-found"
    INVALID_FIELD = "invalid-field"
    NOT_ALLOWED = "not-allowed"
    NO_ENDPOINTS = "no-endpoints"
    """There is no seed and no candidate, and no source of further ones."""


Verdict = tuple[GiveUpReason, str]
"""The reason, and one sentence for people."""


@dataclass(frozen=True, slots=True)
class StartRound:
    """Resolve all names again now: a round begins."""

    number: int


@dataclass(frozen=True, slots=True)
class Dial:
    """Begin this attempt.

    :param hops: number of redirects that led to the endpoint.
    """

    attempt: int
    endpoint: Endpoint
    hops: int = 0


@dataclass(frozen=True, slots=True)
class Abandon:
    """Cancel this attempt.  The attempt has ended, and its dial is free, at once.

    :param kind: the reason, such as ``TIMED_OUT``, ``LOST_RACE`` or ``STOPPED``.
    :param detail: one sentence for people.
    """

    attempt: int
    kind: FailureReason
    detail: str

    @property
    def failure(self) -> Failure:
        """Return the failure to report to the topology: ``kind`` and ``detail`` of this decision."""
        return Failure(kind=self.kind, detail=self.detail)


@dataclass(frozen=True, slots=True)
class BackOff:
    """Report that a wait began; returned once for each wait.

    :param until: monotonic seconds.
    :param round: the round that failed; 0 for the wait after a loss, or of a search that is not the owner.
    """

    until: float
    delay: Delay
    round: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait for the next fact, at most until this time (monotonic seconds; ``None``: no limit).

    :param for_dial: also wake the search when a dial becomes free: all dials of the factory are in use.
    """

    until: float | None
    for_dial: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Found:
    """Use this attempt as the connection."""

    attempt: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """End the search without a usable session.

    :param attempts: the attempts that the history still holds, oldest first.
    """

    reason: GiveUpReason
    detail: str
    attempts: tuple[AttemptRecord, ...]


Decision = StartRound | Dial | Abandon | BackOff | Wait | Found | GiveUp
