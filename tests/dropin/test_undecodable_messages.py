"""The drop-in decodes a message completely, or raises an error for the program, which can reject it."""

from __future__ import annotations

from typing import Any

import proton
import pytest
from proton.handlers import MessagingHandler, Reject

from haclient.errors import UndecodableMessage
from haclient.outcome import OutcomeState
from haclient.reactor import Container
from haclient.testing.threads import in_thread
from haclient.utils import BlockingConnection
from tests.engine.encoded_messages import list_of, section
from tests.peers import primary, url

DATA, SEQUENCE, VALUE = 0x75, 0x76, 0x77
TOO_MANY = section(VALUE, list_of([b"\x40"] * 70_000))
PARTS = b"".join(section(DATA, b"\xa0\x05part%d" % index) for index in range(3))
SEQUENCES = b"".join(section(SEQUENCE, list_of([bytes((0x54, index))])) for index in range(3))


class _Program(MessagingHandler):
    """Reads messages up to the last one; with ``rejects`` it rejects messages that it cannot read."""

    def __init__(self, where: str, *, rejects: bool) -> None:
        super().__init__()
        self.where = where
        self.rejects = rejects
        self.bodies: list[Any] = []

    def on_start(self, event: Any) -> None:
        event.container.create_receiver(event.container.connect(self.where), "news")

    def on_message(self, event: Any) -> None:
        try:
            body = event.message.body
        except proton.MessageException as error:
            assert isinstance(error, UndecodableMessage)  # noqa: PT017 - which proton's program does not know
            if self.rejects:
                raise Reject from error
            raise
        self.bodies.append(body)
        assert event.message.body is body
        if body == "last":
            event.connection.close()


def test_a_handler_can_reject_it_and_the_next_one_arrives() -> None:
    with in_thread(primary()) as peer:
        peer.put_encoded("news", TOO_MANY, b"no message")
        peer.put("news", "last")
        program = _Program(url(peer), rejects=True)
        Container(program).run()
        assert [each.state for each in peer.outcomes[:2]] == [OutcomeState.REJECTED] * 2
    assert program.bodies == ["last"]


def test_run_raises_the_error_of_a_handler_that_does_not_catch_it() -> None:
    with in_thread(primary()) as peer:
        peer.put_encoded("news", TOO_MANY)
        with pytest.raises(UndecodableMessage, match="more than 65535 values"):
            Container(_Program(url(peer), rejects=False)).run()


def test_a_body_of_several_sections_arrives_whole() -> None:
    with in_thread(primary()) as peer:
        peer.put_encoded("news", PARTS, SEQUENCES)
        peer.put("news", "last")
        program = _Program(url(peer), rejects=False)
        Container(program).run()
    assert program.bodies == [b"part0part1part2", [[0], [1], [2]], "last"]


def test_a_blocking_receive_raises_and_reject_rejects_it() -> None:
    with in_thread(primary()) as peer:
        peer.put_encoded("news", TOO_MANY)
        peer.put("news", "last")
        connection = BlockingConnection(url(peer), timeout=10)
        receiver = connection.create_receiver("news")
        with pytest.raises(UndecodableMessage, match="more than 65535 values"):
            receiver.receive()
        receiver.reject()
        assert receiver.receive().body == "last"
        receiver.accept()
        connection.close()
        assert [each.state for each in peer.outcomes] == [OutcomeState.REJECTED, OutcomeState.ACCEPTED]
