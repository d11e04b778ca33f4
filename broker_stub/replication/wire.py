"""The links between a primary and a backup, and the messages on them.

Links
-----
All are attached by the backup, over one connection.  ``CONTROL`` carries commands to it: the wiring,
generations. ``DATA`` carries the events of all queues.  ``HAVE`` is the way back: which messages of a queue
the backup has, which is what starts the events of that queue.  A report of no queue (``COMMIT_GOES_ON``) says
that the backup's store commits something large, and goes on with it; a former version ignores it.

Rules
-----
* An event on ``DATA`` begins with delivery annotations that name its queue: the 16 bytes of its identity.
* ``message`` is what the hot path sends: the message's id, delivery count and remaining lifetime
  are in these annotations, all of fixed size, and the original message is unchanged behind them.
* A message with a delay is an event ``delayed``: the same, and what is left of its delay.
* Everything else is an ordinary AMQP message: the operation is its subject, and the body is a map of
  arguments, or ids packed as 64-bit numbers (a fifth of the work of an AMQP list).
* ``ended`` is the last event of a queue: no other follows.
* Both sides say their ``VERSION`` in the Attach of ``CONTROL``, and refuse another one.  Version 1, without
  that property, had a link for each queue, and said where a lifetime ends by the primary's clock.  Version 2
  had no ``confirmed`` events.
* There the backup says its name and the UUID of its store, too, and the primary its cluster's UUID and its
  generation.

Sources: AMQP 1.0 part 1, section 1.6 (encodings); part 3, sections 3.2.2 (delivery annotations)
and 3.2.6 (data).
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
"""Where the primary says that its clients reach it; a version before it says nothing, and reads nothing."""
GENERATION_PROPERTY = "haclient:generation"
VERSION_PROPERTY = "haclient:replication-version"
COMMIT_GOES_ON = b""
ENDED = "ended"
CONFIRMED = "confirmed"
MOST_OVERHEAD = 24 * 1024
"""Bytes that a client's message gets at most on its way to any backup of any site, where the queue has the
longest name: as a site event, as a dead letter, and with annotations of consumers.  A client's limit is below
a backup's by as much."""

# Section 0x71 (delivery annotations) with a map8; keys are one-letter symbols: q: uuid (0x98), the queue;
# i: ulong (0x80), the id; c: uint (0x70), the delivery count; l: ulong, the lifetime that is left.
_SECTION = b"\x00\x53\x71\xc1"
_QUEUE_HEAD = struct.Struct(">4sBB 4s16s")
_MESSAGE_HEAD = struct.Struct(">4sQ 4sI 4sQ")
_QUEUE, _ID, _COUNT, _LIFETIME = b"\xa3\x01q\x98", b"\xa3\x01i\x80", b"\xa3\x01c\x70", b"\xa3\x01l\x80"
# Everything behind the size byte, which counts itself out (part 1, section 1.6.23).
_QUEUE_SIZE = _QUEUE_HEAD.size - len(_SECTION) - 1
_QUEUE_ITEMS, _MESSAGE_ITEMS = 2, 8
_BOTH_HEADS = struct.Struct(_QUEUE_HEAD.format + _MESSAGE_HEAD.format.removeprefix(">"))
_ITEMS_AT = len(_SECTION) + 1
_MESSAGE_AT = _BOTH_HEADS.size
_MESSAGE_NAMES = (_QUEUE_SIZE + _MESSAGE_HEAD.size, _QUEUE, _ID, _COUNT, _LIFETIME)
_MAX_UINT = 0xFFFFFFFF
# Milliseconds: with any time of day it is still within the 63 bits of a store.
MAX_LIFETIME = 2**62
MAX_NUMBER = 2**63 - 1
# One queue in a report of what a backup has: its identity, and how many ranges of ids follow.
_HAVE = struct.Struct(">16sI")
_RANGE = 16
_ID_SIZE, _OWNER_SIZE = 8, 16
# The primary makes a set of them.  A queue with so many messages is larger than any member's memory.
_MOST_IDS = 2**24
# A primary starts the queues of one report in one iteration of its loop.
_HAVE_BYTES = 8 * 1024


class ReplicatedMessage(NamedTuple):
    """One message of a queue, as the primary has it.

    :param expires_at_ms: where its lifetime ends by this member's clock, in milliseconds since the epoch; 0
        for never.
    :param lifetime_ms: what was left of that when it was sent, at least 1; 0 for unlimited.
    :param queue: see ``key``; empty where it is not on its way.
    """

    id: int
    delivery_count: int
    expires_at_ms: int
    data: bytes
    lifetime_ms: int = 0
    queue: bytes = b""


class Event(NamedTuple):
    """Anything but a message.

    :param ids: the packed ids, if the operation has any.
    :param arguments: the map, if it has one.
    :param queue: see ``key``; empty for a command.
    """

    operation: str
    ids: tuple[int, ...] = ()
    arguments: Mapping[str, Any] = {}
    queue: bytes = b""


def other_version(who: str, version: object) -> str:
    """Why a member that speaks another version is refused."""
    version = int(version) if isinstance(version, int) else version  # proton's numbers show their type
    return (
        f"{who} speaks version {version} of the replication protocol, and this member version {VERSION}:"
        " all members of a cluster run the same release"
    )


def key(identity: str) -> bytes:
    """What names a queue in its events: its identity, a UUID."""
    return bytes.fromhex(identity.replace("-", ""))


def message_head(queue: bytes) -> bytes:
    """How every ``message`` event of a queue begins."""
    size = _QUEUE_SIZE + _MESSAGE_HEAD.size
    return _QUEUE_HEAD.pack(_SECTION, size, _MESSAGE_ITEMS, _QUEUE, queue)


def encode_message(head: bytes, identifier: int, delivery_count: int, lifetime_ms: int, data: bytes) -> bytes:
    """A ``message`` event.

    :param head: ``message_head`` of its queue.
    :param lifetime_ms: what is left of its time to live, at least 1; 0 for unlimited.
    """
    count = delivery_count if delivery_count < _MAX_UINT else _MAX_UINT  # noqa: FURB136  (no call: faster)
    return head + _MESSAGE_HEAD.pack(_ID, identifier, _COUNT, count, _LIFETIME, lifetime_ms) + data


def encode_delayed(message: ReplicatedMessage, delay_ms: int) -> bytes:
    """A message that has a delay, as an event ``delayed``.

    :param delay_ms: what is left of it, 0 when it is due.
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
    """An event about ids of a queue."""
    numbers = tuple(ids)
    packed = struct.pack(f">{len(numbers)}Q", *numbers)
    return _head(queue) + bytes(proton.Message(subject=operation, body=packed, inferred=True).encode())


def encode_event(queue: bytes, operation: str, arguments: Mapping[str, Any]) -> bytes:
    """An event of a queue, with a map of arguments."""
    return _head(queue) + encode_command(operation, arguments)


def encode_confirmed(queue: bytes, pairs: Sequence[tuple[bytes, int]]) -> bytes:
    """An event about messages that left a queue because their owners accepted them.

    :param pairs: each owner, 16 bytes, with the id of the message.
    """
    ids = struct.pack(f">{len(pairs)}Q", *(number for _, number in pairs))
    return encode_event(queue, CONFIRMED, {"owners": b"".join(owner for owner, _ in pairs), "ids": ids})


def decode_confirmed(event: Event) -> list[tuple[bytes, int]]:
    """Owners and ids of such an event.

    :raises ValueError: when it has others.
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
    """A command, which is about no queue's content."""
    return bytes(proton.Message(subject=operation, body=dict(arguments)).encode())


def _head(queue: bytes) -> bytes:
    return _QUEUE_HEAD.pack(_SECTION, _QUEUE_SIZE, _QUEUE_ITEMS, _QUEUE, queue)


def decode(data: bytes) -> ReplicatedMessage | Event:
    """Whatever a primary sent.

    :raises ValueError: when it is none of these events.
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
    """What the arguments of an event, or an entry in them, have of that name.

    :raises ValueError: when that is nothing, or of another type.
    """
    value = arguments.get(name) if isinstance(arguments, Mapping) else None
    if not isinstance(value, kind):
        what = f"{type(value).__name__} where it should be {kind.__name__}"
        raise ValueError(f"the primary sent {name!r} as {what}")  # noqa: TRY004 - what it is to the backup
    return value


def number(arguments: object, name: str) -> int:
    """The same, for what a store keeps: 63 bits.

    :raises ValueError: see ``argument``; also for any other number.
    """
    value = argument(arguments, name, int)
    if not 0 <= value <= MAX_NUMBER:
        raise ValueError(f"the primary sent {value} as {name!r}")
    return value


# -- what a backup has ------------------------------------------------------------------------------


def ranges(ids: Sequence[int]) -> list[tuple[int, int]]:
    """Growing ids as first-last ranges, which is how a backup says what it has.

    It looks at few ids of a long range: a queue has millions, and clients wait meanwhile.
    """
    found: list[tuple[int, int]] = []
    start, end = 0, len(ids)
    while start < end:
        first, stop, step = ids[start], start + 1, 1
        # As many as there can be without a gap, each step twice as long as the one before, and back again.
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
    """Reports of what a backup has: the bodies of as many messages as it takes."""
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
    """The queues of a report, each with its ranges.

    :raises ValueError: when it is no such message.
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
    """How many messages of a queue a backup keeps, and the ranges that it has to discard.

    It keeps the ids up to the first one that it has not.

    :param ids: those of the queue, growing.
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
    """What a range has beside the spans in it."""
    for span_first, span_last in spans:
        if first < span_first:
            yield first, span_first - 1
        first = span_last + 1
    if first <= last:
        yield first, last


def in_pieces(spans: Iterable[tuple[int, int]], most: int) -> Iterator[list[tuple[int, int]]]:
    """The same ranges, in groups of so many ids at most."""
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
