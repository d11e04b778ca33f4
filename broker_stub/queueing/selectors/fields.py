"""The identifiers of a selector, and their values in a message.

Sources: the JMS mapping of AMQP, section 3.2 (header and properties); Apache Qpid's C++ broker (``amqp.``).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, Final

import proton

from broker_stub.amqp.message_format import MalformedMessageError, body_start
from broker_stub.queueing.selectors.conditions import Value

# A message from before nesting was limited may have more levels than Python's recursion limit.
_UNREADABLE = (
    MalformedMessageError,
    proton.ProtonException,
    TypeError,
    ValueError,
    OverflowError,
    RecursionError,
)


class Fields:
    """Header and properties of one message, decoded on first use."""

    __slots__ = ("_data", "_message")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._message: proton.Message | None = None

    def value(self, name: str) -> Value:
        """Return the value of an identifier; ``None`` if it is missing or cannot be compared."""
        message = self._message
        if message is None:
            message = self._message = _decode(self._data)
        field = _FIELDS.get(name)
        try:
            found = _property(message, name) if field is None else field(message)
        except UnicodeDecodeError:  # proton decodes a field when it is read
            return None
        return _plain(found)


def _decode(data: bytes) -> proton.Message:
    message = proton.Message()
    try:
        if head := data[: body_start(data)]:  # some builds of proton assert that there is something to decode
            message.decode(head)
    except _UNREADABLE:
        return proton.Message()
    return message if isinstance(message.properties, dict | None) else proton.Message()


def _property(message: proton.Message, name: str) -> Any:
    properties: dict[str, Any] = message.properties or {}
    return properties.get(name)


def _plain(value: Any) -> Value:
    if isinstance(value, bool | str | None):
        return value
    if isinstance(value, proton.char):
        return str(value)
    if isinstance(value, int):
        return int(value)
    return float(value) if isinstance(value, float) else None


def _identifier(value: Any) -> str | None:
    """Return a message id in the form of JMS: strings unchanged, other types with a prefix for the type."""
    match value:
        case None | str():
            return value
        case int():
            return f"ID:AMQP_ULONG:{int(value)}"
        case uuid.UUID():
            return f"ID:AMQP_UUID:{value}"
        case _:
            return f"ID:AMQP_BINARY:{bytes(value).hex().upper()}"


def _milliseconds(seconds: float) -> int | None:
    return round(seconds * 1000) or None


_FIELDS: Final[dict[str, Callable[[proton.Message], Any]]] = {
    "JMSDeliveryMode": lambda message: "PERSISTENT" if message.durable else "NON_PERSISTENT",
    "JMSPriority": lambda message: message.priority,
    "JMSMessageID": lambda message: _identifier(message.id),
    "JMSTimestamp": lambda message: _milliseconds(message.creation_time),
    "JMSCorrelationID": lambda message: _identifier(message.correlation_id),
    "JMSType": lambda message: message.subject,
    "JMSXGroupID": lambda message: message.group_id,
    "JMSXGroupSeq": lambda message: message.group_sequence,
    "JMSXUserID": lambda message: bytes(message.user_id).decode() if message.user_id else None,
    "amqp.durable": lambda message: message.durable,
    "amqp.priority": lambda message: message.priority,
    "amqp.message_id": lambda message: _identifier(message.id),
    "amqp.to": lambda message: message.address,
    "amqp.subject": lambda message: message.subject,
    "amqp.reply_to": lambda message: message.reply_to,
    "amqp.correlation_id": lambda message: _identifier(message.correlation_id),
    "amqp.creation_time": lambda message: _milliseconds(message.creation_time),
    "amqp.group_id": lambda message: message.group_id,
}
