"""A second decoder of messages, which reports values that it cannot decode.

``proton.Message`` leaves out values that proton's decoder refuses, and all after them.  Here that decoder
reads one section after another, and its errors count.
"""

from __future__ import annotations

from typing import Any

import proton

HEADER, INSTRUCTIONS, ANNOTATIONS, PROPERTIES, APPLICATION_PROPERTIES = 0x70, 0x71, 0x72, 0x73, 0x74
DATA, SEQUENCE, VALUE, FOOTER = 0x75, 0x76, 0x77, 0x78
_SYMBOLS = {
    "amqp:header:list": HEADER,
    "amqp:delivery-annotations:map": INSTRUCTIONS,
    "amqp:message-annotations:map": ANNOTATIONS,
    "amqp:properties:list": PROPERTIES,
    "amqp:application-properties:map": APPLICATION_PROPERTIES,
    "amqp:data:binary": DATA,
    "amqp:amqp-sequence:list": SEQUENCE,
    "amqp:amqp-value:*": VALUE,
    "amqp:footer:map": FOOTER,
}


class NoJudgeError(Exception):
    """proton's decoder cannot read this, or reads it otherwise than it was written."""


def plain(value: Any) -> Any:
    """Return a value with the names of its types, equal for equal values of AMQP."""
    match value:
        case memoryview() | bytes() if not isinstance(value, proton.decimal128):
            return "bytes", bytes(value)
        case proton.Described():
            if isinstance(value.value, proton.Described):
                raise NoJudgeError("proton does not end a value that is described twice")
            if isinstance(value.descriptor, proton.Described):
                raise NoJudgeError("proton reads no descriptor that is described itself")
            return "described", plain(value.descriptor), plain(value.value)
        case proton.Array():
            return "array", plain(value.descriptor), int(value.type), [plain(each) for each in value.elements]
        case list():
            return "list", [plain(each) for each in value]
        case dict():
            return "map", [(plain(key), plain(item)) for key, item in value.items()]
        case _:
            return type(value).__name__, repr(value)


def sections_of(data: bytes) -> list[tuple[int, Any]]:
    """Return the codes and the values of the sections, in the form of ``plain``.

    :raises proton.DataException: if proton's decoder refuses it.
    :raises ValueError: if it is no message.
    :raises NoJudgeError: see there.
    """
    found = []
    while data:
        section = proton.Data()
        read = section.decode(data)
        section.rewind()
        section.next()
        value = section.get_object()
        if not isinstance(value, proton.Described):
            raise ValueError("a section is a described value")  # noqa: TRY004 - of the input
        code = _SYMBOLS.get(value.descriptor, value.descriptor)
        found.append((int(code), plain(value.value)))
        data = data[read:]
    return found


def content_of(data: bytes) -> dict[str, Any]:
    """Return the content of a message, by the names of ``proton.Message``: see ``sections_of``."""
    sections = sections_of(data)
    content: dict[str, Any] = dict.fromkeys(
        ("instructions", "annotations", "properties"), ("NoneType", "None")
    )
    names = {INSTRUCTIONS: "instructions", ANNOTATIONS: "annotations", APPLICATION_PROPERTIES: "properties"}
    for code, value in sections:
        if code in names:
            content[names[code]] = value
    bodies = [(code, value) for code, value in sections if DATA <= code <= VALUE]
    if len(bodies) > 1 and bodies[0][0] == SEQUENCE:
        content["body"] = "list", [value for _, value in bodies]
    elif bodies and bodies[0][0] == DATA:
        content["body"] = "bytes", b"".join(value[1] for _, value in bodies)
    else:
        content["body"] = bodies[0][1] if bodies else ("NoneType", "None")
    return content
