"""Messages and values: ours beside proton's, and the broker's steps over sections beside both.

Rules: bytes that are no message raise the error that the docstrings name, and no other; a message that was
read and is written again says the same to proton; a header that the broker writes says what it should, and
leaves the bare message as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from unittest import mock

import proton

from broker_stub.amqp import message_format, message_header
from broker_stub.amqp.message_format import MalformedMessageError
from haclient.engine import codec
from haclient.engine.amqp_values.encode import UnencodableValue
from haclient.engine.wire.greeting import Greeting
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
        """The first byte selects what the rest is given to."""
        if data:
            self._checks[data[0] % len(self._checks)](data[1:])

    def planted(self) -> AbstractContextManager[object]:
        """The body of a plain message that begins with a capital letter loses its last byte."""
        original = codec.decode_plain

        def wrong(data: bytes) -> object:
            found = original(data)
            if found is not None and isinstance(found[0].body, str) and found[0].body[:1].isupper():
                found[0].body = found[0].body[:-1]
            return found

        return mock.patch.object(codec, "decode_plain", wrong)

    def _message(self, data: bytes) -> None:
        try:
            message: proton.Message | None = codec.decode(data)
        except proton.MessageException:
            message = None
        try:
            theirs = _decoded(_by_proton, data)
        except _NoJudgeError:
            return
        if message is None or theirs is None:
            if (message is None) != (theirs is None):
                raise Defect("one of the two decoders refuses the message")
            return
        _same(message, theirs)
        if isinstance(message.properties, dict):
            message.properties.pop(codec.DUPLICATE_ID_PROPERTY, None)  # a received id is not sent again
        try:
            again = self._encoder.encode(message)
        except UnencodableValue:
            return  # proton reads more than it writes: maps in maps as keys, and the like
        read = _decoded(_by_proton, again)
        if read is None:
            raise Defect("what was written is no message")
        _same(message, read)

    @staticmethod
    def _apart(data: bytes) -> None:
        try:
            message, duplicate_id = codec.decode_apart(data)
        except proton.MessageException:
            return
        properties = message.properties
        if properties and codec.DUPLICATE_ID_PROPERTY in properties:
            raise Defect("the id is still in the properties")
        whole = codec.decode(data).properties or {}
        if repr(whole.get(codec.DUPLICATE_ID_PROPERTY)) != repr(duplicate_id):
            raise Defect("the id differs from the one in the message")


def _by_proton(data: bytes) -> proton.Message:
    message = proton.Message()
    message.decode(data)
    for section in (message.properties, message.annotations, message.instructions):
        if not isinstance(section, dict | None):
            raise proton.MessageException("part 3, section 3.2: these sections are maps")
    return message


class _NoJudgeError(Exception):
    """proton makes a memoryview of a binary key, and cannot read its map; the client reads bytes."""


def _decoded(decode: Callable[[bytes], proton.Message], data: bytes) -> proton.Message | None:
    try:
        return decode(data)
    except ValueError as error:
        if "cannot hash" in str(error):
            raise _NoJudgeError from None
        return None
    except (proton.MessageException, TypeError, OverflowError, RecursionError):
        return None


def _same(one: proton.Message, other: proton.Message) -> None:
    for name in (
        "body",
        "properties",
        "annotations",
        "instructions",
        "id",
        "correlation_id",
        "address",
        "subject",
    ):
        first, second = (repr(_plain(_field(message, name))) for message in (one, other))
        if first != second:
            raise Defect(f"{name}: {first} and {second}")
    for name in ("durable", "ttl", "delivery_count", "first_acquirer", "priority", "expiry_time"):
        if getattr(one, name) != getattr(other, name):
            raise Defect(f"{name} differs")


def _field(message: proton.Message, name: str) -> object:
    try:
        return getattr(message, name) or None
    except UnicodeDecodeError:
        return "not UTF-8"


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
    """What a queue does with a message: it is inspected at its arrival, and written with another header."""
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
    if not all(isinstance(name, str) for name in greeting.mechanisms):
        raise Defect("a mechanism is no text")


TARGET = Codec
