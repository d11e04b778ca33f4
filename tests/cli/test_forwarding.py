"""A forwarded message equals the received one, except for its id and the fields of the delivery."""

from __future__ import annotations

import uuid
from typing import Any

import proton
import pytest
from hypothesis import given
from hypothesis import strategies as st

from haclient.cli.forwarding import forwarded
from haclient.engine.codec import AUTOMATIC_ID_PREFIX, DUPLICATE_ID_PROPERTY

FIELDS = (
    "durable", "priority", "ttl", "id", "user_id", "address", "subject", "reply_to", "correlation_id",
    "content_type", "content_encoding", "expiry_time", "creation_time", "group_id", "group_sequence",
    "reply_to_group_id", "annotations", "body", "inferred",
)  # fmt: skip
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.text()
    | st.binary(max_size=400)
    | st.uuids()
    | st.integers(0, 2**60).map(proton.timestamp)
    | st.text(st.characters(codec="ascii")).map(proton.symbol),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
NAMES = st.text().filter(lambda name: name != DUPLICATE_ID_PROPERTY)


def encoded(**fields: Any) -> bytes:
    return bytes(proton.Message(**fields).encode())


def decoded(data: bytes) -> proton.Message:
    message = proton.Message()
    message.decode(data)
    return message


def duplicate_id(data: bytes) -> Any:
    return (decoded(data).properties or {}).get(DUPLICATE_ID_PROPERTY)


def others(message: proton.Message) -> dict[str, Any]:
    return {
        name: value for name, value in (message.properties or {}).items() if name != DUPLICATE_ID_PROPERTY
    }


@given(
    durable=st.booleans(),
    priority=st.integers(0, 9),
    ttl=st.integers(0, 2**32 - 1).map(lambda ms: ms / 1000),
    id=st.none() | st.integers(0, 2**64 - 1).map(proton.ulong) | st.text() | st.uuids(),
    user_id=st.binary(),
    subject=st.none() | st.text(),
    correlation_id=st.none() | st.text() | st.uuids(),
    annotations=st.none() | st.dictionaries(st.just(proton.symbol("x-opt-a")), VALUES),
    instructions=st.none() | st.just({proton.symbol("x-hop"): 1}),
    properties=st.none() | st.dictionaries(NAMES, VALUES, max_size=3),
    own_id=st.none() | st.text() | st.binary(),
    delivery_count=st.integers(0, 9),
    first_acquirer=st.booleans(),
    body=VALUES,
    inferred=st.booleans(),
)
def test_every_field_of_the_message_stays(
    own_id: object, properties: dict[str, Any] | None, inferred: bool, **fields: Any
) -> None:
    if own_id is not None:
        properties = {**(properties or {}), DUPLICATE_ID_PROPERTY: own_id}
    before = proton.Message(properties=properties, **fields)
    before.inferred = inferred and isinstance(fields["body"], bytes)
    data = bytes(before.encode())
    before, after = decoded(data), decoded(forwarded(data))
    assert {name: getattr(after, name) for name in FIELDS} == {name: getattr(before, name) for name in FIELDS}
    assert others(after) == others(before)
    assert (after.delivery_count, after.first_acquirer, after.instructions) == (0, False, None)
    assert (DUPLICATE_ID_PROPERTY in (after.properties or {})) == before.durable


def test_sections_that_proton_does_not_show_stay() -> None:
    """The message has two data sections and a footer."""
    body = b"\x00\x53\x75\xa0\x03one" + b"\x00\x53\x75\xa0\x03two"
    footer = b"\x00\x53\x78\xc1\x08\x02\xa3\x03x-a\x54\x01"
    header, symbolic = b"\x00\x53\x70\xc0\x02\x01\x41", b"\x00\xa3\x0aunknown:it\x45"
    assert forwarded(body + footer) == body + footer
    assert forwarded(symbolic + body + footer) == symbolic + body + footer
    moved = forwarded(header + body + footer)
    assert moved.endswith(body + footer)
    assert decoded(moved).durable


@pytest.mark.parametrize("own", [{"id": "an id"}, {"properties": {DUPLICATE_ID_PROPERTY: "another", "n": 1}}])
def test_a_redelivered_message_has_the_same_id(own: dict[str, Any]) -> None:
    """The header and delivery annotations belong to another delivery. A moved copy gets a new id with each
    move.
    """
    first = encoded(durable=True, body="one", **own)
    redelivered = encoded(
        durable=True, body="one", delivery_count=3, instructions={proton.symbol("x"): 1}, **own
    )
    there = forwarded(first)
    assert duplicate_id(there) == duplicate_id(forwarded(redelivered))
    back = forwarded(there)
    again = forwarded(back)
    ids = [duplicate_id(data) for data in (first, there, back, again)]
    assert len({*ids}) == 4, "a node that has seen the message would take it for a copy of itself"


def test_messages_that_are_not_the_same_have_different_ids() -> None:
    """Identical messages without an id too: losing a message is worse than a duplicate."""
    alike = [encoded(durable=True, body="tick") for _ in range(2)]
    reused = [encoded(durable=True, id="always this", body=body) for body in ("one", "two")]
    ids = {duplicate_id(forwarded(data)) for data in (*alike, *reused)}
    assert len(ids) == 4
    assert all(uuid.UUID(each.removeprefix(AUTOMATIC_ID_PREFIX)) for each in ids)


def test_a_message_that_may_be_lost_without_its_id_has_none() -> None:
    lasting = encoded(durable=True, properties={DUPLICATE_ID_PROPERTY: "it"}, body=1)
    passing = encoded(durable=False, properties={DUPLICATE_ID_PROPERTY: "it"}, body=1)
    assert duplicate_id(forwarded(passing)) is None
    assert duplicate_id(forwarded(passing, ids_live_with_messages=True)) not in (None, "it")
    assert duplicate_id(forwarded(lasting, duplicate_detection=False)) == "it"
    assert duplicate_id(forwarded(passing, duplicate_detection=False)) == "it"


@pytest.mark.parametrize(
    "data",
    [
        b"no message",
        b"\x00",
        b"\x00\x53",
        b"\x00\x53\x70\xc0",
        b"\x00\x53\x70\xc0\xff\x01\x41",
        b"\x00\x53\x70\x41",
        b"\x00\x53\x74\xc1\x02\x01\x41",
        b"\x00\x53\x75\x10",
        b"\x00" * 100_000,
        encoded(durable=True, id="x", body="y" * 300)[:-1],
    ],
)
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="message"):
        forwarded(data)
