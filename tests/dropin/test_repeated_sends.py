"""A blocking send that timed out and is repeated: one message, if the same message is sent next."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import proton
import pytest
from proton import Message

from haclient.outcome import ACCEPTED
from haclient.testing.peers.listening import url
from haclient.testing.threads import in_thread
from haclient.utils import BlockingConnection, BlockingSender
from tests.dropin.recorder import FAST, PATIENCE
from tests.dropin.waiting import on_its_thread
from tests.members import Members
from tests.peers.primary import Primary, primary

# The timeout of a send that is to time out after its message has arrived.
SHORT = 0.4


@pytest.fixture
def sender(peer: Primary, connection: BlockingConnection) -> BlockingSender:
    """Create a sender to a primary that settles nothing for now."""
    peer.outcome = None
    return connection.create_sender("q")


def send_in_vain(peer: Primary, sender: BlockingSender, message: Message) -> None:
    """Send a message that arrives and is not settled in time."""
    before = len(peer.received) + peer.copies
    with pytest.raises(proton.Timeout, match="Sending on sender"):
        sender.send(message, timeout=SHORT)
    assert len(peer.received) + peer.copies == before + 1


def send_at_last(peer: Primary, sender: BlockingSender, message: Message) -> None:
    peer.outcome = ACCEPTED
    sender.send(message)


def test_the_same_message_again_is_stored_once(peer: Primary, sender: BlockingSender) -> None:
    message = Message(body="one", id=1)
    for _ in range(3):
        send_in_vain(peer, sender, message)
    send_at_last(peer, sender, message)
    assert (peer.bodies, peer.copies) == (["one"], 3)
    assert message.properties is None, "nothing is kept in the message"


@pytest.mark.parametrize(
    ("change", "stored"),
    [
        (lambda message: setattr(message, "body", "two"), ["one", "two"]),
        (lambda message: setattr(message, "subject", "new"), ["one", "one"]),
        (lambda message: setattr(message, "properties", {"n": 2}), ["one", "one"]),
    ],
    ids=["body", "subject", "properties"],
)
def test_a_message_that_is_used_again_with_something_new_is_not_lost(
    peer: Primary, sender: BlockingSender, change: Callable[[Message], object], stored: list[str]
) -> None:
    message = Message(body="one", properties={"n": 1})
    send_in_vain(peer, sender, message)
    change(message)
    send_in_vain(peer, sender, message)
    send_at_last(peer, sender, message)
    assert (peer.bodies, peer.copies) == (stored, 1)


def test_another_message_with_the_same_content_is_another(peer: Primary, sender: BlockingSender) -> None:
    send_in_vain(peer, sender, Message(body="one"))
    send_at_last(peer, sender, Message(body="one"))
    assert (peer.bodies, peer.copies) == (["one", "one"], 0)


def test_only_the_next_send_repeats(peer: Primary, sender: BlockingSender) -> None:
    message = Message(body="one")
    send_in_vain(peer, sender, message)
    send_at_last(peer, sender, Message(body="two"))
    sender.send(message)
    sender.send(message)
    assert (peer.bodies, peer.copies) == (["one", "two", "one", "one"], 0)


def test_a_send_that_was_accepted_is_not_repeated_by_the_next(peer: Primary, sender: BlockingSender) -> None:
    message = Message(body="one")
    send_in_vain(peer, sender, message)
    send_at_last(peer, sender, message)
    sender.send(message)
    assert (peer.bodies, peer.copies) == (["one", "one"], 1)


def test_another_sender_repeats_nothing(
    peer: Primary, sender: BlockingSender, connection: BlockingConnection
) -> None:
    message = Message(body="one")
    send_in_vain(peer, sender, message)
    send_at_last(peer, connection.create_sender("q", name="another"), message)
    assert (peer.bodies, peer.copies) == (["one", "one"], 0)


@pytest.mark.parametrize("message_id", [None, 1])
def test_a_repetition_after_a_loss_is_stored_once(
    peer: Primary, sender: BlockingSender, message_id: Any
) -> None:
    message = Message(body="one", id=message_id)
    send_in_vain(peer, sender, message)
    on_its_thread(peer, peer.drop)
    send_at_last(peer, sender, message)
    assert (peer.bodies, peer.copies) == (["one"], 1)


@pytest.mark.parametrize("message_id", [None, 1])
def test_a_send_that_a_loss_and_then_a_timeout_ended_is_stored_once(
    peer: Primary, sender: BlockingSender, message_id: Any
) -> None:
    message = Message(body="one", id=message_id)

    def drop_soon() -> None:
        asyncio.get_running_loop().call_later(SHORT, peer.drop)

    on_its_thread(peer, drop_soon)
    with pytest.raises(proton.Timeout):
        sender.send(message, timeout=3 * SHORT)
    assert (peer.bodies, peer.copies) == (["one"], 1), "the ledger has sent it again"
    send_at_last(peer, sender, message)
    assert (peer.bodies, peer.copies) == (["one"], 2)


def test_the_text_says_that_nobody_is_connected() -> None:
    with in_thread(primary()) as peer:
        connection = BlockingConnection(url(peer), timeout=PATIENCE, **FAST)
        sender = connection.create_sender("q")
    last = peer.address
    with pytest.raises(proton.Timeout, match=f"no primary is connected, the last was .*{last}: Sending"):
        sender.send(Message(body="one"), timeout=SHORT)
    connection.close()


def test_a_broker_stores_one_message(members: Members) -> None:
    """The broker is paused when the first copy is on its way, and gets both when it resumes."""
    broker, message = members.start("alone", role="primary"), Message(body="one")
    with BlockingConnection(broker.address, timeout=PATIENCE) as connection:
        sender = connection.create_sender("q")
        broker.pause()
        with pytest.raises(proton.Timeout):
            sender.send(message, timeout=SHORT)
        broker.resume()
        sender.send(message)
    assert [each.body for each in broker.messages("q")] == ["one"]
