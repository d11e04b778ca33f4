"""A ``proton.Message`` to bytes and back.

``Message.encode`` tries buffers of 16, 32, 64, ... bytes until the message fits, and writing one
application property costs it two passes over a Python dictionary.  ``Encoder`` keeps a buffer of
the right size and puts the duplicate-detection id next to the application's own properties
without touching the message that the application holds.

Whether a message is durable is written into the bytes as well, where the caller decides: proton's message has
no state for "not said".

An id belongs to one send: a broker drops whatever else carries it, and says accepted.  So the id of a
received message is not sent again with it: ids that were made here are recognised by their prefix, and
an id that another client gave by ``mark_received``.

A body of text or bytes and the id are written here, byte for byte as proton would: proton needs
twenty C calls for them, and each of those lets go of the interpreter lock, for which the loop
thread of the blocking API is waiting (``benchmarks/bench_throughput.py``: 1.7 instead of 5.9
microseconds a message).  Header and properties are proton's in every case.

Source: AMQP 1.0 part 3, section 3.2 (message format); the property name is that of Apache
ActiveMQ Artemis (user manual, "Duplicate Message Detection").
"""

from __future__ import annotations

import uuid
from typing import Any

import cproton
import proton
from cproton_ffi import ffi, lib

DUPLICATE_ID_PROPERTY = "_AMQ_DUPL_ID"
AUTOMATIC_ID_PREFIX = "haclient:"
"""How the ids begin that are made here, and not by an application."""

_FIRST_SIZE = 4096
_PN_OVERFLOW: int = lib.PN_OVERFLOW
_PROPERTY_NAME = DUPLICATE_ID_PROPERTY.encode()
# Part 3, sections 3.2.1 and 3.2.4: header and properties, both empty, as proton writes them.
_NO_HEADER_NO_PROPERTIES = b"\x00\x53\x70\x45\x00\x53\x73\x45"
_HEADER, _PROPERTIES = b"\x00\x53\x70", b"\x00\x53\x73"
_NO_HEADER, _DURABLE_HEADER = b"\x00\x53\x70\x45", b"\x00\x53\x70\xc0\x02\x01\x41"
_DURABLE_NO_PROPERTIES = _DURABLE_HEADER + b"\x00\x53\x73\x45"
# Where ``durable``, the first field of a header, stands, by the constructor of its list; as true, and as
# proton writes what is not.
_DURABLE_AT = {b"\xc0": 6, b"\xd0": 12}
_TRUE, _NULL = b"\x41", b"\x40"
# application-properties (part 3, section 3.2.5), a map32 with one str8 key.
_APPLICATION_PROPERTIES = b"\x00\x53\x74\xd1"
_ONE_PROPERTY = b"\x00\x00\x00\x02\xa1" + bytes((len(_PROPERTY_NAME),)) + _PROPERTY_NAME
# Part 1, section 1.6: lists by constructor, with the width of their size field.
_LIST_WIDTHS = {0x45: 0, 0xC0: 1, 0xD0: 4}
_SHORT = 256
# The same sections as ``decode_plain`` looks for them: starts by their first bytes, the id's section, and
# bodies by descriptor and constructor, with the width of their size.
_STARTS = (_NO_HEADER_NO_PROPERTIES, _DURABLE_NO_PROPERTIES)
_SHORTEST_START = len(_NO_HEADER_NO_PROPERTIES)
_KNOWN_STARTS = {start[:_SHORTEST_START]: start for start in _STARTS}
_STR8, _DATA = 0xA1, 0x75
_BINARY = b"\xa0\xb0"
_BODIES = {
    b"\x00\x53\x75\xa0": 1,
    b"\x00\x53\x75\xb0": 4,
    b"\x00\x53\x77\xa0": 1,
    b"\x00\x53\x77\xb0": 4,
    b"\x00\x53\x77\xa1": 1,
    b"\x00\x53\x77\xb1": 4,
}
# Where a message has the id that it was received with: proton's class has a dictionary.
_RECEIVED = "_haclient_received_id"


class Encoder:
    """Encodes messages one after another.  Not for use by two threads at once."""

    __slots__ = ("_buffer", "_size")

    def __init__(self) -> None:
        self._size = _FIRST_SIZE
        self._buffer = ffi.new("char[]", _FIRST_SIZE)

    def encode(
        self, message: proton.Message, duplicate_id: str | None = None, *, durable: bool | None = None
    ) -> bytes:
        """The message as bytes, with ``duplicate_id`` unless the application set its own.

        An id that the message was received with is not its own, and not sent.

        :param durable: instead of the message's own; ``None`` for that.

        :raises proton.MessageException: when a property key is not a string.
        :raises proton.DataException: when a value cannot be an AMQP value; proton has a
            ``KeyError`` instead for a type that it does not know.
        """
        data = self._encode_plain(message, duplicate_id, durable=durable)
        return data or self._encode_any(message, duplicate_id, durable=durable)

    def encode_with_id(
        self, message: proton.Message, duplicate_id: str | bytes, *, durable: bool | None = None
    ) -> bytes:
        """The message as bytes, with an id that the application chose for this send, and no other.

        :raises proton.MessageException, proton.DataException: as ``encode`` does.
        """
        data = None
        if isinstance(duplicate_id, str):
            data = self._encode_plain(message, duplicate_id, durable=durable)
        return data or self._encode_any(message, duplicate_id, durable=durable, chosen=True)

    def _encode_plain(
        self, message: proton.Message, duplicate_id: str | None, *, durable: bool | None
    ) -> bytes | None:
        """A message of a header, properties and a body of text or bytes; ``None`` for any other."""
        if message.instructions is not None or message.annotations is not None:
            return None
        properties = message.properties
        if properties is not None and (properties or duplicate_id is None):
            return None
        body = message.body
        content: bytes
        if type(body) is bytes:
            section, short, long, content = _body_sections(message), b"\xa0", b"\xb0", body
        elif type(body) is str:
            section, short, long, content = b"\x00\x53\x77", b"\xa1", b"\xb1", body.encode()
        else:
            return None
        size: int = lib.pn_message_encode_py(message._msg, self._buffer, self._size)
        if size < 0:
            return None
        start: bytes = ffi.unpack(self._buffer, size)
        if start == _NO_HEADER_NO_PROPERTIES:
            start = _DURABLE_NO_PROPERTIES if durable else start
        elif not _is_start_only(start):
            return None
        elif durable is not None:
            start = self._take(size, durable=durable)
        size = len(content)
        width = short + size.to_bytes(1) if size < _SHORT else long + size.to_bytes(4)
        if duplicate_id is None:
            return b"".join((start, section, width, content))
        return b"".join((start, _duplicate_id_section(duplicate_id), section, width, content))

    def _encode_any(
        self,
        message: proton.Message,
        duplicate_id: str | bytes | None,
        *,
        durable: bool | None = None,
        chosen: bool = False,
    ) -> bytes:
        message._pre_encode()
        pn_message = message._msg
        properties = message.properties
        if properties and DUPLICATE_ID_PROPERTY in properties:
            if chosen or _is_received(message, properties[DUPLICATE_ID_PROPERTY]):
                others = {key: value for key, value in properties.items() if key != DUPLICATE_ID_PROPERTY}
                _replace_properties(pn_message, others, duplicate_id)
        elif duplicate_id is not None:
            _replace_properties(pn_message, properties, duplicate_id)
        size: int = lib.pn_message_encode_py(pn_message, self._buffer, self._size)
        while size == _PN_OVERFLOW:
            self._size *= 2
            self._buffer = ffi.new("char[]", self._size)
            size = lib.pn_message_encode_py(pn_message, self._buffer, self._size)
        if size < 0:
            message._check(size)
        return self._take(size, durable=durable)

    def _take(self, size: int, *, durable: bool | None) -> bytes:
        """What proton has written, durable or not as is asked for."""
        if durable is not None:
            # A message that proton has encoded begins with its header.
            position = _DURABLE_AT.get(self._buffer[len(_HEADER)])
            if position is not None:
                self._buffer[position] = _TRUE if durable else _NULL
            elif durable:
                rest = memoryview(ffi.buffer(self._buffer, size))[len(_NO_HEADER) :]
                return b"".join((_DURABLE_HEADER, rest))
        return ffi.unpack(self._buffer, size)  # type: ignore[no-any-return]


def _body_sections(message: proton.Message) -> bytes:
    """The descriptor for a body of bytes: data where the application asks for it, or amqp-value."""
    return b"\x00\x53\x75" if lib.pn_message_is_inferred(message._msg) else b"\x00\x53\x77"


def _is_start_only(data: bytes) -> bool:
    """Whether these bytes are a header and properties and nothing else.

    A message that was decoded, or encoded by proton, still has its other sections inside.
    """
    if not data.startswith(_HEADER):
        return False
    position = _after_list(data, len(_HEADER))
    if not data.startswith(_PROPERTIES, position):
        return False
    return _after_list(data, position + len(_PROPERTIES)) == len(data)


def _after_list(data: bytes, position: int) -> int:
    """Where the list at this position ends; beyond the data if it is none."""
    width = _LIST_WIDTHS.get(data[position])
    if width is None:
        return len(data) + 1
    position += 1
    return position + width + int.from_bytes(data[position : position + width])


def _duplicate_id_section(duplicate_id: str) -> bytes:
    value = duplicate_id.encode()
    size = len(value)
    width = b"\xa1" + size.to_bytes(1) if size < _SHORT else b"\xb1" + size.to_bytes(4)
    whole = len(_ONE_PROPERTY) + len(width) + size
    return b"".join((_APPLICATION_PROPERTIES, whole.to_bytes(4), _ONE_PROPERTY, width, value))


def duplicate_id_of(data: bytes) -> Any:
    """The id in an encoded message; ``None`` without one."""
    properties: Any = decode(data).properties
    return properties.get(DUPLICATE_ID_PROPERTY) if properties else None


def automatic_ids() -> str:
    """What the ids of one sender begin with."""
    return f"{AUTOMATIC_ID_PREFIX}{uuid.uuid4()}-"


def is_automatic(duplicate_id: Any) -> bool:
    """Whether an id was made here, by whichever sender."""
    return isinstance(duplicate_id, str) and duplicate_id.startswith(AUTOMATIC_ID_PREFIX)


def mark_received(message: proton.Message, duplicate_id: Any) -> None:
    """Note the id that a message was received with, and that stays in its properties."""
    message.__dict__[_RECEIVED] = _owned(duplicate_id)


def _is_received(message: proton.Message, duplicate_id: Any) -> bool:
    """Whether the id in a message's properties belongs to an earlier send."""
    return is_automatic(duplicate_id) or message.__dict__.get(_RECEIVED) == _owned(duplicate_id)


def _replace_properties(pn_message: Any, properties: Any, duplicate_id: str | bytes | None) -> None:
    """Write the application properties anew, with the id if there is one."""
    section = lib.pn_message_properties(pn_message)
    if not properties and isinstance(duplicate_id, str):
        _put_only_property(section, duplicate_id)
        return
    data = proton.Data(section)
    data.clear()
    own = {} if duplicate_id is None else {DUPLICATE_ID_PROPERTY: duplicate_id}
    if properties or own:
        data.put_object({**(properties or {}), **own})


def _put_only_property(data: Any, duplicate_id: str) -> None:
    """Write the map {property name: id} straight into proton's data."""
    value = duplicate_id.encode()
    lib.pn_data_clear(data)
    lib.pn_data_put_map(data)
    lib.pn_data_enter(data)
    lib.pn_data_put_string(data, (len(_PROPERTY_NAME), ffi.from_buffer(_PROPERTY_NAME)))
    lib.pn_data_put_string(data, (len(value), ffi.from_buffer(value)))
    lib.pn_data_exit(data)


class _Decoded(proton.Message):
    """A message that was received, whose binary ids may be kept longer than itself.

    A plain one has no C message until a field of its header or its properties is asked for: making and
    freeing it takes longer than reading the body.
    """

    def __getattr__(self, name: str) -> Any:
        if name != "_msg" or "_start" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        self._msg = made = lib.pn_message()
        self._check(lib.pn_message_decode(made, ffi.from_buffer(self._start), len(self._start)))
        lib.pn_message_set_inferred(made, self._inferred)
        return made

    def __del__(self) -> None:
        made = self.__dict__.pop("_msg", None)
        if made is not None:
            lib.pn_message_free(made)

    @property
    def id(self) -> Any:
        return _owned(super().id)

    @id.setter  # noqa: A003
    def id(self, value: Any) -> None:
        cproton.pn_message_set_id(self._msg, value)

    @property
    def correlation_id(self) -> Any:
        return _owned(super().correlation_id)

    @correlation_id.setter
    def correlation_id(self, value: Any) -> None:
        cproton.pn_message_set_correlation_id(self._msg, value)


def decode(data: bytes) -> proton.Message:
    """The message that ``data`` encodes.

    Binary values come out of proton as views into the message's own memory, and using one after
    the message is gone crashes the process; so they are copied here to ``bytes``.

    :raises proton.MessageException: when it is not an AMQP message.
    """
    plain = decode_plain(data)
    if plain is None:
        return _decode_any(data)
    message, found = plain
    if found is not None:
        vars(message)["properties"] = {DUPLICATE_ID_PROPERTY: found}
    return message


def decode_apart(data: bytes) -> tuple[proton.Message, Any]:
    """The message that ``data`` encodes, and the duplicate-detection id that is taken off it.

    :raises proton.MessageException: when it is not an AMQP message.
    """
    plain = decode_plain(data)
    if plain is not None:
        return plain
    message, found = _decode_any(data), None
    properties: Any = message.properties
    if isinstance(properties, dict) and DUPLICATE_ID_PROPERTY in properties:
        found = properties.pop(DUPLICATE_ID_PROPERTY)
        if not properties:
            message.properties = None
    return message, found


def decode_plain(data: bytes) -> tuple[proton.Message, str | None] | None:
    """A message as ``Encoder._encode_plain`` writes it; ``None`` for any other.

    Only beginnings that are known to be right are left to be decoded later: an error must be raised here.

    :returns: the message, and the duplicate-detection id that is not in its properties.
    """
    start = _KNOWN_STARTS.get(data[:_SHORTEST_START])
    if start is None or not data.startswith(start):
        return None
    position, duplicate_id = len(start), None
    try:
        if data.startswith(_APPLICATION_PROPERTIES, position) and data.startswith(
            _ONE_PROPERTY, position + 8
        ):
            begin = position + 8 + len(_ONE_PROPERTY)
            if data[begin] != _STR8:
                return None
            begin, end = begin + 2, begin + 2 + data[begin + 1]
            position += 8 + int.from_bytes(data[position + 4 : position + 8])
            if position != end:
                return None
            duplicate_id = data[begin:end].decode()
        kind, inferred = data[position + 3], data[position + 2] == _DATA
        read = _BODIES.get(data[position : position + 4])
        if read is None:
            return None
        begin = position + 4 + read
        if begin + int.from_bytes(data[position + 4 : begin]) != len(data):
            return None
        content = data[begin:]
        body = content if kind in _BINARY else content.decode()
    except (IndexError, UnicodeDecodeError):
        return None
    message = _Decoded.__new__(_Decoded)
    message.__dict__ = {
        "_start": start,
        "_inferred": inferred,
        "instruction_dict": None,
        "annotation_dict": None,
        "properties": None,
        "body": body,
    }
    return message, duplicate_id


def _decode_any(data: bytes) -> proton.Message:
    message = _Decoded()
    message.decode(data)
    message.body = _owned(message.body)
    for name in ("properties", "annotations", "instructions"):
        value = getattr(message, name)
        if value:
            setattr(message, name, _owned(value))
    return message


def _owned(value: Any) -> Any:
    if isinstance(value, memoryview):
        return bytes(value)
    if isinstance(value, proton.Described):
        return proton.Described(value.descriptor, _owned(value.value))
    if isinstance(value, proton.Array):
        return proton.Array(value.descriptor, value.type, *map(_owned, value.elements))
    if isinstance(value, list):
        return [_owned(item) for item in value]
    if isinstance(value, dict):
        for key, item in value.items():
            value[key] = _owned(item)
    return value
