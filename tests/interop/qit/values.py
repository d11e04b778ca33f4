"""Converts AMQP values to the JSON of qpid-interop-test's shims, and back.

A value is a pair: the name of its AMQP type, and its JSON form. Floats are the hexadecimal digits of
their bits, so that a NaN and a negative zero are preserved. Binary is hexadecimal digits. A value that
contains others contains such pairs.

Source: qpid-interop-test 2.0, "How to Write a QIT Shim", type table and complex type values; AMQP 1.0
part 1, section 1.6 (primitive type definitions).
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from typing import Any

import proton

Pair = tuple[str, Any]

# The first class that matches determines the type. ``bool`` is an ``int`` in Python.
_WHOLE: tuple[tuple[str, type[int]], ...] = (
    ("ubyte", proton.ubyte),
    ("ushort", proton.ushort),
    ("uint", proton.uint),
    ("ulong", proton.ulong),
    ("byte", proton.byte),
    ("short", proton.short),
    ("int", proton.int32),
    ("timestamp", proton.timestamp),
    ("long", int),
)
_CODES: dict[str, Any] = {
    "null": proton.Data.NULL,
    "boolean": proton.Data.BOOL,
    "ubyte": proton.Data.UBYTE,
    "ushort": proton.Data.USHORT,
    "uint": proton.Data.UINT,
    "ulong": proton.Data.ULONG,
    "byte": proton.Data.BYTE,
    "short": proton.Data.SHORT,
    "int": proton.Data.INT,
    "long": proton.Data.LONG,
    "float": proton.Data.FLOAT,
    "double": proton.Data.DOUBLE,
    "char": proton.Data.CHAR,
    "timestamp": proton.Data.TIMESTAMP,
    "uuid": proton.Data.UUID,
    "binary": proton.Data.BINARY,
    "string": proton.Data.STRING,
    "symbol": proton.Data.SYMBOL,
    "array": proton.Data.ARRAY,
    "list": proton.Data.LIST,
    "map": proton.Data.MAP,
    "described": proton.Data.DESCRIBED,
}
_NAMES = {code: name for name, code in _CODES.items()}
PRIMITIVES = tuple(name for name in _CODES if name not in ("array", "list", "map", "described"))
_FLOATS = {"float": (">f", ">I", 8), "double": (">d", ">Q", 16)}


def float_of(kind: str, value: Any) -> float:
    """Return the number with these bits, given as an ``int`` or hexadecimal digits."""
    as_float, as_bits, _ = _FLOATS[kind]
    bits = int(value, 16) if isinstance(value, str) else int(value)
    number: float = struct.unpack(as_float, struct.pack(as_bits, bits))[0]
    return number


def bits_of(kind: str, number: float) -> str:
    """Return the bits of a number, as hexadecimal digits."""
    as_float, as_bits, digits = _FLOATS[kind]
    return f"0x{struct.unpack(as_bits, struct.pack(as_float, number))[0]:0{digits}x}"


def to_amqp(kind: str, value: Any) -> Any:
    """Return the Python value for a JSON value of this type.

    :raises ValueError: if the type is not in the table.
    """
    encode = _TO_AMQP.get(kind)
    if encode is None:
        raise ValueError(f"{kind!r} is not an AMQP type")
    return encode(value)


def _whole(cls: type[int]) -> Callable[[Any], int]:
    return lambda value: cls(int(value))


def _char(value: Any) -> proton.char:
    code = int(value) if not isinstance(value, str) or len(value) > 1 else ord(value or "\0")
    return proton.char(chr(code))


def _array(value: dict[str, Any]) -> proton.Array:
    kind = value["element_type"]
    elements = [to_amqp(kind, element) for element in value["elements"]]
    undescribed: Any = proton.UNDESCRIBED
    return proton.Array(undescribed, _CODES[kind], *elements)


_TO_AMQP: dict[str, Callable[[Any], Any]] = {
    "null": lambda _: None,
    "boolean": bool,
    **{name: _whole(cls) for name, cls in _WHOLE},
    "float": lambda value: proton.float32(float_of("float", value)),
    "double": lambda value: float_of("double", value),
    "char": _char,
    "uuid": uuid.UUID,
    "binary": bytes.fromhex,
    "string": str,
    "symbol": proton.symbol,
    "array": _array,
    "list": lambda value: [to_amqp(*item) for item in value],
    "map": lambda value: {to_amqp(*key): to_amqp(*item) for key, item in value},
    "described": lambda value: proton.Described(to_amqp(*value["descriptor"]), to_amqp(*value["value"])),
}


def from_amqp(value: Any) -> Pair:
    """Return the pair for a Python value. Its class determines the type, as in proton's decoder.

    :raises ValueError: if the object is no AMQP value.
    """
    if value is None or isinstance(value, bool):
        return ("null", None) if value is None else ("boolean", value)
    for name, cls in _WHOLE:
        if isinstance(value, cls):
            return name, int(value)
    if isinstance(value, float):
        kind = "float" if isinstance(value, proton.float32) else "double"
        return kind, bits_of(kind, value)
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, uuid.UUID):
        return "uuid", str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return "binary", bytes(value).hex()
    return _compound(value)


def _text(value: str) -> Pair:
    if isinstance(value, proton.char):
        return "char", ord(value)
    return ("symbol" if isinstance(value, proton.symbol) else "string"), str(value)


def _compound(value: Any) -> Pair:
    if isinstance(value, proton.Described):
        return "described", {"descriptor": from_amqp(value.descriptor), "value": from_amqp(value.value)}
    if isinstance(value, proton.Array):
        elements = [from_amqp(element)[1] for element in value.elements]
        return "array", {"element_type": _NAMES[value.type], "elements": elements}
    if isinstance(value, dict):
        return "map", [(from_amqp(key), from_amqp(item)) for key, item in value.items()]
    if isinstance(value, list | tuple):
        return "list", [from_amqp(item) for item in value]
    raise ValueError(f"{type(value).__name__} is no AMQP value")
