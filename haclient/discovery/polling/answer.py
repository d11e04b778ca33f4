"""What a failed attempt says about its member: pure."""

from __future__ import annotations

import enum

from haclient.discovery.evidence import Failure, FailureReason

_REFUSES = frozenset({FailureReason.REFUSED, FailureReason.UNREACHABLE, FailureReason.UNRESOLVED})
_PASSIVE_KINDS = frozenset(
    {FailureReason.REDIRECTED, FailureReason.REDIRECT_REFUSED, FailureReason.STALE_PRIMARY}
)
_PASSIVE_CONDITIONS = frozenset(
    {"amqp:connection:forced", "amqp:not-found", "amqp:invalid-field", "amqp:not-allowed"}
)
_NO_ANSWER = frozenset({FailureReason.LOST_RACE, FailureReason.STOPPED})


class Answer(enum.Enum):
    """What a member answered last."""

    NONE = "none"
    REFUSED = "refused"
    SILENT = "silent"
    PASSIVE = "passive"
    OVERLOADED = "overloaded"


def answer_of(failure: Failure, *, connected: bool) -> Answer:
    """What a failed attempt says about its member.

    :param connected: whether TCP was connected.
    """
    if failure.kind in _NO_ANSWER:
        return Answer.NONE
    if failure.kind in _REFUSES:
        return Answer.REFUSED
    if not connected and failure.kind in {FailureReason.TIMED_OUT, FailureReason.DISPLACED}:
        return Answer.SILENT
    if failure.kind in _PASSIVE_KINDS or failure.retry_after is not None:
        return Answer.PASSIVE
    return Answer.PASSIVE if failure.condition in _PASSIVE_CONDITIONS else Answer.OVERLOADED
