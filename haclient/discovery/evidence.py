"""What a client has learnt about the cluster: the facts that topology and search take in.

Everything here is a frozen record of something observed, never a decision.  ``epoch`` is the
number of the topology in force when the observation began; see ``topology``.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from haclient.cluster_url.endpoint import Endpoint

RESOURCE_LIMIT = "amqp:resource-limit-exceeded"


class FailureReason(enum.Enum):
    """Why an attempt did not end in a usable session."""

    UNRESOLVED = "unresolved"
    REFUSED = "refused"
    UNREACHABLE = "unreachable"
    TIMED_OUT = "timed-out"
    ENDED = "ended"
    """The peer closed the socket (EOF or reset) before the session was usable."""
    NOT_AMQP = "not-amqp"
    TLS_FAILED = "tls-failed"
    TLS_VERIFICATION = "tls-verification"
    AUTHENTICATION = "authentication"
    """Wrong credentials, and asking again will not help."""
    AUTHENTICATION_TEMPORARY = "authentication-temporary"
    """A temporary SASL failure, or credentials that can be asked for anew."""
    CLOSED = "closed"
    """The peer sent Close (or End); ``Miss.condition`` says why, if it did."""
    REDIRECTED = "redirected"
    REDIRECT_REFUSED = "redirect-refused"
    """A redirect that must not be followed: to an insecure or a foreign endpoint, a loop,
    or a chain that is too long."""
    STALE_PRIMARY = "stale-primary"
    MADE_ROOM = "made-room"
    """Had no TCP connection yet when ``max_dials`` was reached."""
    LOST_RACE = "lost-race"
    """Another attempt was usable first, or parked already."""
    STOPPED = "stopped"
    """The episode ended (deadline, close) while the attempt was in flight."""


def valid_hint(hint: object) -> float | None:
    """The hint as seconds, or ``None`` for what cannot be one."""
    if isinstance(hint, bool) or not isinstance(hint, (int, float)):
        return None
    return hint if hint >= 0 else None  # NaN compares false as well


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """How an attempt ended, when it did not end in a usable session.

    :param condition: the AMQP error condition, when there was one.
    :param detail: one sentence for people; never holds a credential.
    :param redirect: the target, for ``REDIRECTED``.
    :param retry_after: the hint of the server, in seconds.
    :param mechanism: the SASL mechanism in use, for the authentication kinds.
    """

    kind: FailureReason
    detail: str = ""
    condition: str | None = None
    redirect: Endpoint | None = None
    retry_after: float | None = None
    mechanism: str | None = None

    @property
    def is_slot(self) -> bool:
        """Whether a primary says: full now, but ``retry_after`` is when this client's turn comes."""
        slot = self.kind is FailureReason.CLOSED and self.condition == RESOURCE_LIMIT
        return slot and valid_hint(self.retry_after) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRecord:
    """One line in the history of an episode: which endpoint, when, what happened.

    :param number: counts from 1 within the episode.
    :param started: monotonic seconds.
    :param ended: monotonic seconds.
    """

    number: int
    endpoint: Endpoint
    started: float
    ended: float
    miss: Failure


@dataclass(frozen=True, slots=True)
class Claimed:
    """A member serves as primary: its session was usable.

    ``generation`` is ``None`` for brokers that do not tell one.
    """

    endpoint: Endpoint
    generation: int | None
    cluster: str | None
    epoch: int


@dataclass(frozen=True, slots=True)
class Lost:
    """A connection to the primary at this endpoint ended."""

    endpoint: Endpoint
    epoch: int


@dataclass(frozen=True, slots=True)
class Missed:
    """An attempt failed, in the way that ``miss`` tells (redirects included)."""

    endpoint: Endpoint
    miss: Failure
    epoch: int


@dataclass(frozen=True, slots=True)
class Pushed:
    """A member sent its ``failover-server-list``."""

    endpoints: tuple[Endpoint, ...]
    epoch: int


@dataclass(frozen=True, slots=True)
class Resolved:
    """DNS answered for a seed; ``endpoints`` are in the order to try them.

    An empty answer changes nothing: the last good one is kept.
    """

    seed: Endpoint
    endpoints: tuple[Endpoint, ...]


Evidence = Claimed | Lost | Missed | Pushed | Resolved
