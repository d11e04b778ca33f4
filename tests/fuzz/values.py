"""AMQP values out of any bytes: an input that is mutated makes another value, and not an encoding error."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import proton

_DEPTH = 3
_MOST_ITEMS = 4


class Reader:
    """Reads values from an input; past its end every byte is 0.

    :param words: the texts that the code under test knows.
    """

    def __init__(self, data: bytes, words: Sequence[str]) -> None:
        self._data, self._at = data, 0
        self._words = words

    def byte(self) -> int:
        """The next byte."""
        self._at += 1
        return self._data[self._at - 1] if self._at <= len(self._data) else 0

    def take(self, size: int) -> bytes:
        """The next bytes, as many as there are."""
        self._at += size
        return self._data[self._at - size : self._at]

    def rest(self) -> bytes:
        """All that is left."""
        return self.take(len(self._data))

    def choice(self, items: Sequence[Any]) -> Any:
        """One of these."""
        return items[self.byte() % len(items)]

    def text(self) -> str:
        """A word that is known, or any other."""
        size = self.byte()
        if size % 4:
            return str(self.choice(self._words))
        return self.take(size // 4).decode(errors="replace")

    def value(self, depth: int = _DEPTH) -> Any:
        """Any value."""
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
        """A map; most keys are texts."""
        made = {}
        for _ in range(self.byte() % _MOST_ITEMS):
            key = self.text() if self.byte() % 8 else self.byte()
            made[key] = self.value(depth)
        return made
