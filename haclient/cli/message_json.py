"""A message as a JSON object, and back.

    {"durable": true, "subject": "greeting", "properties": {"n": 1}, "body": "one"}

``durable`` is always written: a message that says nothing of it is sent as the command line says.  Other
fields that are as AMQP has them by default are left out.  What JSON has no value for is an object of one
key with a ``$``: ``{"$bytes": BASE64}``, ``{"$uuid": TEXT}``, ``{"$timestamp": MILLISECONDS}``, ``{"$float":
"nan"}``, and ``{"$map": [[KEY, VALUE], ...]}`` for a map whose keys are not text.  Whole numbers come back as
long.  The id by which brokers drop second copies is left out: it belongs to one send.
"""

from __future__ import annotations

import base64
import binascii
import math
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import proton

from haclient.engine.codec import DUPLICATE_ID_PROPERTY
from haclient.error_catalog.arguments import check_text

UNREADABLE = (proton.ProtonException, ValueError, TypeError, OverflowError, RecursionError)
"""Errors that reading the fields of a message from any peer raises, or writing them as JSON."""

_UNSET = "None"  # proton's word for a symbol that is not there
# Field of JSON, which is the attribute of proton's message, and its default.
_FIELDS: Mapping[str, Any] = {
    "id": None,
    "address": None,
    "subject": None,
    "reply_to": None,
    "correlation_id": None,
    "content_type": _UNSET,
    "content_encoding": _UNSET,
    "user_id": b"",
    "group_id": None,
    "group_sequence": 0,
    "durable": None,
    "priority": 4,
    "ttl": 0.0,
    "creation_time": 0.0,
    "expiry_time": 0.0,
    "annotations": None,
}
_READ_ONLY = "delivery_count"  # the broker's; ignored in what is sent
_NAMES = (*_FIELDS, "properties", "body")
_TIMES = {"ttl", "creation_time", "expiry_time"}
# proton takes any object for some of them, and something else of it.
_KINDS: Mapping[str, type] = {
    **dict.fromkeys(_TIMES, float),
    **dict.fromkeys(("address", "subject", "reply_to", "content_type", "content_encoding", "group_id"), str),
    **dict.fromkeys(("priority", "group_sequence"), int),
    **dict.fromkeys(("properties", "annotations"), dict),
    "durable": bool,
    "user_id": bytes,
}
_TYPE_NAMES = {
    float: "number",
    str: "text",
    int: "whole number",
    dict: "object",
    bool: "truth value",
    bytes: "$bytes",
}


def to_json(message: proton.Message) -> dict[str, Any]:
    """The message as JSON has it."""
    found: dict[str, Any] = {}
    for name, default in _FIELDS.items():
        value = getattr(message, name)
        if value is not None and value != default:
            found[name] = encoded(value)
    given: dict[Any, Any] = message.properties or {}
    properties = {key: value for key, value in given.items() if key != DUPLICATE_ID_PROPERTY}
    if properties:
        found["properties"] = encoded(properties)
    if message.delivery_count:
        found[_READ_ONLY] = message.delivery_count
    return {**found, "body": encoded(message.body)}


def from_json(found: Any, *, durable: bool) -> proton.Message:
    """The message that a JSON object stands for.

    :param durable: for an object that does not say.
    :raises ValueError: names the field at fault.
    """
    if not isinstance(found, dict):
        raise ValueError(  # noqa: TRY004 - an error of the input, not of the program
            'a message is an object, as {"body": "one"}'
        )
    message = proton.Message(durable=durable)
    for name, value in found.items():
        if name == _READ_ONLY:
            continue
        if name not in _NAMES:
            raise ValueError(f"field {name!r} is none of {', '.join(_NAMES)}")
        try:
            _set(message, name, decoded(value))
        except (TypeError, ValueError, AttributeError, OverflowError, proton.ProtonException) as error:
            raise ValueError(f"field {name!r}: {error}") from error
    return message


def _set(message: proton.Message, name: str, value: Any) -> None:
    kind = _KINDS.get(name)
    if kind is not None and type(value) is not kind and not (kind is float and type(value) is int):
        raise ValueError(f"{value!r} is no {_TYPE_NAMES[kind]}")
    if kind is str:
        check_text("text", value)  # proton cuts it at a NUL
    setattr(message, name, float(value) if name in _TIMES else value)


def encoded(value: Any) -> Any:
    """A value of AMQP as JSON has it.

    Two Python calls a level at most: a message may have ``MOST_LEVELS`` of them, and Python has a thousand.
    """
    match value:
        case None | bool():
            return value
        case proton.timestamp():
            return {"$timestamp": int(value)}
        case str():
            return str(value)
        case int():
            return int(value)
        case float():
            return float(value) if math.isfinite(value) else {"$float": repr(float(value))}
        case bytes() | bytearray() | memoryview():
            return {"$bytes": base64.b64encode(bytes(value)).decode()}
        case uuid.UUID():
            return {"$uuid": str(value)}
        case dict():
            return _encoded_map(value)
        case list() | tuple():
            return list(map(encoded, value))
        case _:
            return {"$unknown": repr(value)}


def _encoded_map(value: dict[Any, Any]) -> dict[str, Any]:
    values = map(encoded, value.values())
    if all(isinstance(key, str) and not key.startswith("$") for key in value):
        return dict(zip(map(str, value), values, strict=True))
    return {"$map": list(map(list, zip(map(encoded, value), values, strict=True)))}


def decoded(value: Any) -> Any:
    """What ``encoded`` made of a value.

    :raises ValueError: for an object with a ``$`` that is none of ours.
    """
    if isinstance(value, list):
        return [decoded(each) for each in value]
    if not isinstance(value, dict):
        return value
    special = [key for key in value if key.startswith("$")]
    if not special:
        return {key: decoded(each) for key, each in value.items()}
    read = _SPECIAL.get(special[0])
    if len(value) > 1 or read is None:
        raise ValueError(f"{special[0]!r} is not one of {', '.join(_SPECIAL)}, alone in its object")
    try:
        return read(value[special[0]])
    except (TypeError, ValueError, AttributeError, binascii.Error) as error:
        raise ValueError(f"{special[0]}: {error}") from error


_SPECIAL: Mapping[str, Callable[[Any], Any]] = {
    "$bytes": lambda text: base64.b64decode(text, validate=True),
    "$uuid": uuid.UUID,
    "$timestamp": proton.timestamp,
    "$float": float,
    "$map": lambda pairs: {decoded(key): decoded(each) for key, each in pairs},
}
