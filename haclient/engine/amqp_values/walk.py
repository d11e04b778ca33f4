"""Steps over encoded values by their sizes; nothing is decoded.

Rules
-----
* The bytes are untrusted: the only error is ``MalformedValue``.
* A step over a list, a map or an array ignores its content.
* A descriptor may itself be described.  Steps are not recursive, so no bytes can overflow the stack.
* Decoders recurse once or more for each level, and Python allows a thousand nested calls in total.  So a peer
  could break any reader of its messages with lists in lists, each time the message is read.  Call
  ``is_too_deep`` before decoding.  Lists, maps, arrays and described values are levels.  It takes one step
  for each value, and none for array elements of fixed width.

Sources: AMQP 1.0 part 1, sections 1.2 (encodings), 1.3 (descriptors) and 1.6 (types).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

MOST_LEVELS: Final = 300
"""Maximum depth: proton's decoder takes two Python calls a level, of a thousand in total."""

DESCRIBED: Final = 0x00
NULL, TRUE, LIST0 = 0x40, 0x41, 0x45
SMALL_ULONG, ULONG = 0x53, 0x80
BINARY8, STRING8, SYMBOL8, LIST8, MAP8 = 0xA0, 0xA1, 0xA3, 0xC0, 0xC1
BINARY32, STRING32, SYMBOL32, LIST32, MAP32 = 0xB0, 0xB1, 0xB3, 0xD0, 0xD1
WIDE: Final = 0x10
"""Difference between the constructors with a size of four bytes and of one byte."""
FIXED_WIDTHS: Final = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}
"""Bytes of a value of fixed width, by the first four bits of its constructor."""
SIZE_WIDTHS: Final = {0xA: 1, 0xB: 4, 0xC: 1, 0xD: 4, 0xE: 1, 0xF: 4}
"""Bytes of the size field of any other value, and of its count field if it has one."""

# Step over a value: 1 + the fixed width, or minus the bytes of the size field; 0 if there is no such type.
_STEPS = tuple(
    FIXED_WIDTHS[kind] + 1 if kind in FIXED_WIDTHS else -SIZE_WIDTHS.get(kind, 0) for kind in range(16)
)
_NARROW, _WIDE = (LIST8, MAP8), (LIST32, MAP32)
_VARIABLES: Final = (0xA, 0xB)
_ARRAYS: Final = (0xE, 0xF)
_TRUNCATED = "it ends within a value"
_OVERRUN = "an item ends behind its list or map"


class MalformedValue(ValueError):
    """The bytes are no AMQP value, or not of the expected type."""


def value_end(data: bytes, position: int = 0) -> int:
    """Return the end of the value at a position, which may be beyond the data.

    :raises MalformedValue: if there is no value.
    """
    try:
        step = _STEPS[data[position] >> 4]
        if step > 0:
            return position + step
        if step == -1:
            return position + 2 + data[position + 1]
        if step:
            return position + 5 + int.from_bytes(data[position + 1 : position + 5])
        return _described_end(data, position)
    except IndexError:
        raise MalformedValue(_TRUNCATED) from None


def _described_end(data: bytes, position: int) -> int:
    pending = 1
    while pending:
        constructor = data[position]
        if constructor == DESCRIBED:
            position, pending = position + 1, pending + 1
        elif _STEPS[constructor >> 4]:
            position, pending = value_end(data, position), pending - 1
        else:
            raise MalformedValue(f"AMQP has no constructor {constructor:#04x}")
    return position


def described(data: bytes, position: int = 0) -> tuple[int, int]:
    """Return the descriptor code of a described value (-1 if it is not numeric), and the value's start.

    :raises MalformedValue: if the value is not described.
    """
    if data[position : position + 1] != b"\x00":
        raise MalformedValue("no described value stands where one should")
    start = value_end(data, position + 1)
    if start > len(data):
        raise MalformedValue(_TRUNCATED)
    is_number = data[position + 1] in (SMALL_ULONG, ULONG)
    return (int.from_bytes(data[position + 2 : start]) if is_number else -1), start


def first_item(data: bytes, start: int = 0) -> tuple[int, int, int]:
    """Return the start of the first item of a list or map, the number of items, and the end of the whole.

    :raises MalformedValue: if the value is neither a list nor a map.
    """
    try:
        constructor = data[start]
        if constructor in _NARROW:
            return start + 3, data[start + 2], start + 2 + data[start + 1]
        if constructor in _WIDE:
            at = start + 5
            end = at + int.from_bytes(data[start + 1 : at])
            return start + 9, int.from_bytes(data[at : start + 9]), end
    except IndexError:
        raise MalformedValue(_TRUNCATED) from None
    if constructor == LIST0:
        return start + 1, 0, start + 1
    raise MalformedValue("another value stands where a list or a map should")


def items(data: bytes, start: int = 0) -> list[bytes]:
    """Return the encoded items of a list or a map.

    :raises MalformedValue: if the value is neither, or is shorter than its item count says.
    """
    position, count, end = first_item(data, start)
    if end > len(data):
        raise MalformedValue(_TRUNCATED)
    found = []
    for _ in range(count):
        after = value_end(data, position)
        if after > end:
            raise MalformedValue(_OVERRUN)
        found.append(data[position:after])
        position = after
    return found


def item(data: bytes, start: int, index: int) -> bytes | None:
    """Return one encoded item of a list or a map; ``None`` if it has fewer items.

    :raises MalformedValue: if the value is neither, or is too short for the item.
    """
    position, count, end = first_item(data, start)
    if index >= count:
        return None
    for _ in range(index):
        position = value_end(data, position)
    after = value_end(data, position)
    if after > end:
        raise MalformedValue(_OVERRUN)
    return data[position:after]


def pairs(data: bytes, start: int = 0) -> Iterator[tuple[bytes, bytes]]:
    """Return the encoded keys and values of a map, in pairs.

    :raises MalformedValue: if the value is no map, or is shorter than its item count says.
    """
    found = items(data, start)
    if len(found) % 2:
        raise MalformedValue("the last key of a map has no value")
    each = iter(found)
    return zip(each, each, strict=True)


def content(value: bytes, constructor: int) -> bytes | None:
    """Return the content of a binary, a string or a symbol; ``None`` if the value has another type.

    :param constructor: constructor of the expected type with a size of one byte.
    """
    kind = value[0]
    if kind == constructor:
        return value[2:]
    return value[5:] if kind == constructor + WIDE else None


def compound(constructor: int, parts: list[bytes]) -> bytes:
    """Encode a list or a map from encoded items.

    :param constructor: constructor with a size of four bytes.
    """
    joined = b"".join(parts)
    return b"".join((bytes((constructor,)), (len(joined) + 4).to_bytes(4), len(parts).to_bytes(4), joined))


# -- depth ----------------------------------------------------------------------------------------

# In place of the constructor of an open value's items: each item has its own; the array's constructor is the
# next byte; the same after a descriptor.
_OWN, _ARRAYS_OWN, _BEHIND_DESCRIPTOR = -1, -2, -3


def is_too_deep(data: bytes, most: int = MOST_LEVELS) -> bool:
    """Return whether a value is nested more deeply than ``most`` levels.

    :param data: encoded values in sequence, such as the sections of a message.  A section is no level.
    """
    if len(data) <= most:  # each level takes a byte
        return False
    try:
        return _Walk(data).exceeds(most + 1)
    except IndexError:
        return False


class _Walk:
    """A walk over encoded values, in their order.

    :ivar _open: for each value that has not ended, the number of its remaining items, and their constructor
        if it is an array.
    """

    __slots__ = ("_data", "_open", "_position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0
        self._open: list[tuple[int, int]] = []

    def exceeds(self, most: int) -> bool:
        """Return whether more than ``most`` values are open at once."""
        data, size, open_values = self._data, len(self._data), self._open
        while self._position < size:
            while open_values and not open_values[-1][0]:
                open_values.pop()
            constructor = _OWN
            if open_values:
                left, constructor = open_values.pop()
                if constructor in (_ARRAYS_OWN, _BEHIND_DESCRIPTOR):
                    if constructor == _BEHIND_DESCRIPTOR:
                        open_values.append((0, _OWN))  # each item is a described value, which is a level
                    self._begin_array(left)
                    continue
                open_values.append((left - 1, constructor))
            if constructor == _OWN:
                constructor = data[self._position]
                self._position += 1
            if not self._pass(constructor) or len(open_values) > most:
                return len(open_values) > most
        return False

    def _begin_array(self, items: int) -> None:
        """Step over the constructor of an array's items, and over the items if their width is fixed."""
        constructor = self._data[self._position]
        self._position += 1
        if constructor == DESCRIBED:  # first the descriptor of the items, then their constructor
            self._open += ((items, _BEHIND_DESCRIPTOR), (1, _OWN))
        elif (width := FIXED_WIDTHS.get(constructor >> 4)) is not None:
            self._position += items * width
        else:
            self._open.append((items, constructor))

    def _pass(self, constructor: int) -> bool:
        """Step over a scalar or the head of a compound value; return whether AMQP has the constructor."""
        kind = constructor >> 4
        if constructor == DESCRIBED:
            self._open.append((2, _OWN))
        elif (width := FIXED_WIDTHS.get(kind)) is not None:
            self._position += width
        elif (width := SIZE_WIDTHS.get(kind)) is None:
            return False
        elif kind in _VARIABLES:
            self._position += width + self._number(self._position, width)
        else:
            count = self._number(self._position + width, width)
            self._position += 2 * width
            self._open.append((count, _ARRAYS_OWN if kind in _ARRAYS else _OWN))
        return True

    def _number(self, start: int, width: int) -> int:
        return int.from_bytes(self._data[start : start + width])
