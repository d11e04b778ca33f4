"""A session's window is read from a peer's Begin and Flows, across any cuts of its bytes."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st
from proton import uint, ushort

from haclient.engine.wire.frame_order import FrameOrder
from haclient.engine.wire.session_window import SessionWindow
from tests.broker_stub.raw_client import BEGIN, FLOW, TRANSFER, frame, with_wide_descriptor

AMQP, EMPTY = b"AMQP\x00\x01\x00\x00", b"\x00\x00\x00\x08\x02\x00\x00\x00"
WINDOWS = st.sampled_from([0, 1, 255, 256, 400, 2**31 - 1, 2**32 - 1])


def begin(window: int, *, channel: int = 0) -> bytes:
    return frame(BEGIN, [ushort(0), uint(0), uint(window), uint(1), uint(255)], channel=channel)


def flow(window: int, *, channel: int = 0, next_id: int | None = 0) -> bytes:
    fields = [None if next_id is None else uint(next_id), uint(window), uint(0), uint(1)]
    return frame(FLOW, fields, channel=channel)


def read(data: bytes, cuts: list[int]) -> tuple[SessionWindow, list[bool]]:
    """Return the window after these bytes, in chunks that end at the cuts, and its changes."""
    window, changes, start = SessionWindow(), list[bool](), 0
    window.on_change = changes.append
    order = FrameOrder(server=False, window=window)
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
    assert found.is_open == states[-1]
    assert changes == [after for before, after in itertools.pairwise(states) if before != after]
    assert read(data, list(range(len(data))))[1] == changes


@given(cuts=st.lists(st.integers(0, 300), max_size=10))
def test_descriptors_of_eight_bytes_count_as_well(cuts: list[int]) -> None:
    data = AMQP + with_wide_descriptor(begin(400)) + with_wide_descriptor(flow(0))
    assert not read(data, cuts)[0].is_open


def test_only_the_first_session_counts() -> None:
    data = AMQP + begin(400, channel=5) + begin(0, channel=6) + flow(0, channel=6) + flow(0, channel=0)
    assert read(data, [])[0].is_open


def test_a_window_without_a_session_or_without_a_number_says_nothing() -> None:
    assert read(AMQP + flow(0), [])[0].is_open
    for fields in ([], [uint(0)], [uint(0), None], [uint(0), "0"], [uint(0), -1]):
        assert read(AMQP + begin(400) + frame(FLOW, fields), [])[0].is_open


@given(st.binary(max_size=60), st.sampled_from([b"\x00\x53\x13", b"\x00\x53\x11", b""]))
def test_no_bytes_raise(body: bytes, descriptor: bytes) -> None:
    size = 8 + len(descriptor) + len(body)
    read(AMQP + begin(400) + size.to_bytes(4) + b"\x02\x00\x00\x00" + descriptor + body, [])


def test_empty_frames_are_passed_without_a_look() -> None:
    """A peer may send millions of them."""

    class Never(SessionWindow):
        def read(self, frame: bytes) -> None:
            raise AssertionError(frame)

    order = FrameOrder(server=False, window=Never())
    assert order.add(b"AMQP\x00\x01\x00\x00" + 1000 * b"\x00\x00\x00\x08\x02\x00\x00\x00") == ""
