"""Conversion of a message to a JSON object, and back.

    {"durable": true, "subject": "greeting", "properties": {"n": 1}, "body": "one"}

``durable`` is always written; if it is missing in the input, the command line decides.  Other fields
are omitted if they have AMQP's default.  A value without a JSON type is an object with one key that begins
with ``$``: ``{"$bytes": BASE64}``, ``{"$uuid": TEXT}``, ``{"$timestamp": MILLISECONDS}``, ``{"$float":
"nan"}``.  A map whose keys are not text is ``{"$map": [[KEY, VALUE], ...]}``.  Whole numbers are read as
long.  The duplicate-detection id is omitted, because it belongs to one send.
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
"""Errors from reading a message's fields, which any peer may have written, or from writing them as JSON."""

_UNSET = "None"  # proton's value for a missing symbol
# Fields in JSON, with their defaults; proton's message has attributes of the same names.
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
_READ_ONLY = "delivery_count"  # set by the broker; ignored in input
_NAMES = (*_FIELDS, "properties", "body")
_TIMES = {"ttl", "creation_time", "expiry_time"}
# Types to check: proton accepts any object for some fields, and converts it.
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
    """Convert a message to a JSON object."""
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
    """Convert a JSON object to a message.

    :param durable: value for an object without ``durable``.
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
        check_text("text", value)  # proton would cut it at a NUL
    setattr(message, name, float(value) if name in _TIMES else value)


def encoded(value: Any) -> Any:
    """Convert an AMQP value to a JSON value.

    Each level takes two Python calls at most, because a message may have ``MOST_LEVELS``, and Python allows
    a thousand calls.
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
    """Convert a JSON value back to the AMQP value.

    :raises ValueError: for an object with an unknown key that begins with ``$``.
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
