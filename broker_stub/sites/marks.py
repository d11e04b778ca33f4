"""What a queue has to remember for another site's sake, also when it is empty.  No I/O.

Rules
-----
* Every mark only grows.  Two marks of one queue are made one by taking the higher of each.
* A backup forgets its marks when it attaches to a queue, for its own may be from a reign that was
  cut short; its primary tells it all of them before it is ready.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Marks:
    """The marks of one queue.

    :ivar issued: of the replication queue: the last sequence that was given.
    :ivar evented: of a queue with events: the highest position that was told.
    :ivar applied: of a target queue: the last sequence that was carried out, by stream.
    """

    __slots__ = ("applied", "evented", "issued")

    def __init__(self) -> None:
        self.issued = 0
        self.evented = 0
        self.applied: dict[str, int] = {}

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Marks:
        """As a store or a primary tells them."""
        marks = cls()
        marks.merge(plain)
        return marks

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
        """An event was carried out."""
        self.applied[stream] = max(self.applied.get(stream, 0), sequence)
