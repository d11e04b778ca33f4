"""The unsettled map of an Attach: proton's codec checks the encoder, hostile bytes test the decoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from proton import Data, Described, symbol, ubyte, uint, ulong

from haclient.engine.wire import attach_frame
from haclient.engine.wire.frame_order import FrameOrder
from tests.engine.wire.test_frame_order import AMQP, EMPTY, OPEN, frame

ACCEPTED, REJECTED = 0x24, 0x25
LARGE = 2**31
TAGS = st.binary(max_size=32)
STATES = st.dictionaries(TAGS, st.sampled_from([0x24, 0x25, 0x26, 0x27]), min_size=1, max_size=40)
SOURCE, TARGET = Described(ulong(0x28), ["q"]), Described(ulong(0x29), [])
TAILS: tuple[list[Any], ...] = (
    [],
    [None],
    [None, None, uint(7)],
    [None, True, uint(7), ulong(2**40), [symbol("a")], None, {symbol("key"): "x" * 300}],
    [{b"old": None}, False, uint(7)],
)


def attach(
    name: str,
    tail: Sequence[Any] = (),
    *,
    role: bool = True,
    extended: bytes = b"",
    ends: Sequence[Any] = (SOURCE, TARGET),
) -> bytes:
    """Encode a frame as proton does; ``tail`` follows the target."""
    data = Data()
    fields = [name, uint(0), role, ubyte(0), ubyte(1), *ends, *tail]
    data.put_object(Described(ulong(0x12), fields))
    return frame(bytes(data.encode()), extended=extended)


def fields(of: bytes) -> list[Any]:
    """Return proton's fields of an Attach or a Transfer, with bytes that outlive its buffer."""
    data = Data()
    data.decode(of[4 * of[4] :])
    data.rewind()
    data.next()
    data.enter()
    data.next()
    assert data.get_ulong() in (0x12, 0x14)
    data.next()
    data.enter()
    found: list[Any] = []
    while data.next():
        value = unsettled_map(data) if data.type() == Data.MAP and len(found) == 7 else data.get_object()
        found.append(bytes(value) if isinstance(value, memoryview) else value)
    return found


def unsettled_map(data: Data) -> dict[bytes, Any]:
    """Decode a map with binaries as keys, which proton's own method cannot read."""
    data.enter()
    found = {}
    while data.next():
        key = bytes(data.get_object())
        data.next()
        found[key] = data.get_object()
    data.exit()
    return found


def encodings(of: bytes) -> list[bytes]:
    """The frame with its descriptor as a small and a large number, and as a short and a long symbol."""
    head = 4 * of[4]
    assert of[head : head + 3] == b"\x00\x53\x12"
    name = b"amqp:attach:list"
    descriptors = (b"\x53\x12", b"\x80" + (0x12).to_bytes(8), b"\xa3\x10" + name)
    bodies = [b"\0" + each + of[head + 3 :] for each in (*descriptors, b"\xb3" + (16).to_bytes(4) + name)]
    return [frame(body, extended=of[8:head]) for body in bodies]


def padded(values: list[Any]) -> list[Any]:
    return values + [None] * (14 - len(values))


@given(
    unsettled=STATES, tail=st.sampled_from(TAILS), name=st.text(min_size=1, max_size=300), role=st.booleans()
)
def test_proton_reads_the_map_that_was_added_and_the_other_fields_as_they_were(
    unsettled: dict[bytes, int], tail: list[Any], name: str, role: bool
) -> None:
    before = attach(name, tail, role=role)
    output, count = attach_frame.add_unsettled(OPEN + before + EMPTY, name.encode(), unsettled, LARGE)
    assert output.startswith(OPEN)
    assert output.endswith(EMPTY)
    patched = output[len(OPEN) : -len(EMPTY)]
    assert int.from_bytes(patched[:4]) == len(patched)
    expected, found = padded(fields(before)), padded(fields(patched))
    assert {tag: state.descriptor for tag, state in found[7].items()} == unsettled
    assert not found[8]
    assert found[:7] + found[9:] == expected[:7] + expected[9:]
    assert count == len(unsettled)
    read = attach_frame.read(patched)
    assert read is not None
    assert (read.name, read.from_receiver) == (name.encode(), role)
    assert attach_frame.states(read.unsettled) == unsettled


@given(limit=st.integers(40, 1200))
def test_a_frame_has_no_more_than_its_limit_and_says_what_it_leaves_out(limit: int) -> None:
    unsettled = {number.to_bytes(16): ACCEPTED for number in range(40)}
    before = attach("name")
    output, count = attach_frame.add_unsettled(before, b"name", unsettled, limit)
    assert len(output) <= max(limit, len(before))
    found = padded(fields(output))
    if output == before:
        assert count == 0
    else:
        assert list(found[7] or ()) == list(unsettled)[:count]
        assert bool(found[8]) == (count < 40)
        assert count == 40 or limit - len(output) < 22 + 9  # an entry, and the head of an empty map


def test_only_the_last_attach_of_that_name_gets_it() -> None:
    first, other, last = attach("name"), attach("other"), attach("name", [None, None, uint(1)])
    output, count = attach_frame.add_unsettled(first + other + last, b"name", {b"t": ACCEPTED}, LARGE)
    assert output.startswith(first + other)
    assert count == 1
    assert attach_frame.add_unsettled(other, b"name", {b"t": ACCEPTED}, LARGE) == (other, 0)


def test_a_map_of_other_types_has_what_an_outcome_can_be_about() -> None:
    accepted = Described(ulong(ACCEPTED), [])
    unsettled = {
        b"good": accepted,
        b"without": None,
        b"wide": Described(ulong(2**40), []),
        b"x" * 33: accepted,
        "text": accepted,
        uint(7): accepted,
        b"number": uint(7),
        b"by symbol": Described(symbol("amqp:accepted:list"), []),
        b"received": Described(ulong(0x23), [uint(1), ulong(2)]),
    }
    read = attach_frame.read(attach("name", [unsettled]))
    assert read is not None
    assert attach_frame.states(read.unsettled) == {
        b"good": ACCEPTED,
        b"without": None,
        b"wide": 2**40,
        b"received": 0x23,
    }


@pytest.mark.parametrize("other", ["text", [1, 2], 7, b"bytes", True, Described(ulong(1), {})], ids=repr)
def test_a_field_that_is_no_map_is_none(other: Any) -> None:
    read = attach_frame.read(attach("name", [other]))
    assert read == attach_frame.AttachFrame(b"name", True, b"")


def ended(source: Any, target: Any) -> tuple[Described, Described]:
    return Described(ulong(0x28), source), Described(ulong(0x29), target)


@pytest.mark.parametrize(
    ("name", "ends", "has_nul"),
    [
        ("name", ended(["q"], []), False),
        ("name", ended([None, uint(0)], [7]), False),
        ("name", ended([], ["q" * 300, uint(0)]), False),
        ("name", (None, None), False),
        ("name", ("q\0", {}), False),  # no terminus
        ("n\0", ended(["q"], []), True),
        ("name", ended(["q\0r"], []), True),
        ("name", ended([], ["\0"]), True),
        ("name", ended(["q"], ["q" * 300 + "\0", uint(0)]), True),
        ("name", ended(["q", None, None, None, None, None, None, {symbol("a\0b"): "c\0d"}], []), False),
    ],
)
def test_a_nul_is_found_where_proton_ends_a_text(name: str, ends: tuple[Any, Any], has_nul: bool) -> None:
    read = attach_frame.read(attach(name, ends=ends))
    assert read is not None
    assert read.has_nul is has_nul
    assert read.link == (name.partition("\0")[0].encode(), True)


@given(
    name=st.text(min_size=1, max_size=300), extended=st.sampled_from([b"", b"text"]), cut=st.integers(1, 80)
)
def test_an_attach_is_read_whatever_the_encoding_of_its_descriptor(
    name: str, extended: bytes, cut: int
) -> None:
    usual, *others = encodings(attach(name, [{b"t": None}], extended=extended))
    expected = attach_frame.read(usual)
    assert expected is not None
    for other in others:
        assert attach_frame.read(other) == expected
        order, sent = FrameOrder(), AMQP + OPEN + other + EMPTY
        found = []
        for part in (sent[:-cut], sent[-cut:]):
            assert order.add(part) == ""
            found += order.attaches()
            order.forget()
        assert found == [other]


def test_a_million_tags_that_are_not_there_are_none() -> None:
    claimed = b"\xd1" + (2**31).to_bytes(4) + (2_000_000).to_bytes(4) + b"\xa0\x01t\x40"
    assert attach_frame.states(claimed) == {}
    within = b"\xd1" + (12).to_bytes(4) + (2_000_000).to_bytes(4) + b"\xa0\x01t\x40" * 2
    assert attach_frame.states(within) == {}


@given(data=st.binary(max_size=200))
@example(data=b"\x00" * 200)
@example(data=b"\xd1\x00\x00\x00\x05\x00\x00\x00\x01\x00")
@example(data=b"\xc1\xff\xff")
def test_any_bytes_are_read_without_an_error(data: bytes) -> None:
    attach_frame.states(data)
    attach_frame.read(data)
    attach_frame.read(frame(b"\x00\x53\x12" + data))
    assert attach_frame.add_unsettled(data, b"name", {b"t": ACCEPTED}, LARGE) == (data, 0)


@given(data=st.data())
def test_a_damaged_attach_is_read_without_an_error(data: st.DataObject) -> None:
    good = attach("name", [{b"one": Described(ulong(ACCEPTED), []), b"two": None}])
    position = data.draw(st.integers(8, len(good) - 1))
    bad = good[:position] + bytes((data.draw(st.integers(0, 255)),)) + good[position + 1 :]
    read = attach_frame.read(bad)
    if read is not None:
        attach_frame.states(read.unsettled)


@given(cuts=st.lists(st.integers(1, 2000), max_size=20), extended=st.sampled_from([b"", b"text"]))
@example(cuts=[105], extended=b"")  # in a transfer, before its descriptor
def test_an_attach_is_found_in_the_bytes_in_which_it_ends_however_they_arrive(
    cuts: list[int], extended: bytes
) -> None:
    first = attach("first", [{b"t": None}])
    second = attach("second", [{b"x" * 20: None, b"y": None}], extended=extended)
    large = frame(b"\x00\x53\x14" + bytes(300))
    data = AMQP + OPEN + first + EMPTY + large + second + large + first
    ends = [data.index(first) + len(first), data.index(second) + len(second), len(data)]
    order, start, found = FrameOrder(), 0, []
    for end in (*sorted({cut % len(data) for cut in cuts} - {0}), len(data)):
        assert order.add(data[start:end]) == ""
        due = [
            frame for frame, ended in zip((first, second, first), ends, strict=True) if start < ended <= end
        ]
        assert list(order.attaches()) == due
        order.forget()
        assert list(order.attaches()) == []
        found += due
        start = end
    assert found == [first, second, first]


def test_of_a_frame_that_is_too_large_for_any_attach_nothing_is_kept() -> None:
    order = FrameOrder()
    order.add(AMQP)
    order.add((2**30).to_bytes(4) + b"\x02\x00\x00\x00\x00\x53\x12" + bytes(100))
    order.add(bytes(1000))
    assert not order._unfinished
