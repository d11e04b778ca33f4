"""The prefixes by which a peer tells topics from queues: ``topic-prefix`` and ``queue-prefix`` of its Open.

ActiveMQ Classic makes a queue of a name without a prefix, whatever capability the link asks for.  Its Open
says which prefixes it means, and the client writes them in front of the address, as Qpid JMS does.

RabbitMQ 4 announces none, and takes a name by itself for an address of version 3: it makes a queue that dies
with its node.  A link that asks for a queue there gets the address of one, ``/queues/NAME``.

Rules
-----
* The capability ``topic`` takes the one prefix, ``queue`` the other; a link that asks for neither, or for
  both, has the address as it is.
* An address that begins with one of the two is left alone, and so is one that the peer has named.  For
  RabbitMQ 4 that is any that begins with a slash.
* The application, events and errors see the address of the application.

Sources: Apache Qpid JMS, ``AmqpDestinationHelper`` and ``AmqpConnectionProperties``; RabbitMQ, "AMQP 1.0",
address v2.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any
from urllib.parse import quote

from haclient.core.quirks.products import Quirk, quirks_of

_NAMES = {"topic": "topic-prefix", "queue": "queue-prefix"}
# Six times the longest that is known ("temp-topic://"), so that no peer fills the Attach of every link.
_MAX_LENGTH = 80


def prefixed(address: str, capabilities: Collection[str], peer_properties: Mapping[str, Any]) -> str:
    """The address of a node in an Attach.

    :param capabilities: those of its terminus.
    :param peer_properties: those of the peer's Open.
    """
    if Quirk.OLD_ADDRESSES in quirks_of(peer_properties):
        asks = "queue" in capabilities and "topic" not in capabilities
        return f"/queues/{quote(address, safe='')}" if asks and not address.startswith("/") else address
    known = {kind: _prefix(peer_properties.get(name)) for kind, name in _NAMES.items()}
    asked = [prefix for kind, prefix in known.items() if kind in capabilities]
    if len(asked) != 1 or any(prefix and address.startswith(prefix) for prefix in known.values()):
        return address
    return asked[0] + address


def _prefix(announced: object) -> str:
    """The prefix; empty for what can be none."""
    usable = isinstance(announced, str) and len(announced) <= _MAX_LENGTH and "\0" not in announced
    return str(announced) if usable else ""
