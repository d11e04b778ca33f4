"""Subscriptions to a topic: the name of their link, and how one is removed.

Rules (those of Qpid JMS, which Apache Artemis and the Qpid brokers understand)
-----
* The name of the link is that of the subscription, and the container id belongs to it.  So a durable
  subscription needs a ``client_id``, unless it is shared and ``global``.
* Links that share a subscription have its name and a suffix after ``|``: ``global`` without a ``client_id``,
  ``volatile`` if it is not durable, and a number, for a connection has one link of each name.
* A durable subscription is removed by a link of its name with a null source, which the peer finds by that
  name, and by closing this link.  proton writes no desired capabilities into an Attach, by which a peer would
  look for a global one: so that is attached as it was, by its topic, and closed.

Sources: AMQP 1.0 part 2, section 2.6.6 (detached and closed); Apache Qpid JMS,
``AmqpSubscriptionTracker`` and ``AmqpConnectionSession``; Apache Artemis, ``DefaultSenderController``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

import proton

from haclient.core.attach.refusals import NOT_FOUND
from haclient.core.attach.source import GLOBAL, SHARED, TOPIC, SourceParams
from haclient.error_catalog.base import quoted
from haclient.errors import HaclientError, LinkClosed

if TYPE_CHECKING:
    from haclient.core.receiver import ReceiverCore
    from haclient.engine.links import ReceiverLink

_DELIMITER = "|"


def subscription_capabilities(
    given: Collection[str], *, durable: bool, shared: bool, client_id: str | None
) -> tuple[str, ...]:
    """The capabilities of a subscription's source.

    :param client_id: that of the URL.
    :raises ValueError: for a durable subscription that belongs to nobody.
    """
    made = [TOPIC]
    if shared:
        made.append(SHARED)
        if client_id is None:
            made.append(GLOBAL)
    elif durable and client_id is None:
        raise ValueError(
            "a durable subscription belongs to a client_id: give one in the URL (client_id=NAME), "
            "or subscribe with shared=True, if the broker shares subscriptions (ActiveMQ Classic does not)"
        )
    return (*made, *(each for each in given if each not in made))


def link_name(
    name: str | None,
    capabilities: Collection[str],
    *,
    durable: bool,
    in_use: Callable[[str], bool],
) -> str | None:
    """The name of a subscription's link; ``None`` if any will do.

    :param capabilities: those of the source.
    :param in_use: whether the connection has a receiver of this name.
    :raises ValueError: when the name is missing, useless, or not possible.
    """
    shared, common = SHARED in capabilities, GLOBAL in capabilities
    if not durable and not shared:
        if name is not None:
            raise ValueError(
                f"the name {quoted(name)} is of no use: only a durable or shared subscription has one"
            )
        return None
    check_name(name)
    if not shared:
        return name
    if durable:
        base, many = (f"{name}|{GLOBAL}", "") if common else (f"{name}", _DELIMITER)
        if not in_use(base):
            return base
        made = (f"{base}{many}{number}" for number in itertools.count(2))
    else:
        made = (f"{name}|{'global-' if common else ''}volatile{number}" for number in itertools.count(1))
    return next(each for each in made if not in_use(each))


def check_name(name: object) -> None:
    """Check the name of a subscription.

    :raises ValueError: when it cannot be one.
    """
    if not isinstance(name, str) or not name:
        raise ValueError(f"a durable or shared subscription has a name, not {quoted(name)}")
    if _DELIMITER in name:
        raise ValueError(f"the name of a subscription has no {_DELIMITER!r}: {quoted(name)}")


def removal_source(topic: str | None, client_id: str | None) -> SourceParams:
    """The source of the link that removes a durable subscription.

    :param topic: of a global subscription.
    :raises ValueError: when it cannot be found.
    """
    if topic is not None:
        return SourceParams({}, (TOPIC, SHARED, GLOBAL), durable=True, strict=False)
    if client_id is None:
        raise ValueError(
            "without a client_id the durable subscriptions are global: name the topic, too (topic=NAME)"
        )
    return SourceParams({}, is_lookup=True)


class Removal:
    """Removes a durable subscription, over as many connections as it takes.

    :param core: a receiver of the subscription's link name, without credit.
    """

    def __init__(self, core: ReceiverCore) -> None:
        self._core = core
        self._closing = self._removed = False
        self._decide = core.on_detached
        core.on_accepted = self._accepted
        core.on_detached = self._detached

    @property
    def refusal(self) -> HaclientError | None:
        """Why the peer refuses to find it for now."""
        return self._core.refusal

    async def wait(self) -> None:
        """Wait until the peer has removed it.

        :raises LinkRefused: when there is none, or it may not be removed.
        """
        try:
            await self._core.wait_message()
        except LinkClosed:
            if not self._removed:
                raise

    def close(self) -> None:
        """End it, done or not."""
        self._core.close(keep=False if self._closing else None)

    def _accepted(self, link: ReceiverLink) -> None:
        self._closing = True
        link.close(keep=False)

    def _detached(self, link: ReceiverLink, condition: proton.Condition | None, /) -> HaclientError | None:
        # After a loss in between, the next primary may not know it any more: it was removed.
        if self._closing and (condition is None or condition.name == NOT_FOUND):
            self._removed = True
            return LinkClosed("the subscription is removed")
        return None if self._decide is None else self._decide(link, condition)
