"""The first bytes of a peer: any bytes, in any chunks."""

from __future__ import annotations

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


def test_a_peer_that_begins_with_sasl_is_not_foreign() -> None:
    for size in range(1, len(TWO) + 1):
        assert greeting(TWO[:size]).foreign is None


@given(st.binary(max_size=200), st.integers(0, len(TWO)))
@example(b"\x00" * 200, 0)
@example(b"\x00s\x80", 18)  # a character that no Python string has
@example(b"\x15", 0)
def test_no_bytes_whatever_raise(data: bytes, size: int) -> None:
    for each in (greeting(data), greeting(TWO[:size] + data), greeting(TWO[:size] + data + TWO[size:])):
        foreign = each.foreign
        if foreign is not None:
            assert foreign.text.isprintable()
            assert len(foreign.text) < 300


@given(st.lists(st.binary(max_size=600), max_size=8))
def test_few_bytes_are_kept(chunks: list[bytes]) -> None:
    assert greeting(*chunks).data == b"".join(chunks)[:MOST_BYTES]
