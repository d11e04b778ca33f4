"""The annotations that consumers add to a message with the outcome *modified*.

A queue keeps these annotations apart from the message and combines the two for each delivery.  The message
itself stays as its sender wrote it, so a backup can replace its annotations by the primary's.  The store puts
them in front of the message.

Rules
-----
* An annotation replaces another with the same key, even the sender's.
* Annotations that the broker itself reads stay the sender's: ``x-opt-delivery-time``,
  ``x-opt-delivery-delay``, ``x-opt-dead-letter-id`` and ``x-qpid-replicate``.
* Keys are symbols; other keys, which AMQP reserves, are left out.
* Annotations may be nested as deeply as a message.  If an outcome has deeper ones, all of them are ignored.
* All annotations of one message have at most ``MOST_BYTES``.  If an outcome would exceed this, all of its
  annotations are ignored: a consumer finds all that it wrote at once, or nothing.

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
"""The most bytes of consumers' annotations in one message; within ``replication.wire.MOST_OVERHEAD``."""

_SENDERS_OWN = frozenset(
    map(message_annotations.symbol, (DELIVERY_TIME, DELIVERY_DELAY, DEAD_LETTER_ID, REPLICATE))
)
# No message begins with these bytes: its first section has a numeric descriptor.
_STORED = b"\x00A"
_STORED_HEAD = struct.Struct(">2sI")


def combined(annotations: bytes, given: bytes) -> bytes:
    """Return a message's annotations with one more outcome's added; both are encoded maps or empty."""
    try:
        values = message_annotations.read_map(given)
    except MalformedMessageError:
        return annotations
    if is_too_deep(given):
        return annotations
    added = {
        key: value
        for key, value in values.items()
        if message_annotations.is_symbol(key) and key not in _SENDERS_OWN
    }
    if not added:
        return annotations
    former = message_annotations.read_map(annotations) if annotations else {}
    whole = message_annotations.map_of({**former, **added})
    return whole if len(whole) <= MOST_BYTES else annotations


def checked(annotations: bytes) -> bytes:
    """Return annotations that another member sent, if ``combined`` could have made them.

    :raises ValueError: when it could not.
    """
    if annotations and combined(b"", annotations) != annotations:
        raise ValueError("the primary sent annotations that no consumer can have added")
    return annotations


def annotated(data: bytes, annotations: bytes) -> bytes:
    """Return a message with its consumers' annotations; unchanged if its own cannot be read."""
    parts = message_annotations.split(data)
    try:
        section = message_annotations.changed(
            parts.message_annotations, message_annotations.read_map(annotations)
        )
    except MalformedMessageError:
        return data
    return parts.header + parts.delivery_annotations + section + parts.rest


def stored_prefix(annotations: bytes) -> bytes:
    """Return the bytes that the store puts in front of a message."""
    return _STORED_HEAD.pack(_STORED, len(annotations)) + annotations if annotations else b""


def stored(data: bytes, annotations: bytes) -> bytes:
    """Return a message in the form that the store keeps."""
    return stored_prefix(annotations) + data


def restored(data: bytes) -> tuple[bytes, bytes]:
    """Split a message of the store into the message and the annotations of its consumers."""
    if not data.startswith(_STORED):
        return data, b""
    _, size = _STORED_HEAD.unpack_from(data)
    start = _STORED_HEAD.size
    return data[start + size :], data[start : start + size]
