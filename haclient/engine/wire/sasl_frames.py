"""The SASL frames that a server reads and writes.

Rule: a client's frame has at most three fields, of these types alone: null, symbol, binary, string.  So no
field is nested.

Sources: AMQP 1.0 part 1, section 1.6 (encodings); part 2, section 2.3.1 (frames); part 5, section 5.3.3.
"""

from __future__ import annotations

INIT = 0x41
_MECHANISMS, _CHALLENGE, _OUTCOME = 0x40, 0x42, 0x44
_HEADER = 8
_NULL, _LIST0, _LIST8, _LIST32 = 0x40, 0x45, 0xC0, 0xD0
_NARROW, _WIDE = (0xA0, 0xA1, 0xA3), (0xB0, 0xB1, 0xB3)
_ARRAY8, _ARRAY32, _SYMBOL8, _BINARY8, _BINARY32, _UBYTE = 0xE0, 0xF0, 0xA3, 0xA0, 0xB0, 0x50
_MOST_NARROW = 255
_SMALL_ULONG, _ULONG = b"\x00\x53", b"\x00\x80"
_MOST_FIELDS = 3


def read(frame: bytes) -> tuple[int, list[bytes | None]]:
    """Return the code and the fields of a client's whole frame.

    :raises ValueError: if it is not a SASL frame.
    """
    try:
        return _read(frame[4 * frame[4] :])
    except IndexError:
        raise ValueError("it ends too early") from None


def _read(body: bytes) -> tuple[int, list[bytes | None]]:
    width = {_SMALL_ULONG: 1, _ULONG: 8}.get(body[:2])
    if width is None:
        raise ValueError("its type is not known")
    at = 2 + width
    code, kind = int.from_bytes(body[2:at]), body[at]
    at += 1
    if kind == _LIST0:
        return code, []
    if kind not in (_LIST8, _LIST32):
        raise ValueError("it has no list of fields")
    width = 1 if kind == _LIST8 else 4
    count = int.from_bytes(body[at + width : at + 2 * width])
    at += 2 * width
    if count > _MOST_FIELDS:
        raise ValueError(f"it has {count} fields")
    fields = list[bytes | None]()
    for _ in range(count):
        field, at = _field(body, at)
        fields.append(field)
    return code, fields


def _field(body: bytes, at: int) -> tuple[bytes | None, int]:
    """Return one field, and the start of the next one."""
    kind = body[at]
    at += 1
    if kind == _NULL:
        return None, at
    if kind not in _NARROW + _WIDE:
        raise ValueError(f"it has a field of type {kind:#x}")
    width = 1 if kind in _NARROW else 4
    start = at + width
    end = start + int.from_bytes(body[at:start])
    if end > len(body):
        raise ValueError("a field ends behind it")
    return body[start:end], end


def mechanisms(names: tuple[str, ...]) -> bytes:
    """Return the frame that offers mechanisms."""
    symbols = b"".join(bytes((len(name),)) + name.encode() for name in names)
    return _frame(_MECHANISMS, _sized(_ARRAY8, _ARRAY32, len(names), bytes((_SYMBOL8,)) + symbols))


def challenge(message: bytes) -> bytes:
    """Return the frame of a message that the client must answer."""
    size = len(message)
    head = bytes((_BINARY8, size)) if size <= _MOST_NARROW else bytes((_BINARY32,)) + size.to_bytes(4)
    return _frame(_CHALLENGE, head + message)


def outcome(code: int) -> bytes:
    """Return the frame that ends SASL."""
    return _frame(_OUTCOME, bytes((_UBYTE, code)))


def _frame(code: int, field: bytes) -> bytes:
    """Return a frame with one field in the shortest encodings, as proton writes it."""
    body = _SMALL_ULONG + bytes((code,)) + _sized(_LIST8, _LIST32, 1, field)
    return (_HEADER + len(body)).to_bytes(4) + b"\x02\x01\x00\x00" + body


def _sized(narrow: int, wide: int, count: int, content: bytes) -> bytes:
    """Encode a list or an array; its size includes the count."""
    size = len(content) + 1
    if size <= _MOST_NARROW:
        return bytes((narrow, size, count)) + content
    return bytes((wide,)) + (len(content) + 4).to_bytes(4) + count.to_bytes(4) + content
