"""Messages to bytes and back, with proton's own encoding as the reference."""

from __future__ import annotations

import contextlib
import gc
import math
import uuid
from collections.abc import Callable
from typing import Any

import proton
import pytest
from hypothesis import given
from hypothesis import strategies as st

from haclient.engine import codec
from haclient.engine.codec import DUPLICATE_ID_PROPERTY, Encoder


def whole(kind: type, bits: int, *, signed: bool) -> st.SearchStrategy[Any]:
    low = -(2 ** (bits - 1)) if signed else 0
    return st.integers(low, low + 2**bits - 1).map(kind)


SIGNED = [
    whole(kind, bits, signed=True)
    for kind, bits in ((proton.byte, 8), (proton.short, 16), (proton.int32, 32))
]
UNSIGNED = [
    whole(kind, bits, signed=False)
    for kind, bits in ((proton.ubyte, 8), (proton.ushort, 16), (proton.uint, 32), (proton.ulong, 64))
]
SYMBOLS = st.text(st.characters(codec="ascii"), max_size=20).map(proton.symbol)
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(max_size=300),
    st.binary(max_size=300),
    st.uuids(),
    SYMBOLS,
    whole(proton.timestamp, 48, signed=False),
    *SIGNED,
    *UNSIGNED,
)
KEYS = st.text(max_size=10) | SYMBOLS | st.integers(0, 2**40)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(KEYS, inner, max_size=4),
    ),
    max_leaves=10,
)
# proton loses a value that is described twice, so described values are not nested.
BODIES = VALUES | VALUES.map(lambda value: proton.Described(proton.symbol("app:thing"), value))
PROPERTIES = st.none() | st.dictionaries(st.text(min_size=1, max_size=10), LEAVES, max_size=4)
IDS = st.none() | st.text(max_size=40) | st.uuids() | st.binary(max_size=40) | UNSIGNED[-1]


@st.composite
def messages(draw: st.DrawFn) -> proton.Message:
    message = proton.Message(body=draw(BODIES))
    message.properties = draw(PROPERTIES)
    if draw(st.booleans()):
        message.id = draw(IDS)
        message.correlation_id = draw(IDS)
        message.durable = draw(st.booleans())
        message.priority = draw(st.integers(0, 255))
        message.ttl = draw(st.integers(0, 10**6))
        message.subject = draw(st.text(max_size=20))
        message.reply_to = draw(st.text(max_size=20))
        message.address = draw(st.text(max_size=20))
        message.user_id = draw(st.binary(max_size=20))
        message.content_type = proton.symbol(draw(st.sampled_from(["text/plain", "a/b"])))
        message.group_id = draw(st.text(max_size=300))
        message.inferred = draw(st.booleans())
    if draw(st.booleans()):
        message.annotations = {proton.symbol("x-opt-a"): draw(LEAVES)}
        message.instructions = {proton.symbol("x-opt-b"): draw(LEAVES)}
    return message


FACTS = [
    "id",
    "correlation_id",
    "durable",
    "priority",
    "ttl",
    "subject",
    "reply_to",
    "address",
    "user_id",
    "content_type",
    "group_id",
    "properties",
    "annotations",
    "instructions",
    "body",
]


def facts(message: proton.Message) -> dict[str, Any]:
    return {name: normal(getattr(message, name)) for name in FACTS}


def normal(value: Any) -> Any:
    """Return a form that is equal for equal AMQP values, whatever their Python type."""
    if isinstance(value, memoryview | bytearray):
        return bytes(value)
    if isinstance(value, dict):
        return {normal(key): normal(item) for key, item in value.items()} or None
    if isinstance(value, list):
        return [normal(item) for item in value]
    if isinstance(value, proton.Described):
        return ("described", normal(value.descriptor), normal(value.value))
    return value


def types(value: Any) -> Any:
    """Return the types inside a value, at every depth."""
    if isinstance(value, dict):
        return {type(value), *(kind for item in (*value, *value.values()) for kind in types(item))}
    if isinstance(value, list):
        return {type(value), *(kind for item in value for kind in types(item))}
    if isinstance(value, proton.Described):
        return {type(value), *types(value.value)}
    return {type(value)}


@given(messages())
def test_a_message_is_encoded_byte_for_byte_as_proton_does(message: proton.Message) -> None:
    assert Encoder().encode(message) == message.encode()


@given(messages())
def test_a_decoded_message_has_all_that_was_encoded_and_no_view(message: proton.Message) -> None:
    decoded = codec.decode(Encoder().encode(message))
    assert facts(decoded) == facts(message)
    for name in FACTS:
        assert memoryview not in types(getattr(decoded, name))


@given(messages(), st.text(min_size=1, max_size=300))
def test_the_duplicate_id_goes_beside_what_the_application_wrote(message: proton.Message, id_: str) -> None:
    before = facts(message)
    decoded = codec.decode(Encoder().encode(message, id_))
    assert facts(message) == before
    expected = {**(before["properties"] or {}), DUPLICATE_ID_PROPERTY: id_}
    assert facts(decoded) == {**before, "properties": expected}


@given(messages(), st.none() | st.text(min_size=1, max_size=300), st.booleans())
def test_durable_is_written_into_the_bytes_alone(
    message: proton.Message,
    id_: str | None,
    durable: bool,
) -> None:
    before, encoder = facts(message), Encoder()
    found = facts(codec.decode(encoder.encode(message, id_, durable=durable)))
    assert facts(message) == before
    assert found == {**facts(codec.decode(encoder.encode(message, id_))), "durable": durable}


@given(messages())
def test_a_durable_message_is_encoded_byte_for_byte_as_proton_does(message: proton.Message) -> None:
    data = Encoder().encode(message, durable=True)
    message.durable = True
    assert data == message.encode()


@given(messages())
def test_a_duplicate_id_of_the_application_is_kept(message: proton.Message) -> None:
    message.properties = {**(message.properties or {}), DUPLICATE_ID_PROPERTY: "mine"}
    assert codec.decode(Encoder().encode(message, "ours")).properties[DUPLICATE_ID_PROPERTY] == "mine"


@given(st.lists(st.tuples(messages(), st.none() | st.text(min_size=1, max_size=40)), max_size=5))
def test_nothing_of_one_message_is_left_in_the_next(sent: list[tuple[proton.Message, str | None]]) -> None:
    encoder = Encoder()
    together = [encoder.encode(message, id_) for message, id_ in sent]
    assert together == [Encoder().encode(message, id_) for message, id_ in sent]


@given(messages(), messages())
def test_a_message_that_is_used_again_with_another_body_carries_that(
    message: proton.Message, other: proton.Message
) -> None:
    encoder = Encoder()
    encoder.encode(message, "first")
    for name in FACTS:
        value = getattr(other, name)
        setattr(message, name, bytes(value) if isinstance(value, memoryview) else value)
    message.inferred = other.inferred
    assert facts(codec.decode(encoder.encode(message))) == facts(other)


@given(messages())
def test_a_decoded_message_can_be_sent_on(message: proton.Message) -> None:
    once = codec.decode(Encoder().encode(message))
    twice = codec.decode(Encoder().encode(once, "id"))
    expected = facts(message)
    expected["properties"] = {**(expected["properties"] or {}), DUPLICATE_ID_PROPERTY: "id"}
    assert facts(twice) == expected


@pytest.mark.parametrize("size", [0, 1, 255, 256, 4095, 4096, 30_000, 5_000_000])
@pytest.mark.parametrize("body", ["x", b"x"], ids=["text", "bytes"])
def test_bodies_of_every_size_fit(size: int, body: Any) -> None:
    message = proton.Message(body=body * size)
    assert codec.decode(Encoder().encode(message, "id")).body == body * size


def test_a_binary_body_outlives_its_message() -> None:
    body = codec.decode(Encoder().encode(proton.Message(body=b"x" * 100_000))).body
    gc.collect()
    assert type(body) is bytes
    assert body == b"x" * 100_000


@pytest.mark.parametrize(
    ("body", "inside"),
    [
        ({b"key": 1}, lambda body: next(iter(body))),
        ({"map": {b"key": 1}}, lambda body: next(iter(body["map"]))),
        (proton.Described(b"key", 1), lambda body: body.descriptor),
        ([proton.Described(b"key", 1)], lambda body: body[0].descriptor),
        (proton.Array(b"key", proton.Data.INT, 1), lambda body: body.descriptor),
        (proton.Array(proton.UNDESCRIBED, proton.Data.BINARY, b"key"), lambda body: body.elements[0]),
    ],
    ids=["key", "key in a map", "descriptor", "descriptor in a list", "array's descriptor", "element"],
)
def test_binary_anywhere_in_a_body_outlives_its_message(body: Any, inside: Callable[[Any], Any]) -> None:
    """proton refuses such a map, and returns views into freed memory for the others."""
    message = codec.decode(Encoder().encode(proton.Message(body=body)))
    found = inside(message.body)
    del message
    gc.collect()
    assert type(found) is bytes
    assert found == b"key"


def test_a_binary_id_outlives_its_message() -> None:
    message = proton.Message(id=uuid.uuid4(), correlation_id=b"binary" * 1000)
    message = codec.decode(Encoder().encode(message))
    kept = message.correlation_id
    del message
    gc.collect()
    assert kept == b"binary" * 1000


def test_not_a_number_is_a_number_to_amqp() -> None:
    assert math.isnan(codec.decode(Encoder().encode(proton.Message(body=math.nan))).body)


@given(st.binary(max_size=200))
def test_bytes_that_are_no_message_are_an_error_of_protons(data: bytes) -> None:
    with contextlib.suppress(proton.ProtonException):
        codec.decode(data)


def test_what_amqp_cannot_carry_is_an_error() -> None:
    for message in (proton.Message(body=object()), proton.Message(properties={1: "not a string"})):
        with pytest.raises((proton.ProtonException, KeyError)):
            Encoder().encode(message)


@pytest.mark.parametrize(
    "section",
    [
        b"\x00\x53\x74\x80" + bytes(8),
        b"\x00\x53\x77\xc1\x06\x02\xc0\x02\x01\x41\x41",
        b"\x00\x53\x77\x73\xff\xff\xff\x00",
        b"\x00\x53\x77\xa1\x01\xff",
    ],
    ids=["properties that are no map", "a list as a key", "no character", "not UTF-8"],
)
def test_a_message_that_python_cannot_hold_is_refused_as_the_docs_say(section: bytes) -> None:
    with pytest.raises(proton.MessageException):
        codec.decode(section + b"\x00\x53\x77\x40" if section[2] == 0x74 else section)


@pytest.mark.parametrize("name", ["content_type", "content_encoding"])
def test_a_symbol_that_is_not_ascii_is_refused_before_it_is_sent(name: str) -> None:
    message = proton.Message("body")
    setattr(message, name, "text/größe")
    with pytest.raises(codec.UnencodableValue, match=name):
        Encoder().encode(message)
