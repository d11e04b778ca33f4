"""Reads fields of an encoded AMQP message without decoding it.

A message is a sequence of described sections.  The broker needs a few fields of the first sections and never
the body.  So it steps over each section by its size, and stops where the body begins.

Rules
-----
* The bytes of the bare message (properties, application properties, body) are never changed.  The sections
  before it may be (``message_header``, ``message_annotations``).
* For bytes that are no AMQP message, the only error is ``MalformedMessageError``.
* In a client's message, the values before the body are nested at most ``MOST_LEVELS`` deep.  The depth of the
  body is not checked; its readers must do so.
* Bytes in the body, in a value or in another section that look like a field are not mistaken for it.

Sources: AMQP 1.0 part 1, sections 1.2 (encodings) and 1.3 (descriptors); part 3, section 3.2
(message format).  ``_AMQ_DUPL_ID`` is the duplicate-detection property of ActiveMQ Artemis.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from broker_stub.amqp.conditions import DECODE_ERROR, INVALID_FIELD
from haclient.engine.amqp_values import walk
from haclient.engine.amqp_values.walk import (
    MOST_LEVELS,
    MalformedValue,
    content,
    described,
    first_item,
    is_too_deep,
    item,
    items,
    value_end,
)

DUPLICATE_ID = b"_AMQ_DUPL_ID"
DELIVERY_TIME, DELIVERY_DELAY = b"x-opt-delivery-time", b"x-opt-delivery-delay"
"""Annotations: earliest delivery of a message, as a time or as a delay after its enqueue, in milliseconds."""
REPLICATE = b"x-qpid-replicate"
"""The annotation that excludes a message from replication."""
DEAD_LETTER_ID = b"x-opt-dead-letter-id"
"""The annotation of a dead letter with the duplicate-detection id of the original message."""
MAX_DUPLICATE_ID = 256
"""Maximum bytes of a duplicate-detection id: a queue keeps thousands, and replicates each."""
# With a constructor and a size of four bytes.
_LONGEST_ENCODED_ID = MAX_DUPLICATE_ID + 5

HEADER, MESSAGE_ANNOTATIONS, PROPERTIES, APPLICATION_PROPERTIES = 0x70, 0x72, 0x73, 0x74
_FIRST_BODY_SECTION = 0x75
_LAST_SECTION = 0x78
# Position of a field in its list: part 3, sections 3.2.1 and 3.2.4.
_DURABLE, _PRIORITY, _TTL, _DELIVERY_COUNT = 0, 1, 2, 4
DEFAULT_PRIORITY, _HIGHEST_PRIORITY = 4, 9
_USER_ID, _TO, _SUBJECT, _EXPIRY, _GROUP_ID = 1, 2, 3, 8, 10
_NULL, _TRUTHS, _FALSEHOODS = b"\x40", (b"\x41", b"\x56\x01"), (b"\x42", b"\x56\x00")
# The property's key in both encodings of a string (str8-utf8, str32-utf8).
_DUPLICATE_KEYS = (b"\xa1\x0c" + DUPLICATE_ID, b"\xb1\x00\x00\x00\x0c" + DUPLICATE_ID)
# Prefix of the annotations that a queue reads: most messages have none of them.
_ANNOTATION_PREFIX = b"x-opt-de"
_UINT_CODES = {0x70: 4, 0x52: 1, 0x43: 0, 0x50: 1}
_TIMESTAMP = 0x83


class MalformedMessageError(ValueError):
    """The bytes are not an encoded AMQP message.

    :cvar condition: error condition of the outcome that the sender gets.
    """

    condition = DECODE_ERROR


class InvalidFieldError(MalformedMessageError):
    """A field of a message has a value that the broker does not accept."""

    condition = INVALID_FIELD


class Envelope(NamedTuple):
    """The fields of a message that a queue needs; a tuple for speed, as each message has one.

    :param ttl_ms: the header's time to live, in milliseconds.
    :param expiry_ms: ``absolute-expiry-time``, in milliseconds since the epoch.
    :param delivery_count: earlier delivery attempts, as reported by the sender.
    :param duplicate_id: the encoded value of ``_AMQ_DUPL_ID``.
    :param group: ``group-id``, encoded as UTF-8; ``None`` if it is missing or empty.
    :param deliver_at_ms: ``x-opt-delivery-time``, in milliseconds since the epoch.
    :param delay_ms: ``x-opt-delivery-delay``, in milliseconds.
    :param priority: the header's priority, limited to 9; 4 if the header has none.
    :param is_replicated: whether backups get the message; false if it has ``x-qpid-replicate``.
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
        """Return whether the message expires, or must be delivered later."""
        return not (self.ttl_ms is self.expiry_ms is self.deliver_at_ms is self.delay_ms is None)


PLAIN = Envelope()

# A sender's messages are equal up to the value of the id, if the id is the only property.  So that start is
# read once.  Values: the end of the id, and the envelope's fields before and after the id.
_starts: dict[bytes, tuple[int, tuple[object, ...], tuple[object, ...]]] = {}
_MOST_STARTS = 256
# A longer start may contain a message id, which differs from message to message.
_LONGEST_START = 48
_ONE_PROPERTY = 2  # items: its key and its value
_DESCRIBED, _SMALL_ULONG, _LIST0 = walk.DESCRIBED, walk.SMALL_ULONG, walk.LIST0
_LISTS_AND_MAPS = frozenset((walk.LIST8, walk.LIST32, walk.MAP8, walk.MAP32))
_SHORT_KEY = _DUPLICATE_KEYS[0] + b"\xa1"
_BODY_STARTS = frozenset(bytes((0, 0x53, code)) for code in range(_FIRST_BODY_SECTION, _LAST_SECTION + 1))
_BEFORE_ID = Envelope._fields.index("duplicate_id")


def inspect(data: bytes, *, bounded: bool = False) -> Envelope:
    """Return the envelope of an encoded message.

    :param bounded: refuse values before the body that are nested too deeply.
    :raises MalformedMessageError: if the bytes are no AMQP message.
    """
    found = data.find(_SHORT_KEY, 0, _LONGEST_START)
    if found < 0:
        return _inspect(data, bounded=bounded)
    at = found + len(_SHORT_KEY)
    start = data[: at + 1]  # includes the size of the id, and with it the end of the section
    known = _starts.get(start)
    if known is not None:
        end, before, behind = known
        if data[end : end + 3] in _BODY_STARTS:
            return tuple.__new__(Envelope, (*before, data[at - 1 : end], *behind))
    envelope = _inspect(data, bounded=bounded)
    # The byte before the key is the number of items, if the key is a property of the message.
    if known is None and data[found - 1] == _ONE_PROPERTY and len(data) > at:
        end = at + 1 + data[at]
        if envelope.duplicate_id == data[at - 1 : end] and _is_only_property(data, found, end):
            if len(_starts) >= _MOST_STARTS:
                _starts.clear()
            _starts[start] = (end, envelope[:_BEFORE_ID], envelope[_BEFORE_ID + 1 :])
    return envelope


def _is_only_property(data: bytes, found: int, end: int) -> bool:
    """Return whether the id found is the only application property of an inspected message."""
    first = next((each for each in before_body(data) if each[0] == APPLICATION_PROPERTIES), None)
    return first is not None and first_item(data, first[1]) == (found, _ONE_PROPERTY, end)


def _inspect(data: bytes, *, bounded: bool) -> Envelope:
    """Return the envelope of any message, without the cache of starts."""
    try:
        header, annotations, properties, duplicate, body = _walk(data)
        expiry, group = (None, None) if properties < 0 else _expiry_and_group(data, properties)
        heeded = {} if annotations < 0 else _by_name(data, annotations)
    except MalformedValue as error:
        raise MalformedMessageError(str(error)) from error
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
    """Return the envelope of a message from a client, with the sender's id even if it was a dead letter.

    The depth of the sections before the body is bounded, because selectors and all consumers read them.

    :raises MalformedMessageError: if the bytes are no AMQP message, or a field is not accepted.
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
    """Return header fields, starts of relevant annotations and properties (or -1), id, start of body."""
    header = duplicate = None
    annotations = properties = -1
    size, position = len(data), 0
    if not size:
        raise MalformedMessageError("the message is empty")
    while position < size:
        code, start, end = section(data, position)
        if code >= _FIRST_BODY_SECTION:
            break
        if code == HEADER and position:
            raise MalformedMessageError("the header is not the first section")
        position = end
        if data[start] == _LIST0:
            continue
        if code == APPLICATION_PROPERTIES:
            duplicate = _duplicate_id(data, start, end)
        elif code == HEADER:
            header = items(data, start)
        elif code == PROPERTIES:
            properties = start
        elif code == MESSAGE_ANNOTATIONS and (
            data.find(_ANNOTATION_PREFIX, start, end) >= 0 or data.find(REPLICATE, start, end) >= 0
        ):
            annotations = start
    return header, annotations, properties, duplicate, position


def to_address(data: bytes) -> str | None:
    """Return the ``to`` of a message, by which the anonymous terminus routes.

    :raises MalformedMessageError: if the bytes are no AMQP message.
    """
    return _text_property(data, _TO)


def user_id(data: bytes) -> bytes | None:
    """Return the ``user-id`` of a message, as claimed by its sender.

    :raises MalformedMessageError: if the bytes are no AMQP message.
    """
    encoded = _property(data, _USER_ID)
    return None if encoded is None else content(encoded, walk.BINARY8)


def subject(data: bytes) -> str | None:
    """Return the ``subject`` of a message, by which an exchange routes.

    :raises MalformedMessageError: if the bytes are no AMQP message.
    """
    return _text_property(data, _SUBJECT)


def message_annotations(data: bytes) -> tuple[dict[bytes, bytes], int]:
    """Return the encoded message annotations by key, and the start of the body.

    :raises MalformedMessageError: if the bytes are no AMQP message with a body.
    """
    found: dict[bytes, bytes] = {}
    position = 0
    try:
        for code, start, end in before_body(data):
            position = end
            if code == MESSAGE_ANNOTATIONS:
                found = _by_name(data, start)
    except MalformedValue as error:
        raise MalformedMessageError(str(error)) from error
    if position == len(data):
        raise MalformedMessageError("the message has no body")
    return found, position


def body_start(data: bytes) -> int:
    """Return the start of a message's body; the end of the message if there is no body.

    :raises MalformedMessageError: if the bytes are no AMQP message.
    """
    position = 0
    while position < len(data):
        code, _, end = section(data, position)
        if code >= _FIRST_BODY_SECTION:
            break
        position = end
    return position


def header_end(data: bytes) -> int:
    """Return the end of a message's header; 0 if there is none."""
    code, _, end = next(before_body(data), (0, 0, 0))
    return end if code == HEADER else 0


def _by_name(data: bytes, start: int) -> dict[bytes, bytes]:
    """Return the map at ``start``; its keys are short symbols, given without their constructor."""
    return {key[2:]: value for key, value in map_pairs(data, start)}


def map_pairs(data: bytes, start: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield the encoded keys and values of the map at ``start``.

    A last key without a value is ignored: a store may have such a message, and must be restored.

    :raises MalformedValue: if it is not a map, or a value is missing.
    """
    position, count, _ = first_item(data, start)
    for _ in range(count // 2):
        after_key = value_end(data, position)
        after = value_end(data, after_key)
        yield data[position:after_key], data[after_key:after]
        position = after


def _property(data: bytes, index: int) -> bytes | None:
    """Return an encoded field of the properties; ``None`` if it is missing."""
    position = 0
    try:
        while position < len(data):
            code, start, position = section(data, position)
            if code >= PROPERTIES:
                return item(data, start, index) if code == PROPERTIES else None
    except MalformedValue as error:
        raise MalformedMessageError(str(error)) from error
    return None


def _text_property(data: bytes, index: int) -> str | None:
    encoded = _property(data, index)
    text = None if encoded is None else content(encoded, walk.STRING8)
    try:
        return None if text is None else text.decode()
    except UnicodeDecodeError as error:
        raise MalformedMessageError("a property is not UTF-8") from error


def before_body(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield each section before the body, in the form of ``section``.

    :raises MalformedMessageError: if the bytes are no AMQP message.
    """
    position = 0
    while position < len(data):
        found = section(data, position)
        if found[0] >= _FIRST_BODY_SECTION:
            return
        yield found
        position = found[2]


def section(data: bytes, position: int) -> tuple[int, int, int]:
    """Return the code, value start and end of the section at a position; the body ends with the message.

    :raises MalformedMessageError: if there is no section.
    """
    try:
        if data[position] == _DESCRIBED and data[position + 1] == _SMALL_ULONG:  # as most senders do
            code, start = data[position + 2], position + 3
        else:
            code, start = described(data, position)
        if not HEADER <= code <= _LAST_SECTION:
            raise MalformedMessageError("no message section where one should start")
        if code >= _FIRST_BODY_SECTION:
            return code, start, len(data)
        constructor = data[start]
        if constructor == _LIST0:
            return code, start, start + 1
        if constructor not in _LISTS_AND_MAPS:
            raise MalformedMessageError("a section is neither a list nor a map")
        end = value_end(data, start)
    except MalformedValue as error:
        raise MalformedMessageError(f"no message section stands where one should: {error}") from error
    except IndexError as error:
        raise MalformedMessageError("the message ends within a section") from error
    if end > len(data):
        raise MalformedMessageError("a section ends behind the message")
    return code, start, end


def _boolean(fields: list[bytes], index: int) -> bool:
    return index < len(fields) and fields[index] in _TRUTHS


def _uint(fields: list[bytes], index: int) -> int | None:
    encoded = fields[index] if index < len(fields) else _NULL
    width = _UINT_CODES.get(encoded[0])
    return None if width is None else int.from_bytes(encoded[1 : 1 + width])


def _whole(encoded: bytes) -> int | None:
    """Return the value of an integer or a timestamp of any width; ``None`` for other types."""
    code = encoded[0]
    if code in _SIGNED:
        return int.from_bytes(encoded[1:], signed=True)
    return int.from_bytes(encoded[1:]) if code in _UNSIGNED else None


# byte, short, int, smallint, long, smalllong, timestamp; then the unsigned types: part 1, section 1.6.
_SIGNED = frozenset((0x51, 0x61, 0x71, 0x54, 0x81, 0x55, 0x83))
_UNSIGNED = frozenset((0x50, 0x60, 0x70, 0x52, 0x43, 0x80, 0x53, 0x44))


def _expiry_and_group(data: bytes, start: int) -> tuple[int | None, bytes | None]:
    if first_item(data, start)[1] <= _EXPIRY:
        return None, None
    # Other fields are not checked: a store may have such a message, and must be restored.
    expiry, group = item(data, start, _EXPIRY), item(data, start, _GROUP_ID)
    assert expiry is not None, "the count was compared"
    name = None if group is None else content(group, walk.STRING8) or None
    return int.from_bytes(expiry[1:], signed=True) if expiry[0] == _TIMESTAMP else None, name


def _duplicate_id(data: bytes, start: int, end: int) -> bytes | None:
    """Return ``_AMQ_DUPL_ID`` in the map at ``start``; search the bytes first, then verify the key."""
    for key in _DUPLICATE_KEYS:
        found = data.find(key, start, end)
        if found >= 0:
            break
    else:
        return None
    position, count, _ = first_item(data, start)
    if found == position:
        # Clients that mark every message put it first or alone: no need to walk.
        value = found + len(key)
        after = value_end(data, value)
        if after > end:
            raise MalformedMessageError("a property ends behind its section")
        return data[value:after]
    for _ in range(count // 2):
        value = value_end(data, position)
        after = value_end(data, value)
        if after > end:
            raise MalformedMessageError("a property ends behind its section")
        if data[position:value] in _DUPLICATE_KEYS:
            return data[value:after]
        position = after
    return None
