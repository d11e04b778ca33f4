"""The events of a connection: one frozen record for each.

Sinks subscribe to them (``ConnectionFactory(on_event=...)``, ``connection.events()``, logging).  No event
holds a credential or a message body.  Times are seconds.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from haclient.cluster_url.endpoint import Endpoint
from haclient.discovery.evidence import AttemptRecord, Failure

# Cause of ``GaveUp`` for a defect of this package; the others are in ``discovery.decision.GiveUpReason``.
INTERNAL_ERROR = "internal-error"


def connection_name(client_id: str, number: int) -> str:
    """Return the name of a connection in log lines, such as ``orders-service/1``."""
    return f"{client_id}/{number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """The connection that published an event, and the time.

    :param client_id: client id of the factory.
    :param connection: number of the connection within its factory, from 1.
    :param sequence: number of the event within its connection, from 1, without gaps.
    :param time: seconds since the Unix epoch, by the wall clock.
    :param monotonic: seconds by the monotonic clock, for durations.
    :param episode: number of the episode within the connection, from 1.
    """

    client_id: str
    connection: int
    sequence: int
    time: float
    monotonic: float
    episode: int

    @property
    def connection_name(self) -> str:
        """Name of the connection in log lines."""
        return connection_name(self.client_id, self.connection)


@dataclass(frozen=True, slots=True)
class AttemptStarted:
    """The client dials an endpoint."""

    stamp: Stamp
    attempt: int
    endpoint: Endpoint


@dataclass(frozen=True, slots=True)
class AttemptFailed:
    """An attempt ended without a usable session; ``record.failure`` has the reason.

    ``record.number`` is 0 for a name without an address, which could not be dialled.
    """

    stamp: Stamp
    record: AttemptRecord


@dataclass(frozen=True, slots=True)
class Parked:
    """A member parks this attempt until it serves: the attempt continues without a deadline.

    An attempt that was already parked beside the live connection has no such event.
    """

    stamp: Stamp
    attempt: int
    endpoint: Endpoint


@dataclass(frozen=True, slots=True)
class Redirected:
    """A member redirected to another endpoint.

    ``followed`` is false if the policy does not allow the target, for a loop, and for a chain that is too
    long.  It is also false for a member of a ``failover-server-list`` that must not be given the credentials;
    this is published once.

    :param record: the attempt that was redirected; ``None`` for a primary that closed a live connection, and
        for a ``failover-server-list``.
    """

    stamp: Stamp
    by: Endpoint
    target: Endpoint
    followed: bool
    detail: str = ""
    record: AttemptRecord | None = None


@dataclass(frozen=True, slots=True)
class BackingOff:
    """The client dials nothing for ``delay`` seconds: no member served in the last round.

    Round 0 is the wait after a loss, before the first round.

    :param base: upper limit of the random delay.
    :param retry_after: the delay that a server asked for, if any.
    :param floor: lower limit of the delay.  Equal to ``base`` if the delay was not random, and ``None`` if
        something else than the random draw decided.
    """

    stamp: Stamp
    delay: float
    base: float
    retry_after: float | None
    round: int
    floor: float | None = None


@dataclass(frozen=True, slots=True)
class Connected:
    """The first usable session of a connection.

    :param attempts: number of attempts made; ``duration``: seconds since the episode began.
    :param cluster: the name of the cluster, if the primary announces one.
    """

    stamp: Stamp
    endpoint: Endpoint
    generation: int | None
    attempts: int
    duration: float
    cluster: str | None = None


@dataclass(frozen=True, slots=True)
class Reconnected:
    """The connection is usable again after a loss.

    :param replayed: unsettled messages that are sent again.
    :param duration: seconds since the loss.
    :param cluster: the name of the cluster, if the primary announces one.
    :param planned: whether the client itself had ended the session, to log in with a new token, and the first
        attempt succeeded.
    """

    stamp: Stamp
    endpoint: Endpoint
    generation: int | None
    attempts: int
    duration: float
    replayed: int
    cluster: str | None = None
    planned: bool = False


class LossKind(enum.StrEnum):
    """How a connection to the primary ended."""

    CLOSE = "close"
    """The broker sent a Close, as when it is stopped."""
    CUT = "cut"
    """The socket ended without a Close, as when the broker's process is killed."""
    SILENCE = "silence"
    """The peer was silent for the heartbeat time: machine or network failed, or the process hangs."""
    ERROR = "error"
    """The client ended it: the broker broke the protocol, ended the session or left a link unanswered."""
    RENEWAL = "renewal"
    """The client reconnected as planned, to log in with a new token."""


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The connection to the primary ended; a new episode begins.

    :param unsettled: messages sent and not settled.
    :param condition: the AMQP error condition, if any.
    :param kind: how it ended.
    """

    stamp: Stamp
    endpoint: Endpoint
    reason: str
    unsettled: int
    condition: str | None = None
    kind: LossKind = LossKind.CUT


@dataclass(frozen=True, slots=True)
class LinkRetrying:
    """The primary refused a sender or receiver for now; the client attaches it again after ``delay`` seconds.

    :param link: name of the link.
    :param address: the node; after a redirect the one that the primary named.
    :param reason: the primary's description.
    :param condition: the AMQP error condition; ``amqp:link:redirect`` is followed without a delay.
    :param refusals: number of refusals over this connection.
    """

    stamp: Stamp
    link: str
    address: str | None
    delay: float
    reason: str
    condition: str
    refusals: int


@dataclass(frozen=True, slots=True)
class Blocked:
    """The primary takes no messages: it has kept the session's window closed for a second.

    RabbitMQ does so in a memory or disk alarm.  The block ends with ``Unblocked``, or with the connection:
    ``Disconnected``, ``GaveUp`` or ``Closed``.
    """

    stamp: Stamp
    endpoint: Endpoint


@dataclass(frozen=True, slots=True)
class Unblocked:
    """The primary takes messages again.

    :param duration: seconds since it closed the window.
    """

    stamp: Stamp
    endpoint: Endpoint
    duration: float


@dataclass(frozen=True, slots=True)
class Unsettled:
    """A sender, or the whole connection, ended with messages that have no outcome.

    They may have arrived or not.  For a whole connection it precedes ``Closed`` or ``GaveUp``.

    :param count: number of messages.
    :param reason: why it ended.
    :param link: the name of the sender; empty for the whole connection.
    :param address: the node of the sender; ``None`` also for the anonymous terminus.
    """

    stamp: Stamp
    count: int
    reason: str
    link: str = ""
    address: str | None = None


@dataclass(frozen=True, slots=True)
class DeliveryStale:
    """The block of a delivery (``with delivery:``) ended after the delivery could no longer be settled.

    The primary delivers its message again.

    :param link: the name of the receiver.
    :param address: the node of the receiver.
    :param reason: why, such as the loss of the connection.
    """

    stamp: Stamp
    link: str
    address: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class GaveUp:
    """The connection failed: no primary was found within the limits of the policy, or haclient has a defect.

    :param cause: in one word, see ``discovery.decision.GiveUpReason``, or ``INTERNAL_ERROR``.
    :param last: why the last attempt failed that the client did not end itself.
    :param attempts: number of attempts made; ``duration``: seconds since the episode began.
    """

    stamp: Stamp
    reason: str
    last: Failure | None
    cause: str = ""
    attempts: int = 0
    duration: float = 0.0


@dataclass(frozen=True, slots=True)
class GenerationsForgotten:
    """Only stale primaries served for ``refusal_timeout``: the client forgets the known generations.

    Either the newer primary is lost, or the generation was wrong.  The next stale primary may serve again.

    :param endpoint: the stale primary that served last; ``generation`` and ``cluster``: announced by it.
    :param highest: the generation of that cluster that the client knew.
    """

    stamp: Stamp
    endpoint: Endpoint
    generation: int | None
    cluster: str | None
    highest: int | None


@dataclass(frozen=True, slots=True)
class Closed:
    """The application closed the connection, or its event loop ended."""

    stamp: Stamp


Event = (
    AttemptStarted
    | AttemptFailed
    | Parked
    | Redirected
    | BackingOff
    | Connected
    | Reconnected
    | Disconnected
    | LinkRetrying
    | GenerationsForgotten
    | Blocked
    | Unblocked
    | Unsettled
    | DeliveryStale
    | GaveUp
    | Closed
)
