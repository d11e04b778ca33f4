"""The annotations that consumers add to a message with the outcome *modified*.

A queue keeps them apart from the message, and combines both for each delivery: the message stays what its
sender made of it, so a backup whose annotations are not the primary's can take the primary's.  The store has
them in front of the message.

Rules
-----
* An annotation replaces the one of the same key, the sender's too.
* What the broker itself heeds stays the sender's: ``x-opt-delivery-time``, ``x-opt-delivery-delay``,
  ``x-opt-dead-letter-id`` and ``x-qpid-replicate``.
* Keys are symbols; others, which AMQP reserves, are left out.
* They are nested as deeply as a message may be, at most: an outcome with deeper ones adds none.
* All of one message have at most ``MOST_BYTES``.  An outcome whose annotations would be more adds none of
  them: a consumer finds all of what it wrote at once, or nothing.

Source: AMQP 1.0 part 3, sections 3.4.5 (modified) and 3.2.10 (annotations).
"""

from __future__ import annotations

import struct
from typing import Final

from broker_stub.amqp import message_annotations
from broker_stub.amqp.message_format import (
    DEAD_LETTER_ID,
    DELIVERY_DELAY,
    DELIVERY_TIME,
    REPLICATE,
    MalformedMessageError,
)
from haclient.engine.amqp_values.walk import is_too_deep

MOST_BYTES: Final = 4096
"""Encoded annotations of consumers in one message: within ``replication.wire.MOST_OVERHEAD``."""

_HEEDED = frozenset(
    map(message_annotations.symbol, (DELIVERY_TIME, DELIVERY_DELAY, DEAD_LETTER_ID, REPLICATE))
)
# No message begins with it: the first section of one has a numeric descriptor.
_STORED = b"\x00A"
_STORED_HEAD = struct.Struct(">2sI")


def combined(annotations: bytes, given: bytes) -> bytes:
    """What consumers have added so far, and what one more outcome says; both are encoded maps or empty."""
    try:
        values = message_annotations.read_map(given)
    except MalformedMessageError:
        return annotations
    if is_too_deep(given):
        return annotations
    added = {
        key: value
        for key, value in values.items()
        if message_annotations.is_symbol(key) and key not in _HEEDED
    }
    if not added:
        return annotations
    former = message_annotations.read_map(annotations) if annotations else {}
    whole = message_annotations.map_of({**former, **added})
    return whole if len(whole) <= MOST_BYTES else annotations


def checked(annotations: bytes) -> bytes:
    """What another member says that consumers have added.

    :raises ValueError: when that is nothing that ``combined`` gives.
    """
    if annotations and combined(b"", annotations) != annotations:
        raise ValueError("the primary sent annotations that no consumer can have added")
    return annotations


def annotated(data: bytes, annotations: bytes) -> bytes:
    """A message with what consumers have added; one whose own annotations cannot be read as it is."""
    parts = message_annotations.split(data)
    try:
        section = message_annotations.changed(
            parts.message_annotations, message_annotations.read_map(annotations)
        )
    except MalformedMessageError:
        return data
    return parts.header + parts.delivery_annotations + section + parts.rest


def stored_prefix(annotations: bytes) -> bytes:
    """What the store has in front of a message."""
    return _STORED_HEAD.pack(_STORED, len(annotations)) + annotations if annotations else b""


def stored(data: bytes, annotations: bytes) -> bytes:
    """A message as the store has it."""
    return stored_prefix(annotations) + data


def restored(data: bytes) -> tuple[bytes, bytes]:
    """A message of the store, and what consumers have added."""
    if not data.startswith(_STORED):
        return data, b""
    _, size = _STORED_HEAD.unpack_from(data)
    start = _STORED_HEAD.size
    return data[start + size :], data[start : start + size]
