"""The links between a primary and a backup, and the messages on them.

Links
-----
The backup attaches all links, over one connection. ``CONTROL`` carries commands to the backup: wiring and
generations. ``DATA`` carries the events of all queues. ``HAVE`` carries reports from the backup to the
primary: the ids of the messages that the backup has of a queue. A report starts the events of its queue. An
empty report (``COMMIT_GOES_ON``) means that a large commit of the backup's store makes progress; earlier
releases ignore it.

Rules
-----
* An event on ``DATA`` begins with delivery annotations that name its queue: the 16 bytes of its identity.
* The hot path sends ``message`` events. Their annotations also hold the message's id, delivery count and
  remaining lifetime, all of fixed size. The original message follows unchanged.
* A message with a delay is sent as a ``delayed`` event, which adds the remaining delay.
* All other events are ordinary AMQP messages: the subject is the operation. The body is a map of arguments,
  or ids packed as 64-bit numbers (a fifth of the work of an AMQP list).
* ``ended`` is the last event of a queue.
* Both sides send their ``VERSION`` in the Attach of ``CONTROL`` and refuse another version. Version 1 lacked
  that property, had a link for each queue, and sent expiry times by the primary's clock. Version 2 had no
  ``confirmed`` events.
* In the same Attach the backup sends its name and its store's UUID, and the primary its cluster's UUID and
  its generation.

Sources: AMQP 1.0 part 1, section 1.6 (encodings); part 3, sections 3.2.2 (delivery annotations) and 3.2.6
(data).
"""

from __future__ import annotations

import bisect
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import proton

from haclient.engine import codec

T = TypeVar("T")

VERSION = 3
CONTROL = "$replication"
DATA = "$replication/data"
HAVE = "$replication/have"
MEMBER_PROPERTY = "haclient:member"
IDENTITY_PROPERTY = "haclient:member-identity"
CLUSTER_PROPERTY = "haclient:cluster-uuid"
ADDRESS_PROPERTY = "haclient:address"
"""The primary's address for clients; earlier releases neither send nor read it."""
GENERATION_PROPERTY = "haclient:generation"
VERSION_PROPERTY = "haclient:replication-version"
COMMIT_GOES_ON = b""
ENDED = "ended"
CONFIRMED = "confirmed"
MOST_OVERHEAD = 24 * 1024
"""Bytes that the broker adds to a client's message, at most, on the route to any backup of any site.

Assumes the longest queue name, a site event, a dead letter, and annotations of consumers. A client's size
limit is below a backup's by this number.
"""

# Section 0x71 (delivery annotations) with a map8; keys are one-letter symbols: q: uuid (0x98), the queue; i:
# ulong (0x80), the id; c: uint (0x70), the delivery count; l: ulong, the remaining lifetime.
_SECTION = b"\x00\x53\x71\xc1"
_QUEUE_HEAD = struct.Struct(">4sBB 4s16s")
_MESSAGE_HEAD = struct.Struct(">4sQ 4sI 4sQ")
_QUEUE, _ID, _COUNT, _LIFETIME = b"\xa3\x01q\x98", b"\xa3\x01i\x80", b"\xa3\x01c\x70", b"\xa3\x01l\x80"
# Everything after the size byte, which does not count itself (part 1, section 1.6.23).
_QUEUE_SIZE = _QUEUE_HEAD.size - len(_SECTION) - 1
_QUEUE_ITEMS, _MESSAGE_ITEMS = 2, 8
_BOTH_HEADS = struct.Struct(_QUEUE_HEAD.format + _MESSAGE_HEAD.format.removeprefix(">"))
_ITEMS_AT = len(_SECTION) + 1
_MESSAGE_AT = _BOTH_HEADS.size
_MESSAGE_NAMES = (_QUEUE_SIZE + _MESSAGE_HEAD.size, _QUEUE, _ID, _COUNT, _LIFETIME)
_MAX_UINT = 0xFFFFFFFF
# Milliseconds: added to any time of day, still within the 63 bits of a store.
MAX_LIFETIME = 2**62
MAX_NUMBER = 2**63 - 1
# A queue in a backup's report: its identity, and the number of id ranges that follow.
_HAVE = struct.Struct(">16sI")
_RANGE = 16
_ID_SIZE, _OWNER_SIZE = 8, 16
# The primary makes a set of the ids. A queue with this many messages exceeds any member's memory.
_MOST_IDS = 2**24
# The primary starts all queues of one report in one iteration of its loop.
_HAVE_BYTES = 8 * 1024


class ReplicatedMessage(NamedTuple):
    """One message of a queue, as the primary has it.

    :param expires_at_ms: expiry by this member's clock, in milliseconds since the epoch; 0 for never.
    :param lifetime_ms: remaining lifetime when sent, in milliseconds, at least 1; 0 for unlimited.
    :param queue: see ``key``; empty if the message is not in transit.
    """

    id: int
    delivery_count: int
    expires_at_ms: int
    data: bytes
    lifetime_ms: int = 0
    queue: bytes = b""


class Event(NamedTuple):
    """Any event or command except a message.

    :param ids: the packed ids, if the operation has any.
    :param arguments: the map, if the operation has one.
    :param queue: see ``key``; empty for a command.
    """

    operation: str
    ids: tuple[int, ...] = ()
    arguments: Mapping[str, Any] = {}
    queue: bytes = b""


def other_version(who: str, version: object) -> str:
    """Return the reason for refusing a member of another protocol version."""
    version = int(version) if isinstance(version, int) else version  # proton's numbers show their type
    return (
        f"{who} speaks version {version} of the replication protocol, and this member version {VERSION}:"
        " all members of a cluster run the same release"
    )


def key(identity: str) -> bytes:
    """Return the key of a queue in its events: its identity, a UUID, as 16 bytes."""
    return bytes.fromhex(identity.replace("-", ""))


def message_head(queue: bytes) -> bytes:
    """Return the common first bytes of all ``message`` events of a queue."""
    size = _QUEUE_SIZE + _MESSAGE_HEAD.size
    return _QUEUE_HEAD.pack(_SECTION, size, _MESSAGE_ITEMS, _QUEUE, queue)


def encode_message(head: bytes, identifier: int, delivery_count: int, lifetime_ms: int, data: bytes) -> bytes:
    """Encode a ``message`` event.

    :param head: ``message_head`` of its queue.
    :param lifetime_ms: remaining time to live in milliseconds, at least 1; 0 for unlimited.
    """
    count = delivery_count if delivery_count < _MAX_UINT else _MAX_UINT  # noqa: FURB136  (no call: faster)
    return head + _MESSAGE_HEAD.pack(_ID, identifier, _COUNT, count, _LIFETIME, lifetime_ms) + data


def encode_delayed(message: ReplicatedMessage, delay_ms: int) -> bytes:
    """Encode a message with a delay as a ``delayed`` event.

    :param delay_ms: remaining delay in milliseconds; 0 if the message is due.
    """
    arguments = {
        "id": message.id,
        "count": min(message.delivery_count, _MAX_UINT),
        "lifetime": message.lifetime_ms,
        "delay": delay_ms,
        "data": message.data,
    }
    return encode_event(message.queue, "delayed", arguments)


def encode_ids(queue: bytes, operation: str, ids: Iterable[int]) -> bytes:
    """Encode an event about ids of a queue."""
    numbers = tuple(ids)
    packed = struct.pack(f">{len(numbers)}Q", *numbers)
    return _head(queue) + bytes(proton.Message(subject=operation, body=packed, inferred=True).encode())


def encode_event(queue: bytes, operation: str, arguments: Mapping[str, Any]) -> bytes:
    """Encode an event of a queue with a map of arguments."""
    return _head(queue) + encode_command(operation, arguments)


def encode_confirmed(queue: bytes, pairs: Sequence[tuple[bytes, int]]) -> bytes:
    """Encode an event about messages that left a queue because their owners accepted them.

    :param pairs: owner (16 bytes) and message id.
    """
    ids = struct.pack(f">{len(pairs)}Q", *(number for _, number in pairs))
    return encode_event(queue, CONFIRMED, {"owners": b"".join(owner for owner, _ in pairs), "ids": ids})


def decode_confirmed(event: Event) -> list[tuple[bytes, int]]:
    """Return the owners and ids of a ``confirmed`` event.

    :raises ValueError: if the event is malformed.
    """
    owners, ids = (argument(event.arguments, name, bytes) for name in ("owners", "ids"))
    count = len(ids) // _ID_SIZE
    if len(ids) != count * _ID_SIZE or len(owners) != count * _OWNER_SIZE:
        raise ValueError("the primary sent owners and ids of different numbers")
    numbers = struct.unpack(f">{count}Q", ids)
    if any(not 0 < number <= MAX_NUMBER for number in numbers):
        raise ValueError("the primary sent ids that no store can hold")
    return [(owners[at * _OWNER_SIZE : (at + 1) * _OWNER_SIZE], each) for at, each in enumerate(numbers)]


def encode_command(operation: str, arguments: Mapping[str, Any]) -> bytes:
    """Encode a command, which concerns no queue's content."""
    return bytes(proton.Message(subject=operation, body=dict(arguments)).encode())


def _head(queue: bytes) -> bytes:
    return _QUEUE_HEAD.pack(_SECTION, _QUEUE_SIZE, _QUEUE_ITEMS, _QUEUE, queue)


def decode(data: bytes) -> ReplicatedMessage | Event:
    """Decode an event or a command of a primary.

    :raises ValueError: if the data is neither.
    """
    if not data.startswith(_SECTION):
        return _decode_event(data, b"")
    try:
        if data[_ITEMS_AT] == _MESSAGE_ITEMS:
            _, size, _, name, queue, id_name, identifier, count_name, count, lifetime_name, lifetime = (
                _BOTH_HEADS.unpack_from(data)
            )
            if (size, name, id_name, count_name, lifetime_name) == _MESSAGE_NAMES:
                left = lifetime if lifetime < MAX_LIFETIME else MAX_LIFETIME  # noqa: FURB136  (no call: faster)
                fields = (identifier, count, 0, data[_MESSAGE_AT:], left, queue)
                return tuple.__new__(ReplicatedMessage, fields)  # half the work of calling it
        else:
            _, size, items, name, queue = _QUEUE_HEAD.unpack_from(data)
            if (size, items, name) == (_QUEUE_SIZE, _QUEUE_ITEMS, _QUEUE):
                return _decode_event(data[_QUEUE_HEAD.size :], queue)
    except (struct.error, IndexError) as error:
        raise ValueError("a replication event that ends in its annotations") from error
    raise ValueError("a replication event with other annotations than queue, id, count and lifetime")


def _decode_event(data: bytes, queue: bytes) -> Event:
    try:
        message = codec.decode(data)
    except proton.ProtonException as error:
        raise ValueError(f"not a replication event: {error}") from error
    operation, body = message.subject, message.body
    if not operation:
        raise ValueError("a replication event without an operation")
    if isinstance(body, bytes):
        if len(body) % 8:
            raise ValueError("a replication event that ends within an id")
        return Event(operation, struct.unpack(f">{len(body) // 8}Q", body), queue=queue)
    return Event(operation, arguments=body if isinstance(body, dict) else {}, queue=queue)


def argument(arguments: object, name: str, kind: type[T]) -> T:
    """Return an argument of an event, or of an entry in it.

    :raises ValueError: if the argument is missing or of another type.
    """
    value = arguments.get(name) if isinstance(arguments, Mapping) else None
    if not isinstance(value, kind):
        what = f"{type(value).__name__} where it should be {kind.__name__}"
        raise ValueError(f"the primary sent {name!r} as {what}")  # noqa: TRY004 - what it is to the backup
    return value


def number(arguments: object, name: str) -> int:
    """Return an argument that a store keeps: an integer of 63 bits.

    :raises ValueError: see ``argument``; also for any other number.
    """
    value = argument(arguments, name, int)
    if not 0 <= value <= MAX_NUMBER:
        raise ValueError(f"the primary sent {value} as {name!r}")
    return value


# -- reports of a backup's ids ----------------------------------------------------------------------


def ranges(ids: Sequence[int]) -> list[tuple[int, int]]:
    """Return ascending ids as ranges (first, last), the form in which a backup reports its ids.

    Only a few ids of a long range are read: a queue has millions, and clients wait meanwhile.
    """
    found: list[tuple[int, int]] = []
    start, end = 0, len(ids)
    while start < end:
        first, stop, step = ids[start], start + 1, 1
        # Extend the range while it has no gap: double the step on success, halve it on failure.
        while step:
            ahead = min(stop + step, end)
            if ahead > stop and ids[ahead - 1] - first == ahead - 1 - start:
                stop, step = ahead, 2 * step
            else:
                step //= 2
        found.append((first, ids[stop - 1]))
        start = stop
    return found


def encode_have(queues: Iterable[tuple[bytes, list[tuple[int, int]]]]) -> Iterator[bytes]:
    """Encode the ids that a backup has; yield the bodies of one or more messages."""
    report = bytearray()
    for queue, spans in queues:
        report += _HAVE.pack(queue, len(spans))
        report += struct.pack(f">{2 * len(spans)}Q", *(number for span in spans for number in span))
        if len(report) >= _HAVE_BYTES:
            yield bytes(report)
            report.clear()
    if report:
        yield bytes(report)


def decode_have(data: bytes) -> list[tuple[bytes, list[tuple[int, int]]]]:
    """Return the queues of a report, each with its ranges.

    :raises ValueError: if the data is not a report.
    """
    try:
        report = codec.decode(data).body
    except proton.ProtonException as error:
        raise ValueError(f"not a report: {error}") from error
    if not isinstance(report, bytes):
        raise ValueError("a report without a body of bytes")  # noqa: TRY004 - what it is to whoever reads it
    found, position = [], 0
    seen: set[bytes] = set()
    while position < len(report):
        try:
            queue, count = _HAVE.unpack_from(report, position)
            position += _HAVE.size
            numbers = struct.unpack_from(f">{2 * count}Q", report, position)
        except struct.error as error:
            raise ValueError(f"a report that ends too early: {error}") from error
        position += count * _RANGE
        if queue in seen:
            raise ValueError("a report that has a queue twice")
        seen.add(queue)
        spans = list(zip(numbers[0::2], numbers[1::2], strict=True))
        if sum(max(0, last - first + 1) for first, last in spans) > _MOST_IDS:
            raise ValueError(f"a report of more than {_MOST_IDS:,} messages in one queue")
        found.append((queue, spans))
    return found


def compare(have: Iterable[tuple[int, int]], ids: Sequence[int]) -> tuple[int, list[tuple[int, int]]]:
    """Return the number of messages that a backup keeps, and the ranges that it must discard.

    A backup keeps ids up to the first one that it lacks.

    :param ids: the ids of the queue, ascending.
    """
    kept, lacks = 0, False
    surplus: list[tuple[int, int]] = []
    end = -1
    for first, last in sorted(have):
        at = max(first, end + 1)
        end = max(end, last)
        stop = bisect.bisect_right(ids, last, kept)
        lacks = lacks or (kept < len(ids) and ids[kept] < at)
        if not lacks:
            for gap_first, gap_last in _gaps(at, last, ranges(ids[kept:stop])):
                surplus.append((gap_first, gap_last))
            kept = stop
        elif at <= last:
            surplus.append((at, last))
    return kept, surplus


def _gaps(first: int, last: int, spans: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the parts of a range that ``spans`` do not cover."""
    for span_first, span_last in spans:
        if first < span_first:
            yield first, span_first - 1
        first = span_last + 1
    if first <= last:
        yield first, last


def in_pieces(spans: Iterable[tuple[int, int]], most: int) -> Iterator[list[tuple[int, int]]]:
    """Yield the same ranges in groups of at most ``most`` ids."""
    piece: list[tuple[int, int]] = []
    left = most
    for first, last in spans:
        at = first
        while at <= last:
            upto = min(last, at + left - 1)
            piece.append((at, upto))
            left -= upto - at + 1
            at = upto + 1
            if not left:
                yield piece
                piece, left = [], most
    if piece:
        yield piece
