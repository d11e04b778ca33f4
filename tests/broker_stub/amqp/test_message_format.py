"""Fields that are read without decoding must equal proton's decoding."""

from __future__ import annotations

import proton
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_stub.amqp import message_format
from broker_stub.amqp.message_format import (
    PLAIN,
    MalformedMessageError,
    inspect,
    subject,
    to_address,
)
from broker_stub.amqp.message_header import with_header

UINTS = st.integers(0, 2**32 - 1)
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=300)
VALUES = st.one_of(TEXT, st.integers(-(2**63), 2**63 - 1), st.booleans(), st.none(), st.binary(max_size=300))
BODIES = st.one_of(
    VALUES, st.just(b"\xa1\x0c_AMQ_DUPL_ID\xa1\x01x"), st.dictionaries(TEXT, VALUES, max_size=3)
)


@st.composite
def messages(draw: st.DrawFn) -> proton.Message:
    message = proton.Message(body=draw(BODIES))
    message.durable = draw(st.booleans())
    message.ttl = draw(st.integers(0, 2**31)) / 1000
    message.delivery_count = draw(UINTS)
    message.address = draw(st.none() | TEXT)
    message.reply_to = draw(st.none() | TEXT)
    message.subject = draw(st.none() | TEXT)
    message.expiry_time = draw(st.integers(0, 2**40)) / 1000
    properties = draw(st.dictionaries(TEXT.filter(bool), VALUES, max_size=4))
    message.properties = properties or None
    message.annotations = draw(st.sampled_from([None, {proton.symbol("x-opt"): "_AMQ_DUPL_ID"}]))
    return message


def encoded(message: proton.Message) -> bytes:
    return bytes(message.encode())


@given(messages())
def test_an_envelope_says_what_proton_decodes(message: proton.Message) -> None:
    data = encoded(message)
    decoded = proton.Message()
    decoded.decode(data)
    envelope = inspect(data)
    assert envelope.durable == decoded.durable
    assert (envelope.ttl_ms or 0) / 1000 == decoded.ttl
    assert envelope.delivery_count == decoded.delivery_count
    assert (envelope.expiry_ms or 0) / 1000 == decoded.expiry_time
    assert to_address(data) == decoded.address
    assert subject(data) == decoded.subject


@given(messages(), TEXT.filter(bool))
def test_the_duplicate_id_is_found_among_application_properties_only(
    message: proton.Message, value: str
) -> None:
    without = inspect(encoded(message))
    assert without.duplicate_id is None
    message.properties = {**(message.properties or {}), "_AMQ_DUPL_ID": value}
    found = inspect(encoded(message)).duplicate_id
    assert found is not None
    assert found.endswith(value.encode())


DUPLICATE_KEY = b"\xa1\x0c_AMQ_DUPL_ID"
HEADER, BODY = b"\x00\x53\x70\xc0\x02\x01\x41", b"\x00\x53\x77\xa1\x01x"


def properties(*items: bytes) -> bytes:
    """Encode application properties in a form that proton does not write."""
    content = b"".join(items)
    return b"\x00\x53\x74\xc1" + bytes([len(content) + 1, len(items)]) + content


def property_list(*fields: bytes) -> bytes:
    content = b"".join(fields)
    return b"\x00\x53\x73\xc0" + bytes([len(content) + 1, len(fields)]) + content


ONE_ID = HEADER + properties(DUPLICATE_KEY, b"\xa1\x03one")
# Both contain bytes that look like the only property and a body, and are neither.
FAKE = b"\x02" + DUPLICATE_KEY + b"\xa1\x03one\x00\x53\x77"
FAKE_START = HEADER + property_list(b"\xa0" + bytes([len(FAKE)]) + FAKE)
PADDED_START = HEADER + b"\x00\x53\x74\xc1" + bytes([len(FAKE)]) + FAKE


@given(st.lists(st.tuples(messages(), TEXT.filter(bool)), min_size=2, max_size=5))
def test_an_envelope_is_that_of_its_own_message_whatever_came_before(
    sent: list[tuple[proton.Message, str]],
) -> None:
    for message, value in [*sent, *reversed(sent)]:
        message.properties = {"_AMQ_DUPL_ID": value}
        decoded = proton.Message()
        decoded.decode(encoded(message))
        envelope = inspect(encoded(message))
        assert envelope.duplicate_id is not None
        assert envelope.duplicate_id[2 if len(value.encode()) < 256 else 5 :] == value.encode()
        assert (envelope.durable, envelope.delivery_count) == (decoded.durable, decoded.delivery_count)
        assert (envelope.ttl_ms or 0) / 1000 == decoded.ttl
        assert (envelope.expiry_ms or 0) / 1000 == decoded.expiry_time


@pytest.mark.parametrize(
    ("data", "duplicate_id"),
    [
        (ONE_ID + BODY, b"\xa1\x03one"),
        (ONE_ID.replace(b"one", b"two") + BODY, b"\xa1\x03two"),
        (ONE_ID, b"\xa1\x03one"),
        (ONE_ID + properties(b"\xa1\x01k", b"\x40") + BODY, None),
        (ONE_ID + properties(DUPLICATE_KEY, b"\xa1\x03new") + BODY, b"\xa1\x03new"),
        (ONE_ID.replace(b"one", b"\x00Su") + BODY, b"\xa1\x03\x00Su"),
        (HEADER + properties(DUPLICATE_KEY, b"\xa1\x03one", b"\xa1\x01k", b"\x40") + BODY, b"\xa1\x03one"),
        (FAKE_START + BODY, None),
        (PADDED_START + BODY, b"\xa1\x03one"),
        (PADDED_START + properties(DUPLICATE_KEY, b"\xa1\x03new") + BODY, b"\xa1\x03new"),
        (FAKE_START + properties(DUPLICATE_KEY, b"\xa1\x03abc") + BODY, b"\xa1\x03abc"),
    ],
    ids=str,
)
def test_a_known_start_says_nothing_about_what_follows_it(data: bytes, duplicate_id: bytes | None) -> None:
    for known in (
        ONE_ID + BODY,
        PADDED_START + BODY,
        FAKE_START + properties(DUPLICATE_KEY, b"\xa1\x03one") + BODY,
    ):
        inspect(known)
        for _ in range(2):
            assert inspect(data).duplicate_id == duplicate_id


@pytest.mark.parametrize(
    "data",
    [
        *(ONE_ID[:-size] for size in range(1, len(ONE_ID) - len(HEADER))),
        *(
            ONE_ID + rest
            for rest in (b"\x00", b"\x00\x53", b"x", b"\x00\x53\x79", b"\x00\x53\x74\xc1\xff\x02")
        ),
    ],
    ids=str,
)
def test_bytes_that_begin_like_a_message_are_malformed_all_the_same(data: bytes) -> None:
    inspect(ONE_ID + BODY)
    with pytest.raises(MalformedMessageError):
        inspect(data)


def test_what_is_known_of_starts_is_bounded() -> None:
    for count in range(1000):
        header = b"\x00\x53\x70\xc0\x0a\x05\x41\x40\x40\x40\x70" + count.to_bytes(4)
        data = header + properties(DUPLICATE_KEY, b"\xa1\x03one") + BODY
        assert (inspect(data).delivery_count, inspect(data).delivery_count) == (count, count)
    assert len(message_format._starts) <= 256


@pytest.mark.parametrize("name", ["value", "x_AMQ_DUPL_ID"])
def test_a_property_value_or_a_longer_name_is_not_the_duplicate_id(name: str) -> None:
    message = proton.Message(body="x", properties={name: "_AMQ_DUPL_ID", "list": b"\xa1\x0c_AMQ_DUPL_ID"})
    assert inspect(encoded(message)).duplicate_id is None


def test_a_message_with_nothing_special_costs_no_envelope_of_its_own() -> None:
    assert inspect(encoded(proton.Message(body="x", id="1", subject="s"))) is PLAIN


@given(messages(), UINTS, st.none() | UINTS)
def test_a_new_header_changes_its_fields_and_nothing_else(
    message: proton.Message, count: int, ttl: int | None
) -> None:
    data = encoded(message)
    again = with_header(data, delivery_count=count, ttl_ms=ttl)
    before, after = proton.Message(), proton.Message()
    before.decode(data)
    after.decode(again)
    assert after.delivery_count == count
    assert after.ttl == (before.ttl if ttl is None else ttl / 1000)
    if count:
        assert not after.first_acquirer
    for name in ("durable", "priority", "address", "subject", "properties", "annotations", "body"):
        assert getattr(after, name) == getattr(before, name)
    assert after.expiry_time == before.expiry_time


def test_a_message_without_a_header_gets_one() -> None:
    body_only = b"\x00\x53\x77\xa1\x01x"
    message = proton.Message()
    message.decode(with_header(body_only, delivery_count=3))
    assert (message.body, message.delivery_count) == ("x", 3)


@given(st.binary(max_size=80))
def test_any_bytes_are_a_message_or_malformed(data: bytes) -> None:
    try:
        inspect(data)
        to_address(data)
        subject(data)
    except MalformedMessageError:
        pass


@given(messages(), st.data())
def test_a_cut_or_changed_message_is_a_message_or_malformed(
    message: proton.Message, data: st.DataObject
) -> None:
    whole = encoded(message)
    position = data.draw(st.integers(0, len(whole) - 1))
    changed = whole[:position] + bytes([data.draw(st.integers(0, 255))]) + whole[position + 1 :]
    for candidate in (whole[:position], changed):
        try:
            inspect(candidate)
            to_address(candidate)
            subject(candidate)
        except MalformedMessageError:
            continue
        proton.Message()
        with_header(candidate, delivery_count=1)


def test_endless_described_values_do_not_exhaust_the_stack() -> None:
    with pytest.raises(MalformedMessageError):
        inspect(b"\x00\x53\x70\xd0\x00\x00\x40\x00\x00\x00\x00\x01" + b"\x00" * 0x4000)


def test_a_header_that_is_not_the_first_section_is_no_message() -> None:
    """A queue replaces the first section by another header: a second header would stay, and count."""
    header, body = b"\x00\x53\x70\xc0\x02\x01\x41", b"\x00\x53\x77\x40"
    assert message_format.inspect(header + body).durable
    with pytest.raises(MalformedMessageError, match="not the first section"):
        message_format.inspect(header + header + body)


def test_annotations_whose_last_key_has_no_value_are_read_without_it() -> None:
    """A store may have such a message, and has to be restored."""
    key, soon = b"\xa3\x13x-opt-delivery-time", b"\x81" + (7).to_bytes(8)
    inside = key + soon + key
    annotations = b"\x00\x53\x72\xc1" + bytes((len(inside) + 1, 3)) + inside
    assert inspect(annotations + b"\x00\x53\x75\xa0\x01x").deliver_at_ms == 7


def test_a_malformed_property_that_the_broker_does_not_read_changes_nothing() -> None:
    """A store may have such a message, and has to be restored."""
    due = b"\x83" + (7000).to_bytes(8)
    fields = b"\x40" * 8 + due + b"\x40" * 2  # of thirteen fields the last two are not there
    properties = b"\x00\x53\x73\xc0" + bytes((len(fields) + 1, 13)) + fields
    assert inspect(properties + b"\x00\x53\x75\xa0\x01x").expiry_ms == 7000
