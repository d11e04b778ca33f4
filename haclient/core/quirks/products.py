"""The products that are known, and the quirks of each."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


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
    REFUSES_BY_END = "refuses-by-end"
    """It answers an Attach that it refuses by the End of the session, and so of all links in that."""
    ID_NAMES_PROCESS = "id-names-process"
    """Its container id is that of one process; elsewhere the members of a pair may have one in common."""


@dataclass(frozen=True, slots=True)
class Product:
    """A broker or router.

    :param announced: the ``product`` of its Open.
    :param version: the version that was measured; empty where only its manual was read.
    :param majors: the major versions with these quirks; none for all.
    """

    name: str
    announced: str
    version: str
    quirks: frozenset[Quirk] = frozenset()
    majors: tuple[str, ...] = ()

    def may_be(self, version: object) -> bool:
        """Return whether these are the quirks of a version; where that is not text, of any."""
        major = version.partition(".")[0] if isinstance(version, str) else ""
        return not self.majors or not major or major in self.majors


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
        "4.0.5",
        frozenset(
            {
                Quirk.FORGETS_CREDIT,
                Quirk.EVERY_NODE_SERVES,
                Quirk.REFUSES_BY_END,
                Quirk.ID_NAMES_PROCESS,
            }
        ),
        ("4",),
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
                Quirk.REFUSES_BY_END,
                Quirk.ID_NAMES_PROCESS,
            }
        ),
        ("3",),
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


def quirks_of(properties: Mapping[str, Any]) -> frozenset[Quirk]:
    """Return the quirks of a peer, by the properties of its Open; none for an unknown product.

    Of a product whose version is not known they are those of the first one in the table.
    """
    known = [product for product in PRODUCTS if product.announced == properties.get("product")]
    fitting = [product for product in known if product.may_be(properties.get("version"))] or known
    return fitting[0].quirks if fitting else frozenset()
