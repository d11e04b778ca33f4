"""Subscriptions to a topic: the name of their link, and their removal.

Rules (of Qpid JMS, which Apache Artemis and the Qpid brokers understand)
-----
* The link has the name of the subscription, which belongs to the container id.  So a durable subscription
  needs a ``client_id``, unless it is shared and ``global``.
* Links that share a subscription have its name and a suffix after ``|``: ``global`` without a ``client_id``,
  ``volatile`` if it is not durable, and a number, because a connection has one link of each name.
* To remove a durable subscription, the client attaches a link of its name with a null source, and closes it.
  The peer finds the subscription by that name.  For a global one the peer would look at the desired
  capabilities, which proton does not write into an Attach.  So the client attaches it as before, by its
  topic, and closes it.

Sources: AMQP 1.0 part 2, section 2.6.6 (detached and closed); Apache Qpid JMS, ``AmqpSubscriptionTracker``
and ``AmqpConnectionSession``; Apache Artemis, ``DefaultSenderController``.
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
    """Return the capabilities of a subscription's source: ``topic``, and the given ones.

    A shared subscription also has ``shared``, and without a client id ``global``.

    :param given: further capabilities, from the application.
    :param client_id: the client id in the URL.
    :raises ValueError: for a durable subscription without a ``client_id``, unless it is shared.
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
    """Return the name of a subscription's link; ``None`` if it is neither durable nor shared.

    The name of a shared subscription's link is not in use yet: it gets another number if necessary.

    :param capabilities: capabilities of the source.
    :param in_use: returns whether the connection has a receiver of this name.
    :raises ValueError: if the name is missing or invalid, or given for a subscription that has none.
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

    :raises ValueError: if it is no string, is empty, or contains ``|``.
    """
    if not isinstance(name, str) or not name:
        raise ValueError(f"a durable or shared subscription has a name, not {quoted(name)}")
    if _DELIMITER in name:
        raise ValueError(f"the name of a subscription has no {_DELIMITER!r}: {quoted(name)}")


def removal_source(topic: str | None, client_id: str | None) -> SourceParams:
    """Return the source of the link that removes a durable subscription.

    :param topic: topic of a global subscription; otherwise ``None``.
    :raises ValueError: if the peer could not find the subscription.
    """
    if topic is not None:
        return SourceParams({}, (TOPIC, SHARED, GLOBAL), durable=True, strict=False)
    if client_id is None:
        raise ValueError(
            "without a client_id the durable subscriptions are global: name the topic, too (topic=NAME)"
        )
    return SourceParams({}, is_lookup=True)


class Removal:
    """Removes a durable subscription, over any number of connections.

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
        """Error of the peer's temporary refusal to find the subscription."""
        return self._core.refusal

    async def wait(self) -> None:
        """Wait until the peer has removed the subscription.

        :raises LinkRefused: if there is none, or it may not be removed.
        """
        try:
            await self._core.wait_messages(1)
        except LinkClosed:
            if not self._removed:
                raise

    def close(self) -> None:
        """Stop, whether the subscription is removed or not."""
        self._core.close(keep=False if self._closing else None)

    def _accepted(self, link: ReceiverLink) -> None:
        self._closing = True
        link.close(keep=False)

    def _detached(self, link: ReceiverLink, condition: proton.Condition | None, /) -> HaclientError | None:
        # After a loss the next primary may not know the subscription: it was removed.
        if self._closing and (condition is None or condition.name == NOT_FOUND):
            self._removed = True
            return LinkClosed("the subscription is removed")
        return None if self._decide is None else self._decide(link, condition)
