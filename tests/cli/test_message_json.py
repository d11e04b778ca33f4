"""Messages survive the conversion to JSON and back. An invalid message is refused, naming the field."""

from __future__ import annotations

import json
import math
import re
import uuid
from typing import Any

import proton
import pytest
from hypothesis import given
from hypothesis import strategies as st

from haclient.cli.message_json import decoded, encoded, from_json, to_json
from haclient.engine.codec import DUPLICATE_ID_PROPERTY

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.uuids()
    | st.integers(0, 2**60).map(proton.timestamp)
)
KEYS = st.text() | st.integers(0, 9)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(VALUES)
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    again = decoded(json.loads(json.dumps(encoded(value), allow_nan=False)))
    assert again == value
    assert type(again) is type(value)


@given(st.text() | st.none(), st.dictionaries(st.text(), SCALARS, max_size=3), st.integers(0, 9), VALUES)
def test_a_message_comes_back_as_it_was(
    subject: str | None, properties: dict[str, Any], priority: int, body: Any
) -> None:
    message = proton.Message(subject=subject, properties=properties, priority=priority, body=body)
    found = to_json(message)
    assert to_json(from_json(json.loads(json.dumps(found)), durable=True)) == found


def test_only_durable_and_what_differs_from_the_default_is_written() -> None:
    assert to_json(proton.Message()) == {"durable": False, "body": None}
    assert to_json(proton.Message(body="x", durable=True, ttl=1.5)) == {
        "durable": True,
        "ttl": 1.5,
        "body": "x",
    }


def test_the_duplicate_detection_id_belongs_to_one_send() -> None:
    message = proton.Message(body="x", properties={DUPLICATE_ID_PROPERTY: "1", "a": 2})
    assert to_json(message) == {"durable": False, "properties": {"a": 2}, "body": "x"}


def test_not_a_number_is_json_too() -> None:
    text = json.dumps(encoded([math.nan, math.inf]), allow_nan=False)
    assert math.isnan(decoded(json.loads(text))[0])


def test_whole_numbers_and_symbols_of_amqp_are_plain() -> None:
    assert encoded({proton.symbol("a"): proton.ulong(1), "b": proton.float32(0.5)}) == {"a": 1, "b": 0.5}


def test_the_count_of_deliveries_is_written_and_not_read() -> None:
    message = proton.Message(body="x")
    message.delivery_count = 2
    assert to_json(message)["delivery_count"] == 2
    assert from_json(to_json(message), durable=True).delivery_count == 0


WRONG = [
    (1, "a message is an object"),
    ({"boddy": 1}, "field 'boddy' is none of"),
    ({"priority": "high"}, "field 'priority': 'high' is no whole number"),
    ({"priority": True}, "field 'priority': True is no whole number"),
    ({"priority": -1}, "field 'priority'"),
    ({"durable": 1}, "field 'durable': 1 is no truth value"),
    ({"subject": 5}, "field 'subject': 5 is no text"),
    ({"reply_to": "replies\0x"}, "field 'reply_to': text: there is a NUL at [7]"),
    ({"ttl": "1s"}, "field 'ttl': '1s' is no number"),
    ({"ttl": -1}, "field 'ttl'"),
    ({"user_id": "joe"}, "field 'user_id': 'joe' is no $bytes"),
    ({"properties": []}, "field 'properties': [] is no object"),
    ({"body": {"$bytes": "?"}}, "field 'body': $bytes"),
    ({"body": {"$uuid": 5}}, "field 'body': $uuid"),
    ({"body": {"$map": [1]}}, "field 'body': $map"),
    ({"body": {"$unknown": "x"}}, "field 'body': '$unknown' is not one of"),
    ({"body": {"$bytes": "", "x": 1}}, "field 'body': '$bytes' is not one of"),
]


@pytest.mark.parametrize(("found", "part"), WRONG)
def test_what_is_no_message_is_refused_with_its_field(found: Any, part: str) -> None:
    with pytest.raises(ValueError, match=re.escape(part)):
        from_json(found, durable=True)


@pytest.mark.parametrize("durable", [True, False])
def test_a_message_that_does_not_say_is_as_durable_as_the_command_line_says(durable: bool) -> None:
    assert from_json({"body": 1}, durable=durable).durable is durable
    assert from_json({"body": 1, "durable": not durable}, durable=durable).durable is not durable


def test_ids_keep_their_type() -> None:
    number = uuid.uuid4()
    assert from_json({"id": {"$uuid": str(number)}, "correlation_id": 7}, durable=True).id == number
