"""Classification of refused links: how long the client attaches them again, or the error.

Rules
-----
1. At the first attach every refusal is final, unless another client still holds the link.  The client then
   attaches it again for as long as the call waits.
2. After a loss a new primary may refuse for a while: the old connection still holds the link, or its queues
   are not restored yet.  Such refusals are retried.  ``not-found`` is retried for a shorter time: a queue is
   rarely restored for longer, and it may have been deleted.
3. Every other condition is final.  So is ``stolen``: two processes with one link name would steal it from
   each other for ever.
4. A Detach without a condition is final: the peer reports no error.

Pure.  Sources: AMQP 1.0 part 2, sections 2.8.15 (amqp-error), 2.8.17 (session-error) and 2.8.18 (link-error);
Apache Artemis, ``ActiveMQMessageBundle`` 229200 (the limit of consumers, which AMQP clients get under several
conditions).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol, TypeVar

import proton

from haclient.error_catalog.base import brief, quoted
from haclient.errors import HaclientError, LinkClosed, LinkRefused

L_contra = TypeVar("L_contra", contravariant=True)

RESOURCE_LOCKED = "amqp:resource-locked"
NOT_FOUND = "amqp:not-found"
# A broker needs some ten seconds to restore a large queue; a longer wait would hide that it was deleted.
NOT_FOUND_TIMEOUT = 30.0
# Artemis counts the consumer of a half-open connection until its connection TTL, 60 s by default, ends.
_CONSUMER_LIMIT = "maximum consumer limit"

# Longest time to retry each condition after a loss, in seconds.
_RETRIED: Mapping[str, float] = MappingProxyType(
    {
        RESOURCE_LOCKED: math.inf,
        "amqp:link:detach-forced": math.inf,
        "amqp:internal-error": math.inf,
        "amqp:resource-limit-exceeded": math.inf,
        # Broker-J 10.1 answers like this if a Flow follows an Attach that takes the link from the former
        # connection: until that one has released the link, the broker does not know the handle.
        "amqp:session:unattached-handle": math.inf,
        NOT_FOUND: NOT_FOUND_TIMEOUT,
    }
)


class OnDetached(Protocol[L_contra]):
    """Decides whether a refused or detached link is attached again."""

    def __call__(self, link: L_contra, condition: proton.Condition | None, /) -> HaclientError | None:
        """Return the error that closes the link, or ``None`` if it is attached again."""


def retry_seconds(condition: proton.Condition | None, *, first: bool, reattach_timeout: float) -> float:
    """Return how long to keep attaching a link that was refused with this condition.

    :param first: whether the link was never attached.
    :param reattach_timeout: the longest time after a loss, in seconds.
    :returns: seconds; 0 if the refusal is final, infinity if only the caller's timeout ends it.
    """
    if condition is None:
        return 0.0
    limited = _CONSUMER_LIMIT in str(condition.description or "").lower()
    if first:
        return math.inf if limited or condition.name == RESOURCE_LOCKED else 0.0
    return min(math.inf if limited else _RETRIED.get(condition.name, 0.0), reattach_timeout)


def closed_by_peer(
    condition: proton.Condition | None, address: str | None, *, opened: bool, addition: str = ""
) -> HaclientError:
    """Return the error for a link that the peer refused or detached.

    :param addition: text to append.
    """
    name = condition.name if condition else None
    detail = "no reason given"
    if condition is not None:
        detail = brief(condition.name)
        detail += f": {brief(str(condition.description))}" if condition.description else ""
    verb = "detached" if opened else "refused"
    return link_error(
        f"the primary {verb} the link to {quoted(address)} ({detail}){addition}", name, opened=opened
    )


def link_error(message: str, condition: str | None, *, opened: bool) -> HaclientError:
    """Return the error for a link that cannot be attached."""
    return LinkClosed(message, condition) if opened else LinkRefused(message, condition)
