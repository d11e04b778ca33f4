"""What a broker needs beyond the specification.

RabbitMQ keeps a receiver's credit with the leader of the queue, and forgets it when the leader moves to
another node, whether this connection was to that node or not (measured with 3.10 and mirrored queues: one
failover in four).  The receiver then gets nothing more, with credit on both ends.  A Flow that repeats the
credit mends it, so the client sends RabbitMQ one every few seconds.

Source: AMQP 1.0 part 2, section 2.6.7: a Flow states the credit, it does not add to it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from haclient.engine.protocol import Engine

_FORGETS_CREDIT = frozenset({"RabbitMQ"})
_INTERVAL = 5.0


def apply(engine: Engine, loop: asyncio.AbstractEventLoop) -> None:
    """Work around the quirks of this connection's peer, until the connection ends."""
    product = engine.peer_properties.get("product")
    if isinstance(product, str) and product in _FORGETS_CREDIT:
        loop.call_later(_INTERVAL, _remind, engine, loop)


def _remind(engine: Engine, loop: asyncio.AbstractEventLoop) -> None:
    if engine.close_reason is None:
        engine.repeat_credit()
        loop.call_later(_INTERVAL, _remind, engine, loop)
