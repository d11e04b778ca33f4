"""Large bodies that both sides of a test generate from a seed.

Source: qpid-interop-test 2.0, "How to Write a QIT Shim", large content mode. The bytes come from a
linear congruential generator with glibc's constants; texts are their printable counterparts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import proton

_FACTOR, _STEP, _MASK = 1103515245, 12345, 0x7FFFFFFF
_FIRST_PRINTABLE, _PRINTABLE = 32, 95
_TEXTS = bytes(_FIRST_PRINTABLE + byte % _PRINTABLE for byte in range(256))
_DESCRIPTOR = proton.symbol("test.large.described")


@dataclass(frozen=True, slots=True)
class Content:
    """A large body.

    :param kind: ``binary`` and ``string`` have ``size``; ``list``, ``array``, ``map`` and ``described``
        (a list) have ``elements`` texts of ``element_size`` characters.
    """

    kind: str
    seed: int
    size: int = 0
    elements: int = 0
    element_size: int = 0

    def body(self) -> Any:
        """Return the body as a Python value."""
        if self.kind == "binary":
            return noise(self.seed, self.size)
        if self.kind == "string":
            return text(self.seed, self.size)
        parts: Any = self._parts()
        if self.kind == "array":
            undescribed: Any = proton.UNDESCRIBED
            return proton.Array(undescribed, proton.Data.STRING, *parts)
        if self.kind == "map":
            return {f"key_{number:04d}": part for number, part in enumerate(parts)}
        return proton.Described(_DESCRIPTOR, parts) if self.kind == "described" else parts

    def facts(self) -> dict[str, int]:
        """Return the size as a shim prints it."""
        if self.elements:
            return {"elements": self.elements, "element_size": self.element_size}
        return {"size": self.size}

    def compare(self, body: Any) -> dict[str, Any]:
        """Return a receiver's output: whether this is the body, and the first difference."""
        if self.elements:
            return self._compare_parts(body)
        expected = self.body()
        found = bytes(body) if isinstance(body, memoryview | bytearray) else body
        if type(found) is not type(expected):
            return {"match": False, "error": f"expected {self.kind}, got {type(body).__name__}"}
        said: dict[str, Any] = {"size": len(found), "expected_size": self.size, "match": found == expected}
        if not said["match"]:
            said["first_mismatch_offset"] = _first_difference(expected, found)
        return said

    def _parts(self) -> list[str]:
        size, whole = self.element_size, text(self.seed, self.elements * self.element_size)
        return [whole[start : start + size] for start in range(0, len(whole), size)]

    def _compare_parts(self, body: Any) -> dict[str, Any]:
        expected = self.body()
        if type(body) is not type(expected):
            return {"match": False, "error": f"expected {self.kind}, got {type(body).__name__}"}
        said: dict[str, Any] = {**self.facts(), "match": body == expected}
        found, wanted = _texts(body), _texts(expected)
        if not said["match"] and (part := _first_difference(wanted, found)) < min(len(wanted), len(found)):
            said["first_mismatch_element"] = part
            said["first_mismatch_offset"] = _first_difference(wanted[part], found[part])
        return said


def noise(seed: int, size: int) -> bytes:
    """Return ``size`` bytes from this seed."""
    state, found = seed & _MASK, bytearray(size)
    for position in range(size):
        state = (state * _FACTOR + _STEP) & _MASK
        found[position] = state >> 16 & 0xFF
    return bytes(found)


def text(seed: int, size: int) -> str:
    """Return ``size`` printable ASCII characters from this seed."""
    return noise(seed, size).translate(_TEXTS).decode()


def _texts(body: Any) -> list[str]:
    if isinstance(body, proton.Described):
        body = body.value
    elif isinstance(body, proton.Array):
        body = body.elements
    return list(body.values() if isinstance(body, dict) else body)


def _first_difference(expected: Any, found: Any) -> int:
    pairs = enumerate(zip(expected, found, strict=False))
    return next((number for number, (one, other) in pairs if one != other), min(len(expected), len(found)))
