"""Encodes the messages of one sender: with duplicate-detection ids, and with what a hook adds.

Rules
-----
* A message is encoded where ``send`` is called: on the caller's thread in the blocking API.
* A hook takes one frozen dataclass and returns another.  Its additions go into the encoded bytes only: the
  message that the application holds is not changed, and a replay after a failover sends the same bytes.
* What a hook raises, ``send`` raises.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import proton

from haclient.engine.codec import Encoder


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """A message that a sender is about to encode.

    :param address: the sender's; ``None`` for the anonymous terminus.
    :param message: the application's, not to be changed.
    """

    address: str | None
    message: proton.Message


@dataclass(frozen=True, slots=True)
class Additions:
    """What a hook adds to an encoded message; entries of the message of the same name are replaced.

    :param annotations: message annotations, by symbol.
    :param properties: application properties.
    """

    annotations: Mapping[Any, Any] = field(default_factory=dict)
    properties: Mapping[str, Any] = field(default_factory=dict)


EncodeHook = Callable[[OutgoingMessage], Additions | None]


class MessageEncoder:
    """Encodes messages one after another.  Not for use by two threads at once."""

    __slots__ = ("_address", "_encode", "_hook", "_numbers", "_stem")

    def __init__(self, address: str | None, *, duplicate_detection: bool, hook: EncodeHook | None) -> None:
        self._address = address
        self._hook = hook
        self._encode = Encoder().encode
        self._stem = f"{uuid.uuid4()}-" if duplicate_detection else None
        self._numbers = itertools.count(1)

    def encode(self, message: proton.Message) -> bytes:
        """The message as bytes; see ``engine.codec.Encoder.encode`` for the errors."""
        duplicate_id = None if self._stem is None else f"{self._stem}{next(self._numbers)}"
        added = None if self._hook is None else self._hook(OutgoingMessage(self._address, message))
        if added is None:
            return self._encode(message, duplicate_id)
        return self._encode_with(added, message, duplicate_id)

    def _encode_with(self, added: Additions, message: Any, duplicate_id: str | None) -> bytes:
        annotations, properties = message.annotations, message.properties
        try:
            if added.annotations:
                message.annotations = {**(annotations or {}), **added.annotations}
            if added.properties:
                message.properties = {**(properties or {}), **added.properties}
            return self._encode(message, duplicate_id)
        finally:
            if added.annotations:
                message.annotations = annotations
            if added.properties:
                message.properties = properties
