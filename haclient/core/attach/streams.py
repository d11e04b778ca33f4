"""The position of a receiver in a stream of RabbitMQ, kept across connections.

Reading removes nothing from a stream, so the broker does not know which messages a receiver has handled.  If
a receiver were attached again with its first filter, it would get everything twice (``first``), or miss the
messages sent meanwhile (``next``).  So it is attached at its first unsettled message, or behind all of them.

Rules
-----
* The outcome does not matter: a stream delivers no message again.
* A message that the peer sent settled counts as settled: the inbox loses it with the connection, as with a
  queue.
* Before the first message there is no position: the filter is the application's own.

Sources: RabbitMQ, "Streams", the filter ``rabbitmq:stream-offset-spec``, and the answers of 4.0.5: unknown
text ends the session, and a value of another type means ``next``.
"""

from __future__ import annotations

import datetime
import re
from typing import Any

import proton

from haclient.engine import peer_fields
from haclient.engine.amqp_values.decode import UndecodableMessage, read_sections
from haclient.error_catalog.base import quoted

OFFSET = "rabbitmq:stream-offset-spec"
_ANNOTATION = proton.symbol("x-stream-offset")
_NAMED = frozenset({"first", "last", "next"})
_INTERVAL = re.compile("0*[1-9][0-9]*[YMDhms]", re.ASCII)
# The offset after it must fit into an unsigned long, too.
_MOST = 2**64 - 2


class StreamPosition:
    """The progress of a receiver in a stream.

    :ivar begin: the offset to attach it at; ``None`` before the first message.
    :ivar is_followed: whether the messages of this session may have offsets.
    """

    __slots__ = ("_unsettled", "begin", "is_followed")

    def __init__(self) -> None:
        self.begin: int | None = None
        self.is_followed = False
        self._unsettled: set[int] = set()

    def find(self, source: proton.Terminus, *, may_be_stream: bool) -> None:
        """Set the start of an Attach's source to the position where the former session ended.

        :raises ValueError: see ``check_offset``.
        """
        self.is_followed = has_offset(source) or may_be_stream
        if self.is_followed and self.begin is not None:
            begin_at(source, self.begin)

    def read(self, data: bytes, *, settled: bool) -> int | None:
        """Record an encoded message, and return its offset; without an offset the source is no stream."""
        offset = offset_of(data)
        if offset is None:
            self.is_followed = False
        elif settled:
            self.settled(offset)
        else:
            self.delivered(offset)
        return offset

    def delivered(self, offset: int) -> None:
        """Record a message that waits to be settled."""
        self._unsettled.add(offset)

    def settled(self, offset: int) -> None:
        """Record that a message is settled."""
        self._unsettled.discard(offset)
        self.begin = max(self.begin or 0, offset + 1)

    def session_ended(self) -> None:
        """Compute the position: the first message that was not settled."""
        if self._unsettled:
            self.begin = min(self._unsettled)
            self._unsettled.clear()


def offset_of(data: bytes) -> int | None:
    """Return the offset of an encoded message; ``None`` if it has no usable one."""
    try:
        annotations = read_sections(data, with_body=False).annotations
    except UndecodableMessage:
        return None
    offset = (annotations or {}).get(_ANNOTATION)
    if not isinstance(offset, int) or isinstance(offset, bool) or not 0 <= offset <= _MOST:
        return None
    return offset


def has_offset(source: proton.Terminus) -> bool:
    """Return whether the source of an Attach asks for a position in a stream.

    :raises ValueError: see ``check_offset``.
    """
    filters = peer_fields.filters(source)
    if OFFSET not in filters:
        return False
    check_offset(getattr(filters[OFFSET], "value", filters[OFFSET]))
    return True


def begin_at(source: proton.Terminus, offset: int) -> None:
    """Set the start of an Attach's source to an offset; its other filters stay."""
    filters = {proton.symbol(name): each for name, each in peer_fields.filters(source).items()}
    name = proton.symbol(OFFSET)
    filters[name] = proton.Described(name, proton.ulong(offset))
    source.filter.clear()
    source.filter.put_object(filters)


def check_offset(value: Any) -> None:
    """Check the value of the filter.

    :raises ValueError: if RabbitMQ would end the session for it, or begin somewhere else.
    """
    if isinstance(value, proton.symbol | bool):
        good = False
    elif isinstance(value, str):
        good = value in _NAMED or _INTERVAL.fullmatch(value) is not None
    elif isinstance(value, datetime.datetime):
        good = True
    else:
        good = isinstance(value, int) and value >= 0
    if not good:
        raise ValueError(
            f"filters: {OFFSET} is 'first', 'last' or 'next', an offset of 0 or more, a proton.timestamp, "
            f"or the text of an interval such as '1h' (units: Y, M, D, h, m, s), not {quoted(value)}"
        )
