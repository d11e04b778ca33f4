"""Address prefixes that distinguish topics from queues: ``topic-prefix`` and ``queue-prefix`` of an Open.

ActiveMQ Classic makes a queue of a name without a prefix, whatever capability the link asks for.  Its Open
announces the prefixes, and the client puts them before the address, as Qpid JMS does.

RabbitMQ 4 announces none, and treats a bare name as an address of version 3: it makes a queue that is lost
with its node.  If a link asks for a queue there, the client uses the address ``/queues/NAME``.

Rules
-----
* The capability ``topic`` selects ``topic-prefix``, ``queue`` selects ``queue-prefix``.  With neither or
  both, the address is unchanged.
* An address that begins with either prefix is unchanged, and so is one that the peer has named.  With
  RabbitMQ 4 any address that begins with a slash is unchanged.
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
# Six times the longest known prefix ("temp-topic://"), so that no peer fills the Attach of every link.
_MAX_LENGTH = 80


def prefixed(address: str, capabilities: Collection[str], peer_properties: Mapping[str, Any]) -> str:
    """Return the address of a node for an Attach.

    :param capabilities: capabilities of its terminus.
    :param peer_properties: properties of the peer's Open.
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
    """Return the announced prefix; empty if it is unusable."""
    usable = isinstance(announced, str) and len(announced) <= _MAX_LENGTH and "\0" not in announced
    return str(announced) if usable else ""
