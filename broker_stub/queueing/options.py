"""The options of a queue, except its name and its replication.  No I/O.

The names are the same in node properties, in the attributes of the management node and in the store.  They
follow Azure Service Bus and ActiveMQ Artemis (``MaxDeliveryCount``, ``max-delivery-attempts``,
``dead-letter-address``), with the ``x-`` of queue arguments in Qpid and RabbitMQ.

Rules
-----
* An option with its default value is not written, so a queue without options is stored and sent as before.
* An unknown name or a wrong value is refused: a queue that only seems to have an option would be worse.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from broker_stub.queueing.selectors import Selector, SelectorError
from broker_stub.queueing.site_state import REPLICATION_QUEUE

MAX_DELIVERY_COUNT = "x-max-delivery-count"
DEAD_LETTER_ADDRESS = "x-dead-letter-address"
SELECTOR = "x-selector"
NO_LOCAL = "x-no-local"
DELIVER = "x-deliver"
OPTION_NAMES = (MAX_DELIVERY_COUNT, DEAD_LETTER_ADDRESS, SELECTOR, NO_LOCAL, DELIVER)

# Long enough for any name that a person chooses; names occur in logs and in status answers.
MAX_NAME = 1024
# The maximum of delivery-count in the header: AMQP 1.0 part 3, section 3.2.1.
_MOST_DELIVERIES = 2**32 - 1


class QueueOptionError(ValueError):
    """An option has an invalid value."""


class Deliver(enum.StrEnum):
    """The condition for delivery to consumers: the values of ``x-deliver``."""

    COMMITTED = "committed"
    """Once the message is complete, so that its producer's transfer could be settled."""
    EARLY = "early"
    """At once.  A failover may then lose a message that a consumer had, and its producer sends it again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOptions:
    """The options of one queue.

    :param max_delivery_count: failed deliveries after which a message is a dead letter; 0 for no limit.
    :param dead_letter_address: the queue or exchange that gets dead letters; empty for none.
    :param selector: the messages that it gets from exchanges it is bound to; empty for all.
    :param no_local: the container id whose messages it does not get from exchanges; empty for none.
    :param deliver: when consumers get a message.
    """

    max_delivery_count: int = 0
    dead_letter_address: str = ""
    selector: str = ""
    no_local: str = ""
    deliver: Deliver = Deliver.COMMITTED

    @classmethod
    def of(cls, given: Mapping[str, Any], *, bounded: bool = True) -> QueueOptions:
        """Read the options from the arguments of a declaration, such as node properties.

        :param bounded: as for ``Selector``; False for a queue that the cluster has already.
        :raises QueueOptionError: when an option has an invalid value.
        """
        count = given.get(MAX_DELIVERY_COUNT) or 0
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= _MOST_DELIVERIES:
            raise QueueOptionError(f"{MAX_DELIVERY_COUNT} is a whole number from 0, and not {count!r}")
        selector = _text(given, SELECTOR)
        try:
            selector = selector and Selector(selector, bounded=bounded).text
        except SelectorError as error:
            raise QueueOptionError(f"{SELECTOR}: {error}") from error
        deliver = given.get(DELIVER) or Deliver.COMMITTED
        if deliver not in tuple(Deliver):
            raise QueueOptionError(f"{DELIVER} is {', '.join(Deliver)}, and not {deliver!r}")
        return cls(
            max_delivery_count=int(count),
            dead_letter_address=_text(given, DEAD_LETTER_ADDRESS),
            selector=selector,
            no_local=_text(given, NO_LOCAL),
            deliver=Deliver(str(deliver)),
        )

    def check_for(self, name: str, reserved: tuple[str, ...]) -> None:
        """Check that a queue of this name can have the options.

        :param reserved: prefixes of names that clients cannot use for queues.
        :raises QueueOptionError: when it cannot.
        """
        address = self.dead_letter_address
        if address == name:
            raise QueueOptionError(f"{name!r} cannot be its own {DEAD_LETTER_ADDRESS}")
        if address.startswith(reserved) or address == REPLICATION_QUEUE or len(address) > MAX_NAME:
            raise QueueOptionError(f"{address!r} takes no dead letters: it is not for clients, or too long")

    def plain(self) -> dict[str, Any]:
        """Return the options that differ from their defaults, by name, as JSON types."""
        deliver = "" if self.deliver is Deliver.COMMITTED else str(self.deliver)
        values = (self.max_delivery_count, self.dead_letter_address, self.selector, self.no_local, deliver)
        return {name: value for name, value in zip(OPTION_NAMES, values, strict=True) if value}


def _text(given: Mapping[str, Any], name: str) -> str:
    value = given.get(name) or ""
    if not isinstance(value, str):
        raise QueueOptionError(f"{name} is a string, and not {value!r}")
    return str(value)


NO_OPTIONS = QueueOptions()
