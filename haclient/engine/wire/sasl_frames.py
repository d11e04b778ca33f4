"""The SASL frames that a server reads and writes.

Rule: a client's frame has at most three fields, of these types alone: null, symbol, binary, string.  So no
field is nested.

Sources: AMQP 1.0 part 1, section 1.6 (encodings); part 2, section 2.3.1 (frames); part 5, section 5.3.3.
"""

from __future__ import annotations

from haclient.engine.amqp_values import walk
from haclient.engine.amqp_values.encode import binary

INIT = 0x41
_MECHANISMS, _CHALLENGE, _OUTCOME = 0x40, 0x42, 0x44
_HEADER = 8
_FIELD_TYPES = (walk.SYMBOL8, walk.BINARY8, walk.STRING8)
_LISTS = (b"\x45", b"\xc0", b"\xd0")
_ARRAY8, _UBYTE = 0xE0, 0x50
_MOST_NARROW = 255
_MOST_FIELDS = 3


def read(frame: bytes) -> tuple[int, list[bytes | None]]:
    """Return the code and the fields of a client's whole frame.

    :raises ValueError: if it is not a SASL frame.
    """
    body = frame[4 * int.from_bytes(frame[4:5]) :]
    code, start = walk.described(body)
    if code < 0:
        raise ValueError("its type is not known")
    if body[start : start + 1] not in _LISTS:
        raise ValueError("it has no list of fields")
    _, count, _ = walk.first_item(body, start)
    if count > _MOST_FIELDS:
        raise ValueError(f"it has {count} fields")
    return code, [_field(each) for each in walk.items(body, start)]


def _field(value: bytes) -> bytes | None:
    if value[0] == walk.NULL:
        return None
    for kind in _FIELD_TYPES:
        if (found := walk.content(value, kind)) is not None:
            return found
    raise ValueError(f"it has a field of type {value[0]:#x}")


def mechanisms(names: tuple[str, ...]) -> bytes:
    """Return the frame that offers mechanisms."""
    symbols = b"".join(bytes((len(name),)) + name.encode() for name in names)
    return _frame(_MECHANISMS, _sized(_ARRAY8, len(names), bytes((walk.SYMBOL8,)) + symbols))


def challenge(message: bytes) -> bytes:
    """Return the frame of a message that the client must answer."""
    return _frame(_CHALLENGE, binary(message))


def outcome(code: int) -> bytes:
    """Return the frame that ends SASL."""
    return _frame(_OUTCOME, bytes((_UBYTE, code)))


def _frame(code: int, field: bytes) -> bytes:
    """Return a frame with one field in the shortest encodings, as proton writes it."""
    body = bytes((walk.DESCRIBED, walk.SMALL_ULONG, code)) + _sized(walk.LIST8, 1, field)
    return (_HEADER + len(body)).to_bytes(4) + b"\x02\x01\x00\x00" + body


def _sized(narrow: int, count: int, content: bytes) -> bytes:
    """Encode a list or an array; its size includes the count."""
    size = len(content) + 1
    if size <= _MOST_NARROW:
        return bytes((narrow, size, count)) + content
    return bytes((narrow + walk.WIDE,)) + (len(content) + 4).to_bytes(4) + count.to_bytes(4) + content
