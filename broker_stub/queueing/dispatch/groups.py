"""The consumers that own message groups (``group-id``, AMQP 1.0 part 3, section 3.2.4).  No I/O.

Rules
-----
* The first consumer that gets a message of a group owns the group until that consumer ends.  So the messages
  of a group are processed one after the other.
* Groups are hashed to buckets, as with ``group-buckets`` of ActiveMQ Artemis, and all groups of a bucket have
  one owner.  So a queue remembers at most ``BUCKETS`` owners, whatever ids its senders use.
* Owners are not replicated: after a failover the groups get new owners.
"""

from __future__ import annotations

from zlib import crc32

from broker_stub.queueing.message import Consumer, Message

# Many times the consumers of a queue, so that each gets about as many groups; takes a few kilobytes.
BUCKETS = 1024


class GroupOwners:
    """The group owners of one queue."""

    __slots__ = ("_owners",)

    def __init__(self) -> None:
        self._owners: dict[int, Consumer] = {}

    def __len__(self) -> int:
        return len(self._owners)

    def owner(self, message: Message) -> Consumer | None:
        """Return the consumer that owns the message's group."""
        group = message.envelope.group
        return None if group is None else self._owners.get(crc32(group) % BUCKETS)

    def assign(self, message: Message, consumer: Consumer) -> None:
        """Make the consumer that gets a message the owner of its group, if the group has none."""
        group = message.envelope.group
        if group is not None:
            self._owners.setdefault(crc32(group) % BUCKETS, consumer)

    def discard(self, consumer: Consumer) -> bool:
        """Remove a consumer as owner; return True if it owned any group."""
        owned = [bucket for bucket, owner in self._owners.items() if owner is consumer]
        for bucket in owned:
            del self._owners[bucket]
        return bool(owned)
