"""What a queue has for another site: the events it makes, and what it remembers when it is empty.  No I/O.

Rules
-----
* Every value of ``SiteProgress`` only grows.  Two records of one queue are merged: the higher of each counts.
* A backup clears its record when it attaches to a queue, for its own may be from a generation that was cut
  short; its primary sends all of it before the backup is ready.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

SITE_PROPERTY = "x-qpid-site-replicate"
REPLICATION_QUEUE = "site-replication"
"""The queue that holds a site's events; there is one, and only the site puts anything into it."""


class SiteMode(enum.StrEnum):
    """Which events a queue has: the values of ``x-qpid-site-replicate``."""

    NONE = "none"
    ENQUEUES = "enqueues"
    ALL = "all"


class SiteProgress:
    """What one queue remembers for another site.

    :ivar issued: of the replication queue: the last sequence that was given.
    :ivar evented: of a queue with events: the highest position that has its event.
    :ivar applied: of a target queue: the last sequence that was applied, by stream.
    """

    __slots__ = ("applied", "evented", "issued")

    def __init__(self) -> None:
        self.issued = 0
        self.evented = 0
        self.applied: dict[str, int] = {}

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> SiteProgress:
        """From a store's or a primary's map."""
        progress = cls()
        progress.merge(plain)
        return progress

    def plain(self) -> dict[str, Any]:
        """For a store or a replica: what JSON and AMQP can hold."""
        return {"issued": self.issued, "evented": self.evented, "applied": dict(self.applied)}

    def merge(self, plain: Mapping[str, Any]) -> None:
        """Take the higher of each."""
        self.issued = max(self.issued, int(plain.get("issued", 0)))
        self.evented = max(self.evented, int(plain.get("evented", 0)))
        for stream, sequence in plain.get("applied", {}).items():
            self.apply(str(stream), int(sequence))

    def apply(self, stream: str, sequence: int) -> None:
        """An event was applied."""
        self.applied[stream] = max(self.applied.get(stream, 0), sequence)
