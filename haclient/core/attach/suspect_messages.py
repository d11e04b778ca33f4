"""Search for the message that ends its connection again and again, so that it fails alone.

A broker that cannot take a message may end the whole connection, and end the next one when the message is
sent again.  ActiveMQ Classic 5.17.6 closes with ``amqp:decode-error`` if a message is larger than its
maxFrameSize, which neither its Open nor its Attach announces.

Rules
-----
* A loss counts if the peer closed with a condition that is about a message.
* After two such losses in a row the messages that were on the wire are suspects.  Then all senders of the
  connection together have one message at a time on the wire, until no suspect is left.
* If one message is alone on the wire at the next such loss, it is guilty.  No message is guilty if an Attach
  had no answer, or if a caller has given up a message on the wire.
* A message that the peer settles is innocent.

Pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from haclient.core.ledger import Entry
from haclient.engine.owner import CloseReason
from haclient.error_catalog.base import quoted
from haclient.errors import MessageTooLarge

if TYPE_CHECKING:
    from haclient.core.sender import SenderCore

_SUSPECTS_AFTER = 2
_BY_CLOSE = frozenset(
    {
        "amqp:decode-error",
        "amqp:connection:framing-error",
        "amqp:link:message-size-exceeded",
        "amqp:frame-size-too-small",
    }
)
# Without a Close, proton reports the first two for malformed bytes of the peer.
_BY_END = frozenset({"amqp:link:message-size-exceeded", "amqp:frame-size-too-small"})


class SuspectMessages:
    """The search for a guilty message, on one connection.

    :param senders: returns the senders of the connection.
    :ivar one_by_one: whether only one message at a time may be on the wire.
    """

    __slots__ = ("_entries", "_is_clear", "_losses", "_senders", "one_by_one")

    def __init__(self, senders: Callable[[], Iterable[SenderCore]] = tuple) -> None:
        self.one_by_one = False
        self._senders = senders
        self._entries: deque[Entry[Any]] = deque()
        self._losses = 0
        self._is_clear = True

    def session_began(self) -> None:
        """Begin a session: no message is on its wire."""
        self._is_clear = True

    def given_up(self) -> None:
        """Record that a caller gave up a message on the wire, which may end this connection."""
        self._is_clear = False

    @property
    def may_send(self) -> bool:
        """Return whether no message is on the wire."""
        return not any(sender.is_sending for sender in self._senders())

    def session_ended(self, reason: CloseReason, *, unanswered: bool) -> tuple[SenderCore, Entry[Any]] | None:
        """Count a loss, before the senders handle it.

        :param unanswered: whether an Attach had no answer.
        :returns: the guilty message and its sender, if found.
        """
        if unanswered or not _by_message(reason):
            self._losses = 0
            return None
        self._losses += 1
        found = [
            (sender, entry)
            for sender in self._senders()
            for entry in sender.ledger
            if entry.delivery is not None
        ]
        if self.one_by_one and self._is_clear and len(found) == 1:
            return found[0]
        if self._losses >= _SUSPECTS_AFTER and found:
            self._entries = deque(entry for _, entry in found)
            self.one_by_one = True
        return None

    def go_on(self) -> None:
        """Send the next message, if none is on the wire; send all when no suspect is left."""
        senders, entries = list(self._senders()), self._entries
        owner = None
        while entries and owner is None:
            owner = next((sender for sender in senders if entries[0] in sender.ledger), None)
            if owner is None:
                entries.popleft()
        self.one_by_one = owner is not None
        # Suspects go first, so that the search ends; while they have no credit, others may send.
        for sender in senders if owner is None else (owner, *senders):
            if self.one_by_one and not self.may_send:
                return
            sender.use_credit()


def ends_connections(size: int, address: str | None, reason: CloseReason) -> MessageTooLarge:
    """Return the error for a message that ends each connection that it is sent over."""
    node = "" if address is None else f" for {quoted(address)}"
    text = f"the primary ended each connection with this message of {size} bytes{node}"
    return MessageTooLarge(
        f"{text} ({reason}): it is probably larger than the primary takes", size, delivered=None
    )


def _by_message(reason: CloseReason) -> bool:
    name = None if reason.condition is None else reason.condition.name
    return name in (_BY_CLOSE if reason.by_peer else _BY_END)
