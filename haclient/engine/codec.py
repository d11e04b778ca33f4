"""Encode messages and bodies, and decode messages.

``Message.encode`` takes twenty C calls for a body and one application property.  Each call releases the
interpreter lock, for which the loop thread of the blocking API waits.  It also tries buffers of 16, 32,
64, ... bytes until the message fits.  So this module writes body, application properties and annotations
itself, byte for byte as proton does (``amqp_values``), and does not change the application's message.  proton
writes header and properties of a ``proton.Message``, in one call.  A body sent without a message is encoded
directly: creating and freeing a message costs more than the encoding.

The caller may also choose the durable flag, which is written into the bytes: proton's message has no state
for "not set".

A duplicate-detection id belongs to one send: a broker drops any other message with the same id and still
answers accepted.  So a received message is sent on without the id that it arrived with.  Ids made by this
client are recognised by their prefix, ids of other clients by ``mark_received``.

Sources: AMQP 1.0 part 3, section 3.2 (message format); Apache ActiveMQ Artemis, user manual, "Duplicate
Message Detection" (name of the property).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import proton
from cproton_ffi import ffi, lib

from haclient.engine.amqp_values.decode import SECTIONS, read_sections
from haclient.engine.amqp_values.encode import (
    UnencodableValue,
    binary,
    encode_properties,
    encode_sequences,
    encode_value,
)
from haclient.engine.amqp_values.message import Message, SendableBody, SequenceSections
from haclient.engine.amqp_values.received import ReceivedMessage
from haclient.engine.amqp_values.walk import SIZE_WIDTHS, value_end

DUPLICATE_ID_PROPERTY = "_AMQ_DUPL_ID"
AUTOMATIC_ID_PREFIX = "haclient:"
"""Prefix of the ids that this client makes."""

_FIRST_SIZE = 4096
_PN_OVERFLOW: int = lib.PN_OVERFLOW
# Part 3, sections 3.2.1 and 3.2.4: empty header and properties, as proton writes them.
_NO_HEADER_NO_PROPERTIES = b"\x00\x53\x70\x45\x00\x53\x73\x45"
_HEADER, _PROPERTIES = b"\x00\x53\x70", b"\x00\x53\x73"
_DURABLE_HEADER = b"\x00\x53\x70\xc0\x02\x01\x41"
_DURABLE_NO_PROPERTIES = _DURABLE_HEADER + b"\x00\x53\x73\x45"
# Offset of ``durable``, the first field of a header, by the constructor of the header's list.  proton writes
# null if it is false.
_DURABLE_AT = {0xC0: 6, 0xD0: 12}
_TRUE, _NULL = b"\x41", b"\x40"
# Sections 3.2.2, 3.2.3 and 3.2.5 to 3.2.8.
_INSTRUCTIONS, _ANNOTATIONS, _PROPERTIES_SECTION = b"\x00\x53\x71", b"\x00\x53\x72", b"\x00\x53\x74"
_DATA, _SEQUENCE, _VALUE = b"\x00\x53\x75", b"\x00\x53\x76", b"\x00\x53\x77"
# Section of an inferred body, by the constructor of its value.
_INFERRED = {0xA0: _DATA, 0xB0: _DATA, 0x45: _SEQUENCE, 0xD0: _SEQUENCE}
_NO_BODY = "None is no body; send Message() for a message without one"
_BYTES = (bytes, bytearray, memoryview)
# Application properties that are a map32 with one str8 key.
_APPLICATION_PROPERTIES = _PROPERTIES_SECTION + b"\xd1"
_PROPERTY_KEY = encode_value(DUPLICATE_ID_PROPERTY, "")
_ONE_PROPERTY = (2).to_bytes(4) + _PROPERTY_KEY
_ONE_PROPERTY_SIZE = len(_ONE_PROPERTY)
# Everything before a content of less than 256 bytes, by the size of the content.
_SHORT = 256
_SIZES = [size.to_bytes(1) for size in range(_SHORT)]
_SHORT_DATA = [_DATA + b"\xa0" + size for size in _SIZES]
_SHORT_BINARY = [_VALUE + b"\xa0" + size for size in _SIZES]
_SHORT_TEXT = [_VALUE + b"\xa1" + size for size in _SIZES]
_SHORT_ID = [
    b"".join(
        (
            _APPLICATION_PROPERTIES,
            (_ONE_PROPERTY_SIZE + 2 + size[0]).to_bytes(4),
            _ONE_PROPERTY,
            b"\xa1",
            size,
        )
    )
    for size in _SIZES
]
# For ``decode_plain``: starts by their first bytes; width of the size field by a body's descriptor and
# constructor.
_STARTS = (_NO_HEADER_NO_PROPERTIES, _DURABLE_NO_PROPERTIES)
_SHORTEST_START = len(_NO_HEADER_NO_PROPERTIES)
_KNOWN_STARTS = {start[:_SHORTEST_START]: start for start in _STARTS}
_STR8, _DATA_CODE = 0xA1, 0x75
_BINARY_CODES = b"\xa0\xb0"
_BODIES = {
    section + bytes((kind,)): SIZE_WIDTHS[kind >> 4]
    for section, kinds in ((_DATA, b"\xa0\xb0"), (_VALUE, b"\xa0\xb0\xa1\xb1"))
    for kind in kinds
}
# Attribute with the id that a message was received with: instances of proton's class have a dictionary.
_RECEIVED = "_haclient_received_id"


class Encoder:
    """Encodes messages with a reused buffer.  Not thread-safe."""

    __slots__ = ("_buffer", "_size")

    def __init__(self) -> None:
        self._size = _FIRST_SIZE
        self._buffer = ffi.new("char[]", _FIRST_SIZE)

    def encode(
        self, message: proton.Message, duplicate_id: str | None = None, *, durable: bool | None = None
    ) -> bytes:
        """Return the encoded message, with ``duplicate_id`` unless the application set an id.

        An id that the message was received with does not count as set, and is not sent.

        :param durable: replaces the message's own flag; ``None`` keeps it.
        :raises TypeError: if AMQP cannot carry a value; the text has its path.  The error is a
            ``proton.MessageException`` too.
        """
        return self._encode(message, duplicate_id, durable=durable, chosen=False)

    def encode_with_id(
        self, message: proton.Message, duplicate_id: str | bytes, *, durable: bool | None = None
    ) -> bytes:
        """Return the encoded message with the id of this send, which replaces one in its properties.

        :raises TypeError: as in ``encode``.
        """
        return self._encode(message, duplicate_id, durable=durable, chosen=True)

    def _encode(
        self,
        message: proton.Message,
        duplicate_id: str | bytes | None,
        *,
        durable: bool | None,
        chosen: bool,
    ) -> bytes:
        body = message.body
        # Before ``_start``, which may clear the memory behind a body that proton received: it is a view.
        rest = b"" if body is None else _body_section(message, body)
        properties = message.properties
        if properties is not None:
            rest = _properties_section(message, properties, duplicate_id, chosen=chosen) + rest
        elif duplicate_id is not None:
            rest = _id_section(duplicate_id) + rest
        instructions, annotations = message.instructions, message.annotations
        middle = b""
        if instructions is not None:
            middle = _INSTRUCTIONS + encode_value(instructions, "instructions")
        if annotations is not None:
            middle += _ANNOTATIONS + encode_value(annotations, "annotations")
        start = self._start(message)
        if start == _NO_HEADER_NO_PROPERTIES and not middle:
            return (_DURABLE_NO_PROPERTIES if durable else start) + rest
        _check_symbols(message)
        end = value_end(start, len(_HEADER))
        header = start[:end] if durable is None else _with_durable(start[:end], durable=durable)
        return b"".join((header, middle, start[end:], rest))

    def _start(self, message: proton.Message) -> bytes:
        """Return header and properties, as encoded by proton."""
        pn_message = message._msg
        size = lib.pn_message_encode_py(pn_message, self._buffer, self._size)
        start = ffi.unpack(self._buffer, size) if size > 0 else self._encode_by_proton(message, pn_message)
        if start != _NO_HEADER_NO_PROPERTIES and not _is_start_only(start):
            # The other sections, from decoding or an earlier encoding.
            for section in SECTIONS:
                lib.pn_data_clear(section(pn_message))
            start = self._encode_by_proton(message, pn_message)
        return start

    def _encode_by_proton(self, message: proton.Message, pn_message: Any) -> bytes:
        size: int = lib.pn_message_encode_py(pn_message, self._buffer, self._size)
        while size == _PN_OVERFLOW:
            self._size *= 2
            self._buffer = ffi.new("char[]", self._size)
            size = lib.pn_message_encode_py(pn_message, self._buffer, self._size)
        if size < 0:
            message._check(size)
        return ffi.unpack(self._buffer, size)  # type: ignore[no-any-return]


def _check_symbols(message: proton.Message) -> None:
    """Refuse symbols that are not ASCII: proton would write them, and receivers could not read them."""
    for name in ("content_type", "content_encoding"):
        value = getattr(message, name)
        if value is not None and not value.isascii():
            raise UnencodableValue(f"its {name} is a symbol, which is ASCII: {value!r} is not", name)


def encode_body(
    body: SendableBody, duplicate_id: str | bytes | None = None, *, durable: bool = False
) -> bytes:
    """Return an encoded message with this body and no other sections.

    Bytes become a data section, which consumers in all languages accept; any other value an amqp-value.

    :raises TypeError: if AMQP cannot carry a value (the text has its path), or the body is ``None``.
    """
    if type(body) is bytes:
        section = _data_section(body)
    elif type(body) is str:
        section = _text_section(body)
    elif isinstance(body, _BYTES) and not isinstance(body, proton.decimal128):
        section = _data_section(bytes(body))
    elif body is None:
        raise UnencodableValue(_NO_BODY, "body")
    else:
        section = _VALUE + encode_value(body, "body")
    start = _DURABLE_NO_PROPERTIES if durable else _NO_HEADER_NO_PROPERTIES
    if duplicate_id is None:
        return start + section
    return b"".join((start, _id_section(duplicate_id), section))


def message_of(body: SendableBody) -> Message:
    """Return the message that ``encode_body`` encodes.

    :raises UnencodableValue: if the body is ``None``.
    """
    if body is None:
        raise UnencodableValue(_NO_BODY, "body")
    message = Message(body)
    if isinstance(body, _BYTES) and not isinstance(body, proton.decimal128):
        message.body = bytes(body)
        message.inferred = True
    return message


def _data_section(body: bytes) -> bytes:
    size = len(body)
    return _SHORT_DATA[size] + body if size < _SHORT else _DATA + binary(body)


def _text_section(body: str) -> bytes:
    try:
        data = body.encode()
    except UnicodeEncodeError:
        return encode_value(body, "body")  # raises
    size = len(data)
    return _SHORT_TEXT[size] + data if size < _SHORT else _VALUE + encode_value(body, "body")


def _body_section(message: proton.Message, body: Any) -> bytes:
    if type(body) is str:
        return _text_section(body)
    if type(body) is bytes and len(body) < _SHORT:
        prefixes = _SHORT_DATA if lib.pn_message_is_inferred(message._msg) else _SHORT_BINARY
        return prefixes[len(body)] + body
    is_inferred = lib.pn_message_is_inferred(message._msg)
    if is_inferred and isinstance(body, SequenceSections):
        return b"".join(_SEQUENCE + each for each in encode_sequences(body))
    content = encode_value(body, "body")
    if is_inferred:
        return _INFERRED.get(content[0], _VALUE) + content
    return _VALUE + content


def _properties_section(
    message: proton.Message, properties: Any, duplicate_id: str | bytes | None, *, chosen: bool
) -> bytes:
    if DUPLICATE_ID_PROPERTY in properties:
        if not chosen and not _is_received(message, properties[DUPLICATE_ID_PROPERTY]):
            duplicate_id = None
        else:
            properties = {key: value for key, value in properties.items() if key != DUPLICATE_ID_PROPERTY}
            if not properties and duplicate_id is None:
                return b""
    if duplicate_id is None:
        return _PROPERTIES_SECTION + encode_properties(properties)
    own = _PROPERTY_KEY + _id_value(duplicate_id)
    return _PROPERTIES_SECTION + encode_properties(properties, own, 1)


def _id_section(duplicate_id: str | bytes) -> bytes:
    """Return application properties with only the id."""
    if type(duplicate_id) is str and duplicate_id.isascii() and len(duplicate_id) < _SHORT:
        return _SHORT_ID[len(duplicate_id)] + duplicate_id.encode()
    value = _id_value(duplicate_id)
    size = len(value) + _ONE_PROPERTY_SIZE
    return b"".join((_APPLICATION_PROPERTIES, size.to_bytes(4), _ONE_PROPERTY, value))


def _id_value(duplicate_id: str | bytes) -> bytes:
    if not isinstance(duplicate_id, str | bytes | bytearray | memoryview):
        raise TypeError(f"duplicate_id is a str or bytes, not {type(duplicate_id).__qualname__}")
    return encode_value(duplicate_id, "duplicate_id")


def _with_durable(header: bytes, *, durable: bool) -> bytes:
    """Return an encoded header with its durable flag set as given."""
    position = _DURABLE_AT.get(header[len(_HEADER)])
    if position is None:  # without fields
        return _DURABLE_HEADER if durable else header
    return header[:position] + (_TRUE if durable else _NULL) + header[position + 1 :]


def _is_start_only(data: bytes) -> bool:
    """Return whether the bytes are only a header and properties.

    A C message that was decoded, or encoded by proton, still holds its other sections.
    """
    if not data.startswith(_HEADER):
        return False
    end = value_end(data, len(_HEADER))
    return data.startswith(_PROPERTIES, end) and value_end(data, end + len(_PROPERTIES)) == len(data)


def duplicate_id_of(data: bytes) -> Any:
    """Return the duplicate-detection id in an encoded message; ``None`` if there is none."""
    # The body is skipped: some can be sent but not received, such as a map with a tuple as key.
    properties = read_sections(data, with_body=False).properties
    return properties.get(DUPLICATE_ID_PROPERTY) if properties else None


def automatic_ids() -> str:
    """Return a new prefix for the ids of one sender."""
    return f"{AUTOMATIC_ID_PREFIX}{uuid.uuid4()}-"


def is_automatic(duplicate_id: Any) -> bool:
    """Return whether this client made the id, for any sender."""
    return isinstance(duplicate_id, str) and duplicate_id.startswith(AUTOMATIC_ID_PREFIX)


def mark_received(message: proton.Message, duplicate_id: Any) -> None:
    """Record the id that a message was received with; it stays in the message's properties."""
    message.__dict__[_RECEIVED] = _owned(duplicate_id)


def _is_received(message: proton.Message, duplicate_id: Any) -> bool:
    """Return whether the id in a message's properties belongs to an earlier send."""
    return is_automatic(duplicate_id) or message.__dict__.get(_RECEIVED) == _owned(duplicate_id)


def decode(data: bytes) -> Message:
    """Decode a message.

    Binary values are ``bytes``.  proton returns views into the message's memory instead; using one after the
    message is freed crashes the process.

    :raises UndecodableMessage: if ``data`` is no AMQP message, or no Python value can hold it.
    """
    plain = decode_plain(data)
    if plain is None:
        return _decode_any(data)
    message, found = plain
    if found is not None:
        vars(message)["properties"] = {DUPLICATE_ID_PROPERTY: found}
    return message


def decode_apart(data: bytes) -> tuple[Message, Any]:
    """Decode a message; return it without its duplicate-detection id, and the id.

    :raises UndecodableMessage: if ``data`` is no AMQP message, or no Python value can hold it.
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


def decode_plain(data: bytes) -> tuple[Message, str | None] | None:
    """Decode a message in the form that ``encode_body`` writes; return ``None`` for any other.

    Header and properties are decoded later.  So only known valid ones are accepted: an error must be raised
    while decoding.

    :returns: the message, and its duplicate-detection id, which is not in its properties.
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
        kind, inferred = data[position + 3], data[position + 2] == _DATA_CODE
        read = _BODIES.get(data[position : position + 4])
        if read is None:
            return None
        begin = position + 4 + read
        if begin + int.from_bytes(data[position + 4 : begin]) != len(data):
            return None
        content = data[begin:]
        body = content if kind in _BINARY_CODES else content.decode()
    except (IndexError, UnicodeDecodeError):
        return None
    return ReceivedMessage.plain(start, body, inferred=inferred), duplicate_id


def decode_of_views(data: bytes) -> tuple[Message, str | None]:
    """Decode a message with binary values as memory views, like proton.

    :returns: the message, and the duplicate-detection id if it is not in the message's properties.
    :raises UndecodableMessage: if ``data`` is no AMQP message, or no Python value can hold it.
    """
    plain = decode_plain(data)
    if plain is None:
        return _decode_any(data, memoryview), None
    fields = vars(plain[0])
    if type(fields["body"]) is bytes:
        fields["body"] = memoryview(fields["body"])
    return plain


def _decode_any(data: bytes, binary: Callable[[bytes], Any] = bytes) -> Message:
    return ReceivedMessage.of(read_sections(data, binary))


def _owned(value: Any) -> Any:
    return bytes(value) if isinstance(value, memoryview) else value
