"""Encodes the messages of one sender, with durability, duplicate-detection ids and additions of a hook.

Rules
-----
* A message is encoded where ``send`` is called: in the blocking API on the caller's thread.
* A bare body is made a message only if there is a hook.
* The sender or the call decides whether a message is durable: in proton's message, "unset" and "not durable"
  look the same.  The flag is written into the bytes; the application's message is not changed.
* A message that is not durable gets no automatic id, unless the primary keeps ids no longer than messages
  (``quirks``).  After a failover another broker may have kept the id without the message.  It would then drop
  the copy that is sent again as a duplicate.
* A hook takes one frozen dataclass and returns another.  Its additions go into the encoded bytes only: the
  application's message is not changed, and a replay after a failover sends the same bytes.
* ``send`` raises the exception of a hook.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import proton

from haclient.engine.amqp_values.message import Message, SendableBody
from haclient.engine.codec import Encoder, automatic_ids, encode_body, message_of
from haclient.error_catalog.arguments import check_callable, check_flag

if TYPE_CHECKING:
    from haclient.core.sender import SenderCore


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """A message about to be encoded, as the hook sees it.

    :param address: the sender's address; ``None`` for the anonymous terminus.
    :param message: the application's message; must not be changed.
    """

    address: str | None
    message: Message


@dataclass(frozen=True, slots=True)
class Additions:
    """Entries that a hook adds to an encoded message; they replace entries of the same name.

    :param annotations: message annotations, by symbol.
    :param properties: application properties.
    """

    annotations: Mapping[Any, Any] = field(default_factory=dict)
    properties: Mapping[str, Any] = field(default_factory=dict)


EncodeHook = Callable[[OutgoingMessage], Additions | None]


def check_encoding(*, durable: object, on_encode: object) -> None:
    """Check the application's arguments for the encoder of a sender.

    :raises TypeError: for an argument of an invalid type.
    """
    check_flag("durable", durable)
    check_callable("on_encode", on_encode)


class MessageEncoder:
    """Encodes messages one after another.  Not thread-safe."""

    __slots__ = ("_address", "_core", "_durable", "_encode", "_encode_with_id", "_hook", "_numbers", "_stem")

    def __init__(
        self, core: SenderCore, *, duplicate_detection: bool, durable: bool, hook: EncodeHook | None
    ) -> None:
        self._address = core.address
        self._core = core
        self._durable = durable
        self._hook = hook
        encoder = Encoder()
        self._encode, self._encode_with_id = encoder.encode, encoder.encode_with_id
        self._stem = automatic_ids() if duplicate_detection else None
        self._numbers = itertools.count(1)

    def encode(
        self,
        message: proton.Message | SendableBody,
        duplicate_id: str | bytes | None = None,
        *,
        durable: bool | None = None,
    ) -> bytes:
        """Return the encoded message, or body; see ``engine.codec`` for the errors.

        :param duplicate_id: the application's id, which overrides any other.  With ``None`` an id
            that the application set in the message's properties stays.  Without one, duplicate detection
            makes a new id, if the rules allow it.
        :param durable: whether this message is durable; ``None`` for the sender's setting.
        """
        encode: Callable[..., bytes] = self._encode
        if durable is None:
            durable = self._durable
        elif durable is not True and durable is not False:
            check_flag("durable", durable)
        if duplicate_id is not None:
            encode = self._encode_with_id
        elif self._stem is not None and (durable or self._core.ids_live_with_messages):
            duplicate_id = f"{self._stem}{next(self._numbers)}"
        if not isinstance(message, proton.Message):
            if self._hook is None:
                return encode_body(message, duplicate_id, durable=durable)
            message = message_of(message)
        if self._hook is None:
            return encode(message, duplicate_id, durable=durable)
        added = self._hook(OutgoingMessage(self._address, cast("Message", message)))
        if added is None:
            return encode(message, duplicate_id, durable=durable)
        return _encode_with(added, message, lambda: encode(message, duplicate_id, durable=durable))


def _encode_with(added: Additions, message: Any, encode: Callable[[], bytes]) -> bytes:
    annotations, properties = message.annotations, message.properties
    try:
        if added.annotations:
            message.annotations = {**(annotations or {}), **added.annotations}
        if added.properties:
            message.properties = {**(properties or {}), **added.properties}
        return encode()
    finally:
        if added.annotations:
            message.annotations = annotations
        if added.properties:
            message.properties = properties
