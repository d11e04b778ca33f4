"""Ctrl-C and signal handlers; for interrupts of blocking calls see ``test_interruption``."""

from __future__ import annotations

import asyncio
import signal

import pytest

from haclient import Message, State, aio
from haclient.errors import HaclientError
from haclient.testing.threads import in_thread
from tests.peers import primary, url
from tests.peers.apis import API

HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE, signal.SIGUSR1)


async def test_no_signal_handler_is_installed(api: API) -> None:
    before = [signal.getsignal(number) for number in HANDLED]
    async with primary() as peer:
        connection = await api.connect(url(peer))
        await (await connection.create_sender("q")).send(Message())
        assert [signal.getsignal(number) for number in HANDLED] == before
        await connection.close()


def test_an_interrupt_ends_an_asyncio_program_and_closes_its_connection() -> None:
    """``asyncio.run`` cancels its task; the block closes the connection."""
    connections = []

    async def main() -> None:
        async with aio.connect(url(peer)) as connection, connection.create_receiver("q") as receiver:
            connections.append(connection)
            asyncio.get_running_loop().call_soon(signal.raise_signal, signal.SIGINT)
            await receiver.receive()

    with in_thread(primary()) as peer:
        with pytest.raises(KeyboardInterrupt):
            asyncio.run(main())
        assert connections[0].state is State.CLOSED


async def test_a_handler_of_the_loop_closes_the_receiver_and_its_iteration_ends() -> None:
    async with primary() as peer, aio.connect(url(peer)) as connection:
        receiver = await connection.create_receiver("q")
        loop, closing = asyncio.get_running_loop(), list[asyncio.Task[None]]()
        loop.add_signal_handler(signal.SIGUSR1, lambda: closing.append(loop.create_task(receiver.close())))
        peer.put("q", "one", "two")
        seen = []
        try:
            async with asyncio.timeout(10):
                async for delivery in receiver:
                    seen.append(delivery.message.body)
                    await delivery.accept()
                    if seen == ["one", "two"]:
                        signal.raise_signal(signal.SIGUSR1)
        finally:
            loop.remove_signal_handler(signal.SIGUSR1)
        await asyncio.gather(*closing)
        assert seen == ["one", "two"]
        with pytest.raises(HaclientError):
            await receiver.receive()
