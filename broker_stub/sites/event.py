"""Encodes and decodes site events as AMQP messages, and the origin of applied messages.

An event consists of message annotations and one data section: the original message, unchanged.  All events of
a queue differ only in their numbers, so encoding an event takes two ``struct`` calls, and decoding as few.

An applied message carries its ``Origin`` in a delivery annotation behind its header.  From it, backups of the
target site and restarted members learn the sequence and position of their messages.

Sources: docs/sites.md, "An event on the wire"; AMQP 1.0 part 1, section 1.6 (encodings); part 3,
sections 3.2.2, 3.2.3 and 3.2.6 (delivery and message annotations, data).
"""

from __future__ import annotations

import enum
import functools
import struct
import uuid
from typing import NamedTuple

from broker_stub.amqp.message_format import MalformedMessageError, header_end, message_annotations
from broker_stub.queueing.site_state import SiteMode
from haclient.engine.amqp_values import walk

_OP, _MODE, _STREAM = b"x-opt-site-op", b"x-opt-site-mode", b"x-opt-site-stream"
_QUEUE, _QUEUE_ID = b"x-opt-site-queue", b"x-opt-site-queue-id"
_SEQUENCE, _POSITION = b"x-opt-site-sequence", b"x-opt-site-position"
_TIME, _EXPIRY = b"x-opt-site-time", b"x-opt-site-expiry"
_SYMBOL, _STRING, _UUID, _ULONG, _TIMESTAMP = b"\xa3", b"\xb1", b"\x98", b"\x80", b"\x83"
_PAIRS = 9

# message-annotations (0x72) as a map32: size and number of items follow.
_ANNOTATIONS = b"\x00\x53\x72\xd1"
_HEAD = struct.Struct(">4sII")
# The number of items counts as part of the size (part 1, section 1.6.23).
_COUNT_SIZE = 4
# data (0x75) as a binary32: its length follows.
_DATA, _DATA_HEAD = b"\x00\x53\x75\xb0", struct.Struct(">4sI")

# delivery-annotations (0x71) as a map8 with one pair: symbol and binary8.
_ORIGIN = struct.Struct(">16sQ16sQ")
_ORIGIN_NAME = b"x-opt-site"
_ORIGIN_PAIR = b"\xa3" + bytes([len(_ORIGIN_NAME)]) + _ORIGIN_NAME + b"\xa0" + bytes([_ORIGIN.size])
_ORIGIN_HEAD = b"\x00\x53\x71\xc1" + bytes([1 + len(_ORIGIN_PAIR) + _ORIGIN.size, 2]) + _ORIGIN_PAIR
_ORIGIN_SIZE = len(_ORIGIN_HEAD) + _ORIGIN.size
# A header as a list of up to 255 bytes.
_SHORT_HEADER = b"\x00\x53\x70\xc0"


class Op(enum.StrEnum):
    """The change at the source."""

    ENQUEUE = "enqueue"
    DEQUEUE = "dequeue"


class Numbers(NamedTuple):
    """The numbers by which events of a queue differ.

    :param time_ms, expires_at_ms: milliseconds since the epoch; 0 for never.
    """

    sequence: int
    position: int
    time_ms: int
    expires_at_ms: int = 0


class Event(NamedTuple):
    """A site event.

    :param stream, queue_id: UUIDs as bytes.
    :param time_ms, expires_at_ms: milliseconds since the epoch; 0 for never.
    :param data: the original message, encoded; empty for a dequeue.
    """

    op: Op
    mode: SiteMode
    stream: bytes
    queue: str
    queue_id: bytes
    sequence: int
    position: int
    time_ms: int = 0
    expires_at_ms: int = 0
    data: bytes = b""

    @property
    def origin(self) -> Origin:
        """The origin that the applied message carries."""
        return Origin(self.stream, self.sequence, self.queue_id, self.position)

    @property
    def stream_name(self) -> str:
        """The stream in the form for site progress and log lines."""
        return str(uuid.UUID(bytes=self.stream))


class Origin(NamedTuple):
    """The source of an applied message: stream, sequence, queue and position."""

    stream: bytes
    sequence: int
    queue_id: bytes
    position: int

    @property
    def queue_position(self) -> tuple[bytes, int]:
        """The queue and the position in it, which identify the message."""
        return self.queue_id, self.position

    @property
    def stream_name(self) -> str:
        """The stream in the form for site progress and log lines."""
        return str(uuid.UUID(bytes=self.stream))


# -- encoding ---------------------------------------------------------------------------------------


class Encoder:
    """Encodes the events of one queue.

    :param stream, queue_id: UUIDs as bytes.
    """

    __slots__ = ("_heads",)

    def __init__(self, queue: str, queue_id: bytes, mode: SiteMode, stream: bytes) -> None:
        self._heads = {op: self._head(op, queue, queue_id, mode, stream) for op in Op}

    @staticmethod
    def _head(op: Op, queue: str, queue_id: bytes, mode: SiteMode, stream: bytes) -> bytes:
        name = queue.encode()
        constant = b"".join(
            (
                _key(_OP) + _SYMBOL + bytes([len(op)]) + op.encode(),
                _key(_MODE) + _SYMBOL + bytes([len(mode)]) + mode.encode(),
                _key(_STREAM) + _UUID + stream,
                _key(_QUEUE) + _STRING + struct.pack(">I", len(name)) + name,
                _key(_QUEUE_ID) + _UUID + queue_id,
            )
        )
        size = _COUNT_SIZE + len(constant) + _NUMBERS.size
        return _HEAD.pack(_ANNOTATIONS, size, 2 * _PAIRS) + constant

    def encode(self, op: Op, numbers: Numbers, data: bytes = b"") -> bytes:
        """Return an encoded event."""
        sequence, position, time, expiry = numbers
        tail = (_SEQUENCE_KEY, sequence, _POSITION_KEY, position, _TIME_KEY, time, _EXPIRY_KEY, expiry)
        return b"".join((self._heads[op], _NUMBERS.pack(*tail), _DATA_HEAD.pack(_DATA, len(data)), data))


def _key(name: bytes) -> bytes:
    return _SYMBOL + bytes([len(name)]) + name


_SEQUENCE_KEY, _POSITION_KEY = _key(_SEQUENCE) + _ULONG, _key(_POSITION) + _ULONG
_TIME_KEY, _EXPIRY_KEY = _key(_TIME) + _TIMESTAMP, _key(_EXPIRY) + _TIMESTAMP
_KEYS = (_SEQUENCE_KEY, _POSITION_KEY, _TIME_KEY, _EXPIRY_KEY)
_NUMBERS = struct.Struct(">" + "".join(f"{len(key)}sQ" for key in _KEYS))


# -- decoding ---------------------------------------------------------------------------------------


def decode(data: bytes) -> Event:
    """Decode an event.

    :raises MalformedMessageError: when it is not an event.
    """
    if data.startswith(_ANNOTATIONS):
        end = 8 + int.from_bytes(data[4:8])
        start = end - _NUMBERS.size
        if start > 0 and len(data) >= end:
            keys = _NUMBERS.unpack_from(data, start)
            if keys[0::2] == _KEYS:
                return _constants(data[:start])._replace(
                    sequence=keys[1],
                    position=keys[3],
                    time_ms=keys[5],
                    expires_at_ms=keys[7],
                    data=_body(data, end),
                )
    return _decode_any(data)


@functools.lru_cache(maxsize=1024)
def _constants(head: bytes) -> Event:
    """Decode the constant part of an event that ``Encoder`` made."""
    zeros = (value for key in _KEYS for value in (key, 0))
    return _decode_any(head + _NUMBERS.pack(*zeros) + _DATA_HEAD.pack(_DATA, 0))


def _decode_any(data: bytes) -> Event:
    found, end = message_annotations(data)
    try:
        return Event(
            op=Op(_text(found[_OP])),
            mode=SiteMode(_text(found[_MODE])),
            stream=_uuid(found[_STREAM]),
            queue=_text(found[_QUEUE]),
            queue_id=_uuid(found[_QUEUE_ID]),
            sequence=_number(found[_SEQUENCE]),
            position=_number(found[_POSITION]),
            time_ms=_number(found[_TIME]),
            expires_at_ms=_number(found[_EXPIRY]),
            data=_body(data, end),
        )
    except KeyError as error:
        raise MalformedMessageError(f"an event without {error.args[0].decode()}") from error
    except MalformedMessageError:
        raise
    except ValueError as error:
        raise MalformedMessageError(f"not an event: {error}") from error


def _text(encoded: bytes) -> str:
    text = walk.content(encoded, walk.STRING8)
    if text is None:
        text = walk.content(encoded, walk.SYMBOL8)
    if text is None:
        raise MalformedMessageError("an event with something else where a text should be")
    return text.decode()


def _uuid(encoded: bytes) -> bytes:
    if encoded[:1] != _UUID:
        raise MalformedMessageError("an event with something else where a UUID should be")
    return encoded[1:]


def _number(encoded: bytes) -> int:
    if encoded[:1] not in (_ULONG, _TIMESTAMP, b"\x53", b"\x44"):
        raise MalformedMessageError("an event with something else where a number should be")
    return int.from_bytes(encoded[1:])


def _body(data: bytes, start: int) -> bytes:
    """Return the content of the data section that follows the annotations."""
    rest = data[start:]
    if rest[:4] == _DATA:
        size, body = int.from_bytes(rest[4:8]), rest[8:]
    elif rest[:4] == b"\x00\x53\x75\xa0":
        size, body = int.from_bytes(rest[4:5]), rest[5:]
    else:
        raise MalformedMessageError("an event's body is one data section")
    if len(body) != size:
        raise MalformedMessageError("an event ends within its body")
    return body


# -- applied messages -------------------------------------------------------------------------------


def annotate(data: bytes, origin: Origin) -> bytes:
    """Return a message for the target queue, with this origin in place of any other.

    :raises MalformedMessageError: when the bytes are not an AMQP message.
    """
    if not data:
        raise MalformedMessageError("an event without a message")
    end = header_end(data)
    behind = end + _ORIGIN_SIZE if data.startswith(_ORIGIN_HEAD, end) else end
    return b"".join((data[:end], _ORIGIN_HEAD, _ORIGIN.pack(*origin), data[behind:]))


def without_origin(data: bytes) -> bytes:
    """Return a client's message without an origin, which it has if the client forwards an applied message.

    :raises MalformedMessageError: when the message contains nothing else.
    """
    if data.startswith(_SHORT_HEADER) and len(data) > len(_SHORT_HEADER):  # most messages: no search needed
        end = len(_SHORT_HEADER) + 1 + data[len(_SHORT_HEADER)]
        if not data.startswith(_ORIGIN_HEAD, end):
            return data
    elif _ORIGIN_HEAD not in data:
        return data
    end = header_end(data)
    while data.startswith(_ORIGIN_HEAD, end):
        data = data[:end] + data[end + _ORIGIN_SIZE :]
    if not data:
        raise MalformedMessageError("a message of delivery annotations only")
    return data


def origin_of(data: bytes) -> Origin | None:
    """Return the origin of an applied message; ``None`` for any other message."""
    end = header_end(data)
    if not data.startswith(_ORIGIN_HEAD, end):
        return None
    return Origin(*_ORIGIN.unpack_from(data, end + len(_ORIGIN_HEAD)))
