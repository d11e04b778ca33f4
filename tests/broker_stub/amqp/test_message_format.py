"""What is read without decoding must be what proton decodes."""

from __future__ import annotations

import proton
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_stub.amqp.message_format import (
    PLAIN,
    MalformedMessageError,
    inspect,
    subject,
    to_address,
    with_header,
)

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
