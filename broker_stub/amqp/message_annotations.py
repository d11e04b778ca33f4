"""Changes the sections before the bare message, which an intermediary may change.

Rules
-----
* Keys and values stay encoded: unchanged parts keep their bytes.
* A key is a symbol; its two encodings are the same key.
* The bare message (properties, application properties, body) keeps its bytes.

Source: AMQP 1.0 part 3, sections 3.2 (the order of sections) and 3.2.10 (annotations).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from broker_stub.amqp.message_format import (
    HEADER,
    MESSAGE_ANNOTATIONS,
    MalformedMessageError,
    before_body,
    map_pairs,
)
from haclient.engine.amqp_values import walk
from haclient.engine.amqp_values.walk import MalformedValue

_SECTION = b"\x00\x53\x72"
_MAX_UINT8 = 255


class MessageParts(NamedTuple):
    """A message, split before and after its annotations; each section with its descriptor, or empty.

    :param rest: the bare message, and a footer.
    """

    header: bytes
    delivery_annotations: bytes
    message_annotations: bytes
    rest: bytes


def split(data: bytes) -> MessageParts:
    """Split a message into its parts.

    :raises MalformedMessageError: if the bytes are not an AMQP message.
    """
    found = dict.fromkeys(range(HEADER, MESSAGE_ANNOTATIONS + 1), b"")
    position = 0
    for code, _, end in before_body(data):
        if code > MESSAGE_ANNOTATIONS:
            break
        found[code] = data[position:end]
        position = end
    header, delivery_annotations, annotations = found.values()
    return MessageParts(header, delivery_annotations, annotations, data[position:])


def read(section: bytes) -> dict[bytes, bytes]:
    """Return the encoded values of a section by encoded key; symbols in their shortest encoding.

    :param section: the section with its descriptor; empty for none.
    :raises MalformedMessageError: if it is not a map.
    """
    if not section:
        return {}
    return read_map(section, next(before_body(section))[1])


def read_map(data: bytes, start: int = 0) -> dict[bytes, bytes]:
    """Return the encoded values of the encoded map at ``start``; see ``read``.

    :raises MalformedMessageError: if it is not a map.
    """
    found = {}
    try:
        for key, value in map_pairs(data, start):
            if walk.value_end(value) > len(value):
                raise MalformedMessageError("the annotations end within a value")
            found[_shortest(key)] = value
    except MalformedValue as error:
        raise MalformedMessageError(str(error)) from error
    return found


def _shortest(key: bytes) -> bytes:
    name = walk.content(key, walk.SYMBOL8)
    return key if name is None else symbol(name)


def section_of(values: Mapping[bytes, bytes]) -> bytes:
    """Encode the values of ``read`` as message annotations, with the descriptor; empty for no values."""
    if not values:
        return b""
    return _SECTION + map_of(values)


def map_of(values: Mapping[bytes, bytes]) -> bytes:
    """Encode the values of ``read`` as a map."""
    return walk.compound(walk.MAP32, [part for pair in values.items() for part in pair])


def changed(section: bytes, changes: Mapping[bytes, bytes], removed: Iterable[bytes] = ()) -> bytes:
    """Return message annotations with changed values; keys and values are encoded.

    :raises MalformedMessageError: if the section is not a map.
    """
    values = read(section)
    for key in removed:
        values.pop(key, None)
    return section_of({**values, **changes})


def without(data: bytes, name: bytes) -> bytes:
    """Return a message without the message annotation of this name.

    :raises MalformedMessageError: if the bytes are not an AMQP message.
    """
    parts, key = split(data), symbol(name)
    if key not in read(parts.message_annotations):
        return data
    section = changed(parts.message_annotations, {}, (key,))
    return parts.header + parts.delivery_annotations + section + parts.rest


def is_symbol(key: bytes) -> bool:
    """Return whether an encoded key is a symbol, in its shortest encoding."""
    return key[0] in (walk.SYMBOL8, walk.SYMBOL32)


# -- encoded values -------------------------------------------------------------------------------


def symbol(name: bytes) -> bytes:
    """Encode a symbol."""
    if len(name) > _MAX_UINT8:
        return b"\xb3" + struct.pack(">I", len(name)) + name
    return b"\xa3" + bytes([len(name)]) + name


def string(text: str) -> bytes:
    """Encode a string."""
    encoded = text.encode()
    if len(encoded) > _MAX_UINT8:
        return b"\xb1" + struct.pack(">I", len(encoded)) + encoded
    return b"\xa1" + bytes([len(encoded)]) + encoded


def uint(number: int) -> bytes:
    """Encode an unsigned integer of 32 bits."""
    return b"\x70" + struct.pack(">I", number)


def timestamp(milliseconds: int) -> bytes:
    """Encode a timestamp, in milliseconds since the epoch."""
    return b"\x83" + struct.pack(">q", milliseconds)
