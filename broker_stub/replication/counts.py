"""Delivery counts on a backup: they change by its primary's events alone.

Only replicated messages are changed here: no consumer of this member has seen them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from broker_stub.queueing.message import Message
from broker_stub.queueing.queue import Queue


def count(queue: Queue, numbers: Iterable[int]) -> None:
    """The primary gave these messages to a consumer: one more delivery."""
    for number in numbers:
        message = queue.message(number)
        if message is not None:
            message.set_count(message.failover_delivery_count + 1)


def set_counts(queue: Queue, counts: Mapping[int, int], *, first: int, last: int) -> list[Message]:
    """Take the counts of a span from the primary; the messages that had another one.

    :param counts: by number; 0 for a message of that span that is not in it.
    """
    span = [number for number in queue.ids() if first <= number <= last]
    present = [message for number in span if (message := queue.message(number)) is not None]
    changed = [
        message for message in present if message.failover_delivery_count != counts.get(message.number, 0)
    ]
    for message in changed:
        message.set_count(counts.get(message.number, 0))
    return changed
