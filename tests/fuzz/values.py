"""Builds AMQP values from any bytes, so that a mutated input is another value and no encoding error.

``Writer`` makes the bytes of a value, for seeds.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import proton

_DEPTH = 3
_MOST_ITEMS = 4


class Reader:
    """Reads values from an input; past its end every byte is 0.

    :param words: the texts with a meaning for the code under test.
    """

    def __init__(self, data: bytes, words: Sequence[str]) -> None:
        self._data, self._at = data, 0
        self._words = words

    def byte(self) -> int:
        """Return the next byte."""
        self._at += 1
        return self._data[self._at - 1] if self._at <= len(self._data) else 0

    def take(self, size: int) -> bytes:
        """Return the next ``size`` bytes, or fewer at the end."""
        self._at += size
        return self._data[self._at - size : self._at]

    def rest(self) -> bytes:
        """Return all remaining bytes."""
        return self.take(len(self._data))

    def choice(self, items: Sequence[Any]) -> Any:
        """Return one of these items."""
        return items[self.byte() % len(items)]

    def text(self) -> str:
        """Return one of ``words``, or any other text."""
        size = self.byte()
        if size % 4:
            return str(self.choice(self._words))
        return self.take(size // 4).decode(errors="replace")

    def value(self, depth: int = _DEPTH) -> Any:
        """Return any value."""
        match self.byte() % (12 if depth else 9):
            case 0:
                return None
            case 1 | 2 | 3:
                return self.text()
            case 4:
                return self.byte() % 2 == 1
            case 5:
                return int.from_bytes(self.take(self.byte() % 9)[:8], signed=True)
            case 6:
                return self.take(self.byte())
            case 7:
                return self.choice(
                    [
                        0.5,
                        proton.symbol("symbol"),
                        uuid.UUID(int=7),
                        proton.timestamp(0),
                        proton.ulong(2**64 - 1),
                        proton.uint(2**32 - 1),
                        proton.ubyte(255),
                        proton.char("c"),
                    ]
                )
            case 8:
                return 0
            case 9:
                return [self.value(depth - 1) for _ in range(self.byte() % _MOST_ITEMS)]
            case _:
                return self.map(depth - 1)

    def map(self, depth: int = _DEPTH) -> dict[Any, Any]:
        """Return a map; most keys are texts."""
        made = {}
        for _ in range(self.byte() % _MOST_ITEMS):
            key = self.text() if self.byte() % 8 else self.byte()
            made[key] = self.value(depth)
        return made


class Writer:
    """Writes values in the form that ``Reader`` reads.

    :param words: the same as the reader's.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self._words = words

    def text(self, text: str) -> bytes:
        """Encode a word, or any other text of up to 63 bytes."""
        if text in self._words:
            return bytes([1, self._words.index(text)])
        data = text.encode()
        return bytes([4 * len(data)]) + data

    def value(self, value: Any) -> bytes:
        """Encode a value of a request.

        :raises TypeError: if no seed has its type.
        """
        match value:
            case None:
                return b"\x00"
            case bool():
                return bytes([4, value])
            case str():
                return b"\x01" + self.text(value)
            case int():
                return b"\x05\x08" + value.to_bytes(8, signed=True)
            case list():
                return bytes([9, len(value)]) + b"".join(map(self.value, value))
            case dict():
                return b"\x0a" + self.map(value)
        raise TypeError(f"no seed has a {type(value).__name__}")

    def map(self, values: Mapping[str, Any]) -> bytes:
        """Encode a map of up to three entries."""
        entries = (b"\x01" + self.text(name) + self.value(value) for name, value in values.items())
        return bytes([len(values)]) + b"".join(entries)
