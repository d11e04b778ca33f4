"""Which consumer gets the messages of a group (``group-id`` of AMQP 1.0 part 3, section 3.2.4).  No I/O.

Rules
-----
* A group belongs to the first consumer that gets a message of it, until that consumer ends: so its messages
  are processed one after the other.
* Groups are told apart by bucket, as with ``group-buckets`` of ActiveMQ Artemis: groups of one bucket have
  one owner.  So a queue remembers ``BUCKETS`` owners at most, whatever ids its senders make up.
* Owners are not replicated: after a failover the consumers share the groups anew.
"""

from __future__ import annotations

from zlib import crc32

from broker_stub.queueing.message import Consumer, Message

# Many times the consumers of a queue, so that they share evenly; a few kilobytes.
BUCKETS = 1024


class GroupOwners:
    """Those of one queue."""

    __slots__ = ("_owners",)

    def __init__(self) -> None:
        self._owners: dict[int, Consumer] = {}

    def __len__(self) -> int:
        return len(self._owners)

    def owner(self, message: Message) -> Consumer | None:
        """The consumer that the message's group belongs to."""
        group = message.envelope.group
        return None if group is None else self._owners.get(crc32(group) % BUCKETS)

    def assign(self, message: Message, consumer: Consumer) -> None:
        """A consumer gets a message: its group belongs to it from now on, if it did to none."""
        group = message.envelope.group
        if group is not None:
            self._owners.setdefault(crc32(group) % BUCKETS, consumer)

    def discard(self, consumer: Consumer) -> bool:
        """A consumer is gone: its groups belong to nobody; whether there were any."""
        owned = [bucket for bucket, owner in self._owners.items() if owner is consumer]
        for bucket in owned:
            del self._owners[bucket]
        return bool(owned)
