"""A primary that exceeds its credit, or the size limit of messages, loses that receiver."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from haclient.errors import LinkClosed
from tests.broker_stub.raw_client import message, transfer
from tests.peers import Primary, primary
from tests.peers.apis import API, connected, until_waiting

# The client's receivers are the first links of their session, in the order of their creation.
_HANDLE = 0


def flood(peer: Primary, count: int, size: int, *, more: bool = False) -> None:
    """Send messages on the first link, whatever its credit: proton would not."""
    (engine,) = peer.engines
    for number in range(count):
        engine.tcp.write(transfer(_HANDLE, 0 if more else number, message(size), more=more))


async def others_work(peer: Primary, connection: Any) -> None:
    """Use a sender and a receiver over the same connection."""
    assert (await (await connection.create_sender("other")).send(b"one")).accepted
    peer.put("other", "two")
    assert (await (await connection.create_receiver("other")).receive(timeout=5)).message.body == "two"


@pytest.mark.parametrize("credit", [0, 10])
async def test_the_receiver_is_closed_with_the_reason_and_keeps_no_message(api: API, credit: int) -> None:
    async with primary() as peer, connected(api, peer) as connection:
        receiver = await connection.create_receiver("q", credit=credit)
        core = receiver._core
        flood(peer, 2000, 10_000)
        await peer.until(lambda: peer.detached)
        with pytest.raises(LinkClosed, match="without credit") as caught:
            await receiver.receive(timeout=5)
        assert caught.value.condition == "amqp:link:transfer-limit-exceeded"
        assert "the client closed the receiver for 'q'" in str(caught.value)
        assert not core.inbox
        await others_work(peer, connection)


async def test_a_message_without_an_end_is_not_kept_beyond_the_credit(api: API) -> None:
    async with primary() as peer, connected(api, peer) as connection:
        receiver = await connection.create_receiver("q", credit=0)
        flood(peer, 6, 10)
        flood(peer, 100, 10_000, more=True)
        with pytest.raises(LinkClosed, match="without credit"):
            await receiver.receive(timeout=5)


async def test_a_message_that_is_too_large_ends_the_call_that_waits_with_that_reason(api: API) -> None:
    async with primary() as peer, connected(api, peer) as connection:
        receiver = await connection.create_receiver("q")
        receiver._core._link._limit = 1000  # in place of 256 MiB
        waiting = asyncio.create_task(receiver.receive(timeout=20))
        await until_waiting(receiver)
        flood(peer, 1, 1001)
        with pytest.raises(LinkClosed, match="too large") as caught:
            await waiting
        assert caught.value.condition == "amqp:link:message-size-exceeded"
