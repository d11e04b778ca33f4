"""Decode messages to Python values of proton's types.

``proton.Data`` stops without an error after 65,535 values of a section, at bytes that are no value, and after
a value with two descriptors.  ``proton.Message`` keeps only the last of several data or sequence sections.
This module reads a message completely, or raises an error with the reason.

Rules
-----
* For any bytes, the only error is ``UndecodableMessage``, with the section and the reason.
* The numbers of values and of levels have the encoder's bounds, so each message that can be sent can be
  received.  Without bounds, a section of 15 bytes (an array of nulls) takes all memory.  All sections of a
  body share one bound.
* Several data sections are one body, in order.  Several sequence sections are a ``SequenceSections``.
* A section's descriptor may be a number or a symbol.
* A footer is read and dropped: ``proton.Message`` has no field for one.
* proton decodes header and properties when a field is read.  This module reads them only to find texts that
  proton would cut.

Sources: AMQP 1.0 part 1, sections 1.2 and 1.6 (encodings); part 3, section 3.2 (message format).
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import proton
from cproton_ffi import lib
from proton import Data

from haclient.engine.amqp_values.encode import MOST_VALUES
from haclient.engine.amqp_values.message import SequenceSections
from haclient.engine.amqp_values.walk import DESCRIBED, FIXED_WIDTHS, LIST0, MOST_LEVELS, NULL, SIZE_WIDTHS
from haclient.error_catalog.base import HaclientError

SECTIONS = (
    lib.pn_message_instructions,
    lib.pn_message_annotations,
    lib.pn_message_properties,
    lib.pn_message_body,
)
"""proton's accessors of the sections after header and properties."""

_HEADER, _INSTRUCTIONS, _ANNOTATIONS, _PROPERTIES, _APPLICATION_PROPERTIES = 0x70, 0x71, 0x72, 0x73, 0x74
_DATA, _SEQUENCE, _VALUE, _FOOTER = 0x75, 0x76, 0x77, 0x78
# Part 3, sections 3.2.1 to 3.2.9: the symbolic descriptors.  The last part is the type of the section.
_SYMBOLS = {
    _HEADER: "amqp:header:list",
    _INSTRUCTIONS: "amqp:delivery-annotations:map",
    _ANNOTATIONS: "amqp:message-annotations:map",
    _PROPERTIES: "amqp:properties:list",
    _APPLICATION_PROPERTIES: "amqp:application-properties:map",
    _DATA: "amqp:data:binary",
    _SEQUENCE: "amqp:amqp-sequence:list",
    _VALUE: "amqp:amqp-value:*",
    _FOOTER: "amqp:footer:map",
}
_CODES: dict[Any, int] = {
    **{code: code for code in _SYMBOLS},
    **{name: code for code, name in _SYMBOLS.items()},
}
# How most senders begin a section: with a smallulong descriptor.
_STARTS = {bytes((0, 0x53, code)): code for code in _SYMBOLS}
_NAMES = {code: name.split(":")[1] for code, name in _SYMBOLS.items()}
_PYTHON_TYPES = {"list": list, "map": dict}
_TYPES = {code: _PYTHON_TYPES.get(name.split(":")[2]) for code, name in _SYMBOLS.items()}
# Fields of the properties that proton keeps as C strings, by position: part 3, section 3.2.4.
_TEXTS_OF_C = {2: "to", 3: "subject", 4: "reply-to", 6: "content-type", 7: "content-encoding", 10: "group-id"}
_TEXTS_OF_C[12] = "reply-to-group-id"

_BINARY_CODES = b"\xa0\xb0"
_TRUNCATED = "it ends within a value"


class UndecodableMessage(HaclientError, proton.MessageException):
    """A received message cannot be decoded; the text names the section and the reason."""

    code = "undecodable-message"
    safe_to_retry = False


class Sections(NamedTuple):
    """The content of a message.

    :param start: header and properties, encoded; empty if the message has neither.
    :param inferred: whether the body is in data or sequence sections.
    """

    start: bytes
    inferred: bool
    instructions: dict[Any, Any] | None
    annotations: dict[Any, Any] | None
    properties: dict[Any, Any] | None
    body: Any


def read_sections(data: bytes, binary: Callable[[bytes], Any] = bytes, *, with_body: bool = True) -> Sections:
    """Decode the sections of a message.

    :param binary: converts the bytes of a binary value.
    :param with_body: whether to read the body and the footer as well.
    :raises UndecodableMessage: if ``data`` is no AMQP message, or no Python value can hold it.
    """
    reader, body = _Reader(data, binary), _Body()
    found: dict[int, Any] = {}
    start, code = b"", 0
    try:
        while reader.position < len(data):
            code = 0
            code = _section_code(reader)
            if code in _BODY_CODES:
                if not with_body:
                    break
                body.read(reader, code)
                continue
            begin = reader.position
            _check_new(code, found)
            found[code] = value = _typed(reader, code)
            if code in (_HEADER, _PROPERTIES):
                start += bytes((0, 0x53, code)) + data[begin : reader.position]
                if code == _PROPERTIES and value:
                    _check_texts(value)
    except (UndecodableMessage, ValueError, OverflowError) as error:  # or a string is not UTF-8
        raise UndecodableMessage(_cannot(code, str(error))) from None
    except RecursionError:  # if the caller is deep in calls already
        raise UndecodableMessage(_cannot(code, "Python cannot follow its levels here")) from None
    return Sections(
        start,
        body.code in (_DATA, _SEQUENCE),
        found.get(_INSTRUCTIONS),
        found.get(_ANNOTATIONS),
        found.get(_APPLICATION_PROPERTIES),
        body.value(binary),
    )


def _cannot(code: int, reason: str) -> str:
    """Return the text of an error.

    :param code: the section's code; 0 if no section has begun.
    """
    where = f"{_NAMES[code]} section" if code else "message"
    return f"cannot decode the {where}: {reason}"


_BODY_CODES = (_DATA, _SEQUENCE, _VALUE)


class _Body:
    """The sections of a body, collected in order."""

    __slots__ = ("_left", "_parts", "code")

    def __init__(self) -> None:
        self.code = 0
        self._left = MOST_VALUES
        self._parts: list[Any] = []

    def read(self, reader: _Reader, code: int) -> None:
        """Decode and add one section."""
        if self._parts and (code != self.code or code == _VALUE):
            raise UndecodableMessage(
                "a body has one amqp-value section, or data sections alone, or amqp-sequence sections alone"
            )
        self.code = code
        self._parts.append(_typed(reader, code, self._left))
        self._left = reader.left

    def value(self, binary: Callable[[bytes], Any]) -> Any:
        """Return the value of all sections together; ``None`` if there are none."""
        if self.code == _DATA:
            return binary(b"".join(self._parts))
        if len(self._parts) > 1:
            return SequenceSections(self._parts)
        return self._parts[0] if self._parts else None


def _section_code(reader: _Reader) -> int:
    known = _STARTS.get(reader.data[reader.position : reader.position + 3])
    if known is not None:
        reader.position += 3
        return known
    if reader.byte() != DESCRIBED:
        raise UndecodableMessage("no section begins where one should")
    reader.left = MOST_VALUES
    descriptor = reader.value(len(reader.data), 1)
    code = _CODES.get(descriptor) if type(descriptor) in (proton.ulong, proton.symbol) else None
    if code is None:
        raise UndecodableMessage("a section has a descriptor that AMQP does not define for one")
    return code


def _check_new(code: int, found: dict[int, Any]) -> None:
    if code in found:
        raise UndecodableMessage("it is there twice")


def _typed(reader: _Reader, code: int, most: int = MOST_VALUES) -> Any:
    """Return the value of a section, and check that it has the section's type."""
    reader.left = most
    data, begin = reader.data, reader.position
    value = reader.value(len(data), MOST_LEVELS)
    kind = _TYPES[code]
    if code == _DATA:
        if data[begin] not in _BINARY_CODES:
            raise UndecodableMessage("its value is no binary")
    elif kind is not None and type(value) is not kind and (value is not None or code == _SEQUENCE):
        raise UndecodableMessage(f"its value is no {'map' if kind is dict else 'list'}")
    return value


def _check_texts(properties: list[Any]) -> None:
    """Refuse texts with a NUL, which proton would cut there."""
    for position, field in enumerate(properties):
        if isinstance(field, str) and "\0" in field and position in _TEXTS_OF_C:
            raise UndecodableMessage(f"the text of {_TEXTS_OF_C[position]} has a NUL")


class _Reader:
    """Decodes values one after another.

    :ivar position: index of the next byte to read.
    :ivar left: number of values that may still be read.
    """

    __slots__ = ("_binary", "data", "left", "position")

    def __init__(self, data: bytes, binary: Callable[[bytes], Any]) -> None:
        self.data = data
        self.position = 0
        self.left = MOST_VALUES
        self._binary = binary

    def byte(self) -> int:
        """Return the next byte."""
        try:
            found = self.data[self.position]
        except IndexError:
            raise UndecodableMessage(_TRUNCATED) from None
        self.position += 1
        return found

    # Each level takes two Python calls, of the thousand that Python allows in total: see ``MOST_LEVELS``.
    def value(self, end: int, levels: int) -> Any:
        """Return the next value, which must not extend beyond ``end``."""
        if self.position >= end:
            raise UndecodableMessage(_TRUNCATED)
        code = self.data[self.position]
        self.position += 1
        if code in _COMPOUNDS:
            return self._compound(code, end, levels)
        if code != DESCRIBED:
            return self._simple(code, end)
        self._count(levels)
        descriptor = self.value(end, levels - 1)
        return proton.Described(descriptor, self.value(end, levels - 1))

    def _simple(self, code: int, end: int) -> Any:
        self.left -= 1
        if self.left < 0:
            raise _too_many()
        simple = _SIMPLE.get(code)
        if simple is None:
            raise UndecodableMessage(f"AMQP has no constructor {code:#04x}")
        width, of_size, convert = simple
        begin = self.position + of_size
        if of_size:
            width = int.from_bytes(self.data[self.position : begin])
        self.position = begin + width
        if self.position > end:
            raise UndecodableMessage(_TRUNCATED)
        content = self.data[begin : self.position]
        return self._binary(content) if convert is bytes else convert(content)

    def _compound(self, code: int, end: int, levels: int) -> Any:
        """Return a list, a map or an array; ``position`` is at its size."""
        self._count(levels)
        width, kind = _COMPOUNDS[code]
        begin = self.position + width
        last = begin + int.from_bytes(self.data[self.position : begin])
        self.position = begin + width
        if last > end or self.position > last:
            raise UndecodableMessage(_TRUNCATED)
        count = int.from_bytes(self.data[begin : self.position])
        found: Any
        if kind is proton.Array:
            found = self._array(count, last, levels - 1)
        else:
            items = []
            for _ in range(count):  # before Python 3.12 a comprehension is a third call a level
                items.append(self.value(last, levels - 1))  # noqa: PERF401
            found = items if kind is list else _dict_of(items)
        if self.position != last:
            raise UndecodableMessage("a list, map or array does not end where its size says")
        return found

    def _array(self, count: int, end: int, levels: int) -> proton.Array:
        descriptor: Any = proton.UNDESCRIBED
        code = self.byte()
        if code == DESCRIBED:
            descriptor = self.value(end, levels)
            code = self.byte()
        kind = _ARRAY_TYPES.get(code)
        if kind is None:
            raise UndecodableMessage(f"an array cannot have elements of the constructor {code:#04x}")
        elements = []
        for _ in range(count):
            compound = code in _COMPOUNDS
            elements.append(self._compound(code, end, levels) if compound else self._simple(code, end))
        return proton.Array(descriptor, kind, *elements)

    def _count(self, levels: int) -> None:
        self.left -= 1
        if self.left < 0:
            raise _too_many()
        if not levels:
            raise UndecodableMessage(f"it has more than {MOST_LEVELS} levels of lists and maps")


def _too_many() -> UndecodableMessage:
    return UndecodableMessage(
        f"it has more than {MOST_VALUES} values; its sender can divide them among messages, or send bytes"
    )


def _dict_of(items: list[Any]) -> dict[Any, Any]:
    try:
        found = dict(zip(items[::2], items[1::2], strict=True))
    except TypeError:
        raise UndecodableMessage("a list, a map or the like is the key of a map") from None
    except ValueError:
        raise UndecodableMessage("the last key of a map has no value") from None
    if 2 * len(found) != len(items):
        raise UndecodableMessage(
            "two keys of a map are equal in Python, such as a string and a symbol of the same text"
        )
    return found


def _unsigned(kind: Callable[[int], Any]) -> Callable[[bytes], Any]:
    return lambda content: kind(int.from_bytes(content))


def _signed(kind: Callable[[int], Any]) -> Callable[[bytes], Any]:
    return lambda content: kind(int.from_bytes(content, signed=True))


_Convert: TypeAlias = Callable[[bytes], Any]
# Part 1, section 1.6.
_CONVERTERS: dict[int, _Convert] = {
    NULL: lambda _: None,
    0x41: lambda _: True,
    0x42: lambda _: False,
    0x43: _unsigned(proton.uint),
    0x44: _unsigned(proton.ulong),
    LIST0: lambda _: [],
    0x50: _unsigned(proton.ubyte),
    0x51: _signed(proton.byte),
    0x52: _unsigned(proton.uint),
    0x53: _unsigned(proton.ulong),
    0x54: _signed(proton.int32),
    0x55: _signed(int),
    0x56: lambda content: content != b"\0",
    0x60: _unsigned(proton.ushort),
    0x61: _signed(proton.short),
    0x70: _unsigned(proton.uint),
    0x71: _signed(proton.int32),
    0x72: lambda content: proton.float32(struct.unpack(">f", content)[0]),
    0x73: lambda content: proton.char(chr(int.from_bytes(content))),
    0x74: _unsigned(proton.decimal32),
    0x80: _unsigned(proton.ulong),
    0x81: _signed(int),
    0x82: lambda content: struct.unpack(">d", content)[0],
    0x83: _signed(proton.timestamp),
    0x84: _unsigned(proton.decimal64),
    0x94: proton.decimal128,
    0x98: lambda content: uuid.UUID(bytes=content),
    0xA0: bytes,
    0xB0: bytes,
    0xA1: bytes.decode,
    0xB1: bytes.decode,
    0xA3: lambda content: proton.symbol(content.decode("ascii")),
    0xB3: lambda content: proton.symbol(content.decode("ascii")),
}
# Width of the content, width of the size field before it (one of the two is 0), conversion.
_SIMPLE = {
    code: (FIXED_WIDTHS.get(code >> 4, 0), SIZE_WIDTHS.get(code >> 4, 0), convert)
    for code, convert in _CONVERTERS.items()
}
_COMPOUNDS: dict[int, tuple[int, type]] = {
    code: (SIZE_WIDTHS[code >> 4], kind)
    for kind, codes in ((list, b"\xc0\xd0"), (dict, b"\xc1\xd1"), (proton.Array, b"\xe0\xf0"))
    for code in codes
}
_ARRAY_TYPES: dict[int, int] = {
    NULL: Data.NULL,
    **dict.fromkeys((0x41, 0x42, 0x56), Data.BOOL),
    0x50: Data.UBYTE,
    0x51: Data.BYTE,
    0x60: Data.USHORT,
    0x61: Data.SHORT,
    **dict.fromkeys((0x43, 0x52, 0x70), Data.UINT),
    **dict.fromkeys((0x54, 0x71), Data.INT),
    0x73: Data.CHAR,
    **dict.fromkeys((0x44, 0x53, 0x80), Data.ULONG),
    **dict.fromkeys((0x55, 0x81), Data.LONG),
    0x83: Data.TIMESTAMP,
    0x72: Data.FLOAT,
    0x82: Data.DOUBLE,
    0x74: Data.DECIMAL32,
    0x84: Data.DECIMAL64,
    0x94: Data.DECIMAL128,
    0x98: Data.UUID,
    **dict.fromkeys((0xA0, 0xB0), Data.BINARY),
    **dict.fromkeys((0xA1, 0xB1), Data.STRING),
    **dict.fromkeys((0xA3, 0xB3), Data.SYMBOL),
    **dict.fromkeys((LIST0, 0xC0, 0xD0), Data.LIST),
    **dict.fromkeys((0xC1, 0xD1), Data.MAP),
    **dict.fromkeys((0xE0, 0xF0), Data.ARRAY),
}
"""proton's type of an array, by the constructor of its elements."""
