"""Observations of a client about the cluster: the input of topology and search.

Every record is frozen and holds an observation, never a decision.  ``topology_version`` is the version of the
topology when the observation began; see ``topology``.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from haclient.cluster_url.endpoint import Endpoint
from haclient.retry.backoff import valid_retry_after
from haclient.retry.fleet import FleetSize

RESOURCE_LIMIT = "amqp:resource-limit-exceeded"


class FailureReason(enum.Enum):
    """The reason why an attempt did not end in a usable session."""

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
    """Wrong credentials; another attempt will not help."""
    AUTHENTICATION_TEMPORARY = "authentication-temporary"
    """A temporary SASL failure, or credentials that the application can renew."""
    CLOSED = "closed"
    """The peer sent Close or End; ``Failure.condition`` has its error condition, if any."""
    REDIRECTED = "redirected"
    REDIRECT_REFUSED = "redirect-refused"
    """A redirect that must not be followed: to an insecure or foreign endpoint, in a loop, or after too many
    redirects."""
    STALE_PRIMARY = "stale-primary"
    DISPLACED = "made-room"
    """The attempt had no TCP connection yet when ``max_dials`` was reached."""
    LOST_RACE = "lost-race"
    """Another attempt was usable first, or was parked already."""
    STOPPED = "stopped"
    """The episode ended (deadline, close) while the attempt was pending."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The end of an attempt without a usable session.

    :param condition: the AMQP error condition, if there was one.
    :param detail: one sentence for people; never contains a credential.
    :param redirect: the target, for ``REDIRECTED``.
    :param retry_after: the wait that the server asks for, in seconds.
    :param mechanism: the SASL mechanism in use, for the authentication kinds.
    :param id_in_use: the peer has another connection with this client's container id.
    :param id_held_here: that other connection belongs to this process.
    :param may_change: the credentials may be others later, without a change of the program: the application's
        function has returned refused ones, and nothing was sent, or another program renews a ticket.
    :param exact_code: a more specific name than the kind, such as ``http-port``; empty if there is none.
    """

    kind: FailureReason
    detail: str = ""
    condition: str | None = None
    redirect: Endpoint | None = None
    retry_after: float | None = None
    mechanism: str | None = None
    id_in_use: bool = False
    id_held_here: bool = False
    may_change: bool = False
    exact_code: str = ""

    @property
    def code(self) -> str:
        """Return the name of the failure's entry in docs/errors.md."""
        return self.exact_code or self.kind.value

    @property
    def is_reservation(self) -> bool:
        """Return whether a full primary reserved a time for this client, ``retry_after`` seconds from now.

        It does so by a Close or End with ``amqp:resource-limit-exceeded`` and a valid ``retry_after``.
        """
        is_full = self.kind is FailureReason.CLOSED and self.condition == RESOURCE_LIMIT
        return is_full and valid_retry_after(self.retry_after) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRecord:
    """One failed attempt in the history of an episode.

    :param number: number of the attempt in the episode, from 1.
    :param started: monotonic seconds.
    :param ended: monotonic seconds.
    """

    number: int
    endpoint: Endpoint
    started: float
    ended: float
    failure: Failure


@dataclass(frozen=True, slots=True)
class Claimed:
    """A member serves as primary.

    ``generation`` is ``None`` for brokers that do not announce one.

    :param usable: whether its session was usable; if not, a lost primary named this member as its successor.
    :param proven: whether the member has proved its identity, by verified TLS or by its SCRAM proof.
    :param fleet: the fleet size that it announces; ``None`` if it could not announce one.
    """

    endpoint: Endpoint
    generation: int | None
    cluster: str | None
    topology_version: int
    usable: bool = True
    fleet: FleetSize | None = None
    proven: bool = False


@dataclass(frozen=True, slots=True)
class OnlyStaleServed:
    """For ``refusal_timeout``, only stale primaries have served (``stale_primaries``)."""

    topology_version: int


@dataclass(frozen=True, slots=True)
class PrimaryLost:
    """A connection to the primary at this endpoint ended."""

    endpoint: Endpoint
    topology_version: int


@dataclass(frozen=True, slots=True)
class AttemptEnded:
    """An attempt ended without a usable session; redirects are failures too."""

    endpoint: Endpoint
    failure: Failure
    topology_version: int


@dataclass(frozen=True, slots=True)
class Pushed:
    """A member sent its ``failover-server-list``."""

    endpoints: tuple[Endpoint, ...]
    topology_version: int


@dataclass(frozen=True, slots=True)
class Resolved:
    """DNS answered for a name; ``endpoints`` are in the order to try them.

    An empty answer changes nothing: the last good answer is kept.
    """

    seed: Endpoint
    endpoints: tuple[Endpoint, ...]


Evidence = Claimed | OnlyStaleServed | PrimaryLost | AttemptEnded | Pushed | Resolved
