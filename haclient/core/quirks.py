"""What a broker needs that the specification does not say.

RabbitMQ keeps a receiver's credit with the leader of the queue, and forgets it when the leader moves to
another node, whether this connection was to that node or not (measured with 3.10 and mirrored queues: one
failover in four).  The receiver then gets nothing more, with credit on both ends.  Told of its credit
again it goes on, so RabbitMQ is told every few seconds.

Source: AMQP 1.0 part 2, section 2.6.7: a Flow states the credit, it does not add to it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from haclient.engine.protocol import Engine

_FORGETS_CREDIT = frozenset({"RabbitMQ"})
_INTERVAL = 5.0


def attend(engine: Engine, loop: asyncio.AbstractEventLoop) -> None:
    """Do what this connection's peer needs, until the connection ends."""
    if engine.peer_properties.get("product") in _FORGETS_CREDIT:
        loop.call_later(_INTERVAL, _remind, engine, loop)


def _remind(engine: Engine, loop: asyncio.AbstractEventLoop) -> None:
    if engine.ending is None:
        engine.repeat_credit()
        loop.call_later(_INTERVAL, _remind, engine, loop)
