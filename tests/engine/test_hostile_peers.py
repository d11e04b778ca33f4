"""Peers that violate the protocol end their own connection, with a reason, and nothing else."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haclient.engine.protocol import Engine
from haclient.testing.peers.listening import Peer, settings
from tests.engine.pair import Owner, client_settings, opened, pair, serving

SASL_HEADER = b"AMQP\x03\x01\x00\x00"
AMQP_HEADER = b"AMQP\x00\x01\x00\x00"


def frame(body: bytes, *, kind: int = 0, size: int | None = None) -> bytes:
    """Encode an AMQP frame (part 2, section 2.3.1), with a size that may be wrong."""
    total = len(body) + 8 if size is None else size
    return total.to_bytes(4, "big") + bytes((2, kind, 0, 0)) + body


GARBAGE = {
    "http": b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "amqp 0-9-1": b"AMQP\x00\x00\x09\x01",
    "zeros": bytes(64),
    "frame over the limit": AMQP_HEADER + frame(b"", size=0x7FFFFFFF),
    "frame below the least size": AMQP_HEADER + frame(b"", size=4),
    "SASL frame over the limit": SASL_HEADER + frame(b"", kind=1, size=0x7FFFFFFF),
    "not a performative": AMQP_HEADER + frame(b"\x00\x53\x10"),
    "unknown performative": AMQP_HEADER + frame(b"\x00\x53\xff\x45"),
}


@asynccontextmanager
async def raw(peer: Peer, sent: bytes) -> AsyncIterator[None]:
    """Connect, send these bytes, read nothing, and stay."""
    _, writer = await asyncio.open_connection(peer.host, peer.port)
    try:
        writer.write(sent)
        await writer.drain()
        yield
    finally:
        writer.transport.abort()
        await asyncio.sleep(0)


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE.keys())
async def test_garbage_ends_its_connection_and_no_other(garbage: bytes) -> None:
    async with serving() as (peer, owners):
        async with raw(peer, garbage):
            await owners[0].until(lambda: owners[0].close_reasons)
        assert owners[0].engine is None  # never opened
        other = Owner()
        engine = await opened(other, peer.host, peer.port)
        await other.until(lambda: other.session)
        engine.abort()


async def test_the_close_reason_says_what_was_wrong() -> None:
    async with serving() as (peer, owners):
        async with raw(peer, GARBAGE["http"]):
            await owners[0].until(lambda: owners[0].close_reasons)
        (reason,) = owners[0].close_reasons
        assert reason.condition is not None
        assert reason.condition.name == "amqp:connection:framing-error"
        assert "HTTP/1.1" in str(reason)


async def test_a_mechanism_that_is_no_text_is_quoted_in_the_close_reason() -> None:
    """proton copies the bytes into its error, which it then cannot decode."""
    init = b"\x00\x53\x41\xc0\x0b\x01\xa3\x08EXTE\xbfNAL"
    async with serving() as (peer, owners):
        async with raw(peer, SASL_HEADER + frame(init, kind=1)):
            await owners[0].until(lambda: owners[0].close_reasons)
        (reason,) = owners[0].close_reasons
        assert r"EXTE\xbfNAL" in str(reason)


class Wire(asyncio.Transport):
    """A transport without a peer."""

    def is_closing(self) -> bool:
        return False

    def __init__(self) -> None:
        super().__init__()
        self.closed = False

    def write(self, data: Any) -> None:
        """Drop the bytes."""

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing: there is no buffer."""

    def close(self) -> None:
        self.closed = True

    abort = close


_PREFIXES = [b"", SASL_HEADER, AMQP_HEADER, AMQP_HEADER + frame(b"")]


@given(
    prefix=st.sampled_from(_PREFIXES),
    chunks=st.lists(st.binary(max_size=64) | st.binary(max_size=40).map(frame), max_size=8),
    server=st.booleans(),
)
def test_no_bytes_whatever_raise_out_of_an_engine(prefix: bytes, chunks: list[bytes], server: bool) -> None:
    loop = asyncio.new_event_loop()
    owner, wire = Owner(server=server), Wire()
    engine = Engine(owner, settings() if server else client_settings(), loop)
    try:
        engine.connection_made(wire)
        if not server:
            engine.open()
        for chunk in (prefix, *chunks):
            engine.data_received(chunk)
            loop.run_until_complete(asyncio.sleep(0))
        engine.eof_received()
        engine.connection_lost(None)
        assert len(owner.close_reasons) == 1
    finally:
        loop.close()


async def test_a_peer_that_stalls_before_its_open_is_dropped_by_the_heartbeat() -> None:
    async with serving(heartbeat=0.2) as (peer, owners):
        async with raw(peer, AMQP_HEADER):
            await owners[0].until(lambda: owners[0].close_reasons)
        assert "silent for 0.2 s" in str(owners[0].close_reasons[0])


async def test_an_owner_that_raises_ends_its_connection_with_a_logged_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Raising(Owner):
        def session_opened(self, engine: Engine, session: Any) -> None:
            raise ValueError("in the owner")

    async with serving() as (peer, _):
        owner = Raising()
        await opened(owner, peer.host, peer.port)
        await owner.until(lambda: owner.close_reasons)
        assert "ValueError in the owner" in str(owner.close_reasons[0])
    assert "in the owner" in caplog.text


@pytest.mark.parametrize("limit", [1000, 200_000], ids=["of one frame", "of many frames"])
async def test_a_message_over_the_limit_closes_its_link_and_is_not_delivered(limit: int) -> None:
    async with pair(server={"max_message_size": limit}) as both:
        sender, _ = await both.sender()
        sender.send(b"x" * limit, "fits")
        await both.server.until(lambda: both.server.deliveries)
        sender.send(b"x" * (limit * 5), "too large")
        await both.client.until(lambda: both.client.links_closed)
        ((_, condition),) = both.client.links_closed
        assert condition is not None
        assert condition.name == "amqp:link:message-size-exceeded"
        # Another link works, and its message arrives after all of the first link's.
        other, _ = await both.sender()
        other.send(b"small", "small")
        await both.server.until(lambda: both.server.deliveries[-1][2] == b"small")
        assert [len(data) for _, _, data in both.server.deliveries] == [limit, 5]


async def test_engines_log_nothing_of_what_is_normal(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        async with pair() as both:
            assert both.client.engine is not None
            both.client.engine.close()
            await both.client.until(lambda: both.client.close_reasons)
            await both.server.until(lambda: both.server.close_reasons)
    assert caplog.records == []
    assert both.server.closed_with == [None]
    assert both.client.close_reasons[0].by_peer
