"""What ``search`` answers to the question "what now?".

Each is an action for the driver, or says that there is nothing to do yet.  ``Found`` and ``GiveUp``
end the search.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from haclient.cluster_url.endpoint import Endpoint
from haclient.discovery.evidence import AttemptRecord, Failure, FailureReason
from haclient.retry.backoff import Delay


class GiveUpReason(enum.Enum):
    """Why a search ended without a usable session."""

    DEADLINE = "deadline"
    MAX_ATTEMPTS = "max-attempts"
    AUTHENTICATION = "authentication"
    TLS_VERIFICATION = "tls-verification"
    NOT_FOUND = "not-found"
    INVALID_FIELD = "invalid-field"
    NOT_ALLOWED = "not-allowed"
    NO_ENDPOINTS = "no-endpoints"
    """There is no seed and no candidate, and nothing could bring one."""


Verdict = tuple[GiveUpReason, str]
"""Why, and one sentence for people."""


@dataclass(frozen=True, slots=True)
class StartRound:
    """A round begins: resolve all names anew, now."""

    number: int


@dataclass(frozen=True, slots=True)
class Dial:
    """Begin this attempt.

    :param hops: redirects that led here.
    """

    attempt: int
    endpoint: Endpoint
    hops: int = 0


@dataclass(frozen=True, slots=True)
class Abandon:
    """Cancel this attempt.  It counts as ended, and its dial as free, from now on."""

    attempt: int
    kind: FailureReason
    detail: str

    @property
    def failure(self) -> Failure:
        """The same as evidence for the topology."""
        return Failure(kind=self.kind, detail=self.detail)


@dataclass(frozen=True, slots=True)
class BackOff:
    """A wait began; returned once, so that the driver can report it.

    :param until: monotonic seconds.
    :param round: the round that failed; 0 for the wait after a loss, or of a search that only follows.
    """

    until: float
    delay: Delay
    round: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do before this time (monotonic seconds) or the next fact; ``None``: the next fact.

    :param for_dial: a dial of the factory would be a fact to act on: all of them are in use.
    """

    until: float | None
    for_dial: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Found:
    """This attempt is the connection."""

    attempt: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The search has ended without a usable session.

    :param attempts: the attempts that the history still holds, oldest first.
    """

    reason: GiveUpReason
    detail: str
    attempts: tuple[AttemptRecord, ...]


Decision = StartRound | Dial | Abandon | BackOff | Wait | Found | GiveUp
