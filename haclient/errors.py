"""The exceptions, with the facts that an application needs to react.

Every error derives from ``HaclientError``.  An error of a connection, a sender or a receiver also derives
from the exception that python-qpid-proton raises in the same place.  So an
``except proton.ConnectionException`` written for proton keeps working.  Mistakes made before there is a
connection are ``ClusterURLError`` (a ``ValueError``, too) and ``SaslUnavailableError`` (a ``RuntimeError``,
too).  Three attributes answer the three questions of docs/errors.md:

``connection_usable``
    may the connection be used further?
``delivered``
    was the message delivered?  ``True``, ``False``, or ``None`` if that cannot be known.
``safe_to_retry``
    may the same call be made again as it is, without making a duplicate and with a chance to succeed?

``code`` is a short, stable name: ``haclient help CODE`` explains it and the remedy.  All errors pickle.
"""

from __future__ import annotations

import haclient.engine  # noqa: F401 - names what a broken proton lacks

# isort: split
import copy
from typing import TYPE_CHECKING, TypeVar

import proton

from haclient.cluster_url.errors import ClusterURLError, ConfigurationError
from haclient.discovery.attempt_summary import summarize
from haclient.engine.amqp_values.decode import UndecodableMessage
from haclient.engine.amqp_values.encode import UnencodableValue
from haclient.engine.sasl.mechanisms import SaslUnavailableError
from haclient.error_catalog.base import HaclientError
from haclient.printable.text import printable, printable_lines
from haclient.resolver.resolve import ResolutionError

if TYPE_CHECKING:
    from haclient.cluster_url.endpoint import Endpoint
    from haclient.discovery.evidence import AttemptRecord
    from haclient.outcome import Outcome

__all__ = [
    "AlreadySettled",
    "AuthenticationFailed",
    "ClusterURLError",
    "ConfigurationError",
    "ConfirmNotSupported",
    "ConfirmTimeout",
    "ConnectionClosed",
    "ConnectionGaveUp",
    "ConnectionNotAllowed",
    "DeadlineExceeded",
    "DeliveryUnknown",
    "DrainTimeout",
    "FilterNotSupported",
    "HaclientError",
    "LinkClosed",
    "LinkRefused",
    "LinkTimeout",
    "MessageNotAccepted",
    "MessageTooLarge",
    "ReceiveTimeout",
    "ResolutionError",
    "SaslUnavailableError",
    "SendManyError",
    "SendTimeout",
    "StaleDelivery",
    "TLSVerificationFailed",
    "TokenRequestError",
    "UndecodableMessage",
    "UnencodableValue",
    "WindowFull",
    "WrongThread",
]


E = TypeVar("E", bound=HaclientError)


def another(error: E) -> E:
    """Return a new instance of an error that several calls raise, with the original as its cause.

    A shared instance would collect the frames of every ``raise``.
    """
    error_of_call = copy.copy(error)
    error_of_call.__cause__ = error
    return error_of_call


class ConnectionGaveUp(HaclientError, proton.ConnectionException):
    """No primary was found within the limits of the policy.

    :ivar attempts: the last 1000 attempts of the episode, each with endpoint, time and result.
    :ivar gave_up_at: when the search ended, in monotonic seconds like the times of the attempts.
    :ivar condition: the AMQP error condition, if every member refused the connection with the same one, such
        as ``amqp:not-allowed``.
    """

    code = "no-primary"
    connection_usable = False
    gave_up_at: float | None = None
    condition: str | None = None

    def __init__(self, message: str, attempts: tuple[AttemptRecord, ...] = ()) -> None:
        super().__init__(message)
        self.attempts = attempts

    def __str__(self) -> str:
        """Return the message, with a line for each endpoint that was tried."""
        latest = max((record.ended for record in self.attempts), default=0.0)
        lines = summarize(self.attempts, latest if self.gave_up_at is None else self.gave_up_at)
        return "\n  ".join(map(printable, (str(self.args[0]), *lines)))


class DeadlineExceeded(ConnectionGaveUp, proton.Timeout, TimeoutError):
    """The option ``deadline`` or ``startup_deadline``, or the call's timeout, passed without a primary."""

    code = "deadline-exceeded"


class AuthenticationFailed(ConnectionGaveUp):
    """The credentials are wrong, or no common SASL mechanism exists.

    :ivar mechanism: the SASL mechanism that failed, if one was chosen.
    :ivar endpoint: the member that refused.
    """

    code = "authentication"
    safe_to_retry = False

    def __init__(
        self,
        message: str,
        attempts: tuple[AttemptRecord, ...] = (),
        mechanism: str | None = None,
        endpoint: Endpoint | None = None,
    ) -> None:
        super().__init__(message, attempts)
        self.mechanism = mechanism
        self.endpoint = endpoint


class TokenRequestError(HaclientError):
    """An identity provider refuses to issue a token to ``haclient.tokens.ClientCredentials``."""

    code = "token-request"
    connection_usable = False
    safe_to_retry = False


class TLSVerificationFailed(ConnectionGaveUp):
    """The certificate of the peer is not trusted or carries another name."""

    code = "tls-verification"
    safe_to_retry = False


class ConnectionNotAllowed(ConnectionGaveUp):
    """Every member answers ``amqp:not-allowed``: a limit, a virtual host, or a second client with its id.

    At the first connect one such answer from each member is enough; after a loss they must last
    ``refusal_timeout``.
    """

    code = "not-allowed"


class ConnectionClosed(HaclientError, proton.ConnectionException):
    """The connection was closed by the application (or gave up earlier).

    Raised by calls on a closed connection, and by sends that were waiting when it closed.  For messages that
    were on the wire ``delivered`` is ``None``.
    """

    code = "connection-closed"
    connection_usable = False

    def __init__(self, message: str, *, delivered: bool | None = False) -> None:
        super().__init__(message)
        self.delivered = delivered
        self.safe_to_retry = delivered is False


class LinkRefused(HaclientError, proton.LinkException):
    """The primary refused the sender or receiver.

    :ivar condition: the AMQP error condition, such as ``amqp:not-found``.
    :ivar redirect: the other peer that the primary named, by ``amqp:link:redirect``.
    :ivar redirect_address: the node there.
    """

    code = "link-refused"

    def __init__(
        self,
        message: str,
        condition: str | None = None,
        *,
        redirect: Endpoint | None = None,
        redirect_address: str | None = None,
    ) -> None:
        super().__init__(message)
        self.condition = condition
        self.redirect = redirect
        self.redirect_address = redirect_address


class FilterNotSupported(HaclientError, proton.LinkException):
    """The primary does not apply a filter, so the client closed the receiver: it would get other messages.

    :ivar filters: the names of those filters.
    """

    code = "filter-not-supported"
    safe_to_retry = False

    def __init__(self, message: str, filters: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.filters = filters


class LinkTimeout(HaclientError, proton.Timeout, TimeoutError):
    """No primary attached the sender or receiver in time.  The link is closed, and its name is free."""

    code = "link-timeout"


class LinkClosed(HaclientError, proton.LinkException):
    """The sender or receiver is closed, by either side.

    :ivar condition: the AMQP error condition of the peer, if any.
    """

    code = "link-closed"

    def __init__(self, message: str, condition: str | None = None, *, delivered: bool | None = False) -> None:
        super().__init__(message)
        self.condition = condition
        self.delivered = delivered
        self.safe_to_retry = delivered is False


class SendTimeout(HaclientError, proton.Timeout, TimeoutError):
    """The primary did not settle the message in time.

    A message that was never sent is withdrawn (``delivered=False``).  A message that was sent may have
    arrived (``delivered=None``), and the ledger will not send it again.

    :ivar duplicate_id: the id that the message was sent with, or ``None``.
        ``send(message, duplicate_id=...)`` repeats that send, and a broker with duplicate detection stores
        one message.
    """

    code = "send-timeout"

    def __init__(
        self, message: str, *, delivered: bool | None = None, duplicate_id: str | bytes | None = None
    ) -> None:
        super().__init__(message)
        self.delivered = delivered
        self.safe_to_retry = delivered is False
        self.duplicate_id = duplicate_id


class ReceiveTimeout(HaclientError, proton.Timeout, TimeoutError):
    """No message arrived in time."""

    code = "receive-timeout"


class DrainTimeout(HaclientError, proton.Timeout, TimeoutError):
    """The primary did not answer a drain in time: messages may still arrive.  The receiver stays open."""

    code = "drain-timeout"


class ConfirmNotSupported(HaclientError, proton.LinkException):
    """The primary does not confirm accepted deliveries, so the client closed the receiver."""

    code = "confirm-not-supported"
    safe_to_retry = False


class ConfirmTimeout(HaclientError, proton.Timeout, TimeoutError):
    """The primary did not confirm an accept in time: it took effect, or the message will be redelivered.

    A repeated call waits for the same confirmation.
    """

    code = "confirm-timeout"


class DeliveryUnknown(HaclientError, proton.LinkException):
    """The connection was lost after the message was sent and before it was settled.

    Only with ``delivery="at-most-once"``: otherwise the ledger sends it again.
    """

    code = "delivery-unknown"
    delivered = None
    safe_to_retry = False


class MessageNotAccepted(HaclientError, proton.LinkException):
    """The broker settled the message with another outcome than accepted.

    :ivar outcome: the outcome, with its condition.
    """

    code = "not-accepted"

    def __init__(self, message: str, outcome: Outcome) -> None:
        super().__init__(message, outcome)
        self.outcome = outcome

    def __str__(self) -> str:
        return printable(str(self.args[0]))


class MessageTooLarge(HaclientError, proton.LinkException):
    """The message is larger than the primary allows (the max-message-size of its Attach).

    Or the primary ended every connection over which the message was sent, with a condition of that meaning.
    ``delivered`` is then ``None``; so it is if another primary was sent the message before a failover.

    :ivar size: size of the encoded message, in bytes.
    :ivar limit: the primary's limit, in bytes; 0 if it announced none.
    """

    code = "message-too-large"
    safe_to_retry = False

    def __init__(
        self, message: str, size: int = 0, limit: int = 0, *, delivered: bool | None = False
    ) -> None:
        super().__init__(message)
        self.size = size
        self.limit = limit
        self.delivered = delivered


class WindowFull(HaclientError, proton.LinkException):
    """As many messages are unsettled as the sender's ``window`` allows, so ``submit_nowait`` sent nothing.

    ``submit`` waits instead.

    :ivar window: the option, in messages.
    """

    code = "window-full"

    def __init__(self, message: str, window: int = 0) -> None:
        super().__init__(message)
        self.window = window


class SendManyError(HaclientError, proton.LinkException):
    """``send_many`` ended before every message was accepted.

    ``delivered`` is ``False`` if none of them can have arrived, and ``None`` otherwise: see each result.
    ``safe_to_retry`` says whether the same call may be made again; otherwise send the failed messages again.

    :ivar results: the outcome or exception of each message that was read from the iterable, in order.
        Messages that were not read have no entry.
    """

    code = "send-many"

    def __init__(self, message: str, results: list[Outcome | HaclientError] | None = None) -> None:
        super().__init__(message)
        self.results = results or []
        failed = [each for each in self.results if isinstance(each, HaclientError)]
        self.connection_usable = all(each.connection_usable for each in failed)
        all_failed = len(failed) == len(self.results)
        self.delivered = False if all_failed and all(each.delivered is False for each in failed) else None
        self.safe_to_retry = all_failed and all(each.safe_to_retry for each in failed)

    def __str__(self) -> str:
        """Return the message, which has a line for each kind of failure."""
        return printable_lines(str(self.args[0]))


class StaleDelivery(HaclientError, proton.LinkException):
    """The delivery cannot be settled any more: its connection was lost, or its receiver is closed.

    The primary delivers its message again; but an accept that waited to be confirmed may have taken effect.
    """

    code = "stale-delivery"
    safe_to_retry = False


class AlreadySettled(HaclientError, proton.LinkException):
    """The delivery was settled before."""

    code = "already-settled"
    safe_to_retry = False


class WrongThread(HaclientError, RuntimeError):
    """A blocking call was made where it would wait for itself, or after a fork."""

    code = "wrong-thread"
    safe_to_retry = False
