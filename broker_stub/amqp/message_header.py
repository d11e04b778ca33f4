"""Rewrites the header of a message for a redelivery, a time to live, or a dead letter.

Source: AMQP 1.0 part 3, section 3.2.1.
"""

from __future__ import annotations

import struct

from broker_stub.amqp.message_format import HEADER, before_body
from haclient.engine.amqp_values import walk

# Positions of fields in the list.
_TTL, _FIRST_ACQUIRER, _DELIVERY_COUNT = 2, 3, 4
_NULL, _FALSE = b"\x40", b"\x42"
# A constructor and eight bytes; no field of a valid header is wider than five.
_WIDEST_HEADER_FIELD = 9


def with_header(
    data: bytes, *, delivery_count: int, ttl_ms: int | None = None, keep_ttl: bool = True
) -> bytes:
    """Return the message with a changed header.

    :param delivery_count: written unchanged; a value above 0 also clears ``first-acquirer``.
    :param ttl_ms: remaining time to live, in milliseconds (part 3, section 3.2.1); ``None`` to write no new
        one.
    :param keep_ttl: without ``ttl_ms``: keep the sender's field.
    :raises ValueError: if the message is malformed; ``inspect`` refuses such a message before.
    """
    fields: list[bytes] = []
    code, start, position = next(before_body(data), (0, 0, 0))
    if code == HEADER:
        fields = [
            field if len(field) <= _WIDEST_HEADER_FIELD else _NULL
            for field in walk.items(data, start)[: _DELIVERY_COUNT + 1]
        ]
    else:
        position = 0
    fields += [_NULL] * (_DELIVERY_COUNT + 1 - len(fields))
    if ttl_ms is not None:
        fields[_TTL] = b"\x70" + struct.pack(">I", ttl_ms)
    elif not keep_ttl:
        fields[_TTL] = _NULL
    if delivery_count:
        fields[_FIRST_ACQUIRER] = _FALSE
    fields[_DELIVERY_COUNT] = b"\x70" + struct.pack(">I", min(delivery_count, 0xFFFFFFFF))
    content = b"".join(fields)
    return b"\x00\x53\x70\xc0" + bytes([len(content) + 1, len(fields)]) + content + data[position:]
