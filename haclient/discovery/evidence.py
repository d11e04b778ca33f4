"""What a client has observed about the cluster: the facts that topology and search take in.

Every record is frozen and holds an observation, never a decision.  ``topology_version`` is the
version of the topology that was in force when the observation began; see ``topology``.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from haclient.cluster_url.endpoint import Endpoint
from haclient.retry.backoff import valid_retry_after
from haclient.retry.fleet import FleetSize

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
    """A temporary SASL failure, or credentials that the application can renew."""
    CLOSED = "closed"
    """The peer sent Close (or End); ``Failure.condition`` says why, if it did."""
    REDIRECTED = "redirected"
    REDIRECT_REFUSED = "redirect-refused"
    """A redirect that must not be followed: to an insecure or a foreign endpoint, a loop,
    or a chain that is too long."""
    STALE_PRIMARY = "stale-primary"
    DISPLACED = "made-room"
    """Had no TCP connection yet when ``max_dials`` was reached."""
    LOST_RACE = "lost-race"
    """Another attempt was usable first, or parked already."""
    STOPPED = "stopped"
    """The episode ended (deadline, close) while the attempt was pending."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """How an attempt ended, when it did not end in a usable session.

    :param condition: the AMQP error condition, when there was one.
    :param detail: one sentence for people; never holds a credential.
    :param redirect: the target, for ``REDIRECTED``.
    :param retry_after: how long the server asks the client to wait, in seconds.
    :param mechanism: the SASL mechanism in use, for the authentication kinds.
    :param id_in_use: the peer has another connection with the container id of this client.
    :param id_held_here: and that is one of this process.
    :param may_change: not tried: the application's function has returned again what was refused here before.
    :param exact_code: a name that says more than the kind, such as ``http-port``; empty if there is none.
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
        """The name of its entry in docs/errors.md."""
        return self.exact_code or self.kind.value

    @property
    def is_reservation(self) -> bool:
        """Whether a full primary has reserved a time for this client: ``retry_after`` seconds from now."""
        is_full = self.kind is FailureReason.CLOSED and self.condition == RESOURCE_LIMIT
        return is_full and valid_retry_after(self.retry_after) is not None


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
    failure: Failure


@dataclass(frozen=True, slots=True)
class Claimed:
    """A member serves as primary.

    ``generation`` is ``None`` for brokers that do not announce one.

    :param usable: whether its session was usable; if not, a lost primary has named it as its successor.
    :param proven: whether the member has proved who it is: by verified TLS, or by its proof of SCRAM.
    :param fleet: what it announces about its fleet; ``None`` where nobody could announce anything.
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
    """For ``refusal_timeout`` every member that served was a stale primary (``stale_primaries``)."""

    topology_version: int


@dataclass(frozen=True, slots=True)
class PrimaryLost:
    """A connection to the primary at this endpoint ended."""

    endpoint: Endpoint
    topology_version: int


@dataclass(frozen=True, slots=True)
class AttemptEnded:
    """An attempt ended without a usable session; ``failure`` says how (redirects included)."""

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
    """DNS answered for a seed; ``endpoints`` are in the order to try them.

    An empty answer changes nothing: the last good one is kept.
    """

    seed: Endpoint
    endpoints: tuple[Endpoint, ...]


Evidence = Claimed | OnlyStaleServed | PrimaryLost | AttemptEnded | Pushed | Resolved
