"""The bytes of messages whose last frame has not arrived, per connection and in total. No I/O.

Rules
-----
* At a connection's limit its largest unfinished message is dropped, and the message's link is closed.
* At the limit of all connections, the connection with the most bytes drops its largest message. Connections
  with few bytes are not affected by others.
* Waiting would not help: the end of a message follows frames that the member would not read.
"""

from __future__ import annotations

import proton

from broker_stub.amqp.conditions import RESOURCE_LIMIT_EXCEEDED
from haclient.engine.links import ReceiverLink


class UnfinishedMessages:
    """The unfinished messages of all connections.

    :param limit: bytes of all connections.
    :param connection_limit: bytes of one connection.
    """

    __slots__ = ("_connection_limit", "_connections", "_limit", "size")

    def __init__(self, limit: int, connection_limit: int) -> None:
        self._limit = limit
        self._connection_limit = connection_limit
        self._connections: set[UnfinishedOfConnection] = set()
        self.size = 0

    def of_connection(self) -> UnfinishedOfConnection:
        """Return the part of a new connection."""
        return UnfinishedOfConnection(self)

    def changed(self, connection: UnfinishedOfConnection, change: int) -> None:
        """Apply a change in the bytes that a connection keeps."""
        self.size += change
        if not connection.size:
            self._connections.discard(connection)
            return
        self._connections.add(connection)
        if connection.size > self._connection_limit:
            connection.drop_largest(f"one connection may have {self._connection_limit} bytes of these")
        elif self.size > self._limit:
            largest = max(self._connections, key=lambda each: each.size)
            largest.drop_largest(f"all connections may have {self._limit} bytes of these")


class UnfinishedOfConnection:
    """The unfinished messages of one connection."""

    __slots__ = ("_all", "_sizes", "size")

    def __init__(self, all_of_them: UnfinishedMessages) -> None:
        self._all = all_of_them
        self._sizes: dict[ReceiverLink, int] = {}
        self.size = 0

    def changed(self, link: ReceiverLink, size: int) -> None:
        """Set the bytes that a link keeps."""
        change = size - self._sizes.get(link, 0)
        if size:
            self._sizes[link] = size
        else:
            self._sizes.pop(link, None)
        self.size += change
        self._all.changed(self, change)

    def drop_largest(self, why: str) -> None:
        """Drop the largest unfinished message, and close its link."""
        link = max(self._sizes, key=lambda each: self._sizes[each])
        link.discard(
            proton.Condition(RESOURCE_LIMIT_EXCEEDED, f"too many bytes of unfinished messages: {why}")
        )
