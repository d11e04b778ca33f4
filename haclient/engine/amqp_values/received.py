"""A message that was received."""

from __future__ import annotations

from typing import Any, Self

import cproton
import proton
from cproton_ffi import ffi, lib

from haclient.engine.amqp_values.decode import Sections
from haclient.engine.amqp_values.encode import UnencodableValue
from haclient.engine.amqp_values.message import Message, SequenceSections


class ReceivedMessage(Message):
    """A message that was received, whose binary ids may be kept longer than itself.

    It has no C message until a field of its header or its properties is asked for: making and freeing one
    takes longer than reading the body.
    """

    @classmethod
    def plain(cls, start: bytes, body: Any, *, inferred: bool) -> Self:
        """A message of a header and properties, encoded, and a body."""
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
        """A message of these sections."""
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
