"""What a message that is moved to another node looks like there.

Rules
-----
* The bytes stay as they were received: a decoded ``proton.Message`` has no footer, and other types.
* ``first-acquirer``, ``delivery-count`` and the delivery annotations are about the delivery from the source,
  and left out.
* A durable message gets a duplicate-detection id that is the same whenever, and by whatever process, the same
  copy is moved: a digest of the bare message with its own ``_AMQ_DUPL_ID`` or message id.  A message that has
  neither gets a random one.  The id that it had is replaced: the target may know that one from an earlier
  stay of the message, and would drop the message and answer accepted.
* A message that is not durable gets no id, unless the target keeps ids no longer than messages
  (``core.quirks``): another one may have the id after a failover, and not the message.

Sources: AMQP 1.0 part 1, section 1.2 (encodings); part 3, section 3.2 (message format; 3.2.4: a message id is
unique); Apache ActiveMQ Artemis, user manual, "Duplicate Message Detection".
"""

from __future__ import annotations

import hashlib
import uuid
from typing import NamedTuple

from haclient.engine.codec import AUTOMATIC_ID_PREFIX, DUPLICATE_ID_PROPERTY

_DESCRIBED, _SMALL_ULONG, _ULONG = 0x00, 0x53, 0x80
_HEADER, _DELIVERY_ANNOTATIONS, _PROPERTIES, _APPLICATION_PROPERTIES, _BODY = 0x70, 0x71, 0x73, 0x74, 0x75
# Part 1, section 1.2: bytes of a fixed-width value, and of the size field of others, by a constructor's first
# four bits.
_FIXED = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}
_SIZES = {0xA: 1, 0xB: 4, 0xC: 1, 0xD: 4, 0xE: 1, 0xF: 4}
_LIST0, _LIST8, _LIST32, _MAP8, _MAP32 = 0x45, 0xC0, 0xD0, 0xC1, 0xD1
_WIDTHS = {_LIST8: 1, _MAP8: 1, _LIST32: 4, _MAP32: 4}
_NULL, _TRUTHS = b"\x40", (b"\x41", b"\x56\x01")
# Fields of the header that belong to the message: durable, priority, ttl.
_OF_THE_MESSAGE = 3
_NAME = DUPLICATE_ID_PROPERTY.encode()
_KEYS = (b"\xa1" + bytes((len(_NAME),)) + _NAME, b"\xb1" + len(_NAME).to_bytes(4) + _NAME)


class _Section(NamedTuple):
    """One section of a message.

    :param code: of its descriptor; 0 for one that is not numeric.
    :param value: its encoded value.
    :param data: all of it.
    """

    code: int
    value: bytes
    data: bytes


def forwarded(
    data: bytes, *, duplicate_detection: bool = True, ids_live_with_messages: bool = False
) -> bytes:
    """The message to send, by the message that was received; both encoded.

    :param duplicate_detection: ``False`` leaves the application properties as they are.
    :param ids_live_with_messages: whether the target keeps ids no longer than messages.
    :raises ValueError: when it is not an AMQP message.
    """
    try:
        sections = _sections(data)
        header = next((_items(each.value) for each in sections if each.code == _HEADER), [])
        if duplicate_detection:
            recognised = ids_live_with_messages or (bool(header) and header[0] in _TRUTHS)
            sections = _with_duplicate_id(sections, _duplicate_id(sections) if recognised else None)
    except IndexError:
        raise ValueError("the message ends within a value") from None
    parts = []
    for section in sections:
        if section.code == _HEADER and len(header) > _OF_THE_MESSAGE:
            parts.append(_section(_HEADER, _compound(_LIST32, header[:_OF_THE_MESSAGE])))
        elif section.code != _DELIVERY_ANNOTATIONS:
            parts.append(section.data)
    return b"".join(parts)


def _duplicate_id(sections: list[_Section]) -> str:
    """What is the same for each delivery of the same copy of a message."""
    properties = _value_of(sections, _APPLICATION_PROPERTIES)
    own = next((value for key, value in _pairs(properties) if key in _KEYS), None)
    if own is None:
        own = next(iter(_items(_value_of(sections, _PROPERTIES))), _NULL)
    if own == _NULL:
        return f"{AUTOMATIC_ID_PREFIX}{uuid.uuid4()}"
    digest = hashlib.sha256(own)
    for section in sections:
        if section.code >= _PROPERTIES:
            digest.update(section.data)
    return f"{AUTOMATIC_ID_PREFIX}{uuid.UUID(bytes=digest.digest()[:16])}"


def _with_duplicate_id(sections: list[_Section], duplicate_id: str | None) -> list[_Section]:
    """The sections with this id in the application properties, instead of the one that is there."""
    pairs = [pair for pair in _pairs(_value_of(sections, _APPLICATION_PROPERTIES)) if pair[0] not in _KEYS]
    if duplicate_id is not None:
        text = duplicate_id.encode()
        pairs.append((_KEYS[0], b"\xa1" + bytes((len(text),)) + text))
    kept = [each for each in sections if each.code != _APPLICATION_PROPERTIES]
    if not pairs:
        return kept
    value = _compound(_MAP32, [item for pair in pairs for item in pair])
    whole = _Section(_APPLICATION_PROPERTIES, value, _section(_APPLICATION_PROPERTIES, value))
    place = next((index for index, each in enumerate(kept) if each.code >= _BODY), len(kept))
    return [*kept[:place], whole, *kept[place:]]


# -- encodings ------------------------------------------------------------------------------------


def _sections(data: bytes) -> list[_Section]:
    found, position = [], 0
    while position < len(data):
        if data[position] != _DESCRIBED:
            raise ValueError("a section of the message has no descriptor")
        value = _end(data, position + 1)
        end = _end(data, value)
        found.append(_Section(_code(data[position + 1 : value]), data[value:end], data[position:end]))
        position = end
    return found


def _code(descriptor: bytes) -> int:
    return int.from_bytes(descriptor[1:]) if descriptor[0] in (_SMALL_ULONG, _ULONG) else 0


def _end(data: bytes, position: int) -> int:
    """Where the value at this position ends."""
    values = 1
    while values:
        values -= 1
        constructor = data[position]
        position += 1
        if constructor == _DESCRIBED:
            values += 2
        elif (fixed := _FIXED.get(constructor >> 4)) is not None:
            position += fixed
        elif (width := _SIZES.get(constructor >> 4)) is not None:
            position += width + int.from_bytes(data[position : position + width])
        else:
            raise ValueError(f"the message holds the unknown constructor {constructor:#04x}")
    if position > len(data):
        raise ValueError("the message ends within a value")
    return position


def _value_of(sections: list[_Section], code: int) -> bytes:
    return next((each.value for each in sections if each.code == code), bytes((_LIST0,)))


def _items(value: bytes) -> list[bytes]:
    """The encoded items of an encoded list or map."""
    if value[0] == _LIST0:
        return []
    width = _WIDTHS.get(value[0])
    if width is None:
        raise ValueError(f"a section of the message is neither list nor map: {value[0]:#04x}")
    position, found = 1 + 2 * width, []
    while position < len(value):
        end = _end(value, position)
        found.append(value[position:end])
        position = end
    return found


def _pairs(value: bytes) -> list[tuple[bytes, bytes]]:
    items = _items(value)
    if len(items) % 2:
        raise ValueError("a map of the message has a key without a value")
    return list(zip(items[::2], items[1::2], strict=True))


def _compound(constructor: int, items: list[bytes]) -> bytes:
    content = b"".join(items)
    return b"".join((bytes((constructor,)), (len(content) + 4).to_bytes(4), len(items).to_bytes(4), content))


def _section(code: int, value: bytes) -> bytes:
    return bytes((_DESCRIBED, _SMALL_ULONG, code)) + value
