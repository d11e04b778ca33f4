"""``copy`` and ``pickle`` make a second message, which shares no C object with the first."""

from __future__ import annotations

import copy
import gc
import pickle
from collections.abc import Callable
from typing import Any

import proton
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import haclient
from haclient.engine import codec
from haclient.engine.codec import Encoder
from tests.engine.encoded_messages import MESSAGES, list_of, section
from tests.engine.judge import plain
from tests.engine.test_codec import messages

Copy = Callable[[Any], Any]
COPIES: list[Copy] = [copy.copy, copy.deepcopy, lambda message: pickle.loads(pickle.dumps(message))]  # noqa: S301
_each_copy = pytest.mark.parametrize("copied", COPIES, ids=["copy", "deepcopy", "pickle"])
FIELDS = (
    *(
        "inferred",
        "durable",
        "priority",
        "ttl",
        "first_acquirer",
        "delivery_count",
        "id",
        "user_id",
        "address",
    ),
    *("subject", "reply_to", "correlation_id", "content_type", "content_encoding", "expiry_time"),
    *("creation_time", "group_id", "group_sequence", "reply_to_group_id", "instructions", "annotations"),
    *("properties", "body"),
)


def facts(message: proton.Message) -> dict[str, Any]:
    return {name: plain(getattr(message, name)) for name in FIELDS}


@_each_copy
@settings(max_examples=50)
@given(message=messages())
def test_a_message_that_was_made_is_copied_with_all_its_fields(copied: Copy, message: proton.Message) -> None:
    wanted = facts(message)
    second = copied(message)
    assert type(second) is type(message)
    del message
    gc.collect(1)
    assert facts(second) == wanted
    second.subject, second.body = "changed", None
    assert second.encode()


@_each_copy
@settings(max_examples=50)
@given(data=MESSAGES)
def test_a_message_that_was_received_is_copied_with_all_its_fields(copied: Copy, data: bytes) -> None:
    message = codec.decode(data)
    second, third = copied(message), copied(message)  # before and after it has a message in C
    wanted = facts(message)
    assert type(second) is type(message)
    del message
    gc.collect(1)
    assert facts(second) == facts(third) == facts(copied(second)) == wanted


@_each_copy
def test_a_change_of_the_copy_does_not_reach_the_first(copied: Copy) -> None:
    message = codec.decode(Encoder().encode(haclient.Message("one", subject="first", annotations={"a": 1})))
    second = copied(message)
    second.subject, second.body = "second", "two"
    second.annotations[proton.symbol("b")] = 2
    assert (message.subject, message.body, message.annotations) == ("first", "one", {"a": 1})
    assert Encoder().encode(second) != Encoder().encode(message)


@_each_copy
def test_a_copy_sends_the_id_of_the_first_no_more_than_the_first_does(copied: Copy) -> None:
    message = codec.decode(Encoder().encode(haclient.Message("one"), "id-1"))
    codec.mark_received(message, "id-1")
    again = codec.decode(Encoder().encode(copied(message), "id-2"))
    assert again.properties == {codec.DUPLICATE_ID_PROPERTY: "id-2"}


@_each_copy
def test_several_sequences_stay_several_in_a_copy(copied: Copy) -> None:
    message = copied(codec.decode(section(0x76, list_of([])) * 2))
    assert type(message.body) is haclient.SequenceSections
    assert codec.decode(Encoder().encode(message)).body == [[], []]


@_each_copy
def test_attributes_of_a_program_s_own_are_copied(copied: Copy) -> None:
    message = haclient.Message("one")
    message.mine = [1]  # type: ignore[attr-defined]
    assert copied(message).mine == [1]


def test_a_shallow_copy_shares_the_body_and_a_deep_one_does_not() -> None:
    message = haclient.Message([1, [2]])
    assert copy.copy(message).body is message.body
    deep = copy.deepcopy(message).body
    assert deep == message.body
    assert deep is not message.body


def test_views_of_the_drop_in_are_shared_or_refused() -> None:
    """A view cannot be pickled; ``copy.copy`` keeps it, and its bytes."""
    message = codec.decode_of_views(Encoder().encode(haclient.Message(b"x", inferred=True)))[0]
    second = copy.copy(message)
    del message
    gc.collect()
    assert second.body == b"x"
    for refused in COPIES[1:]:
        with pytest.raises(TypeError, match="memoryview"):
            refused(second)


@pytest.mark.slow
@settings(max_examples=30)
@given(st.lists(st.sampled_from(COPIES), min_size=1, max_size=8))
def test_copies_of_copies_are_freed_once_each(steps: list[Copy]) -> None:
    kept = [haclient.Message("one", subject="s"), codec.decode(Encoder().encode(haclient.Message("one")))]
    for step in steps:
        kept += [step(each) for each in kept[-2:]]
    while kept:
        assert kept.pop(0).body == "one"
        gc.collect(0)
    gc.collect()
