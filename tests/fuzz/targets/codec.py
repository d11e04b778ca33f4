"""Messages and values: our codec against a second decoder, and the broker's changes of sections against
both.

Rules: invalid bytes raise the error in the docstrings, and no other. A message that is decoded and
encoded again is the same to proton. A header that the broker writes is correct, and leaves the bare
message unchanged.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from unittest import mock

import proton
from cproton_ffi import ffi, lib

from broker_stub.amqp import message_format, message_header
from broker_stub.amqp.message_format import MalformedMessageError
from haclient.engine import codec
from haclient.engine.amqp_values.decode import UndecodableMessage, read_sections
from haclient.engine.amqp_values.encode import UnencodableValue
from haclient.engine.sasl import frames
from haclient.engine.wire.greeting import Greeting
from tests.engine.judge import NoJudgeError, content_of, plain
from tests.fuzz.target import Defect, Target


class Codec(Target):
    name = "codec"
    words = tuple(b"\x00\x53" + bytes([section]) for section in range(0x70, 0x79))

    def __init__(self) -> None:
        self._encoder = codec.Encoder()
        self._checks: tuple[Callable[[bytes], None], ...] = (
            self._message,
            self._apart,
            _sections,
            _header,
            _greeting,
        )

    def run(self, data: bytes) -> None:
        """Choose a check by the first byte, and pass it the rest."""
        if data:
            self._checks[data[0] % len(self._checks)](data[1:])

    def planted(self) -> AbstractContextManager[object]:
        """A plain text with any character other than lower-case letters loses its last one."""
        original = codec.decode_plain

        def wrong(data: bytes) -> object:
            found = original(data)
            body = None if found is None else found[0].body
            if found is not None and isinstance(body, str) and not (body.isalpha() and body.islower()):
                found[0].body = body[:-1]
            return found

        return mock.patch.object(codec, "decode_plain", wrong)

    def _message(self, data: bytes) -> None:
        try:
            message, found = codec.decode(data), read_sections(data)
        except UndecodableMessage:
            return  # proton decodes some of these, truncated
        try:
            # A message turns the keys of its annotations into symbols.
            content = {name: plain(getattr(found, name)) for name in ("annotations", "instructions")}
            content |= {name: plain(getattr(message, name)) for name in ("body", "properties")}
            if content != content_of(data):
                raise Defect(f"{content} where the second decoder reads {content_of(data)}")
        except NoJudgeError:
            pass
        if b"amqp:" not in data:  # a section that proton knows only by its number
            _same(message, _by_proton(data), _FIELDS)
        if isinstance(message.properties, dict):
            message.properties.pop(codec.DUPLICATE_ID_PROPERTY, None)  # a received id is not sent again
        try:
            again = self._encoder.encode(message)
        except UnencodableValue:
            return  # for example, maps in maps as keys
        _same(message, codec.decode(again), (*_CONTENT, *_FIELDS))

    @staticmethod
    def _apart(data: bytes) -> None:
        try:
            message, duplicate_id = codec.decode_apart(data)
        except UndecodableMessage:
            return
        properties = message.properties
        if properties and codec.DUPLICATE_ID_PROPERTY in properties:
            raise Defect("the id is still in the properties")
        whole = codec.decode(data).properties or {}
        if repr(whole.get(codec.DUPLICATE_ID_PROPERTY)) != repr(duplicate_id):
            raise Defect("the id differs from the one in the message")


_CONTENT = ("body", "properties", "annotations", "instructions")
_FIELDS = (
    *("id", "correlation_id", "address", "subject", "durable", "ttl", "delivery_count", "first_acquirer"),
    *("priority", "expiry_time"),
)


def _by_proton(data: bytes) -> proton.Message:
    """Return header and properties as proton decodes them."""
    message = proton.Message()
    if data:  # proton may have an assertion of it
        message._check(lib.pn_message_decode(message._msg, ffi.from_buffer(data), len(data)))
    return message


def _same(one: proton.Message, other: proton.Message, names: tuple[str, ...]) -> None:
    for name in names:
        first, second = (repr(_plain(getattr(message, name) or None)) for message in (one, other))
        if first != second:
            raise Defect(f"{name}: {first} and {second}")


def _plain(value: object) -> object:
    if isinstance(value, memoryview):
        return bytes(value)
    if isinstance(value, proton.Described):
        return "described", _plain(value.descriptor), _plain(value.value)
    if isinstance(value, proton.Array):
        return "array", _plain(value.descriptor), int(value.type), [_plain(item) for item in value.elements]
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return [(repr(_plain(key)), _plain(item)) for key, item in value.items()]
    return value


def _sections(data: bytes) -> None:
    for read in (
        message_format.inspect,
        message_format.to_address,
        message_format.subject,
        message_format.message_annotations,
    ):
        try:
            read(data)
        except MalformedMessageError:
            continue


def _header(data: bytes) -> None:
    """Inspect a message as a queue does on arrival, and rewrite it with another header."""
    try:
        envelope = message_format.inspect(data)
    except MalformedMessageError:
        return
    written = message_header.with_header(data, delivery_count=3, ttl_ms=1000)
    found = message_format.inspect(written)
    if (found.delivery_count, found.ttl_ms) != (3, 1000):
        raise Defect("the header that was written is not found again")
    if (found.durable, found.expiry_ms, found.duplicate_id) != (
        envelope.durable,
        envelope.expiry_ms,
        envelope.duplicate_id,
    ):
        raise Defect("another header changes what the message says")
    end = message_format.header_end(data)
    if not written.endswith(data[end:]):
        raise Defect("the bare message has changed")


def _greeting(data: bytes) -> None:
    greeting = Greeting()
    for start in range(0, len(data), 7):
        greeting.add(data[start : start + 7])
    str(greeting.foreign)
    with contextlib.suppress(ValueError):
        _, fields = frames.read_of_server(data)
        for read in (frames.names, frames.message, frames.outcome_code):
            for field in fields:
                with contextlib.suppress(ValueError):
                    read(field)


TARGET = Codec
