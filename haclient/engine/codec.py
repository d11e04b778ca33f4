"""A ``proton.Message`` to bytes and back.

``Message.encode`` tries buffers of 16, 32, 64, ... bytes until the message fits, and writing one
application property costs it two passes over a Python dictionary.  ``Encoder`` keeps a buffer of
the right size and puts the duplicate-detection id next to the application's own properties
without touching the message that the application holds.

Source: AMQP 1.0 part 3, section 3.2 (message format); the property name is that of Apache
ActiveMQ Artemis (user manual, "Duplicate Message Detection").
"""

from __future__ import annotations

from typing import Any

import proton
from cproton_ffi import ffi, lib

DUPLICATE_ID_PROPERTY = "_AMQ_DUPL_ID"

_FIRST_SIZE = 4096
_PN_OVERFLOW: int = lib.PN_OVERFLOW
_PROPERTY_NAME = DUPLICATE_ID_PROPERTY.encode()


class Encoder:
    """Encodes messages one after another.  Not for use by two threads at once."""

    __slots__ = ("_buffer", "_size")

    def __init__(self) -> None:
        self._size = _FIRST_SIZE
        self._buffer = ffi.new("char[]", _FIRST_SIZE)

    def encode(self, message: proton.Message, duplicate_id: str | None = None) -> bytes:
        """The message as bytes, with ``duplicate_id`` unless the application set its own.

        :raises proton.MessageException: when a property key is not a string.
        :raises proton.DataException: when a value cannot be an AMQP value.
        """
        message._pre_encode()
        pn_message = message._msg
        if duplicate_id is not None:
            properties = message.properties
            if not properties:
                _put_only_property(lib.pn_message_properties(pn_message), duplicate_id)
            elif DUPLICATE_ID_PROPERTY not in properties:
                data = proton.Data(lib.pn_message_properties(pn_message))
                data.clear()
                data.put_object({**properties, DUPLICATE_ID_PROPERTY: duplicate_id})
        size: int = lib.pn_message_encode_py(pn_message, self._buffer, self._size)
        while size == _PN_OVERFLOW:
            self._size *= 2
            self._buffer = ffi.new("char[]", self._size)
            size = lib.pn_message_encode_py(pn_message, self._buffer, self._size)
        if size < 0:
            message._check(size)
        return ffi.unpack(self._buffer, size)  # type: ignore[no-any-return]


def _put_only_property(data: Any, duplicate_id: str) -> None:
    """Write the map {property name: id} straight into proton's data."""
    value = duplicate_id.encode()
    lib.pn_data_clear(data)
    lib.pn_data_put_map(data)
    lib.pn_data_enter(data)
    lib.pn_data_put_string(data, (len(_PROPERTY_NAME), ffi.from_buffer(_PROPERTY_NAME)))
    lib.pn_data_put_string(data, (len(value), ffi.from_buffer(value)))
    lib.pn_data_exit(data)


def decode(data: bytes) -> proton.Message:
    """The message that ``data`` encodes.

    Binary values come out of proton as views into the message's own memory, and using one after
    the message is gone crashes the process; so they are copied here to ``bytes``.

    :raises proton.MessageException: when it is not an AMQP message.
    """
    message = proton.Message()
    message.decode(data)
    message.body = _owned(message.body)
    for name in ("properties", "annotations", "instructions"):
        value = getattr(message, name)
        if value:
            setattr(message, name, _owned(value))
    return message


def _owned(value: Any) -> Any:
    if isinstance(value, memoryview):
        return bytes(value)
    if isinstance(value, proton.Described):
        return proton.Described(value.descriptor, _owned(value.value))
    if isinstance(value, proton.Array):
        return proton.Array(value.descriptor, value.type, *map(_owned, value.elements))
    if isinstance(value, list):
        return [_owned(item) for item in value]
    if isinstance(value, dict):
        for key, item in value.items():
            value[key] = _owned(item)
    return value
