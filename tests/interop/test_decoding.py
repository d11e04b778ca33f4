"""rhea, as a second decoder, reads generated messages the same as the client does."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import proton
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from haclient import SequenceSections
from haclient.engine.amqp_values.decode import read_sections
from tests.engine.encoded_messages import MESSAGES
from tests.interop.installed import NODE_MODULES, needs_rhea

pytestmark = needs_rhea

_PROGRAM = Path(__file__).with_name("rhea_decoder.js")
_NULL = ["null"]


def facts(value: Any) -> Any:
    """Convert a value to the form that the rhea program writes."""
    return _FACTS[type(value)](value)


def _number(name: str) -> Callable[[Any], Any]:
    return lambda value: [name, str(int(value))]


def _list(value: list[Any]) -> Any:
    return ["list", [facts(each) for each in value]]


def _array(value: proton.Array) -> Any:
    described = value.descriptor != proton.UNDESCRIBED
    descriptor = facts(value.descriptor) if described else None
    return ["array", descriptor, [facts(each) for each in value.elements]]


_FACTS: dict[type, Callable[[Any], Any]] = {
    type(None): lambda _: _NULL,
    bool: lambda value: ["bool", value],
    proton.ubyte: _number("ubyte"),
    proton.ushort: _number("ushort"),
    proton.uint: _number("uint"),
    proton.ulong: _number("ulong"),
    proton.byte: _number("byte"),
    proton.short: _number("short"),
    proton.int32: _number("int"),
    int: _number("long"),
    proton.timestamp: _number("timestamp"),
    proton.float32: lambda value: ["float", struct.pack(">f", value).hex()],
    float: lambda value: ["double", struct.pack(">d", value).hex()],
    proton.decimal32: lambda value: ["decimal32", int(value).to_bytes(4).hex()],
    proton.decimal64: lambda value: ["decimal64", int(value).to_bytes(8).hex()],
    proton.decimal128: lambda value: ["decimal128", value.hex()],
    proton.char: lambda value: ["char", ord(value).to_bytes(4).hex()],
    str: lambda value: ["string", value],
    proton.symbol: lambda value: ["symbol", str(value)],
    bytes: lambda value: ["binary", value.hex()],
    uuid.UUID: lambda value: ["uuid", value.hex],
    list: _list,
    SequenceSections: lambda value: ["sections", _list(value)[1]],
    dict: lambda value: ["map", [facts(each) for pair in value.items() for each in pair]],
    proton.Described: lambda value: ["described", facts(value.descriptor), facts(value.value)],
    proton.Array: _array,
}


def content_of(sections: list[Any]) -> dict[str, Any]:
    """Convert the program's sections to the client's form."""
    values = [(int(descriptor[1]), _without_codes(value)) for _, descriptor, value in sections]
    bodies = [(code, value) for code, value in values if 0x75 <= code <= 0x77]
    if len(bodies) > 1 and bodies[0][0] == 0x76:
        body = ["sections", [value for _, value in bodies]]
    elif bodies and bodies[0][0] == 0x75:
        body = ["binary", "".join(value[1] for _, value in bodies)]
    else:
        body = bodies[0][1] if bodies else _NULL
    maps = dict(values)
    return {"body": body, **{str(code): maps.get(code, _NULL) for code in (0x71, 0x72, 0x74)}}


def _without_codes(value: Any) -> Any:
    match value:
        case ["array", _, descriptor, items]:
            return ["array", _without_codes(descriptor), [_without_codes(each) for each in items]]
        case ["list" | "map" as kind, items]:
            return [kind, [_without_codes(each) for each in items]]
        case ["described", descriptor, inner]:
            return ["described", _without_codes(descriptor), _without_codes(inner)]
        case _:
            return value


def read_by_the_client(data: bytes) -> dict[str, Any]:
    found = read_sections(data)
    maps = {0x71: found.instructions, 0x72: found.annotations, 0x74: found.properties}
    return {"body": facts(found.body), **{str(code): facts(value) for code, value in maps.items()}}


# Shrinking a failure would start the program some hundred times.
@settings(max_examples=15, phases=[Phase.generate], suppress_health_check=list(HealthCheck), deadline=None)
@given(st.lists(MESSAGES.filter(bool), min_size=4, max_size=10))
def test_rhea_reads_the_same_in_every_message(messages: list[bytes]) -> None:
    lines = "".join(f"{data.hex()}\n" for data in messages)
    command = ["node", str(_PROGRAM)]
    environment = {**os.environ, "NODE_PATH": str(NODE_MODULES)}
    written = subprocess.run(
        command, input=lines, env=environment, capture_output=True, text=True, check=True, timeout=60
    ).stdout
    for data, line in zip(messages, written.rstrip("\n").split("\n"), strict=True):
        read = read_by_the_client(data)
        assert read == content_of(json.loads(line)), data.hex()
