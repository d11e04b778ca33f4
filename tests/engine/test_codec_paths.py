"""Values that the codec writes and reads itself equal proton's."""

from __future__ import annotations

import proton
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from haclient.engine.amqp_values.decode import UndecodableMessage
from haclient.engine.codec import DUPLICATE_ID_PROPERTY, Encoder, decode, decode_apart

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=600)
MAPS = st.one_of(st.none(), st.just({}), st.just({"a": 1}))


@settings(max_examples=300)
@given(
    body=st.one_of(st.binary(max_size=600), TEXTS, st.none(), st.integers(0, 5)),
    duplicate_id=st.one_of(st.none(), TEXTS),
    subject=st.one_of(st.none(), TEXTS),
    user_id=st.one_of(st.none(), st.binary(max_size=300)),
    flags=st.tuples(st.booleans(), st.booleans()),
    properties=MAPS,
    annotations=MAPS,
    used_before=st.booleans(),
    durable=st.sampled_from([None, True, False]),
)
def test_the_encoder_writes_the_bytes_that_proton_writes(
    *,
    body: object,
    duplicate_id: str | None,
    subject: str | None,
    user_id: bytes | None,
    flags: tuple[bool, bool],
    properties: dict[str, int] | None,
    annotations: dict[str, int] | None,
    used_before: bool,
    durable: bool | None,
) -> None:
    def make() -> proton.Message:
        message = proton.Message(body=body, durable=flags[0])
        message.inferred = flags[1]
        if subject is not None:
            message.subject = subject
        if user_id is not None:
            message.user_id = user_id
        if used_before:
            # proton keeps the sections of an earlier encoding inside the message.
            message.body, message.annotations = {"x": "y"}, {"q": 2}
            message.encode()
            message.body = body
        message.properties, message.annotations = properties, annotations
        return message

    expected = make()
    if duplicate_id is not None:
        expected.properties = {**(properties or {}), DUPLICATE_ID_PROPERTY: duplicate_id}
    if durable is not None:
        expected.durable = durable
    data = Encoder().encode(make(), duplicate_id, durable=durable)
    if durable is False and flags[0]:
        # A field that was set and is null, unlike in proton.
        data = data.replace(b"\x00\x53\x70\xc0\x02\x01\x40", b"\x00\x53\x70\x45", 1)
    assert data == expected.encode()


def normal(value: object) -> object:
    """Return binary values as bytes; proton has a view whose ``repr`` is an address."""
    if isinstance(value, memoryview):
        return bytes(value)
    if isinstance(value, dict):
        return type(value)({normal(key): normal(item) for key, item in value.items()})
    if type(value) is list:
        return [normal(item) for item in value]
    return value


def everything(message: proton.Message) -> tuple[str, object]:
    """Return the ``repr`` of a message, and its body, with its type."""
    body, message.body = normal(message.body), None
    for section in ("properties", "annotations", "instructions"):
        setattr(message, section, normal(getattr(message, section)))
    return repr(message), (type(body), body)


@settings(max_examples=300)
@example(  # a byte of the damage makes a property binary
    body=None,
    duplicate_id="",
    durable=True,
    inferred=False,
    properties=None,
    subject=None,
    damage=[(37, 160)],
    lost=0,
)
@given(
    body=st.one_of(st.binary(max_size=600), TEXTS, st.none(), st.integers(0, 5)),
    duplicate_id=st.one_of(st.none(), TEXTS),
    durable=st.booleans(),
    inferred=st.booleans(),
    properties=MAPS,
    subject=st.one_of(st.none(), TEXTS),
    damage=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 255)), max_size=2),
    lost=st.integers(0, 3),
)
def test_the_fast_decoder_reads_what_proton_reads_of_whole_and_of_damaged_messages(
    *,
    body: object,
    duplicate_id: str | None,
    durable: bool,
    inferred: bool,
    properties: dict[str, int] | None,
    subject: str | None,
    damage: list[tuple[int, int]],
    lost: int,
) -> None:
    sent = proton.Message(body=body, properties=properties, durable=durable, inferred=inferred)
    if subject is not None:
        sent.subject = subject
    damaged = bytearray(Encoder().encode(sent, duplicate_id))
    for position, value in damage:
        damaged[position % len(damaged)] = value
    data = bytes(damaged[: len(damaged) - lost])
    try:
        decoded = decode(data)
    except UndecodableMessage:  # proton reads some of these, and cuts them: see ``test_decode``
        assert damage or lost
        return
    message = proton.Message()
    message.decode(data)
    found = (message.properties or {}).get(DUPLICATE_ID_PROPERTY)
    expected = everything(message)
    assert everything(decoded) == expected
    assert normal(decode_apart(data)[1]) == normal(found)


def test_a_plain_message_that_was_decoded_can_be_changed_and_encoded_by_proton() -> None:
    sent = proton.Message(body=b"x", durable=True, inferred=True)
    message = decode(Encoder().encode(sent, "id"))
    message.subject = "changed"
    again = proton.Message()
    again.decode(message.encode())
    assert (again.subject, again.durable, again.inferred, bytes(again.body)) == ("changed", True, True, b"x")
    assert again.properties == {DUPLICATE_ID_PROPERTY: "id"}


def test_a_plain_message_that_was_decoded_has_no_attributes_but_protons() -> None:
    message = decode(Encoder().encode(proton.Message(body=b"x")))
    with pytest.raises(AttributeError, match="no attribute 'sbject'"):
        _ = message.sbject  # type: ignore[attr-defined]
