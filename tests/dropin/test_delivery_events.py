"""Deliveries reach handlers that an application makes from proton's own handlers, and our handlers."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import proton
import pytest
from proton import reactor as proton_reactor
from proton.handlers import FlowController, IncomingMessageHandler, MessagingHandler, OutgoingMessageHandler

from haclient.outcome import ACCEPTED, Outcome, OutcomeState
from haclient.reactor import Container
from haclient.testing.threads import in_thread
from tests.peers import primary, url


class _Incoming(IncomingMessageHandler):
    """An application's own kind of proton's handler, with a child."""

    def on_delivery(self, event: proton.Event) -> None:
        self.delegate.called.append("incoming")
        super().on_delivery(event)


class _Child:
    """A handler without any of proton's classes."""

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


class _Outgoing(OutgoingMessageHandler):
    """A handler of sent messages, of a class that the application derives from proton's."""

    def on_delivery(self, event: proton.Event) -> None:
        self.delegate.called.append("outgoing")
        super().on_delivery(event)


class _Partial:
    """A delegate that has one of the methods only, and sees the other events by name."""

    def __init__(self, program: _SendingProgram) -> None:
        self.program = program
        self.called = program.called

    def on_sendable(self, event: Any) -> None:
        self.program.on_sendable(event)

    def on_settled(self, event: Any) -> None:
        self.program.on_settled(event)

    def on_unhandled(self, method: str, *_arguments: Any) -> None:
        self.called.append(f"unhandled {method}")


class _SendingProgram(MessagingHandler):
    """Sends messages with tags and ends when they are settled."""

    tags: Any = None
    send_with: tuple[str | None, ...] = (None,)

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where
        self.called: list[str] = []
        self.sent: list[Any] = []
        self.tags_used: list[str] = []
        self.settled = 0

    def on_start(self, event: Any) -> None:
        connection = event.container.connect(self.where)
        event.container.create_sender(connection, "news", tags=self.tags)

    def on_sendable(self, event: Any) -> None:
        if not self.sent:
            self.sent = [event.sender.send(proton.Message(body=tag), tag=tag) for tag in self.send_with]

    def on_accepted(self, event: Any) -> None:
        assert event.delivery == self.sent[self.settled]
        assert event.sender == event.delivery.link
        self.tags_used.append(event.delivery.tag)
        self.called.append("accepted")

    def on_released(self, _event: Any) -> None:
        self.called.append("released")

    def on_settled(self, event: Any) -> None:
        self.called.append("settled")
        self.settled += 1
        if self.settled == len(self.sent):
            event.connection.close()

    def use(self, outgoing: OutgoingMessageHandler) -> OutgoingMessageHandler:
        self.handlers[-1] = outgoing
        return outgoing


_CONTAINERS = pytest.mark.parametrize(
    "container", [Container, proton_reactor.Container], ids=["ours", "proton"]
)


def _run_sending(
    container: type[Any], outcome: Outcome, prepare: Callable[[_SendingProgram], object]
) -> list[str]:
    with in_thread(primary(outcome=outcome)) as peer:
        program = _SendingProgram(url(peer))
        kept = prepare(program)  # handlers refer to their delegates weakly
        container(program).run()
        del kept
    return program.called


@_CONTAINERS
@pytest.mark.parametrize(
    ("state", "reported"), [(OutcomeState.ACCEPTED, "accepted"), (OutcomeState.RELEASED, "released")]
)
def test_the_outcome_is_reported_before_it_is_settled(
    container: type[Any], state: OutcomeState, reported: str
) -> None:
    assert _run_sending(container, Outcome(state), lambda _program: None) == [reported, "settled"]


@_CONTAINERS
def test_subclasses_and_children_are_called_with_outcomes(container: type[Any]) -> None:
    def prepare(program: _SendingProgram) -> None:
        program.use(_Outgoing(True, program)).add(_Child(program.called))

    assert _run_sending(container, ACCEPTED, prepare) == ["outgoing", "accepted", "settled", "child"]


@_CONTAINERS
def test_a_method_set_on_a_handler_is_called_instead_of_the_program_s(container: type[Any]) -> None:
    def prepare(program: _SendingProgram) -> None:
        outgoing: Any = program.use(OutgoingMessageHandler(True, program))
        outgoing.on_accepted = lambda _event: program.called.append("own")

    assert _run_sending(container, ACCEPTED, prepare) == ["own", "settled"]


@_CONTAINERS
def test_a_delegate_without_a_method_gets_on_unhandled(container: type[Any]) -> None:
    def prepare(program: _SendingProgram) -> _Partial:
        partial = _Partial(program)
        program.use(OutgoingMessageHandler(True, partial))
        return partial

    assert _run_sending(container, ACCEPTED, prepare) == ["unhandled on_accepted", "settled"]


@_CONTAINERS
def test_tags_are_the_program_s_or_numbers(container: type[Any]) -> None:
    """The longest tag that AMQP allows, a tag that is not ASCII, and shorter tags after longer ones."""
    with in_thread(primary()) as peer:
        program = _SendingProgram(url(peer))
        program.send_with = (None, "x" * 32, "é", None)
        container(program).run()
        generated = _SendingProgram(url(peer))
        generated.tags = iter(["own-1", "own-2"])
        generated.send_with = (None, "between", None)
        container(generated).run()
    assert program.tags_used == ["1", "x" * 32, "é", "2"]
    assert generated.tags_used == ["own-1", "between", "own-2"]


class _Keeping(MessagingHandler):
    """Keeps the body of one message, but not the message."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where
        self.body: Any = None

    def on_start(self, event: Any) -> None:
        event.container.create_receiver(event.container.connect(self.where), "news")

    def on_message(self, event: Any) -> None:
        self.body = event.message.body
        event.connection.close()


def test_binary_inside_a_body_outlives_its_message_and_is_the_key_of_a_map() -> None:
    """proton raises ValueError for the map, and returns views into freed memory for the others."""
    with in_thread(primary()) as peer:
        peer.put("news", [{b"key": 1}, proton.Described(b"descriptor", b"value"), b"binary"])
        program = _Keeping(url(peer))
        Container(program).run()
    gc.collect()
    mapped, described, binary = program.body
    assert mapped == {b"key": 1}
    assert (described.descriptor, described.value, binary) == (b"descriptor", b"value", b"binary")
    assert all(type(each) is memoryview for each in (*mapped, described.descriptor, described.value, binary))
