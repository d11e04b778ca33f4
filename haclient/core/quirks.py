"""What a broker needs beyond the specification.

RabbitMQ keeps a receiver's credit with the leader of the queue, and forgets it when the leader moves to
another node, whether this connection was to that node or not (measured with 3.10 and mirrored queues: one
failover in four).  The receiver then gets nothing more, with credit on both ends.  A Flow that repeats the
credit mends it, so the client sends RabbitMQ one every few seconds.

A broker with duplicate detection may keep the id of a message over a failover and not the message, where that
was not durable: Apache ActiveMQ Artemis does, and drops the copy that a client sends again, with the answer
accepted (500 answers held back, broker killed: of 500 messages with ids none was there).  So messages that
are not durable have ids only where the peer's Open says that both live and die together, as that of
``broker_stub`` does.

Source: AMQP 1.0 part 2, section 2.6.7: a Flow states the credit, it does not add to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from haclient.engine.link_table import repeat_credit

if TYPE_CHECKING:
    from haclient.engine.protocol import Engine

_FORGETS_CREDIT = frozenset({"RabbitMQ"})
_INTERVAL = 5.0
IDS_LIVE_WITH_MESSAGES = "haclient:ids-live-with-messages"
"""A property of the Open, true or absent."""


def ids_live_with_messages(peer_properties: Mapping[str, Any]) -> bool:
    """Whether a peer forgets the duplicate-detection id of a message that it loses, whatever it loses."""
    return peer_properties.get(IDS_LIVE_WITH_MESSAGES) is True


def apply(engine: Engine, loop: asyncio.AbstractEventLoop) -> None:
    """Work around the quirks of this connection's peer, until the connection ends."""
    product = engine.peer_properties.get("product")
    if isinstance(product, str) and product in _FORGETS_CREDIT:
        loop.call_later(_INTERVAL, _remind, engine, loop)


def _remind(engine: Engine, loop: asyncio.AbstractEventLoop) -> None:
    if engine.close_reason is None:
        repeat_credit(engine)
        loop.call_later(_INTERVAL, _remind, engine, loop)
