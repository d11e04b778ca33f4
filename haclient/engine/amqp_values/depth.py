"""How deeply the values of an encoded message are nested.

Python follows a value from one level to the next by calls, of which it has a thousand for everything.  So a
peer could end any code that reads values with lists in lists, and again whenever that code meets the message.
A walk over the encoded values needs no calls, and is done before anything reads them.

Rules
-----
* Lists, maps and arrays are levels, and so are described values.
* Bytes that are no values end the walk: to refuse them is the decoder's part.
* The walk takes one step a value, and none for the elements of an array that have no parts.

Source: AMQP 1.0 part 1, sections 1.2 (encodings) and 1.6.22 to 1.6.24 (lists, maps, arrays).
"""

from __future__ import annotations

from typing import Final

from haclient.engine.amqp_values.encode import MOST_LEVELS

_DESCRIBED: Final = 0x00
_DESCRIBED_VALUES: Final = 2
# Bytes of a value of fixed width, and of the size of others, by the first four bits of a constructor.
_FIXED_WIDTHS: Final = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}
_VARIABLE_WIDTHS: Final = {0xA: 1, 0xB: 4}
# Bytes of the size, and of the number of items, of those that have parts.
_COMPOUND_WIDTHS: Final = {0xC: 1, 0xD: 4, 0xE: 1, 0xF: 4}
_ARRAYS: Final = (0xE, 0xF)
# In place of a constructor: each value has its own; the array's is the next byte.
_OWN, _ARRAYS_OWN, _BEHIND_DESCRIPTOR = -1, -2, -3


def is_too_deep(data: bytes, most: int = MOST_LEVELS) -> bool:
    """Return whether a value is nested more deeply than ``most`` levels.

    :param data: encoded values, one behind the other, such as the sections of a message; the section itself
        is no level.
    """
    if len(data) <= most:  # each level takes a byte
        return False
    try:
        return _Walk(data).exceeds(most + 1)
    except IndexError:
        return False


class _Walk:
    """A walk over the values of some bytes, in their order.

    :ivar _open: of each value that has not ended: how many of its items are left, and their constructor in an
        array.
    """

    __slots__ = ("_data", "_open", "_position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0
        self._open: list[tuple[int, int]] = []

    def exceeds(self, most: int) -> bool:
        """Return whether more than so many values are open at once."""
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
        """Pass the constructor of an array's items, and those items that have no parts."""
        constructor = self._data[self._position]
        self._position += 1
        if constructor == _DESCRIBED:  # first the descriptor of the items, then their constructor
            self._open += ((items, _BEHIND_DESCRIPTOR), (1, _OWN))
        elif (width := _FIXED_WIDTHS.get(constructor >> 4)) is not None:
            self._position += items * width
        else:
            self._open.append((items, constructor))

    def _pass(self, constructor: int) -> bool:
        """Pass a value, or the beginning of one that has parts; whether there is such a constructor."""
        kind = constructor >> 4
        if constructor == _DESCRIBED:
            self._open.append((_DESCRIBED_VALUES, _OWN))
        elif (width := _FIXED_WIDTHS.get(kind)) is not None:
            self._position += width
        elif (width := _VARIABLE_WIDTHS.get(kind)) is not None:
            self._position += width + self._number(self._position, width)
        elif (width := _COMPOUND_WIDTHS.get(kind)) is not None:
            count = self._number(self._position + width, width)
            self._position += 2 * width
            self._open.append((count, _ARRAYS_OWN if kind in _ARRAYS else _OWN))
        else:
            return False
        return True

    def _number(self, start: int, width: int) -> int:
        return int.from_bytes(self._data[start : start + width])
