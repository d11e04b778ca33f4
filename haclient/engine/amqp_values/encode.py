"""Encode Python values as AMQP, byte for byte as proton does.

Rules
-----
* The Python type chooses the AMQP type: ``bool`` boolean, ``int`` long, ``float`` double, ``str`` string;
  ``bytes``, ``bytearray`` and ``memoryview`` binary; ``datetime`` timestamp (milliseconds, UTC);
  ``UUID`` uuid; ``list`` and ``tuple`` list; ``dict`` map; ``None`` null.
  proton's own types have the AMQP type of the same name.  A subclass, such as an ``IntEnum``, is encoded like
  its base class.
* A value that AMQP cannot carry raises a ``TypeError`` with its path.  The path is built while the error
  propagates, so other values cost nothing extra.
* Lists and maps are written with sizes of four bytes, as proton does.  proton itself writes arrays.

Source: AMQP 1.0 part 1, section 1.6 (type encodings).
"""

from __future__ import annotations

import datetime
import enum
import numbers
import struct
import sys
import uuid
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, TypeAlias

import proton

from haclient.engine.amqp_values.walk import MOST_LEVELS
from haclient.error_catalog.base import HaclientError
from haclient.printable.text import printable

MOST_VALUES = 65_535
"""proton numbers the values of a section with 16 bits; its receivers silently drop any further ones."""

_SHORT = 256
_BYTE, _LONG_BITS, _DECIMAL128 = 128, 64, 16
_TIME_ZERO = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MILLISECOND = datetime.timedelta(milliseconds=1)
# An AMQP size has 32 bits; the size of a list includes its count field.
_MOST_BYTES = 2**32 - 64
# How many steps of a long path are shown at each end, and how many characters of a key.
_SHOWN_STEPS = 5
_SHOWN_KEY = 40

_Encode: TypeAlias = Callable[[Any, int], bytes]


class UnencodableValue(HaclientError, proton.MessageException, TypeError):
    """AMQP cannot carry a value of the message; the text names the path of the value.

    :ivar root: first part of the path: ``body``, ``properties``, ``annotations``, ...
    :ivar steps: path from the root to the value, innermost step first.
    :ivar reason: the reason, for people.
    """

    code = "unencodable-value"
    safe_to_retry = False

    def __init__(self, reason: str, root: str = "") -> None:
        super().__init__(reason, root)
        self.reason = reason
        self.root = root
        self.steps: list[str] = []

    def __str__(self) -> str:
        steps = self.steps[::-1]
        if len(steps) > 2 * _SHOWN_STEPS:
            steps = [*steps[:_SHOWN_STEPS], "...", *steps[-_SHOWN_STEPS:]]
        return printable(f"{self.root}{''.join(steps)}: {self.reason}")


def encode_value(value: Any, root: str) -> bytes:
    """Encode a value with its constructor.

    :param root: name of the value in an error, such as ``body`` or ``properties``.
    :raises TypeError: if AMQP cannot carry the value; the text has its path.
    """
    try:
        encoded = _value(value, MOST_LEVELS)
        _check_count(value, encoded)
    except UnencodableValue as error:
        error.root = root
        raise
    except RecursionError:  # if the caller is deep in calls already
        raise UnencodableValue("more levels of lists and maps than Python can follow here", root) from None
    return encoded


def encode_sequences(sections: list[Any]) -> list[bytes]:
    """Encode the lists of several amqp-sequence sections (part 3, section 3.2.7), without the descriptors.

    :raises TypeError: if there are no sections, one is not a list, or AMQP cannot carry a value.
    """
    if not sections:
        raise UnencodableValue("a body of amqp-sequence sections has at least one", "body")
    encoded = []
    for index, section in enumerate(sections):
        if not isinstance(section, list | tuple):
            raise UnencodableValue("an amqp-sequence section is a list", f"body[{index}]")
        encoded.append(encode_value(section, f"body[{index}]"))
    try:
        _check_count(sections, b"".join(encoded))
    except UnencodableValue as error:
        error.root = "body"
        raise
    return encoded


def encode_properties(properties: Mapping[str, Any], extra: bytes = b"", count: int = 0) -> bytes:
    """Encode the map of an application-properties section (part 3, section 3.2.5), without the descriptor.

    :param extra: further entries, encoded; their keys must not be in ``properties``.
    :param count: number of entries in ``extra``: pairs of a key and a value.
    :raises TypeError: if a key is not a string, or AMQP cannot carry a value.
    """
    try:
        encoded = _map(properties, MOST_LEVELS, _property_name, extra, count)
        _check_count(properties, encoded, 2 * count)
    except UnencodableValue as error:
        error.root = "properties"
        raise
    return encoded


def binary(value: bytes) -> bytes:
    """Encode a binary value with its constructor.

    :raises TypeError: if it is too long for AMQP: nearly 4 GiB.
    """
    size = len(value)
    if size < _SHORT:
        return b"\xa0" + size.to_bytes(1) + value
    if size > _MOST_BYTES:
        raise UnencodableValue(f"{size} bytes are more than AMQP can carry")
    return b"\xb0" + size.to_bytes(4) + value


def _value(value: Any, levels: int) -> bytes:
    encode = _BY_TYPE.get(type(value))
    if encode is None:
        encode = _by_base(value)
    return encode(value, levels)


def _by_base(value: Any) -> _Encode:
    """Return the encoder of the nearest base class that has one."""
    for base in type(value).__mro__:
        found = _BY_TYPE.get(base)
        if found is not None:
            return found
    name = type(value).__qualname__
    advice = "convert it to a type that AMQP has"
    decimal = sys.modules.get("decimal")  # an import would take half a megabyte
    if decimal is not None and isinstance(value, decimal.Decimal):
        advice = "send str(value), or float(value) if it may be rounded"
    for kind, said in _ADVICE:
        if isinstance(value, kind):
            advice = said
            break
    raise UnencodableValue(f"{name} is not an AMQP type; {advice}")


_ADVICE: tuple[tuple[type, str], ...] = (
    (datetime.date, "send value.isoformat(), or a datetime with a time zone"),
    (datetime.time, "send value.isoformat()"),
    (datetime.timedelta, "send value.total_seconds()"),
    (enum.Enum, "send value.value"),
    (numbers.Integral, "send int(value)"),
    (numbers.Real, "send float(value)"),
    (Mapping, "send dict(value)"),
    (AbstractSet, "send list(value)"),
    (proton.Message, "send its body, or the message itself"),
)


# -- scalars ------------------------------------------------------------------------------------


def _string(value: str, _: int) -> bytes:
    # ``str.encode``: a subclass may override its own ``encode``.
    try:
        data = str.encode(value)
    except UnicodeEncodeError as error:
        code = ord(value[error.start])
        reason = f"a str with a surrogate (U+{code:04X} at {error.start}) is not Unicode text; "
        raise UnencodableValue(reason + "send bytes, or encode it with errors='replace'") from None
    size = len(data)
    if size < _SHORT:
        return b"\xa1" + size.to_bytes(1) + data
    if size > _MOST_BYTES:
        raise UnencodableValue(f"{size} bytes are more than AMQP can carry")
    return b"\xb1" + size.to_bytes(4) + data


def _symbol(value: str, _: int) -> bytes:
    try:
        data = str.encode(value, "ascii")
    except UnicodeEncodeError:
        raise UnencodableValue("a symbol is ASCII") from None
    size = len(data)
    return b"\xa3" + size.to_bytes(1) + data if size < _SHORT else b"\xb3" + size.to_bytes(4) + data


def _char(value: str, _: int) -> bytes:
    if len(value) != 1:
        raise UnencodableValue(f"a char is one character, not {len(value)}")
    return b"\x73" + ord(value).to_bytes(4)


def _binary(value: bytes | bytearray | memoryview, _: int) -> bytes:
    return binary(bytes(value))


def _long(value: int, _: int) -> bytes:
    if -_BYTE <= value < _BYTE:
        return _SMALL_LONGS[value]
    try:
        return b"\x81" + int.to_bytes(value, 8, signed=True)
    except OverflowError:
        raise UnencodableValue("an int of more than 64 bits is not an AMQP type; send str(value)") from None


# A negative index counts from the end, which matches two's complement.
_SMALL_LONGS = [b"\x55" + bytes((number,)) for number in range(256)]


def _double(value: float, _: int) -> bytes:
    return b"\x82" + _pack_double(value)


_pack_double, _pack_float = struct.Struct(">d").pack, struct.Struct(">f").pack


def _float(value: float, _: int) -> bytes:
    try:
        return b"\x72" + _pack_float(value)
    except OverflowError:
        return b"\x72" + _pack_float(float("inf") if value > 0 else float("-inf"))


def _timestamp(value: datetime.datetime, _: int) -> bytes:
    if value.utcoffset() is None:
        reason = "a datetime without a time zone is no point in time; "
        raise UnencodableValue(reason + "send value.astimezone(), or value.replace(tzinfo=datetime.UTC)")
    return b"\x83" + ((value - _TIME_ZERO) // _MILLISECOND).to_bytes(8, signed=True)


def _uuid(value: uuid.UUID, _: int) -> bytes:
    return b"\x98" + value.bytes


def _decimal128(value: bytes, _: int) -> bytes:
    if len(value) != _DECIMAL128:
        raise UnencodableValue(f"a decimal128 is {_DECIMAL128} bytes, not {len(value)}")
    return b"\x94" + value


def _whole(constructor: bytes, size: int, *, signed: bool) -> _Encode:
    """Return the encoder of an integer type of fixed width, such as proton's ``ubyte``."""

    def encode(value: int, _: int) -> bytes:
        try:
            return constructor + int.to_bytes(value, size, signed=signed)
        except OverflowError:
            kind = f"{'a signed' if signed else 'an unsigned'} number of {8 * size} bits"
            raise UnencodableValue(f"a {type(value).__name__} is {kind}") from None

    return encode


def _short_or(zero: bytes, small: bytes, full: _Encode, most: int) -> _Encode:
    """Return the encoder of an integer type that also has shorter encodings.

    :param zero: constructor of the value 0; empty if the type is signed, which has none.
    :param small: constructor of the encoding with one byte.
    :param full: encoder of all other values.
    :param most: largest value of the encoding with one byte; the smallest is ``-most - 1`` if signed, else 0.
    """
    least = 0 if zero else -most - 1

    def encode(value: int, levels: int) -> bytes:
        if zero and value == 0:
            return zero
        return small + (value & 255).to_bytes(1) if least <= value <= most else full(value, levels)

    return encode


# -- compound values ----------------------------------------------------------------------------


def _check_count(value: object, encoded: bytes, extra: int = 0) -> None:
    """Refuse more values than this client, and other receivers with proton, can read.

    Each value takes at least a byte, so short encodings are not counted.  The nulls of an array take no
    bytes and are not counted either; a receiver refuses too many of them.
    """
    if len(encoded) <= MOST_VALUES:
        return
    count, pending = extra, [value]
    while pending:
        each = pending.pop()
        count += 1
        if isinstance(each, dict):
            pending.extend(each)
            pending.extend(each.values())
        elif isinstance(each, list | tuple):
            pending.extend(each)
        elif isinstance(each, proton.Described):
            pending += (each.descriptor, each.value)
        elif isinstance(each, proton.Array):
            pending.extend(each.elements)
            count += each.descriptor != proton.UNDESCRIBED
    if count > MOST_VALUES:
        reason = f"{count} values are more than the {MOST_VALUES} of one section that proton can read"
        raise UnencodableValue(f"{reason}; send several messages, or bytes")


def _too_deep() -> UnencodableValue:
    return UnencodableValue(f"more than {MOST_LEVELS} levels of lists and maps: does it contain itself?")


def _list(value: list[Any] | tuple[Any, ...], levels: int) -> bytes:
    if not value:
        return b"\x45"
    if not levels:
        raise _too_deep()
    parts: list[bytes] = []
    append, by_type, levels = parts.append, _BY_TYPE, levels - 1
    try:
        for item in value:
            append((by_type.get(type(item)) or _by_base(item))(item, levels))
    except UnencodableValue as error:
        error.steps.append(f"[{len(parts)}]")
        raise
    return _sized(b"\xd0", parts, len(parts))


def _map(
    value: Mapping[Any, Any],
    levels: int,
    encode_key: _Encode | None = None,
    extra: bytes = b"",
    extra_count: int = 0,
) -> bytes:
    if not levels:
        raise _too_deep()
    parts: list[bytes] = []
    append, by_type, levels = parts.append, _BY_TYPE, levels - 1
    key = None
    try:
        for key, item in value.items():
            append((encode_key or by_type.get(type(key)) or _by_base(key))(key, levels))
            append((by_type.get(type(item)) or _by_base(item))(item, levels))
    except UnencodableValue as error:
        if len(parts) % 2:
            error.steps.append(f"[{_shown(key)}]")
        else:
            error.steps[:] = []
            error.reason = f"the key {_shown(key)}: {error.reason}"
        raise
    count = len(parts) + 2 * extra_count
    if extra:
        append(extra)
    return _sized(b"\xd1", parts, count)


def _map_value(value: dict[Any, Any], levels: int) -> bytes:
    return _map(value, levels)


def _sized(constructor: bytes, parts: list[bytes], count: int) -> bytes:
    content = b"".join(parts)
    size = len(content) + 4
    if size > _MOST_BYTES:
        raise UnencodableValue(f"{size} bytes are more than AMQP can carry")
    return b"".join((constructor, size.to_bytes(4), count.to_bytes(4), content))


def _shown(key: Any) -> str:
    # Other keys may be of any size, and Python refuses to print an int of more than 4,300 digits.
    short = isinstance(key, str | float | uuid.UUID) or (
        isinstance(key, int) and key.bit_length() < _LONG_BITS
    )
    text = repr(key) if short else type(key).__qualname__
    return text if len(text) <= _SHOWN_KEY else f"{text[: _SHOWN_KEY - 3]}..."


def _property_name(key: Any, levels: int) -> bytes:
    # proton's symbol and char are subclasses of str, but other AMQP types.
    if not isinstance(key, str) or isinstance(key, proton.symbol | proton.char):
        raise UnencodableValue("an application property's name is a str")
    return _string(key, levels)


def _described(value: proton.Described, levels: int) -> bytes:
    if not levels:
        raise _too_deep()
    try:
        return b"\x00" + _value(value.descriptor, levels - 1) + _value(value.value, levels - 1)
    except UnencodableValue as error:
        error.steps.append(".value")
        raise


def _array(value: proton.Array, _: int) -> bytes:
    data = proton.Data()
    try:
        data.put_object(value)
        encoded: bytes = data.encode()
    except (proton.ProtonException, KeyError, OverflowError, TypeError, AttributeError, ValueError) as error:
        raise UnencodableValue(f"an Array that proton cannot encode: {error!r}") from error
    return encoded


_INT, _UINT, _ULONG = (
    _whole(b"\x71", 4, signed=True),
    _whole(b"\x70", 4, signed=False),
    _whole(b"\x80", 8, signed=False),
)
_BY_TYPE: dict[type, _Encode] = {
    type(None): lambda _value, _levels: b"\x40",
    bool: lambda value, _: b"\x41" if value else b"\x42",
    str: _string,
    int: _long,
    float: _double,
    bytes: _binary,
    bytearray: _binary,
    memoryview: _binary,
    datetime.datetime: _timestamp,
    uuid.UUID: _uuid,
    list: _list,
    tuple: _list,
    dict: _map_value,
    proton.byte: _whole(b"\x51", 1, signed=True),
    proton.short: _whole(b"\x61", 2, signed=True),
    proton.int32: _short_or(b"", b"\x54", _INT, 127),
    proton.ubyte: _whole(b"\x50", 1, signed=False),
    proton.ushort: _whole(b"\x60", 2, signed=False),
    proton.uint: _short_or(b"\x43", b"\x52", _UINT, 255),
    proton.ulong: _short_or(b"\x44", b"\x53", _ULONG, 255),
    proton.float32: _float,
    proton.decimal32: _whole(b"\x74", 4, signed=False),
    proton.decimal64: _whole(b"\x84", 8, signed=False),
    proton.decimal128: _decimal128,
    proton.timestamp: _whole(b"\x83", 8, signed=True),
    proton.char: _char,
    proton.symbol: _symbol,
    proton.Described: _described,
    proton.Array: _array,
}
