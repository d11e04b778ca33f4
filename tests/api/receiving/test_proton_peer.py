"""Drains and filters with python-qpid-proton's own Container as the peer; over both APIs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from proton import Message
from proton.handlers import MessagingHandler
from proton.reactor import Container

from haclient.errors import FilterNotSupported
from tests.dnsmasq import free_port
from tests.peers.apis import API

MESSAGES = 25


class Server(MessagingHandler):
    """Sends numbered messages to receivers of ``q``, and echoes only their filters; for one connection."""

    def __init__(self, port: int) -> None:
        super().__init__(prefetch=0, auto_accept=False, auto_settle=True)
        self.port = port
        self.listening = threading.Event()
        self.left = list(range(MESSAGES))

    def on_start(self, event: Any) -> None:
        self.listener = event.container.listen(f"127.0.0.1:{self.port}")
        self.listening.set()

    def on_connection_closed(self, event: Any) -> None:
        self.listener.close()

    def on_link_opening(self, event: Any) -> None:
        link = event.link
        link.source.address = link.remote_source.address
        link.target.address = link.remote_target.address
        if link.remote_source.address == "q":
            link.source.filter.copy(link.remote_source.filter)

    def on_link_flow(self, event: Any) -> None:
        link = event.link
        if not link.is_sender:
            return
        while self.left and link.source.address == "q" and link.credit:
            link.send(Message(body=self.left.pop(0)))
        if link.drain_mode:
            link.drained()


@pytest.fixture
def server() -> Iterator[Server]:
    handler = Server(free_port())
    container = Container(handler)
    thread = threading.Thread(target=container.run, daemon=True)
    thread.start()
    assert handler.listening.wait(10)
    yield handler
    thread.join(10)
    assert not thread.is_alive()


async def test_a_drain_brings_what_there_is_and_no_more(api: API, server: Server) -> None:
    connection = await api.connect(f"amqp://127.0.0.1:{server.port}")
    empty = await connection.create_receiver("empty", credit=5)
    await empty.drain(timeout=10)
    assert await empty.receive_many(1, timeout=0) == []
    receiver = await connection.create_receiver("q", credit=0)
    for expected in ([0, 1, 2], [3, 4, 5]):
        await receiver.add_credit(3)
        await receiver.drain(timeout=10)
        assert [each.message.body for each in await receiver.receive_many(9, timeout=0)] == expected
    await receiver.add_credit(1000)
    await receiver.drain(timeout=10)
    got = await receiver.receive_many(1000, timeout=0)
    assert [each.message.body for each in got] == list(range(6, MESSAGES))
    assert await receiver.accept_many(got) == []
    await receiver.drain(timeout=10)
    await connection.close()


async def test_a_selector_that_proton_echoes_is_granted_and_one_that_it_does_not_is_not(
    api: API, server: Server
) -> None:
    connection = await api.connect(f"amqp://127.0.0.1:{server.port}")
    receiver = await connection.create_receiver("q", selector="a = 1", filters={"mine": [1, "two"]})
    assert (await receiver.receive(timeout=10)).message.body == 0
    with pytest.raises(FilterNotSupported):
        await connection.create_receiver("other", selector="a = 1")
    await connection.close()
