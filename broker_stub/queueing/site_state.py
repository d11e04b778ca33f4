"""A queue's state for another site: the events it makes, and progress that outlives its messages.  No I/O.

Rules
-----
* Every value of ``SiteProgress`` only grows.  To merge two records of one queue, take the higher values.
* A backup clears its record when it attaches to a queue, because the record may be from a generation that was
  cut short.  The primary sends its whole record before the backup is ready.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

SITE_PROPERTY = "x-qpid-site-replicate"
REPLICATION_QUEUE = "site-replication"
"""The queue that holds a site's events; there is one, and only the site adds messages to it."""


class SiteMode(enum.StrEnum):
    """The events that a queue makes: the values of ``x-qpid-site-replicate``."""

    NONE = "none"
    ENQUEUES = "enqueues"
    ALL = "all"


class SiteProgress:
    """The progress that one queue records for another site.

    :ivar issued: for the replication queue: the last sequence number assigned.
    :ivar evented: for a queue with events: the highest position that has its event.
    :ivar applied: for a target queue: the last sequence number applied, by stream.
    """

    __slots__ = ("applied", "evented", "issued")

    def __init__(self) -> None:
        self.issued = 0
        self.evented = 0
        self.applied: dict[str, int] = {}

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> SiteProgress:
        """Read a record from a store's or a primary's map."""
        progress = cls()
        progress.merge(plain)
        return progress

    def plain(self) -> dict[str, Any]:
        """Return the record as a map for a store or a replica, in types that JSON and AMQP can encode."""
        return {"issued": self.issued, "evented": self.evented, "applied": dict(self.applied)}

    def merge(self, plain: Mapping[str, Any]) -> None:
        """Take the higher of each value."""
        self.issued = max(self.issued, int(plain.get("issued", 0)))
        self.evented = max(self.evented, int(plain.get("evented", 0)))
        for stream, sequence in plain.get("applied", {}).items():
            self.apply(str(stream), int(sequence))

    def apply(self, stream: str, sequence: int) -> None:
        """Record that an event was applied."""
        self.applied[stream] = max(self.applied.get(stream, 0), sequence)
