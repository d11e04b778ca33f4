"""Encodes what one sender sends: durable or not, with duplicate-detection ids and what a hook adds.

Rules
-----
* A message is encoded where ``send`` is called: on the caller's thread in the blocking API.
* A body that is sent without a message becomes one for a hook alone.
* Whether messages are durable is said by the sender or the send: proton's message cannot say that it was not
  said.  It is written into the bytes, and the message that the application holds is not changed.
* A message that is not durable gets no automatic id, unless the primary keeps ids no longer than messages
  (``quirks``): another broker may have the id after a failover and not the message, and would drop the copy
  that is sent again as one that it has.
* A hook takes one frozen dataclass and returns another.  Its additions go into the encoded bytes only: the
  message that the application holds is not changed, and a replay after a failover sends the same bytes.
* What a hook raises, ``send`` raises.
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
    """A message that a sender is about to encode.

    :param address: the sender's; ``None`` for the anonymous terminus.
    :param message: the application's, not to be changed.
    """

    address: str | None
    message: Message


@dataclass(frozen=True, slots=True)
class Additions:
    """What a hook adds to an encoded message; entries of the message of the same name are replaced.

    :param annotations: message annotations, by symbol.
    :param properties: application properties.
    """

    annotations: Mapping[Any, Any] = field(default_factory=dict)
    properties: Mapping[str, Any] = field(default_factory=dict)


EncodeHook = Callable[[OutgoingMessage], Additions | None]


def check_encoding(*, durable: object, on_encode: object) -> None:
    """Check what an application passes for the encoder of a sender.

    :raises TypeError: for an argument of a type that it cannot have.
    """
    check_flag("durable", durable)
    check_callable("on_encode", on_encode)


class MessageEncoder:
    """Encodes messages one after another.  Not for use by two threads at once."""

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
        """The message, or one of this body, as bytes; see ``engine.codec`` for the errors.

        :param duplicate_id: the application's, which wins over any other; ``None`` for a new one.
        :param durable: whether this message is durable; ``None`` for what the sender says.
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
