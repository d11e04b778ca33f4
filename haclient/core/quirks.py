"""What brokers do beyond the specification, by product, and what the client does about it.

``PRODUCTS`` has what was measured, or what a manual says, and ``Quirk`` what each means; docs/brokers.md has
the same for users.  A broker is known by the ``product`` in the properties of its Open.

Three of them change what the client sends:

RabbitMQ keeps a receiver's credit with the leader of the queue, and forgets it when the leader moves to
another node, whether this connection was to that node or not (measured with 3.10 and mirrored queues: one
failover in four).  The receiver then gets nothing more, with credit on both ends.  A Flow that repeats the
credit mends it, so the client sends RabbitMQ one every few seconds.

A receiver's first Flow may leave before the peer's Attach, which saves a round trip at each failover.  proton
writes the delivery-count into it, which the receiver cannot know yet: 0.  A peer whose count begins elsewhere
reads another credit: RabbitMQ 4.0 begins at 2^32 - 5, sends five messages too many, and ends the session when
the next Flow tells it so; with a credit of 1 the same message came 21 times, and others never.  So credit
waits for the Attach, but where the count was measured to begin at 0: ``COUNTS_FROM_ZERO``.

A broker with duplicate detection may keep the id of a message over a failover and not the message, where that
was not durable: Apache ActiveMQ Artemis does, and drops the copy that a client sends again, with the answer
accepted (500 answers held back, broker killed: of 500 messages with ids none was there).  So messages that
are not durable have ids only where the peer's Open says that both live and die together, as that of
``broker_stub`` does: ``IDS_OUTLIVE_MESSAGES`` is the rule, and no product is asked for by its name.

Sources: AMQP 1.0 part 2, section 2.6.7: a Flow states the credit, it does not add to it; section 2.7.4: the
delivery-count of a receiver "MUST NOT be set" before it has the sender's Attach.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from haclient.engine.link_table import repeat_credit
from haclient.printable.log import get_logger

if TYPE_CHECKING:
    from haclient.engine.protocol import Engine

advice = get_logger("haclient.advice")
"""What an application may have overlooked; at INFO, for the client cannot know it."""
_INTERVAL = 5.0
IDS_LIVE_WITH_MESSAGES = "haclient:ids-live-with-messages"
"""A property of the Open, true or absent."""


class Quirk(enum.Enum):
    """What a product does; the value is its name in docs/brokers.md."""

    FORGETS_CREDIT = "forgets-credit"
    """A receiver's credit is gone when the leader of its queue moves; the client repeats it."""
    IDS_OUTLIVE_MESSAGES = "ids-outlive-messages"
    """It remembers the id of a message that it has lost, and drops the copy that is sent again."""
    TOPIC_BY_DEFAULT = "topic-by-default"
    """It makes a topic of an unknown address, unless the link asks for the capability ``queue``."""
    ACCEPTS_UNROUTABLE = "accepts-unroutable"
    """It accepts messages for which there is no queue, and drops them."""
    EVERY_NODE_SERVES = "every-node-serves"
    """There is no passive member: all nodes of a cluster serve at once."""
    COUNTS_FROM_ZERO = "counts-from-zero"
    """The delivery-count of its senders begins at 0: a receiver may grant credit before its Attach."""
    ROUTER = "router"
    """It is no broker: it stores nothing, and what it accepts a broker behind it has accepted."""
    ID_NAMES_PROCESS = "id-names-process"
    """Its container id is that of one process; elsewhere the members of a pair may have one in common."""


@dataclass(frozen=True, slots=True)
class Product:
    """A broker or router.

    :param announced: the ``product`` of its Open.
    :param version: the version that was measured; empty where only its manual was read.
    """

    name: str
    announced: str
    version: str
    quirks: frozenset[Quirk] = frozenset()


PRODUCTS = (
    Product(
        "Apache ActiveMQ Artemis",
        "apache-activemq-artemis",
        "2.56.0",
        frozenset(
            {
                Quirk.IDS_OUTLIVE_MESSAGES,
                Quirk.TOPIC_BY_DEFAULT,
                Quirk.ACCEPTS_UNROUTABLE,
                Quirk.COUNTS_FROM_ZERO,
            }
        ),
    ),
    Product("Apache ActiveMQ Classic", "ActiveMQ", "5.17.6", frozenset({Quirk.COUNTS_FROM_ZERO})),
    Product(
        "Apache Qpid Broker-J", "Apache Qpid Broker-J Core", "10.1.0", frozenset({Quirk.COUNTS_FROM_ZERO})
    ),
    Product(
        "RabbitMQ",
        "RabbitMQ",
        "3.10.8",
        frozenset(
            {
                Quirk.FORGETS_CREDIT,
                Quirk.ACCEPTS_UNROUTABLE,
                Quirk.EVERY_NODE_SERVES,
                Quirk.ID_NAMES_PROCESS,
            }
        ),
    ),
    Product(
        "broker_stub",
        "haclient-broker-stub",
        "",
        frozenset({Quirk.ID_NAMES_PROCESS, Quirk.COUNTS_FROM_ZERO}),
    ),
    Product(
        "Apache Qpid Dispatch Router",
        "qpid-dispatch-router",
        "",
        frozenset({Quirk.ROUTER, Quirk.ID_NAMES_PROCESS}),
    ),
    Product("Skupper Router", "skupper-router", "", frozenset({Quirk.ROUTER, Quirk.ID_NAMES_PROCESS})),
)


_TOPIC_ADVICE = (
    "%s: %s makes a topic of an address that it does not know, and accepts messages that no receiver gets: "
    "if %r is a queue, ask for the capability 'queue'"
)


def quirks_of(product: object) -> frozenset[Quirk]:
    """Those of a product, by what its Open announces; none for an unknown one."""
    return next((known.quirks for known in PRODUCTS if known.announced == product), frozenset())


def takes_early_credit(engine: Engine) -> bool:
    """Return whether a receiver may grant this peer credit before its Attach."""
    return Quirk.COUNTS_FROM_ZERO in quirks_of(engine.peer_properties.get("product"))


def ids_live_with_messages(peer_properties: Mapping[str, Any]) -> bool:
    """Whether a peer forgets the duplicate-detection id of a message that it loses, whatever it loses."""
    return peer_properties.get(IDS_LIVE_WITH_MESSAGES) is True


def advise_capability(engine: Engine, name: str, address: str) -> None:
    """Say that this sender asks for no kind of node, where the peer then makes a topic.

    Whether the address was a queue before is unknown: the answer to the Attach is the same (Artemis 2.56).
    """
    product = engine.peer_properties.get("product")
    if Quirk.TOPIC_BY_DEFAULT in quirks_of(product):
        advice.info(_TOPIC_ADVICE, name, product, address)


def apply(engine: Engine, loop: asyncio.AbstractEventLoop) -> None:
    """Work around the quirks of this connection's peer, until the connection ends."""
    if Quirk.FORGETS_CREDIT in quirks_of(engine.peer_properties.get("product")):
        loop.call_later(_INTERVAL, _remind, engine, loop)


def _remind(engine: Engine, loop: asyncio.AbstractEventLoop) -> None:
    if engine.close_reason is None:
        repeat_credit(engine)
        loop.call_later(_INTERVAL, _remind, engine, loop)
