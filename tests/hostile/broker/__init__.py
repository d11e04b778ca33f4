"""A broker that is hostile and well-formed: every frame that it sends is one of AMQP 1.0.

    async with hostile_brokers(seed=7, behaviours=("sends more than its credit",)) as brokers:
        ...aio.connect(brokers.url())...

``connection``  the server side of one connection: serves by the book, but for what a behaviour changes
``behaviours``  what it does, by name; the ranges from which the numbers of each are drawn
``listening``   several of them that know each other, so that one can redirect to the next
"""

from __future__ import annotations

from tests.hostile.broker.behaviours import BEHAVIOURS
from tests.hostile.broker.listening import HostileBrokers, hostile_brokers

__all__ = ["BEHAVIOURS", "HostileBrokers", "hostile_brokers"]
