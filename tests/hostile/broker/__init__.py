"""A hostile but well-formed broker: it sends only valid AMQP 1.0 frames.

    async with hostile_brokers(seed=7, behaviours=("sends more than its credit",)) as brokers:
        ...aio.connect(brokers.url())...

``connection``  the server side of one connection: correct, except for a behaviour's changes
``behaviours``  the behaviours by name, and the ranges of their random numbers
``listening``   several brokers that know each other, so that one can redirect to the next
"""

from __future__ import annotations

from tests.hostile.broker.behaviours import BEHAVIOURS
from tests.hostile.broker.listening import HostileBrokers, hostile_brokers

__all__ = ["BEHAVIOURS", "HostileBrokers", "hostile_brokers"]
