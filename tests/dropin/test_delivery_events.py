"""Deliveries reach handlers that an application makes from proton's, beside those that are done here."""

from __future__ import annotations

from typing import Any

import proton
import pytest
from proton import reactor as proton_reactor
from proton.handlers import FlowController, IncomingMessageHandler, MessagingHandler, OutgoingMessageHandler

from haclient.reactor import Container
from haclient.testing.threads import in_thread
from tests.peers import primary, url


class _Incoming(IncomingMessageHandler):
    """An application's own kind of proton's handler, with a child."""

    def on_delivery(self, event: proton.Event) -> None:
        self.delegate.called.append("incoming")
        super().on_delivery(event)


class _Child:
    """A handler that knows nothing of proton's classes."""

    def __init__(self, called: list[str]) -> None:
        self.called = called

    def on_delivery(self, _event: proton.Event) -> None:
        self.called.append("child")


class _Program(MessagingHandler):
    """Receives one message and ends."""

    def __init__(self, where: str, kind: type[IncomingMessageHandler]) -> None:
        super().__init__(prefetch=0)
        self.called: list[str] = []
        self.where = where
        incoming = kind(True, self)
        incoming.add(_Child(self.called))
        self.handlers[1:] = [FlowController(1), incoming, OutgoingMessageHandler(True, self)]

    def on_start(self, event: Any) -> None:
        connection = event.container.connect(self.where)
        event.container.create_receiver(connection, "news")

    def on_delivery(self, _event: proton.Event) -> None:
        self.called.append("program")

    def on_message(self, event: Any) -> None:
        self.called.append("message")
        assert event.message.body == "one"
        assert event.message.properties is None
        event.connection.close()


@pytest.mark.parametrize("container", [Container, proton_reactor.Container], ids=["ours", "proton"])
@pytest.mark.parametrize("kind", [IncomingMessageHandler, _Incoming])
def test_subclasses_and_child_handlers_are_called(
    kind: type[IncomingMessageHandler], container: type[Any]
) -> None:
    with in_thread(primary()) as peer:
        peer.put("news", "one")
        program = _Program(url(peer), kind)
        container(program).run()
    expected = ["program", "incoming", "message", "child"]
    if kind is IncomingMessageHandler:
        expected.remove("incoming")
    assert program.called == expected
