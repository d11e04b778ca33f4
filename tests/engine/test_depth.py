"""The depth of nested values: equal for sending and receiving, in every encoding."""

from __future__ import annotations

from typing import Any

import proton
import pytest
from hypothesis import given
from hypothesis import strategies as st

from haclient.engine import codec
from haclient.engine.amqp_values.encode import encode_value
from haclient.engine.amqp_values.walk import MOST_LEVELS, is_too_deep

SECTION = b"\x00\x53\x77"
NULL = b"\x40"


def listed(value: bytes) -> bytes:
    return b"\xd0" + (len(value) + 4).to_bytes(4) + (1).to_bytes(4) + value


def mapped(value: bytes) -> bytes:
    return b"\xd1" + (len(value) + 5).to_bytes(4) + (2).to_bytes(4) + NULL + value


def key(value: bytes) -> bytes:
    return b"\xd1" + (len(value) + 5).to_bytes(4) + (2).to_bytes(4) + value + NULL


def last(value: bytes) -> bytes:
    return b"\xd0" + (len(value) + 7).to_bytes(4) + (3).to_bytes(4) + NULL + b"\x54\x07" + value


def first(value: bytes) -> bytes:
    return b"\xd0" + (len(value) + 5).to_bytes(4) + (2).to_bytes(4) + value + NULL


def array(value: bytes) -> bytes:
    return b"\xf0" + (len(value) + 4).to_bytes(4) + (1).to_bytes(4) + value


def described(value: bytes) -> bytes:
    return b"\x00\x53\x01" + value


def describing(value: bytes) -> bytes:
    return b"\x00" + value + NULL


NESTING = [listed, mapped, key, first, last, array, described, describing]
"""An array of one item equals its item's constructor, since an item begins with it, as a value does."""


def nested(levels: int, kinds: list[Any], value: bytes = NULL) -> bytes:
    for level in range(levels):
        value = kinds[level % len(kinds)](value)
    return value


@given(
    kinds=st.lists(st.sampled_from(NESTING), min_size=1, max_size=5),
    most=st.integers(1, 40),
    levels=st.integers(0, 50),
)
def test_each_kind_of_value_that_holds_others_is_a_level(kinds: list[Any], most: int, levels: int) -> None:
    data = SECTION + nested(levels, kinds)
    assert is_too_deep(data, most) == (levels > most)
    assert is_too_deep(SECTION + NULL + data + data, most) == (levels > most)


@given(data=st.binary(max_size=400), most=st.integers(1, 5))
def test_bytes_that_are_no_values_are_left_to_the_decoder(data: bytes, most: int) -> None:
    assert is_too_deep(data, most) in (True, False)


@given(data=st.recursive(st.none() | st.binary(max_size=3), lambda each: st.lists(each, max_size=3)))
def test_the_depth_of_lists_is_that_of_python(data: Any) -> None:
    def depth(value: Any) -> int:
        return 1 + max(map(depth, value), default=0) if isinstance(value, list) and value else 0

    encoded = SECTION + encode_value(data, "body")
    levels = depth(data)
    assert not is_too_deep(encoded, max(1, levels))
    if levels > 1:
        assert is_too_deep(encoded, levels - 1)


@pytest.mark.parametrize("kind", NESTING)
def test_a_message_as_deep_as_one_may_be_sent_is_read_and_one_level_more_is_an_error(kind: Any) -> None:
    with pytest.raises(proton.MessageException, match="more than 300 levels"):
        codec.decode(SECTION + nested(MOST_LEVELS + 1, [kind]))
    if kind in (listed, mapped, first, last):
        assert codec.decode(SECTION + nested(MOST_LEVELS, [kind])).body is not None


def test_an_array_of_billions_of_nothing_is_no_walk_of_billions() -> None:
    data = SECTION + b"\xf0" + (1000).to_bytes(4) + b"\xff\xff\xff\xff\x40" + 1000 * NULL
    assert not is_too_deep(data)
