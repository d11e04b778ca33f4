"""Converts AMQP messages to the JSON of qpid-interop-test's shims, and back.

A message that represents a JMS message has the message annotation ``x-opt-jms-msg-type``. A JMS map or
stream carries one value here and has the value's type.

Source: qpid-interop-test 2.0, "How to Write a QIT Shim"; AMQP JMS Mapping 1.0, section 3.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import proton

from tests.interop.qit.values import bits_of, float_of, from_amqp, to_amqp

JMS_TYPE = proton.symbol("x-opt-jms-msg-type")
JMS_REPLY_TYPE = proton.symbol("x-opt-jms-reply-to")
# The JMS message type for the AMQP type of a body.
JMS_TYPES = {"null": 0, "map": 2, "binary": 3, "list": 4, "string": 5}
_JMS_NAMES = {number: name for name, number in JMS_TYPES.items()}
# The shims' names for the JMS body types.
_JMS_BODIES = {"string": "text", "binary": "bytes", "null": "null"}
_BITS = {"byte": 8, "short": 16, "int": 32, "long": 64}
_DESTINATIONS = ("queue", "topic")


def message_for(
    data: Mapping[str, Any],
    kind: str,
    *,
    jms: bool = False,
    headers: Mapping[str, Any] | None = None,
    properties: Mapping[str, Any] | None = None,
    header: Mapping[str, Any] | None = None,
) -> proton.Message:
    """Return the message that these arguments of a shim describe.

    :param data: ``index``, ``type`` and ``value``; the index is the message's id.
    :param kind: the type of the body; the type in ``data`` is of the value in it.
    :param headers: JMS headers.
    :param header: fields of the AMQP header section; ``ttl`` is in milliseconds.
    """
    message = proton.Message()
    message.id = proton.ulong(data["index"])
    message.body = _body(data, kind, jms=jms)
    if jms and kind in JMS_TYPES:
        _annotate(message, JMS_TYPE, JMS_TYPES[kind])
        # A data section for bytes and a sequence for a stream, as Qpid JMS sends them.
        message.inferred = kind in ("binary", "list")
    _set_headers(message, headers or {})
    if properties:
        _set_properties(message, properties)
    set_header(message, header or {})
    return message


def set_header(message: proton.Message, header: Mapping[str, Any]) -> None:
    """Set fields of the AMQP header section; see ``message_for``."""
    for field, value in header.items():
        # proton's time to live is in seconds.
        setattr(message, field, value / 1000 if field == "ttl" else value)


def _body(data: Mapping[str, Any], kind: str, *, jms: bool) -> Any:
    if not jms or kind not in ("map", "list"):
        return to_amqp(data["type"], data["value"])
    value = to_amqp(data["type"], data["value"])
    return {f"{data['type']}_{data['index']:03d}": value} if kind == "map" else [value]


def _set_headers(message: proton.Message, headers: Mapping[str, Any]) -> None:
    if correlation := headers.get("JMSCorrelationID"):
        value = correlation["value"]
        message.correlation_id = bytes.fromhex(value) if correlation["type"] == "bytes" else value
    if reply := headers.get("JMSReplyTo"):
        message.reply_to = reply["value"]
        _annotate(message, JMS_REPLY_TYPE, _DESTINATIONS.index(reply["type"]))
    if subject := headers.get("JMSType"):
        message.subject = subject["value"]


def _set_properties(message: Any, properties: Mapping[str, Any]) -> None:
    message.properties = {name: _property(**given) for name, given in properties.items()}


def _annotate(message: Any, name: proton.symbol, value: int) -> None:
    message.annotations = {**(message.annotations or {}), name: proton.byte(value)}


def _property(type: str, value: Any) -> Any:  # noqa: A002  (the word of the JSON)
    if type in _BITS and isinstance(value, str):
        bits = int(value, 16)
        value = bits - (1 << _BITS[type]) if bits >> (_BITS[type] - 1) else bits
    if type in ("float", "double"):
        return proton.float32(float_of(type, value)) if type == "float" else float_of(type, value)
    return to_amqp(type, value)


def json_of(message: proton.Message, position: int) -> dict[str, Any]:
    """Return a shim's output for a message.

    :param position: the index of a message whose id is no number.
    """
    annotations: Any = message.annotations or {}
    jms = _JMS_NAMES.get(annotations.get(JMS_TYPE, -1))
    kind, value = from_amqp(message.body) if jms is None else _jms_body(message.body, jms)
    found: dict[str, Any] = {
        "index": int(message.id) if isinstance(message.id, int) else position,
        "type": kind,
        "value": value,
        "message_header": _header(message),
    }
    if headers := _headers(message, annotations):
        found["headers"] = headers
    if message.properties:
        found["properties"] = {name: _property_json(value) for name, value in message.properties.items()}
    return found


def _jms_body(body: Any, jms: str) -> tuple[str, Any]:
    if jms in ("map", "list"):
        values = list(body.values() if jms == "map" else body) if body else []
        return from_amqp(values[0]) if values else ("none", None)
    if jms == "binary":
        return "bytes", bytes(body or b"").hex()
    return _JMS_BODIES[jms], body


def _header(message: proton.Message) -> dict[str, Any]:
    return {
        "durable": message.durable,
        "priority": message.priority,
        "ttl": round(message.ttl * 1000),
        "first_acquirer": message.first_acquirer,
        "delivery_count": message.delivery_count,
    }


def _headers(message: proton.Message, annotations: Mapping[Any, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    correlation: Any = message.correlation_id
    if isinstance(correlation, bytes | bytearray | memoryview):
        found["JMSCorrelationID"] = {"type": "bytes", "value": bytes(correlation).hex()}
    elif correlation is not None:
        found["JMSCorrelationID"] = str(correlation)
    if message.reply_to is not None:
        kind = _DESTINATIONS[annotations.get(JMS_REPLY_TYPE, 0) & 1]
        found["JMSReplyTo"] = {"type": kind, "value": message.reply_to}
    if message.subject is not None:
        found["JMSType"] = message.subject
    return found


def _property_json(value: Any) -> dict[str, Any]:
    kind, plain = from_amqp(value)
    if kind in _BITS:
        plain = f"0x{plain & ((1 << _BITS[kind]) - 1):0{_BITS[kind] // 4}x}"
    elif kind in ("float", "double"):
        plain = bits_of(kind, value)
    return {"type": kind, "value": plain}
