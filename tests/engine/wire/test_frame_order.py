"""A peer's frames of AMQP alone, across any cuts of their bytes."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haclient import aio
from haclient.engine.wire.frame_order import FrameOrder
from haclient.errors import HaclientError

SASL, AMQP = b"AMQP\x03\x01\x00\x00", b"AMQP\x00\x01\x00\x00"
ANONYMOUS = b"\xa3\x09ANONYMOUS"


def frame(body: bytes, *, kind: int = 0, extended: bytes = b"") -> bytes:
    """Encode a frame (AMQP 1.0 part 2, section 2.3.1)."""
    offset = 2 + len(extended) // 4
    return (8 + len(extended) + len(body)).to_bytes(4) + bytes((offset, kind, 0, 0)) + extended + body


def sasl(code: int, fields: bytes = b"\x45", *, wide: bool = False, extended: bytes = b"") -> bytes:
    """Encode a SASL frame (part 5, section 5.3.3)."""
    descriptor = b"\x00\x80" + code.to_bytes(8) if wide else b"\x00\x53" + bytes((code,))
    return frame(descriptor + fields, kind=1, extended=extended)


MECHANISMS, INIT, CHALLENGE, _, OUTCOME = (sasl(code) for code in range(0x40, 0x45))
OPEN, EMPTY = frame(b"\x00\x53\x10\xc0\x03\x01\xa1\x00"), frame(b"")
RIGHT = (AMQP + OPEN, AMQP + OPEN + EMPTY + frame(bytes(3000)))
# Of either side: no SASL, no body, too large, shorter than its header.
MALFORMED = (
    SASL + OPEN,
    SASL + frame(b"", kind=1),
    SASL + (1 << 20).to_bytes(4) + b"\x02\x01\x00\x00",
    SASL + b"\x00\x00\x00\x07\x02\x01\x00\x00",
)
WITHIN_AMQP = (AMQP + OPEN + CHALLENGE, AMQP + OPEN + EMPTY + sasl(0x44, wide=True), AMQP + CHALLENGE)
# Of a server.
WRONG = (
    SASL + CHALLENGE,
    SASL + OUTCOME,
    SASL + MECHANISMS + MECHANISMS,
    SASL + INIT,
    SASL + sasl(0x44, wide=True),
    SASL + sasl(0x42, extended=b"text"),
    SASL + frame(b"\x00\xa3\x0fsasl-mechanisms\x45", kind=1),
    *MALFORMED,
    SASL + MECHANISMS + OUTCOME + AMQP + OPEN + CHALLENGE,
    *WITHIN_AMQP,
)


def verdict(data: bytes, cuts: list[int]) -> str:
    """Return the fault of the bytes, read in chunks that end at the cuts."""
    order, start = FrameOrder(), 0
    for end in (*sorted(cut % len(data) for cut in cuts), len(data)):
        if wrong := order.add(data[start:end]):
            return wrong
        start = end
    return ""


CUTS = st.lists(st.integers(0, 200), max_size=12)


@given(st.sampled_from(RIGHT), CUTS)
def test_the_standard_s_order_passes(data: bytes, cuts: list[int]) -> None:
    assert verdict(data, cuts) == ""
    assert verdict(data, list(range(len(data)))) == ""


@given(st.sampled_from(WITHIN_AMQP), CUTS)
def test_a_sasl_frame_within_amqp_is_named(data: bytes, cuts: list[int]) -> None:
    assert "SASL frame" in verdict(data, cuts)
    assert "SASL frame" in verdict(data, list(range(len(data))))


@given(st.binary(max_size=200), CUTS)
def test_any_bytes_get_a_verdict(data: bytes, cuts: list[int]) -> None:
    """proton refuses other bytes than the header."""
    if data:
        wrong = verdict(data, cuts)
        assert not wrong or data.startswith(AMQP)


@pytest.mark.parametrize("sent", WRONG)
async def test_a_client_s_error_says_so(sent: bytes) -> None:
    async def lie(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(sent)
        await reader.read()
        writer.close()

    server = await asyncio.start_server(lie, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(HaclientError, match="SASL"):
            await aio.connect(f"amqp://user:secret@127.0.0.1:{port}/?max_attempts=1")
