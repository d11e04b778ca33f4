"""The known products and their quirks."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# More digits than these are no version: a peer may send any.
_MAJOR_AND_MINOR = re.compile(r"([0-9]{1,6})\.([0-9]{1,6})(?![0-9])", re.ASCII)


class Quirk(enum.Enum):
    """A deviation of a product; the value is its name in docs/internals/quirks.md."""

    FORGETS_CREDIT = "forgets-credit"
    """Forgets a receiver's credit when the leader of its queue moves; the client repeats it."""
    IDS_OUTLIVE_MESSAGES = "ids-outlive-messages"
    """Remembers the id of a message that it has lost, and drops the copy that is sent again."""
    TOPIC_BY_DEFAULT = "topic-by-default"
    """Makes a topic of an unknown address, unless the link asks for the capability ``queue``."""
    UNIQUE_IDS = "unique-ids"
    """Refuses a second connection with the same container id, even if the client did not ask for that."""
    PREFIXED_TOPICS = "prefixed-topics"
    """Makes a queue of a bare name, whatever the link asks for; its Open announces the prefix of topics."""
    ECHOES_CAPABILITIES = "echoes-capabilities"
    """Answers an Attach with all capabilities that were asked for, even if it does not have them."""
    ACCEPTS_UNROUTABLE = "accepts-unroutable"
    """Accepts messages for which there is no queue, and drops them."""
    EVERY_NODE_SERVES = "every-node-serves"
    """Has no passive members: all nodes of a cluster serve at once."""
    COUNTS_FROM_ZERO = "counts-from-zero"
    """Starts its senders at delivery-count 0: a receiver may grant credit before the peer's Attach."""
    ROUTER = "router"
    """Is a router: stores no messages, and accepts each when a broker behind it has accepted it."""
    ECHOES_FILTERS = "echoes-filters"
    """Answers with every filter that was asked for, but applies only filters of streams."""
    NO_CONFIRM = "no-confirm"
    """Ends the session of a receiver that asks for confirmed accepts."""
    COUNTS_RELEASES = "counts-releases"
    """Counts every return of a message to a quorum queue, even a release; drops the message at a limit."""
    OLD_ADDRESSES = "old-addresses"
    """Makes a queue on one node, not durable, for an address in the style of version 3."""
    BARE_VHOST = "bare-vhost"
    """Takes the hostname of an Open as a virtual host only after ``vhost:``; else uses its default one."""
    IGNORES_BROWSE = "ignores-browse"
    """Answers a browse with distribution-mode *copy*, but delivers the messages as to any receiver."""
    STREAM_OFFSETS = "stream-offsets"
    """Has streams: at each Attach, a receiver starts where its filter says."""
    REFUSES_BY_END = "refuses-by-end"
    """Refuses an Attach by ending the session, which ends all links of that session."""
    ID_NAMES_PROCESS = "id-names-process"
    """Has one container id per process; with other products, the members of a pair may share one."""


@dataclass(frozen=True, slots=True)
class Product:
    """A broker or router.

    :param announced: the ``product`` in its Open.
    :param version: the version that was measured; empty if only its manual was read.
    :param majors: the major versions with these quirks; empty for all.
    :param ended: the version that removed a quirk, by its own account.
    """

    name: str
    announced: str
    version: str
    quirks: frozenset[Quirk] = frozenset()
    majors: tuple[str, ...] = ()
    ended: Mapping[Quirk, tuple[int, int]] = field(default_factory=dict)

    def may_be(self, version: object) -> bool:
        """Return whether this entry may describe a version, by the text before its first dot.

        True if there are no ``majors``, or if the version is empty or not text.
        """
        major = version.partition(".")[0] if isinstance(version, str) else ""
        return not self.majors or not major or major in self.majors

    def quirks_in(self, version: object) -> frozenset[Quirk]:
        """Return the quirks of a version; all of them if it cannot be parsed."""
        found = _MAJOR_AND_MINOR.match(version) if isinstance(version, str) else None
        if found is None or not self.ended:
            return self.quirks
        number = int(found[1]), int(found[2])
        return self.quirks - {quirk for quirk, first in self.ended.items() if number >= first}


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
    Product(
        "Apache ActiveMQ Classic",
        "ActiveMQ",
        "5.17.6",
        frozenset(
            {
                Quirk.COUNTS_FROM_ZERO,
                Quirk.UNIQUE_IDS,
                Quirk.PREFIXED_TOPICS,
                Quirk.ECHOES_CAPABILITIES,
            }
        ),
    ),
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
                Quirk.ECHOES_FILTERS,
                Quirk.NO_CONFIRM,
                Quirk.COUNTS_RELEASES,
                Quirk.OLD_ADDRESSES,
                Quirk.BARE_VHOST,
                Quirk.IGNORES_BROWSE,
                Quirk.STREAM_OFFSETS,
                Quirk.REFUSES_BY_END,
                Quirk.ID_NAMES_PROCESS,
            }
        ),
        ("4",),
        {Quirk.ECHOES_FILTERS: (4, 1)},
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
                Quirk.ECHOES_FILTERS,
                Quirk.BARE_VHOST,
                Quirk.IGNORES_BROWSE,
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

    If the version is missing, or no entry of the product covers it, the product's first entry counts.
    """
    known = [product for product in PRODUCTS if product.announced == properties.get("product")]
    version = properties.get("version")
    fitting = [product for product in known if product.may_be(version)] or known
    return fitting[0].quirks_in(version) if fitting else frozenset()
