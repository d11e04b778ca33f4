"""What the peer's refusal of a link means: for how long the client attaches it again, or the error.

Rules
-----
1. At the first attach every refusal is final, except those of a link that somebody else still holds: it is
   attached again for as long as the call waits.
2. After a loss a new primary may refuse for a while what it accepts later: the old connection still holds
   the link, or its queues are not restored yet.  Such refusals are retried, ``not-found`` for a shorter time:
   a queue is rarely restored for longer, and it may have been deleted.
3. Every other condition is final.  ``stolen`` is, because two processes with one link name would steal it
   from each other for ever.
4. A Detach without a condition is final: the peer had no trouble.

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
# Restoring a large queue takes a broker some ten seconds; whoever waits longer hides that it was deleted.
NOT_FOUND_TIMEOUT = 30.0
# Artemis counts the consumer of a half-open connection until its connection TTL, 60 s by default, ends.
_CONSUMER_LIMIT = "maximum consumer limit"

# After a loss: how long each of them is retried at most, in seconds.
_RETRIED: Mapping[str, float] = MappingProxyType(
    {
        RESOURCE_LOCKED: math.inf,
        "amqp:link:detach-forced": math.inf,
        "amqp:internal-error": math.inf,
        "amqp:resource-limit-exceeded": math.inf,
        # Broker-J 10.1, for a Flow behind an Attach that takes a link from the former connection: until
        # that one has let go, it does not know the handle.
        "amqp:session:unattached-handle": math.inf,
        NOT_FOUND: NOT_FOUND_TIMEOUT,
    }
)


class OnDetached(Protocol[L_contra]):
    """Decides about a link that the peer refused or detached."""

    def __call__(self, link: L_contra, condition: proton.Condition | None, /) -> HaclientError | None:
        """Return the error that closes the link, or ``None`` when it is attached again."""


def retry_seconds(condition: proton.Condition | None, *, first: bool, reattach_timeout: float) -> float:
    """For how long a link that is refused with this condition is attached again.

    :param first: the link was never attached.
    :param reattach_timeout: the longest time after a loss, in seconds.
    :returns: seconds; 0 for a refusal that is final, infinity for one that the caller's timeout ends.
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
    """The error for a link that the peer refused or detached.

    :param addition: what else is to be said.
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
    """The error for a link that cannot be attached."""
    return LinkClosed(message, condition) if opened else LinkRefused(message, condition)
