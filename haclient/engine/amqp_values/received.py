"""Received messages, and how messages are copied and pickled."""

from __future__ import annotations

import copyreg
from typing import Any, Self

import cproton
import proton
from cproton_ffi import ffi, lib

from haclient.engine.amqp_values.decode import Sections
from haclient.engine.amqp_values.encode import UnencodableValue
from haclient.engine.amqp_values.message import Message, SequenceSections


class ReceivedMessage(Message):
    """A received message; its binary ids stay valid after the message is gone.

    proton's C message is created when a field of the header or properties is first read: creating and
    freeing one takes longer than reading the body.
    """

    @classmethod
    def plain(cls, start: bytes, body: Any, *, inferred: bool) -> Self:
        """Return a message from an encoded header and properties, and a body."""
        message = cls.__new__(cls)
        message.__dict__ = {
            "_start": start,
            "_inferred": inferred,
            "instruction_dict": None,
            "annotation_dict": None,
            "properties": None,
            "body": body,
        }
        return message

    @classmethod
    def of(cls, sections: Sections) -> Self:
        """Return a message from its decoded sections."""
        message = cls.plain(sections.start, sections.body, inferred=sections.inferred)
        message.instructions, message.annotations = sections.instructions, sections.annotations
        message.properties = sections.properties
        return message

    def __getattr__(self, name: str) -> Any:
        if name != "_msg" or "_start" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        self._msg = made = lib.pn_message()
        if self._start:
            self._check(lib.pn_message_decode(made, ffi.from_buffer(self._start), len(self._start)))
        lib.pn_message_set_inferred(made, self._inferred)
        return made

    def __del__(self) -> None:
        made = self.__dict__.pop("_msg", None)
        if made is not None:
            lib.pn_message_free(made)

    def __reduce__(self) -> Any:
        return reduce_message(self)

    def _pre_encode(self) -> None:
        if isinstance(self.body, SequenceSections):
            raise UnencodableValue(
                "proton writes one amqp-sequence section; send the message instead", "body"
            )
        super()._pre_encode()

    @property
    def id(self) -> Any:
        """The application's id of the message."""
        return _owned(super().id)

    @id.setter  # noqa: A003
    def id(self, value: Any) -> None:
        cproton.pn_message_set_id(self._msg, value)

    @property
    def correlation_id(self) -> Any:
        """The ``id`` of the request that this message answers."""
        return _owned(super().correlation_id)

    @correlation_id.setter
    def correlation_id(self, value: Any) -> None:
        cproton.pn_message_set_correlation_id(self._msg, value)


def _owned(value: Any) -> Any:
    return bytes(value) if isinstance(value, memoryview) else value


# -- copies ---------------------------------------------------------------------------------------

_FLAGS = ("durable", "first_acquirer")
_FIELDS = (
    *(
        "priority",
        "ttl",
        "delivery_count",
        "id",
        "user_id",
        "address",
        "subject",
        "reply_to",
        "correlation_id",
    ),
    *("content_type", "content_encoding", "expiry_time", "creation_time", "group_id", "group_sequence"),
    "reply_to_group_id",
)
_SIZE = 1024
# Attributes that hold the C message or its encoded sections.
_OF_C = ("_msg", "_start", "_inferred", "instruction_dict", "annotation_dict")


def reduce_message(message: proton.Message) -> tuple[Any, ...]:
    """Return the reduced form of a message, for ``copy`` and ``pickle``.

    By default they copy the address of the C message, which is then freed twice and ends the process.
    """
    # Plain dictionaries: proton's cannot be unpickled.
    maps = [
        dict(each) if isinstance(each, dict) else each for each in (message.instructions, message.annotations)
    ]
    state = {name: value for name, value in vars(message).items() if name not in _OF_C}
    return _restored, (type(message), _start_of(message), message.inferred, *maps), state


def _restored(kind: type[proton.Message], start: bytes, inferred: bool, *maps: Any) -> proton.Message:  # noqa: FBT001
    message = kind()
    message._check(lib.pn_message_decode(message._msg, ffi.from_buffer(start), len(start)))
    message.inferred = inferred
    message.instructions, message.annotations = maps
    return message


def _start_of(message: proton.Message) -> bytes:
    """Encode header and properties; the other sections in the C message are neither read nor changed."""
    original, made = message._msg, lib.pn_message()
    try:
        for name in _FLAGS:
            getattr(lib, f"pn_message_set_{name}")(made, getattr(lib, f"pn_message_is_{name}")(original))
        for name in _FIELDS:
            getattr(lib, f"pn_message_set_{name}")(made, getattr(lib, f"pn_message_get_{name}")(original))
        size = _SIZE
        while True:
            buffer = ffi.new("char[]", size)
            written: int = lib.pn_message_encode_py(made, buffer, size)
            if written != lib.PN_OVERFLOW:
                return ffi.unpack(buffer, message._check(written))  # type: ignore[no-any-return]
            size *= 2
    finally:
        lib.pn_message_free(made)


# Applications create messages of proton's own class, which has no ``__reduce__``.
copyreg.pickle(proton.Message, reduce_message)
