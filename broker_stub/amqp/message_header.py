"""Writes the header of a message anew: when it is delivered again, has a time to live, or is a dead letter.

Source: AMQP 1.0 part 3, section 3.2.1.
"""

from __future__ import annotations

import struct

from broker_stub.amqp.message_format import HEADER, before_body
from haclient.engine.amqp_values import walk

# Where a field stands in the list.
_TTL, _FIRST_ACQUIRER, _DELIVERY_COUNT = 2, 3, 4
_NULL, _FALSE = b"\x40", b"\x42"
# A constructor and eight bytes; no field of a proper header is wider than five.
_WIDEST_HEADER_FIELD = 9


def with_header(
    data: bytes, *, delivery_count: int, ttl_ms: int | None = None, keep_ttl: bool = True
) -> bytes:
    """The message with a header that differs from the sender's.

    :param delivery_count: written as it is; any but 0 also clears ``first-acquirer``.
    :param ttl_ms: what is left of the time to live (part 3, section 3.2.1); ``None`` for no other one.
    :param keep_ttl: whether the field stays then.
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
