"""Lines of ``haclient send --json``: a message as in the line is sent, or one sentence names the error.

Rules: a line is an encodable message, or the command refuses it with one printable line. A message that
arrives, is written by ``receive --json`` and is sent again, arrives unchanged.

An input that begins with ``{`` is a line. Any other input generates a line, so that most mutations are
JSON.
"""

from __future__ import annotations

import base64
import contextlib
import json
import struct
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import proton

from haclient.cli import message_json
from haclient.cli.commands import send
from haclient.cli.options import UnusableError
from haclient.engine import codec
from tests.fuzz.target import Defect, Target
from tests.fuzz.values import Reader

_ARGUMENTS = send.SendArguments(
    address="orders",
    message=None,
    count=None,
    rate=None,
    durable=True,
    capabilities=(),
    properties=(),
    as_json=True,
)
_NAMES = (*message_json._FIELDS, "properties", "body")
_TEXTS = (*_NAMES, "", "\0", "\ud800", "x-opt", "text/plain", "_AMQ_DUPL_ID", "$bytes", "$x")
_DEPTH = 3
_MOST_FIELDS = 5


class SendJson(Target):
    name = "send_json"
    words = (
        *(b'"%s": ' % name.encode() for name in _NAMES),
        *(b'{"%s": ' % name.encode() for name in message_json._SPECIAL),
        *(b"null", b"true", b"-1", b"1e308", b"NaN", b"18446744073709551616", b'"\\ud800"', b"[", b"{", b"}"),
    )

    def __init__(self) -> None:
        self._encoder = codec.Encoder()

    def run(self, data: bytes) -> None:
        first = self._sent(data if data[:1] == b"{" else _line(Reader(data, _TEXTS)))
        if first is None:
            return
        line = json.dumps(message_json.to_json(first), ensure_ascii=False)
        again = self._sent(line.encode())
        if again is None:
            raise Defect(f"what was received is not sent again: {line}")
        if isinstance(first.properties, dict):  # a send's id belongs only to that send
            first.properties.pop(codec.DUPLICATE_ID_PROPERTY, None)
        for name in _NAMES:
            was, found = repr(_field(first, name)), repr(_field(again, name))
            if was != found:
                raise Defect(f"{name} is {found}, and was {was}")

    def _sent(self, line: bytes) -> Any:
        """Return the message that arrives; ``None`` for a line that is refused."""
        with _one_sentence():
            message = send._made(_ARGUMENTS, line, "line 1")
            with send._input_errors("line 1"):
                data = self._encoder.encode(message, durable=message.durable)
            return codec.decode(data)
        return None

    def planted(self) -> AbstractContextManager[object]:
        """A time before 1970 is written as one after it."""
        original = message_json.encoded

        def wrong(value: Any) -> Any:
            return original(proton.timestamp(abs(value)) if isinstance(value, proton.timestamp) else value)

        return mock.patch.object(message_json, "encoded", wrong)


def _field(message: proton.Message, name: str) -> Any:
    value = getattr(message, name)
    return None if name == "properties" and not value else value


def _line(reader: Reader) -> bytes:
    fields = {reader.choice(_NAMES): _value(reader, _DEPTH) for _ in range(1 + reader.byte() % _MOST_FIELDS)}
    return json.dumps(fields).encode()


def _value(reader: Reader, depth: int) -> Any:
    """Return any JSON value."""
    match reader.byte() % (9 if depth else 6):
        case 0:
            return reader.choice([None, True, False, 0, -1, 2**31, 2**63, 2**64, 1e308, -0.0])
        case 1 | 2:
            return reader.text()
        case 3:
            return _number(reader)
        case 4:
            return struct.unpack("d", reader.take(8).ljust(8, b"\0"))[0]
        case 5 | 6:
            return _special(reader, depth)
        case 7:
            return [_value(reader, depth - 1) for _ in range(reader.byte() % _MOST_FIELDS)]
        case _:
            return {reader.text(): _value(reader, depth - 1) for _ in range(reader.byte() % _MOST_FIELDS)}


def _special(reader: Reader, depth: int) -> dict[str, Any]:
    """Return a value that JSON lacks, in the form of ``message_json``."""
    name = reader.choice(list(message_json._SPECIAL))
    match name:
        case "$bytes":
            return {name: base64.b64encode(reader.take(reader.byte())).decode()}
        case "$uuid":
            return {name: str(uuid.UUID(bytes=reader.take(16).ljust(16, b"\0")))}
        case "$timestamp":
            return {name: _number(reader)}
        case "$float":
            return {name: reader.choice(["nan", "inf", "-inf", "0x"])}
        case _:
            pairs = range(reader.byte() % _MOST_FIELDS if depth else 0)
            return {name: [[_value(reader, 0), _value(reader, depth - 1)] for _ in pairs]}


def _number(reader: Reader) -> int:
    return int.from_bytes(reader.take(reader.byte() % 10), signed=True)


@contextlib.contextmanager
def _one_sentence() -> Iterator[None]:
    try:
        yield
    except UnusableError as error:
        if not error.message.isprintable() or not error.message.startswith("line 1: "):
            raise Defect(f"an error that is no sentence: {error.message!r}") from error


TARGET = SendJson
