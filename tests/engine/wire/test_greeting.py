"""The first bytes of a peer: any bytes, in any chunks."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from haclient.engine.wire.greeting import MOST_BYTES, Greeting

SASL = b"AMQP\x03\x01\x00\x00"
# A mechanisms frame with an array of symbols: AMQP 1.0 part 5, section 5.3.3.1.
TWO = SASL + b"\x00\x00\x00\x1f\x02\x01\x00\x00\x00\x53\x40\xc0\x12\x01\xe0\x0f\x02\xa3\x05PLAIN\x06GSSAPI"


def greeting(*chunks: bytes) -> Greeting:
    made = Greeting()
    for chunk in chunks:
        made.add(chunk)
    return made


@pytest.mark.parametrize(("data", "names"), [(TWO, ("PLAIN", "GSSAPI")), (SASL, ()), (b"", ())])
def test_mechanisms_are_read_however_they_arrive(data: bytes, names: tuple[str, ...]) -> None:
    assert greeting(data).mechanisms == names
    assert greeting(*(bytes((byte,)) for byte in data)).mechanisms == names
    assert greeting(data, b"\x00" * 9).mechanisms == names
    assert greeting(data).foreign is None


@pytest.mark.parametrize("size", range(len(TWO)))
def test_a_frame_that_is_not_whole_has_none(size: int) -> None:
    assert greeting(TWO[:size]).mechanisms == ()


@given(st.binary(max_size=200), st.integers(0, len(TWO)))
@example(b"\x00" * 200, 0)
@example(b"\x00s\x80", 18)  # a character that no Python string has
@example(b"\x15", 0)
def test_no_bytes_whatever_raise(data: bytes, size: int) -> None:
    for each in (greeting(data), greeting(TWO[:size] + data), greeting(TWO[:size] + data + TWO[size:])):
        assert all(name.isascii() and len(name) <= 20 for name in each.mechanisms)
        foreign = each.foreign
        if foreign is not None:
            assert foreign.text.isprintable()
            assert len(foreign.text) < 300


@given(st.lists(st.binary(max_size=600), max_size=8))
def test_few_bytes_are_kept(chunks: list[bytes]) -> None:
    assert greeting(*chunks).data == b"".join(chunks)[:MOST_BYTES]
