"""Steps over encoded values: proton's decoder checks the ends, and the client's decoder the contents."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proton import Data

from haclient.engine.amqp_values import walk
from haclient.engine.amqp_values.walk import MalformedValue
from tests.engine.encoded_messages import DESCRIPTORS, VALUES, list_of, map_of


@given(value=VALUES, rest=st.binary(max_size=20))
def test_a_value_ends_where_proton_has_decoded_it(value: bytes, rest: bytes) -> None:
    consumed = Data().decode(value)
    assert walk.value_end(value) == consumed == len(value)
    assert walk.value_end(rest + value + rest, len(rest)) == len(rest) + consumed


@given(items=st.lists(VALUES, max_size=6), wide=st.booleans())
def test_the_items_of_a_list_and_of_a_map_are_its_values(items: list[bytes], wide: bool) -> None:
    encoded = list_of(items, wide=wide)
    assert walk.items(encoded) == items
    assert [walk.item(encoded, 0, index) for index in range(len(items) + 1)] == [*items, None]
    halves = list(zip(items[::2], items[1::2], strict=False))
    assert list(walk.pairs(map_of(halves, wide=wide))) == halves
    assert walk.items(walk.compound(walk.LIST32, items)) == items


@given(descriptor=DESCRIPTORS, levels=st.integers(0, 5000), value=VALUES)
def test_a_descriptor_that_is_described_itself_is_passed_in_one_loop(
    descriptor: bytes, levels: int, value: bytes
) -> None:
    nested = b"\x00" * levels + descriptor + (descriptor * levels)
    described = b"\x00" + nested + value
    assert walk.value_end(described) == len(described)
    assert walk.described(described)[1] == 1 + len(nested)


@given(st.binary(max_size=60))
def test_any_bytes_are_stepped_over_or_malformed(data: bytes) -> None:
    for step in (walk.value_end, walk.described, walk.first_item, walk.items, walk.pairs):
        try:
            step(data)
        except MalformedValue:
            continue


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x10",
        b"\xc0\x05\x02\x40",
        b"\xc0\x02\x02\x40\x40",
        b"\xd0\x00\x00\x00\x05\xff\xff\xff\xff" + b"\x40" * 50,
        b"\xc0\x02\x01\x55\x00",
        b"\xa1\x01x",
    ],
    ids=bytes.hex,
)
def test_a_list_holds_as_many_items_as_it_says(data: bytes) -> None:
    with pytest.raises(MalformedValue):
        walk.items(data)


def test_a_map_has_a_value_for_each_key() -> None:
    with pytest.raises(MalformedValue, match="no value"):
        walk.pairs(b"\xc1\x02\x01\x40")
