"""A session's window and handle-max are read from a peer's Begins and Flows, across any cuts of its bytes."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proton import uint, ulong, ushort

from haclient.engine.settings import Settings
from haclient.engine.wire.frame_order import FrameOrder
from haclient.engine.wire.incoming import IncomingBytes
from haclient.engine.wire.session_limits import SessionLimits
from tests.broker_stub.raw_client import (
    ATTACH,
    BEGIN,
    END,
    FLOW,
    OPEN,
    TRANSFER,
    frame,
    with_wide_descriptor,
)

AMQP, EMPTY = b"AMQP\x00\x01\x00\x00", b"\x00\x00\x00\x08\x02\x00\x00\x00"
WINDOWS = st.sampled_from([0, 1, 255, 256, 400, 2**31 - 1, 2**32 - 1])
ANY_HANDLE = 2**32 - 1
HANDLES = st.integers(0, ANY_HANDLE)


def begin(window: int, *, channel: int = 0) -> bytes:
    return frame(BEGIN, [ushort(0), uint(0), uint(window), uint(1), uint(255)], channel=channel)


def flow(window: int, *, channel: int = 0, next_id: int | None = 0) -> bytes:
    fields = [None if next_id is None else uint(next_id), uint(window), uint(0), uint(1)]
    return frame(FLOW, fields, channel=channel)


def read(data: bytes, cuts: list[int]) -> tuple[SessionLimits, list[bool]]:
    """Return the window after these bytes, in chunks that end at the cuts, and its changes."""
    window, changes, start = SessionLimits(), list[bool](), 0
    window.on_window_change = changes.append
    order = FrameOrder(window)
    for end in (*sorted(cut % len(data) for cut in cuts), len(data)):
        assert order.add(data[start:end]) == ""
        order.forget()
        start = end
    return window, changes


@given(
    first=WINDOWS,
    others=st.lists(st.tuples(WINDOWS, st.sampled_from([None, 0, 7, 2**32 - 1]), st.integers(0, 2))),
    channel=st.sampled_from([0, 1, 65535]),
    cuts=st.lists(st.integers(0, 3000), max_size=40),
)
def test_the_last_window_counts(
    first: int, others: list[tuple[int, int | None, int]], channel: int, cuts: list[int]
) -> None:
    between = [b"", EMPTY, frame(TRANSFER, [uint(0)], bytes(300), channel=channel)]
    data = AMQP + begin(first, channel=channel)
    for window, next_id, kind in others:
        data += between[kind] + flow(window, channel=channel, next_id=next_id)
    states = [True, *(window > 0 for window in (first, *(window for window, _, _ in others)))]
    found, changes = read(data, cuts)
    assert found.window_is_open == states[-1]
    assert changes == [after for before, after in itertools.pairwise(states) if before != after]
    assert read(data, list(range(len(data))))[1] == changes


@given(cuts=st.lists(st.integers(0, 300), max_size=10))
def test_descriptors_of_eight_bytes_count_as_well(cuts: list[int]) -> None:
    data = AMQP + with_wide_descriptor(begin(400)) + with_wide_descriptor(flow(0))
    assert not read(data, cuts)[0].window_is_open


def test_only_the_first_session_counts() -> None:
    data = AMQP + begin(400, channel=5) + begin(0, channel=6) + flow(0, channel=6) + flow(0, channel=0)
    assert read(data, [])[0].window_is_open


def test_a_window_without_a_session_or_without_a_number_says_nothing() -> None:
    assert read(AMQP + flow(0), [])[0].window_is_open
    for fields in ([], [uint(0)], [uint(0), None], [uint(0), "0"], [uint(0), -1]):
        assert read(AMQP + begin(400) + frame(FLOW, fields), [])[0].window_is_open


@given(st.binary(max_size=60), st.sampled_from([b"\x00\x53\x13", b"\x00\x53\x11", b""]))
def test_no_bytes_raise(body: bytes, descriptor: bytes) -> None:
    size = 8 + len(descriptor) + len(body)
    read(AMQP + begin(400) + size.to_bytes(4) + b"\x02\x00\x00\x00" + descriptor + body, [])


def test_empty_frames_are_passed_without_a_look() -> None:
    """A peer may send millions of them."""

    class Never(SessionLimits):
        def read(self, frame: bytes) -> None:
            raise AssertionError(frame)

    order = FrameOrder(Never())
    assert order.add(b"AMQP\x00\x01\x00\x00" + 1000 * b"\x00\x00\x00\x08\x02\x00\x00\x00") == ""


def begin_with(handle_max: object, *more: object) -> bytes:
    return frame(BEGIN, [ushort(0), uint(0), uint(1), uint(1), handle_max, *more])


def handle_max(frame: bytes) -> int | None:
    limits = SessionLimits()
    limits.read(frame)
    return limits.handle_max


@given(HANDLES)
def test_each_handle_max(number: int) -> None:
    assert handle_max(begin_with(uint(number))) == number
    assert handle_max(begin_with(uint(number), None, None, {})) == number
    assert handle_max(with_wide_descriptor(begin_with(uint(number)))) == number


def test_without_a_handle_max_it_is_the_default() -> None:
    assert handle_max(begin_with(None, None, None, {})) == ANY_HANDLE
    assert handle_max(frame(BEGIN, [ushort(0), uint(0), uint(1), uint(1)])) == ANY_HANDLE
    assert handle_max(frame(BEGIN, [])) == ANY_HANDLE


@given(st.binary(max_size=40), st.integers(0, 20))
def test_garbage_has_no_handle_max_and_raises_nothing(data: bytes, cut: int) -> None:
    assert handle_max(data) is None or data.startswith(b"\x00", 8)
    handle_max(begin_with(uint(255))[:-cut] + data)
    handle_max(begin_with(uint(255))[:11] + data)


@pytest.mark.parametrize("value", [ulong(5), "five", True, [1], -1])
def test_a_handle_max_of_another_type_says_nothing(value: object) -> None:
    assert handle_max(begin_with(value)) is None


@given(st.lists(HANDLES, min_size=1, max_size=4), st.lists(st.integers(0, 400), max_size=12))
def test_the_lowest_handle_max_counts_however_the_bytes_are_cut(found: list[int], cuts: list[int]) -> None:
    others = frame(FLOW, [uint(0)]) + frame(ATTACH, ["name", uint(0), True]) + frame(END, [])
    data = AMQP + frame(OPEN, ["peer"]) + b"".join(others + begin_with(uint(number)) for number in found)
    incoming = IncomingBytes(Settings(container_id="client", sasl=False))
    assert (incoming.limits.handle_max, incoming.handle_max) == (None, 255)
    for start, end in itertools.pairwise([0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]):
        assert incoming.read(None, data[start:end]) == (data[start:end], None)
        incoming.forget()
    assert incoming.limits.handle_max == incoming.handle_max == min(found)
