"""Values as AMQP, with proton's own encoder and decoder as the references."""

from __future__ import annotations

import datetime
import decimal
import enum
import fractions
import inspect
import math
import sys
import uuid
from typing import Any, NamedTuple

import proton
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from haclient.engine import codec
from haclient.engine.amqp_values.encode import (
    MOST_LEVELS,
    MOST_VALUES,
    UnencodableValue,
    encode_value,
)
from haclient.engine.codec import DUPLICATE_ID_PROPERTY, Encoder, encode_body, is_automatic
from tests.engine.test_codec import BODIES, LEAVES, normal

VALUE = b"\x00\x53\x77"
UTC = datetime.UTC


class Colour(enum.IntEnum):
    RED = 300


class Name(enum.StrEnum):
    ONE = "one"


class Text(str):
    """A subclass that lies about how it is encoded."""

    __slots__ = ()

    def encode(self, *_: Any, **__: Any) -> bytes:  # type: ignore[override]
        return b"\xff"


def by_proton(value: Any) -> bytes:
    """Return the value as proton writes it into an amqp-value section."""
    data = proton.Message(body=value).encode()
    return data.partition(VALUE)[2] if data else b""


@given(BODIES.filter(lambda body: body is not None))
@example({"n": math.inf})
@example([-128, -129, 127, 128, 2**63 - 1, -(2**63), 0])
@example(["", "x" * 255, "x" * 256, b"x" * 255, b"x" * 256, [], {}, [[]], [{}]])
@example([proton.char("é"), proton.float32(0.5), proton.decimal32(1), proton.decimal64(2)])
@example([proton.decimal128(b"x" * 16), proton.Array(proton.UNDESCRIBED, proton.Data.INT, 1, 2)])
@example([proton.int32(-128), proton.int32(128), proton.uint(0), proton.uint(256), proton.ulong(256)])
@example((1, [2], (3,)))
def test_a_value_is_encoded_byte_for_byte_as_proton_does(body: Any) -> None:
    assert encode_value(body, "body") == by_proton(body)


@given(
    BODIES.filter(lambda body: body is not None),
    st.none() | st.text(max_size=300).filter(lambda each: not is_automatic(each)) | st.binary(max_size=300),
    st.booleans(),
)
def test_a_body_is_encoded_as_a_message_of_it_is(
    body: Any, duplicate_id: str | bytes | None, durable: bool
) -> None:
    message = proton.Message(body=body, durable=durable)
    message.inferred = isinstance(body, bytes)
    if duplicate_id is not None:
        message.properties = {DUPLICATE_ID_PROPERTY: duplicate_id}
    data = encode_body(body, duplicate_id, durable=durable)
    assert data == message.encode()
    assert data == Encoder().encode(message)
    decoded = proton.Message()
    decoded.decode(data)
    assert normal(decoded.body) == normal(body)
    assert (decoded.durable, decoded.inferred) == (durable, isinstance(body, bytes))


TUPLES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(tuple),
        st.lists(inner, max_size=3),
        st.dictionaries(st.text(max_size=5), inner, max_size=3),
    ),
    max_leaves=8,
).filter(lambda body: body is not None and not isinstance(body, bytes))


def as_lists(value: Any) -> Any:
    """Return the value with a list for each tuple in it."""
    if isinstance(value, dict):
        return {key: as_lists(each) for key, each in value.items()}
    return [as_lists(each) for each in value] if isinstance(value, list | tuple) else value


@given(TUPLES)
@example((1, 2))
@example(())
@example({"pairs": [(1, (2, ())), ()]})
def test_a_tuple_is_sent_as_a_list_with_and_without_a_message_around_it(body: Any) -> None:
    data = Encoder().encode(proton.Message(body=body))
    assert data == encode_body(body) == encode_body(as_lists(body))
    decoded = proton.Message()
    decoded.decode(data)
    assert normal(decoded.body) == normal(as_lists(body))


class Point(NamedTuple):
    x: int
    y: int


def test_a_tuple_with_names_is_a_list_too() -> None:
    assert codec.decode(Encoder().encode(proton.Message(body=Point(1, 2)))).body == [1, 2]
    inferred = proton.Message(body=Point(1, 2), inferred=True)
    assert Encoder().encode(inferred) == proton.Message(body=[1, 2], inferred=True).encode()


@given(st.dictionaries(st.text(max_size=10), LEAVES, max_size=5))
def test_application_properties_are_encoded_byte_for_byte_as_proton_does(properties: dict[str, Any]) -> None:
    message = proton.Message(properties=properties)
    assert Encoder().encode(message) == message.encode()


@given(st.datetimes(timezones=st.timezones()))
@example(datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC))
@example(datetime.datetime.max.replace(tzinfo=UTC))
@example(datetime.datetime.min.replace(tzinfo=UTC))
def test_a_datetime_is_a_timestamp_of_whole_milliseconds(at: datetime.datetime) -> None:
    received = codec.decode(encode_body(at)).body
    assert type(received) is proton.timestamp
    seconds = datetime.timedelta(milliseconds=received)
    assert datetime.timedelta() <= at - datetime.datetime(1970, 1, 1, tzinfo=UTC) - seconds
    assert at - datetime.datetime(1970, 1, 1, tzinfo=UTC) - seconds < datetime.timedelta(milliseconds=1)


@pytest.mark.parametrize(
    ("value", "same"),
    [
        (Colour.RED, 300),
        (Name.ONE, "one"),
        (Text("text"), "text"),
        (True, True),
        (bytearray(b"x"), b"x"),
        (memoryview(b"xyz")[::2], b"xz"),
        ({Colour.RED: Name.ONE}, {300: "one"}),
        (type("Numbers", (list,), {})([1]), [1]),
        (type("Fields", (dict,), {})(a=1), {"a": 1}),
        (type("Number", (float,), {})(0.5), 0.5),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_subclass_is_what_its_base_is(value: object, same: object) -> None:
    received = codec.decode(Encoder().encode(proton.Message(body=[value]))).body
    assert received == [same]
    assert type(received[0]) is type(same)


def test_not_a_number_arrives_as_such() -> None:
    assert math.isnan(codec.decode(encode_body([math.nan])).body[0])


def test_as_many_values_fit_as_proton_reads() -> None:
    """proton's decoder silently leaves out values above that."""
    numbers = [*range(MOST_VALUES - 1)]
    assert codec.decode(encode_body(numbers)).body == numbers
    for many in ([*numbers, 1], [[*range(40_000)], {n: n for n in range(20_000)}], [*range(1_000_000)]):
        with pytest.raises(UnencodableValue, match=r"^body: \d+ values are more than the 65535"):
            encode_body(many)  # type: ignore[arg-type]
    with pytest.raises(UnencodableValue, match=r"^properties: 70003 values"):
        Encoder().encode(proton.Message(properties={"a": [*range(70_000)]}))


def test_long_strings_fit() -> None:
    text = "é" * 3_000_000
    assert codec.decode(encode_body({"text": text})).body == {"text": text}


def nested(levels: int) -> list[Any]:
    value: list[Any] = [1]
    for _ in range(levels - 1):
        value = [value]
    return value


def test_values_may_be_nested_three_hundred_levels() -> None:
    assert codec.decode(encode_body(nested(MOST_LEVELS))).body == nested(MOST_LEVELS)
    with pytest.raises(TypeError, match="more than 300 levels"):
        encode_body(nested(MOST_LEVELS + 1))


def test_a_deep_caller_gets_the_same_error() -> None:
    def call(depth: int) -> bytes:
        return encode_body(nested(MOST_LEVELS)) if depth == 0 else call(depth - 1)

    used = len(inspect.stack(0))
    with pytest.raises(UnencodableValue, match="than Python can follow here"):
        call(sys.getrecursionlimit() - used - MOST_LEVELS // 2)


def test_what_contains_itself_is_said_to() -> None:
    loop: dict[str, Any] = {"a": 1}
    loop["self"] = [loop]
    with pytest.raises(TypeError) as caught:
        encode_body(loop)
    text = str(caught.value)
    assert text.startswith("body['self'][0]['self'][0]")
    assert text.endswith("more than 300 levels of lists and maps: does it contain itself?")
    assert len(text) < 200


class Unknown:
    pass


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (
            {"items": [0, {"price": decimal.Decimal(1)}]},
            "body['items'][1]['price']: Decimal is not an AMQP type",
        ),
        ([2**63], "body[0]: an int of more than 64 bits"),
        ([10**5000], "body[0]: an int of more than 64 bits"),
        ({2**64: 1}, "body: the key int: an int of more than 64 bits"),
        (datetime.datetime(2026, 1, 1), "body: a datetime without a time zone"),  # noqa: DTZ001
        (datetime.date(2026, 1, 1), "body: date is not an AMQP type; send value.isoformat()"),
        (datetime.time(1), "body: time is not an AMQP type; send value.isoformat()"),
        (datetime.timedelta(1), "body: timedelta is not an AMQP type; send value.total_seconds()"),
        ({"a": {1, 2}}, "body['a']: set is not an AMQP type; send list(value)"),
        (fractions.Fraction(1, 2), "body: Fraction is not an AMQP type; send float(value)"),
        (1j, "body: complex is not an AMQP type; convert it"),
        (Unknown(), "body: Unknown is not an AMQP type; convert it"),
        (Unknown, "body: type is not an AMQP type"),
        ("\ud800", "body: a str with a surrogate (U+D800 at 0)"),
        ({"\udc80": 1}, r"body: the key '\udc80': a str with a surrogate (U+DC80 at 0)"),
        ({(1, Unknown()): 1}, "body: the key tuple: Unknown is not an AMQP type"),
        ({"k" * 1000: Unknown()}, "body['kkkk"),
        ([proton.ubyte(256)], "body[0]: a ubyte is an unsigned number of 8 bits"),
        ([proton.byte(-129)], "body[0]: a byte is a signed number of 8 bits"),
        ([proton.char("ab")], "body[0]: a char is one character, not 2"),
        ([proton.symbol("é")], "body[0]: a symbol is ASCII"),
        ([proton.decimal128(b"x")], "body[0]: a decimal128 is 16 bytes"),
        (proton.Described(proton.symbol("a"), Unknown()), "body.value: Unknown is not"),
        (proton.Array(proton.UNDESCRIBED, proton.Data.INT, Unknown()), "body: an Array that proton cannot"),
        ([proton.Message()], "body[0]: Message is not an AMQP type; send its body"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_amqp_cannot_carry_is_named(value: object, text: str) -> None:
    for encode in (encode_body, lambda body: Encoder().encode(proton.Message(body=body))):
        with pytest.raises(UnencodableValue) as caught:
            encode(value)  # type: ignore[arg-type]
        assert str(caught.value).startswith(text)
        assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ({"a": Unknown()}, "properties['a']: Unknown is not an AMQP type"),
        ({1: "a"}, "properties: the key 1: an application property's name is a str"),
        ({proton.symbol("a"): 1}, "properties: the key symbol('a'): an application property's name is a str"),
        ({"a": ["\ud800"]}, "properties['a'][0]: a str with a surrogate"),
    ],
    ids=["value", "number", "symbol", "surrogate"],
)
@pytest.mark.parametrize("duplicate_id", [None, "id"])
def test_what_an_application_property_cannot_be_is_named(
    properties: dict[str, Any], text: str, duplicate_id: str | None
) -> None:
    with pytest.raises(UnencodableValue) as caught:
        Encoder().encode(proton.Message(properties=properties), duplicate_id)
    assert str(caught.value).startswith(text)


def test_what_an_annotation_cannot_be_is_named() -> None:
    with pytest.raises(UnencodableValue, match=r"annotations\[symbol\('x-opt-a'\)\]: Unknown is"):
        Encoder().encode(proton.Message(annotations={"x-opt-a": Unknown()}))


def test_an_encoder_goes_on_after_an_error() -> None:
    encoder, message = Encoder(), proton.Message(body="one")
    with pytest.raises(TypeError):
        encoder.encode(proton.Message(body=Unknown()))
    assert encoder.encode(message) == message.encode()


def test_a_uuid_arrives_as_such() -> None:
    value = uuid.uuid4()
    assert codec.decode(encode_body({"id": value})).body == {"id": value}
