"""Reads fields of an encoded AMQP message without decoding it.

A message is a row of described sections.  The broker needs a few fields of the first ones and
never the body, so it steps over each section by its size and stops where the body begins.

Rules
-----
* The bytes of the bare message (properties, application properties, body) are never changed: what stands
  before it may be (``message_header``, ``message_annotations``).
* Bytes that are no AMQP message raise ``MalformedMessageError``, whatever they are.
* The values in front of the body of a client's message are nested ``MOST_LEVELS`` deep at most.  How deep
  the body is, is a matter of those that read it.
* Bytes in the body, in a value or in another section that look like a field are not taken for it.

Sources: AMQP 1.0 part 1, sections 1.2 (encodings) and 1.3 (descriptors); part 3, section 3.2
(message format).  ``_AMQ_DUPL_ID`` is the duplicate-detection property of ActiveMQ Artemis.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from broker_stub.amqp.conditions import DECODE_ERROR, INVALID_FIELD
from haclient.engine.amqp_values.depth import is_too_deep
from haclient.engine.amqp_values.encode import MOST_LEVELS

DUPLICATE_ID = b"_AMQ_DUPL_ID"
DELIVERY_TIME, DELIVERY_DELAY = b"x-opt-delivery-time", b"x-opt-delivery-delay"
"""Annotations: when a message may be delivered, or how long after its enqueue, in milliseconds."""
REPLICATE = b"x-qpid-replicate"
"""The annotation by which a message is in no backup."""
DEAD_LETTER_ID = b"x-opt-dead-letter-id"
"""The annotation of a dead letter that says which message it was: its duplicate-detection id."""
MAX_DUPLICATE_ID = 256
"""Bytes of a duplicate-detection id: a queue remembers thousands, and each goes to every replica."""
# A constructor and a size of four bytes stand before them.
_LONGEST_ENCODED_ID = MAX_DUPLICATE_ID + 5

HEADER, MESSAGE_ANNOTATIONS, PROPERTIES, APPLICATION_PROPERTIES = 0x70, 0x72, 0x73, 0x74
_FIRST_BODY_SECTION = 0x75
_ULONG_MAX_SECTION = 0x78
# Where a field stands in its list: part 3, sections 3.2.1 and 3.2.4.
_DURABLE, _PRIORITY, _TTL, _DELIVERY_COUNT = 0, 1, 2, 4
DEFAULT_PRIORITY, _HIGHEST_PRIORITY = 4, 9
_USER_ID, _TO, _SUBJECT, _EXPIRY, _GROUP_ID = 1, 2, 3, 8, 10
_NULL, _TRUTHS, _FALSEHOODS = b"\x40", (b"\x41", b"\x56\x01"), (b"\x42", b"\x56\x00")
_LIST0, _LIST8, _LIST32, _MAP8, _MAP32 = 0x45, 0xC0, 0xD0, 0xC1, 0xD1
# Key of the property in the two encodings of a string (str8-utf8, str32-utf8).
_DUPLICATE_KEYS = (b"\xa1\x0c" + DUPLICATE_ID, b"\xb1\x00\x00\x00\x0c" + DUPLICATE_ID)
# What the annotations that a queue heeds begin with: most messages have none of them.
_ANNOTATION_PREFIX = b"x-opt-de"
_UINT_CODES = {0x70: 4, 0x52: 1, 0x43: 0, 0x50: 1}
_TIMESTAMP = 0x83
# Constructor and size of str8-utf8 and str32-utf8.
_STRING_HEADS = {0xA1: 2, 0xB1: 5}


class MalformedMessageError(ValueError):
    """The bytes are not an encoded AMQP message.

    :cvar condition: of the outcome that its sender gets.
    """

    condition = DECODE_ERROR


class InvalidFieldError(MalformedMessageError):
    """A field of a message has a value that is not taken."""

    condition = INVALID_FIELD


class Envelope(NamedTuple):
    """The fields of a message that a queue needs (a tuple, for every message has one).

    :param ttl_ms: the header's time to live, in milliseconds.
    :param expiry_ms: ``absolute-expiry-time``, in milliseconds since the epoch.
    :param delivery_count: earlier delivery attempts, as the sender says.
    :param duplicate_id: the encoded value of ``_AMQ_DUPL_ID``.
    :param group: ``group-id``, encoded as UTF-8; ``None`` for none and for an empty one.
    :param deliver_at_ms: ``x-opt-delivery-time``, in milliseconds since the epoch.
    :param delay_ms: ``x-opt-delivery-delay``, in milliseconds.
    :param priority: the header's, from 0 to 9: 4 where it has none, and 9 where it has more.
    :param is_replicated: whether the backups have it; false where ``x-qpid-replicate`` is.
    """

    durable: bool = False
    ttl_ms: int | None = None
    delivery_count: int = 0
    expiry_ms: int | None = None
    duplicate_id: bytes | None = None
    priority: int = DEFAULT_PRIORITY
    deliver_at_ms: int | None = None
    delay_ms: int | None = None
    is_replicated: bool = True
    group: bytes | None = None

    @property
    def is_timed(self) -> bool:
        """Whether it expires by a time to live or a time, or is to be delivered later."""
        return not (self.ttl_ms is self.expiry_ms is self.deliver_at_ms is self.delay_ms is None)


PLAIN = Envelope()

# A sender's messages begin alike up to the value of their id, where it is the only property: what that says
# is read once.  The values: where the id ends, and the fields of the envelope before and behind it.
_starts: dict[bytes, tuple[int, tuple[object, ...], tuple[object, ...]]] = {}
_MOST_STARTS = 256
# A start that has room for a message's own id would differ from message to message.
_LONGEST_START = 48
_ONE_PROPERTY = 2  # items: its key and its value
_SHORT_KEY = _DUPLICATE_KEYS[0] + b"\xa1"
_BODY_STARTS = frozenset(
    bytes((0, 0x53, code)) for code in range(_FIRST_BODY_SECTION, _ULONG_MAX_SECTION + 1)
)
_BEFORE_ID = Envelope._fields.index("duplicate_id")


def inspect(data: bytes, *, bounded: bool = False) -> Envelope:
    """The envelope of an encoded message.

    :param bounded: refuse values in front of the body that are nested too deeply.
    :raises MalformedMessageError: when the bytes are no AMQP message.
    """
    found = data.find(_SHORT_KEY, 0, _LONGEST_START)
    if found < 0:
        return _inspect(data, bounded=bounded)
    at = found + len(_SHORT_KEY)
    start = data[: at + 1]  # with the size of the id, by which it says where the section ends
    known = _starts.get(start)
    if known is not None:
        end, before, behind = known
        if data[end : end + 3] in _BODY_STARTS:
            return tuple.__new__(Envelope, (*before, data[at - 1 : end], *behind))
    envelope = _inspect(data, bounded=bounded)
    # What stands before the key is the number of items, if this is where it seems to be.
    if known is None and data[found - 1] == _ONE_PROPERTY and len(data) > at:
        end = at + 1 + data[at]
        if envelope.duplicate_id == data[at - 1 : end] and _is_only_property(data, found, end):
            if len(_starts) >= _MOST_STARTS:
                _starts.clear()
            _starts[start] = (end, envelope[:_BEFORE_ID], envelope[_BEFORE_ID + 1 :])
    return envelope


def _is_only_property(data: bytes, found: int, end: int) -> bool:
    """Whether the first application properties of an inspected message are that one."""
    position = start = 0
    code = HEADER
    while position < len(data) and code < APPLICATION_PROPERTIES:
        code, start = descriptor(data, position)
        position = compound_end(data, start) if code <= APPLICATION_PROPERTIES else len(data)
    return code == APPLICATION_PROPERTIES and position == end and items(data, start) == (found, _ONE_PROPERTY)


def _inspect(data: bytes, *, bounded: bool) -> Envelope:
    """The same, of any message."""
    try:
        header, annotations, properties, duplicate, body = _walk(data)
        expiry, group = (None, None) if properties < 0 else _expiry_and_group(data, properties)
        heeded = {} if annotations < 0 else _pairs(data, annotations)
    except (IndexError, struct.error) as error:
        raise MalformedMessageError("the message ends within a section") from error
    if bounded and body > MOST_LEVELS and is_too_deep(data[:body]):
        raise InvalidFieldError(f"more than {MOST_LEVELS} levels of lists and maps in front of the body")
    if heeded:
        duplicate = heeded.get(DEAD_LETTER_ID, duplicate)
    envelope = _envelope(header, expiry, duplicate)
    if heeded or group is not None:
        at, delay = (_whole(heeded.get(name, _NULL)) for name in (DELIVERY_TIME, DELIVERY_DELAY))
        replicated = heeded.get(REPLICATE) not in _FALSEHOODS
        return Envelope(*envelope[:-4], at, delay, replicated, group)
    return envelope


def _envelope(header: list[bytes] | None, expiry: int | None, duplicate: bytes | None) -> Envelope:
    if header is None:
        if duplicate is None and expiry is None:
            return PLAIN
        return Envelope(expiry_ms=expiry, duplicate_id=duplicate)
    priority = _uint(header, _PRIORITY)
    return Envelope(
        durable=_boolean(header, _DURABLE),
        ttl_ms=_uint(header, _TTL),
        delivery_count=_uint(header, _DELIVERY_COUNT) or 0,
        expiry_ms=expiry,
        duplicate_id=duplicate,
        priority=DEFAULT_PRIORITY if priority is None else min(priority, _HIGHEST_PRIORITY),
    )


def inspect_new(data: bytes) -> Envelope:
    """The envelope of a message from a client: its id is its sender's, also where it was a dead letter.

    Selectors read the sections in front of the body, and so do consumers, whatever they make of the body: so
    these sections are bounded in depth.

    :raises MalformedMessageError: when the bytes are no AMQP message, or a field is not taken.
    """
    envelope = inspect(data, bounded=True)
    duplicate_id = envelope.duplicate_id
    if duplicate_id is not None:
        if DEAD_LETTER_ID in data:
            _, _, _, duplicate_id, _ = _walk(data)
            envelope = envelope._replace(duplicate_id=duplicate_id)
        if duplicate_id is not None and len(duplicate_id) > _LONGEST_ENCODED_ID:
            raise InvalidFieldError(f"{DUPLICATE_ID.decode()} has at most {MAX_DUPLICATE_ID} bytes")
    return envelope


def _walk(data: bytes) -> tuple[list[bytes] | None, int, int, bytes | None, int]:
    """Header fields, where annotations to heed and properties start (or -1), duplicate-detection id, body."""
    header = duplicate = None
    annotations = properties = -1
    size, position = len(data), 0
    while position < size:
        code, start = descriptor(data, position)
        if code >= _FIRST_BODY_SECTION:
            break
        if code == HEADER and position:
            raise MalformedMessageError("the header is not the first section")
        position = compound_end(data, start)
        if data[start] == _LIST0:
            continue
        if code == APPLICATION_PROPERTIES:
            duplicate = _duplicate_id(data, start, position)
        elif code == HEADER:
            header = fields_of(data, start, position)
        elif code == PROPERTIES:
            properties = start
        elif code == MESSAGE_ANNOTATIONS and (
            data.find(_ANNOTATION_PREFIX, start, position) >= 0 or data.find(REPLICATE, start, position) >= 0
        ):
            annotations = start
    if position > size or not size:
        raise MalformedMessageError("a section ends behind the message")
    return header, annotations, properties, duplicate, position


def to_address(data: bytes) -> str | None:
    """The ``to`` of a message, by which the anonymous terminus routes.

    :raises MalformedMessageError: when the bytes are no AMQP message.
    """
    return _text_property(data, _TO)


def user_id(data: bytes) -> bytes | None:
    """The ``user-id`` of a message: who its sender says that it is.

    :raises MalformedMessageError: when the bytes are no AMQP message.
    """
    encoded = _property(data, _USER_ID)
    if encoded is None or encoded[0] not in (0xA0, 0xB0):
        return None
    return encoded[2 if encoded[0] == 0xA0 else 5 :]  # noqa: PLR2004 - vbin8


def subject(data: bytes) -> str | None:
    """The ``subject`` of a message, by which an exchange routes.

    :raises MalformedMessageError: when the bytes are no AMQP message.
    """
    return _text_property(data, _SUBJECT)


def message_annotations(data: bytes) -> tuple[dict[bytes, bytes], int]:
    """The encoded values of the message annotations by their keys, and where the body starts.

    :raises MalformedMessageError: when the bytes are no AMQP message with a body.
    """
    found: dict[bytes, bytes] = {}
    position = 0
    try:
        while True:
            code, start = descriptor(data, position)
            if code >= _FIRST_BODY_SECTION:
                return found, position
            position = compound_end(data, start)
            if code == MESSAGE_ANNOTATIONS:
                found = _pairs(data, start)
    except (IndexError, struct.error) as error:
        raise MalformedMessageError("the message ends within a section") from error


def body_start(data: bytes) -> int:
    """Where the body of a message starts; the end of one without.

    :raises MalformedMessageError: when the bytes are no AMQP message.
    """
    position = 0
    try:
        while position < len(data):
            code, start = descriptor(data, position)
            if code >= _FIRST_BODY_SECTION:
                break
            position = compound_end(data, start)
    except (IndexError, struct.error) as error:
        raise MalformedMessageError("the message ends within a section") from error
    return position


def header_end(data: bytes) -> int:
    """Where the header of a message ends; 0 without one."""
    code, start = descriptor(data, 0)
    return compound_end(data, start) if code == HEADER else 0


def _pairs(data: bytes, start: int) -> dict[bytes, bytes]:
    """The map at ``start``; its keys are short symbols, and given without their constructor."""
    position, count = items(data, start)
    found = {}
    for _ in range(count // 2):
        after_key = value_end(data, position)
        after = value_end(data, after_key)
        found[data[position + 2 : after_key]] = data[after_key:after]
        position = after
    return found


def _property(data: bytes, index: int) -> bytes | None:
    """One encoded field of the properties, ``None`` where it is not there."""
    try:
        position, size = 0, len(data)
        while position < size:
            code, start = descriptor(data, position)
            if code >= PROPERTIES:
                break
            position = compound_end(data, start)
        else:
            return None
        return _field(data, start, compound_end(data, start), index) if code == PROPERTIES else None
    except (IndexError, struct.error) as error:
        raise MalformedMessageError("the message ends within a section") from error


def _text_property(data: bytes, index: int) -> str | None:
    encoded = _property(data, index)
    if encoded is None or encoded[0] not in (0xA1, 0xB1):
        return None
    try:
        return encoded[2 if encoded[0] == 0xA1 else 5 :].decode()  # noqa: PLR2004 - str8-utf8
    except UnicodeDecodeError as error:
        raise MalformedMessageError("a property is not UTF-8") from error


# -- steps over encoded values --------------------------------------------------------------------


def descriptor(data: bytes, position: int) -> tuple[int, int]:
    """The code of the section at a position, and where its value starts."""
    if data[position] == 0:
        form = data[position + 1]
        if form == 0x53:  # noqa: PLR2004 - smallulong
            code, start = data[position + 2], position + 3
        elif form == 0x80:  # noqa: PLR2004 - ulong
            code, start = struct.unpack_from(">Q", data, position + 2)[0], position + 10
        else:
            raise MalformedMessageError("a section has no numeric descriptor")
        if HEADER <= code <= _ULONG_MAX_SECTION:
            return code, start
    raise MalformedMessageError("no message section where one should start")


def compound_end(data: bytes, start: int) -> int:
    """Where the list or map at ``start`` ends."""
    constructor = data[start]
    if constructor == _LIST0:
        return start + 1
    if constructor in (_LIST8, _MAP8):
        return start + 2 + data[start + 1]
    if constructor in (_LIST32, _MAP32):
        return start + 5 + int(struct.unpack_from(">I", data, start + 1)[0])
    raise MalformedMessageError("a section is neither a list nor a map")


def items(data: bytes, start: int) -> tuple[int, int]:
    """Where the first item of the list or map at ``start`` stands, and how many there are."""
    constructor = data[start]
    if constructor in (_LIST8, _MAP8):
        return start + 3, data[start + 2]
    if constructor in (_LIST32, _MAP32):
        return start + 9, int(struct.unpack_from(">I", data, start + 5)[0])
    return start + 1, 0


def value_end(data: bytes, position: int) -> int:
    """Where the value at a position ends: part 1, section 1.2, by the constructor's high nibble."""
    while (constructor := data[position]) == 0:
        if data[position + 1] == 0:
            raise MalformedMessageError("a described value describes another one")
        position = value_end(data, position + 1)
    kind = constructor >> 4
    fixed = _FIXED_WIDTHS.get(kind)
    if fixed is not None:
        return position + 1 + fixed
    if kind in (0xA, 0xC, 0xE):
        return position + 2 + data[position + 1]
    if kind in (0xB, 0xD, 0xF):
        return position + 5 + int(struct.unpack_from(">I", data, position + 1)[0])
    raise MalformedMessageError("a value of no known width")


_FIXED_WIDTHS = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}


def fields_of(data: bytes, start: int, end: int) -> list[bytes]:
    """The encoded fields of the list at ``start``."""
    position, count = items(data, start)
    fields = []
    for _ in range(count):
        after = value_end(data, position)
        if after > end:
            raise MalformedMessageError("a field ends behind its section")
        fields.append(data[position:after])
        position = after
    return fields


def _field(data: bytes, start: int, end: int, index: int) -> bytes | None:
    """One encoded field of the list at ``start``, ``None`` where it is not there."""
    position, count = items(data, start)
    if count <= index:
        return None
    for _ in range(index):
        position = value_end(data, position)
    after = value_end(data, position)
    if after > end:
        raise MalformedMessageError("a field ends behind its section")
    return data[position:after]


def _boolean(fields: list[bytes], index: int) -> bool:
    return index < len(fields) and fields[index] in _TRUTHS


def _uint(fields: list[bytes], index: int) -> int | None:
    encoded = fields[index] if index < len(fields) else _NULL
    width = _UINT_CODES.get(encoded[0])
    return None if width is None else int.from_bytes(encoded[1 : 1 + width])


def _whole(encoded: bytes) -> int | None:
    """A whole number or a timestamp, of any width."""
    code = encoded[0]
    if code in _SIGNED:
        return int.from_bytes(encoded[1:], signed=True)
    return int.from_bytes(encoded[1:]) if code in _UNSIGNED else None


# byte, short, int, smallint, long, smalllong, timestamp; and the unsigned ones: part 1, section 1.6.
_SIGNED = frozenset((0x51, 0x61, 0x71, 0x54, 0x81, 0x55, 0x83))
_UNSIGNED = frozenset((0x50, 0x60, 0x70, 0x52, 0x43, 0x80, 0x53, 0x44))


def _expiry_and_group(data: bytes, start: int) -> tuple[int | None, bytes | None]:
    if items(data, start)[1] <= _EXPIRY:
        return None, None
    end = compound_end(data, start)
    expiry, group = _field(data, start, end, _EXPIRY), _field(data, start, end, _GROUP_ID)
    expiry_ms = None
    if expiry is not None and expiry[0] == _TIMESTAMP:
        expiry_ms = int.from_bytes(expiry[1:], signed=True)
    if group is None or group[0] not in _STRING_HEADS:
        return expiry_ms, None
    return expiry_ms, group[_STRING_HEADS[group[0]] :] or None


def _duplicate_id(data: bytes, start: int, end: int) -> bytes | None:
    """The value of ``_AMQ_DUPL_ID`` in the map at ``start``: searched for, then made sure of."""
    for key in _DUPLICATE_KEYS:
        found = data.find(key, start, end)
        if found >= 0:
            break
    else:
        return None
    position, count = items(data, start)
    if found == position:
        # Clients that mark every message put it first or alone: no need to walk.
        after = value_end(data, found + len(key))
        if after > end:
            raise MalformedMessageError("a property ends behind its section")
        return data[found + len(key) : after]
    for _ in range(count // 2):
        after_key = value_end(data, position)
        after = value_end(data, after_key)
        if after > end:
            raise MalformedMessageError("a property ends behind its section")
        if data[position:after_key] in _DUPLICATE_KEYS:
            return data[after_key:after]
        position = after
    return None
