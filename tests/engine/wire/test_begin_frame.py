"""The handle-max of a Begin is read in each encoding and across any cuts; garbage yields none."""

from __future__ import annotations

from itertools import pairwise

import proton
import pytest
from hypothesis import given
from hypothesis import strategies as st
from proton import uint, ulong, ushort

from haclient.engine.settings import Settings
from haclient.engine.wire import begin_frame
from haclient.engine.wire.incoming import IncomingBytes
from tests.broker_stub.raw_client import ATTACH, BEGIN, END, FLOW, OPEN, frame, with_wide_descriptor

_OPENED = b"AMQP\x00\x01\x00\x00" + frame(OPEN, ["peer"])
_ANY = 2**32 - 1
numbers = st.integers(0, _ANY)


def begin(handle_max: int | None, *more: object) -> bytes:
    number = None if handle_max is None else uint(handle_max)
    return frame(BEGIN, [ushort(0), uint(0), uint(1), uint(1), number, *more])


@given(numbers)
def test_each_number(number: int) -> None:
    assert begin_frame.handle_max(begin(number)) == number
    assert begin_frame.handle_max(begin(number, None, None, {})) == number
    assert begin_frame.handle_max(with_wide_descriptor(begin(number))) == number


def test_without_one_it_is_the_default() -> None:
    assert begin_frame.handle_max(begin(None, None, None, {})) == _ANY
    assert begin_frame.handle_max(frame(BEGIN, [ushort(0), uint(0), uint(1), uint(1)])) == _ANY
    assert begin_frame.handle_max(frame(BEGIN, [])) == _ANY


@given(st.binary(max_size=40), st.integers(0, 20))
def test_garbage_says_nothing_and_raises_nothing(data: bytes, cut: int) -> None:
    assert begin_frame.handle_max(data) is None or data.startswith(begin_frame.BEGIN, 8)
    begin_frame.handle_max(begin(255)[:-cut] + data)
    begin_frame.handle_max(begin(255)[:11] + data)


@pytest.mark.parametrize("value", [ulong(5), "five", True, [1], -1])
def test_a_number_of_another_type_says_nothing(value: object) -> None:
    assert begin_frame.handle_max(frame(BEGIN, [ushort(0), uint(0), uint(1), uint(1), value])) is None


@given(st.lists(numbers, min_size=1, max_size=4), st.lists(st.integers(0, 400), max_size=12))
def test_the_lowest_one_counts_however_the_bytes_are_cut(found: list[int], cuts: list[int]) -> None:
    others = frame(FLOW, [uint(0)]) + frame(ATTACH, ["name", uint(0), True]) + frame(END, [])
    data = _OPENED + b"".join(others + begin(number) for number in found)
    incoming = IncomingBytes(Settings(container_id="client", sasl=False), proton.Transport())
    assert (incoming.announced_handle_max, incoming.handle_max) == (None, begin_frame.ASSUMED)
    for start, end in pairwise([0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]):
        assert incoming.read(None, data[start:end]) == (data[start:end], None)
        incoming.read_begins()  # as at each answer to a Begin
        incoming.forget()
    assert incoming.announced_handle_max == incoming.handle_max == min(found)
