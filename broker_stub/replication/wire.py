"""The events that go from a primary to a backup, as AMQP messages.

Two shapes.  ``message`` is what the hot path sends: one delivery-annotations section of fixed
size, with the message's id, delivery count and remaining lifetime, and the original message unchanged
behind it.  Version 0.1.0 sent the end of that lifetime by the primary's clock: it is read still, and a member
of that version refuses what this one sends, so the backups are updated first.

Everything else is an ordinary AMQP message: the operation is its subject, and the body is a map of arguments,
or ids packed as 64-bit numbers (a fifth of the work of an AMQP list).

Sources: AMQP 1.0 part 1, section 1.6 (encodings); part 3, sections 3.2.2 (delivery annotations)
and 3.2.6 (data).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import proton

from haclient.engine import codec

# Section 0x71 (delivery annotations) with a map8 of three pairs; keys are one-letter symbols:
# i: ulong (0x80), the id; c: uint (0x70), the delivery count; l: ulong, the lifetime that is left; of version
# 0.1.0, e: timestamp (0x83), the expiry.
_HEAD = struct.Struct(">4sBB 4sQ 4sI 4sQ")
_SECTION = b"\x00\x53\x71\xc1"
_ID, _COUNT, _LIFETIME, _EXPIRY = b"\xa3\x01i\x80", b"\xa3\x01c\x70", b"\xa3\x01l\x80", b"\xa3\x01e\x83"
# Everything behind the size byte, which counts itself out (part 1, section 1.6.23).
_SIZE = _HEAD.size - len(_SECTION) - 1
_ITEMS = 6
_MAX_UINT = 0xFFFFFFFF
# Milliseconds: with any time of day it is still within the 63 bits of a store.
_MAX_LIFETIME = 2**62


class ReplicatedMessage(NamedTuple):
    """One message of a queue, as the primary has it.

    :param expires_at_ms: where its lifetime ends by this member's clock, in milliseconds since the epoch; 0
        for never.
    :param lifetime_ms: what was left of that when it was sent, at least 1; 0 for unlimited.
    """

    id: int
    delivery_count: int
    expires_at_ms: int
    data: bytes
    lifetime_ms: int = 0


class Event(NamedTuple):
    """Anything but a message.

    :param ids: the packed ids, if the operation has any.
    :param arguments: the map, if it has one.
    """

    operation: str
    ids: tuple[int, ...] = ()
    arguments: Mapping[str, Any] = {}


def encode_message(identifier: int, delivery_count: int, lifetime_ms: int, data: bytes) -> bytes:
    """A ``message`` event.

    :param lifetime_ms: what is left of its time to live, at least 1; 0 for unlimited.
    """
    count = min(delivery_count, _MAX_UINT)
    head = _HEAD.pack(_SECTION, _SIZE, _ITEMS, _ID, identifier, _COUNT, count, _LIFETIME, lifetime_ms)
    return head + data


def encode_ids(operation: str, ids: Iterable[int]) -> bytes:
    """An event about ids."""
    numbers = tuple(ids)
    packed = struct.pack(f">{len(numbers)}Q", *numbers)
    return bytes(proton.Message(subject=operation, body=packed, inferred=True).encode())


def encode_command(operation: str, arguments: Mapping[str, Any]) -> bytes:
    """An event with a map of arguments."""
    return bytes(proton.Message(subject=operation, body=dict(arguments)).encode())


def decode(data: bytes) -> ReplicatedMessage | Event:
    """Whatever a primary sent.

    :raises ValueError: when it is none of these events.
    """
    if data.startswith(_SECTION):
        return _decode_message(data)
    try:
        message = codec.decode(data)
    except proton.ProtonException as error:
        raise ValueError(f"not a replication event: {error}") from error
    operation, body = message.subject, message.body
    if not operation:
        raise ValueError("a replication event without an operation")
    if isinstance(body, bytes):
        return Event(operation, struct.unpack(f">{len(body) // 8}Q", body))
    return Event(operation, arguments=body if isinstance(body, dict) else {})


def _decode_message(data: bytes) -> ReplicatedMessage:
    section, size, items, *fields = _HEAD.unpack_from(data)
    keys, (identifier, count, end) = fields[0::2], fields[1::2]
    if (section, size, items, *keys[:2]) == (_SECTION, _SIZE, _ITEMS, _ID, _COUNT):
        rest = data[_HEAD.size :]
        if keys[2] == _LIFETIME:
            return ReplicatedMessage(identifier, count, 0, rest, min(end, _MAX_LIFETIME))
        if keys[2] == _EXPIRY:
            return ReplicatedMessage(identifier, count, min(end, _MAX_LIFETIME), rest)
    raise ValueError("a message event with other annotations than id, count and lifetime")


def ranges(ids: Iterable[int]) -> list[tuple[int, int]]:
    """Growing ids as first-last ranges, which is how a backup says what it has."""
    found: list[tuple[int, int]] = []
    for number in ids:
        if found and found[-1][1] + 1 == number:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found
