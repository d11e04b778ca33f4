"""Peers that violate the protocol end their own connection, with a reason, and no other connection."""

from __future__ import annotations

import asyncio
import logging
import struct

import pytest
from proton import Message

from broker_stub.broker import Broker
from tests.broker_stub.clients import Client, queue_status, running

SASL_HEADER, AMQP_HEADER = b"AMQP\x03\x01\x00\x00", b"AMQP\x00\x01\x00\x00"
# A SASL-INIT with ANONYMOUS, and an Open with container-id "x".
SASL_INIT = b"\x00\x00\x00\x1b\x02\x01\x00\x00\x00\x53\x41\xc0\x0c\x01\xa3\x09ANONYMOUS"
SASL_INIT = struct.pack(">I", len(SASL_INIT)) + SASL_INIT[4:]
OPEN = b"\x00\x00\x00\x12\x02\x00\x00\x00\x00\x53\x10\xc0\x04\x01\xa1\x01x"
OPEN = struct.pack(">I", len(OPEN)) + OPEN[4:]


async def send_and_wait_for_the_end(broker: Broker, *parts: bytes) -> None:
    reader, writer = await asyncio.open_connection(broker.address.host, broker.address.port)
    try:
        for part in parts:
            writer.write(part)
        async with asyncio.timeout(5):
            while await reader.read(65536):
                pass
    except ConnectionResetError:
        pass
    finally:
        writer.close()


async def the_broker_still_serves(broker: Broker) -> None:
    client = await Client().connect(broker.address)
    [outcome] = await client.send(await client.attach("sender", "s", "alive"), Message(body="x"))
    assert outcome.accepted
    await client.close()


@pytest.mark.parametrize(
    "parts",
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 600,),
        (bytes(range(256)) * 40,),
        (SASL_HEADER, b"\xff" * 64),
        (SASL_HEADER, SASL_INIT, AMQP_HEADER, b"\x00\x00\x00\x08\x02\x00\x00\x00" + b"\xde\xad\xbe\xef" * 50),
        (SASL_HEADER, SASL_INIT, AMQP_HEADER, OPEN, b"\x00\x00\x00\x02\x02\x00\x00\x00"),
        (SASL_HEADER, SASL_INIT, AMQP_HEADER, OPEN, b"\x7f\xff\xff\xff\x02\x00\x00\x00" + b"\x00" * 100_000),
    ],
    ids=["http", "tls hello", "noise", "bad sasl", "bad frame", "short frame", "oversize frame"],
)
async def test_bytes_that_are_not_amqp_end_that_connection_only(parts: tuple[bytes, ...]) -> None:
    async with running() as broker:
        bystander = await Client().connect(broker.address)
        await bystander.begun.wait()
        await send_and_wait_for_the_end(broker, *parts)
        await the_broker_still_serves(broker)
        assert not bystander.close_reason.done()
        await bystander.close()


@pytest.mark.parametrize("parts", [(), (SASL_HEADER,), (SASL_HEADER, SASL_INIT, AMQP_HEADER)])
async def test_a_peer_that_stalls_before_its_open_is_cut_with_a_logged_reason(
    parts: tuple[bytes, ...], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "broker_stub")
    # Long enough for the client that does not stall, even on a busy machine.
    async with running(handshake_timeout=0.5) as broker:
        await send_and_wait_for_the_end(broker, *parts)
        await the_broker_still_serves(broker)
    assert "the client sent no AMQP Open" in caplog.text


async def test_a_refused_client_that_does_not_answer_the_close_is_cut() -> None:
    async with running(handshake_timeout=0.05, max_connections=0) as broker:
        await send_and_wait_for_the_end(broker, SASL_HEADER, SASL_INIT, AMQP_HEADER, OPEN)
        assert not broker._connections


async def test_clients_beyond_the_limit_are_refused_with_the_reason() -> None:
    async with running(max_connections=1) as broker:
        first = await Client().connect(broker.address)
        await first.begun.wait()
        second = await Client().connect(broker.address)
        assert (await second.end()).condition.name == "amqp:resource-limit-exceeded"
        assert not first.close_reason.done()
        await first.close()


async def test_a_message_over_the_size_limit_closes_the_link_not_the_broker() -> None:
    async with running(max_message_size=10_000) as broker:
        client = await Client().connect(broker.address)
        sender = await client.attach("sender", "s", "q")
        while not sender.credit:
            await client.credit.wait()
        sender.send(bytes(Message(body=b"x" * 200_000).encode()), None)
        kind, _, condition = await client.links.get()
        assert (kind, condition.name) == ("closed", "amqp:link:message-size-exceeded")
        await the_broker_still_serves(broker)
        await client.close()


async def test_a_silent_client_is_lost_after_its_heartbeats_stop() -> None:
    async with running(heartbeat=0.2) as broker:
        client = await Client().connect(broker.address)
        await client.begun.wait()
        client.engine._timer.cancel()
        client.engine._timer = asyncio.get_running_loop().call_later(60, int)
        async with asyncio.timeout(5):
            await client.end()
        assert not broker._connections


async def test_a_delivery_that_fails_ends_its_own_connection_not_the_senders(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object, **__: object) -> bytes:
        raise RuntimeError("planted")

    async with running() as broker:
        victim, sender = await Client().connect(broker.address), await Client().connect(broker.address)
        receiver = await victim.attach("receiver", "r", "q")
        receiver.grant(1)
        link = await sender.attach("sender", "s", "q")
        monkeypatch.setattr("broker_stub.connections.outgoing_links.with_header", broken)
        [outcome] = await sender.send(link, Message(body="x", ttl=60.0))
        assert outcome.accepted
        await victim.end()
        assert queue_status(broker)[0]["depth"] == 1
        await sender.close()
