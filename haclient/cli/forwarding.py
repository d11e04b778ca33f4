"""Prepare a received message to be moved to another node.

Rules
-----
* The sections keep their received bytes: a decoded ``proton.Message`` loses the footer and some types.
* ``first-acquirer``, ``delivery-count`` and the delivery annotations are removed, since they describe the
  delivery from the source.
* A durable message gets a new duplicate-detection id: a digest of the bare message with its own
  ``_AMQ_DUPL_ID`` or message id.  So each attempt to move the same copy, by any process, has the same id.
  A message with neither gets a random id.
* The old id is not kept: the target may know it from an earlier stay of the message, and would then drop the
  message and answer accepted.
* A message that is not durable gets no id, unless the target keeps ids no longer than messages
  (``core.quirks``).  Other targets may keep the id after a failover and lose the message.

Sources: AMQP 1.0 part 1, section 1.2 (encodings); part 3, section 3.2 (message format; 3.2.4: a message id is
unique); Apache ActiveMQ Artemis, user manual, "Duplicate Message Detection".
"""

from __future__ import annotations

import hashlib
import uuid
from typing import NamedTuple

from haclient.engine.amqp_values import walk
from haclient.engine.amqp_values.encode import encode_value
from haclient.engine.codec import AUTOMATIC_ID_PREFIX, DUPLICATE_ID_PROPERTY

_HEADER, _DELIVERY_ANNOTATIONS, _PROPERTIES, _APPLICATION_PROPERTIES, _BODY = 0x70, 0x71, 0x73, 0x74, 0x75
_NULL, _TRUTHS = b"\x40", (b"\x41", b"\x56\x01")
# Number of header fields that describe the message: durable, priority, ttl.
_OF_THE_MESSAGE = 3
_NAME = DUPLICATE_ID_PROPERTY.encode()
_KEYS = (b"\xa1" + bytes((len(_NAME),)) + _NAME, b"\xb1" + len(_NAME).to_bytes(4) + _NAME)


class _Section(NamedTuple):
    """One section of a message.

    :param code: code of the descriptor; -1 if it is not numeric.
    :param value: the encoded value.
    :param data: the whole encoded section.
    """

    code: int
    value: bytes
    data: bytes


def forwarded(
    data: bytes, *, duplicate_detection: bool = True, ids_live_with_messages: bool = False
) -> bytes:
    """Return the encoded message to send for an encoded received message.

    :param duplicate_detection: if false, the application properties are not changed.
    :param ids_live_with_messages: whether the target keeps ids no longer than messages.
    :raises ValueError: if ``data`` is no AMQP message.
    """
    try:
        sections = _sections(data)
        header = walk.items(_value_of(sections, _HEADER))
        if duplicate_detection:
            recognised = ids_live_with_messages or (bool(header) and header[0] in _TRUTHS)
            sections = _with_duplicate_id(sections, _duplicate_id(sections) if recognised else None)
    except walk.MalformedValue as error:
        raise ValueError(f"the message cannot be read: {error}") from None
    parts = []
    for section in sections:
        if section.code == _HEADER and len(header) > _OF_THE_MESSAGE:
            parts.append(_section(_HEADER, walk.compound(walk.LIST32, header[:_OF_THE_MESSAGE])))
        elif section.code != _DELIVERY_ANNOTATIONS:
            parts.append(section.data)
    return b"".join(parts)


def _duplicate_id(sections: list[_Section]) -> str:
    """Return an id that is the same for each delivery of one copy of a message."""
    properties = _value_of(sections, _APPLICATION_PROPERTIES)
    own = next((value for key, value in walk.pairs(properties) if key in _KEYS), None)
    if own is None:
        own = next(iter(walk.items(_value_of(sections, _PROPERTIES))), _NULL)
    if own == _NULL:
        return f"{AUTOMATIC_ID_PREFIX}{uuid.uuid4()}"
    digest = hashlib.sha256(own)
    for section in sections:
        if section.code >= _PROPERTIES:
            digest.update(section.data)
    return f"{AUTOMATIC_ID_PREFIX}{uuid.UUID(bytes=digest.digest()[:16])}"


def _with_duplicate_id(sections: list[_Section], duplicate_id: str | None) -> list[_Section]:
    """Return the sections with the id in the application properties replaced; ``None`` removes it."""
    properties = _value_of(sections, _APPLICATION_PROPERTIES)
    pairs = [pair for pair in walk.pairs(properties) if pair[0] not in _KEYS]
    if duplicate_id is not None:
        pairs.append((_KEYS[0], encode_value(duplicate_id, "")))
    kept = [each for each in sections if each.code != _APPLICATION_PROPERTIES]
    if not pairs:
        return kept
    value = walk.compound(walk.MAP32, [item for pair in pairs for item in pair])
    whole = _Section(_APPLICATION_PROPERTIES, value, _section(_APPLICATION_PROPERTIES, value))
    place = next((index for index, each in enumerate(kept) if each.code >= _BODY), len(kept))
    return [*kept[:place], whole, *kept[place:]]


def _sections(data: bytes) -> list[_Section]:
    found, position = [], 0
    while position < len(data):
        code, value = walk.described(data, position)
        end = walk.value_end(data, value)
        if end > len(data):
            raise walk.MalformedValue("it ends within a value")
        found.append(_Section(code, data[value:end], data[position:end]))
        position = end
    return found


def _value_of(sections: list[_Section], code: int) -> bytes:
    return next((each.value for each in sections if each.code == code), bytes((walk.LIST0,)))


def _section(code: int, value: bytes) -> bytes:
    return bytes((walk.DESCRIBED, walk.SMALL_ULONG, code)) + value
