"""Defects of proton's reconnect that the drop-in does not have: blocking calls.

Each test describes proton 0.40.0.  ``test_proton_has_them`` runs proton itself.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest
from proton import Condition, ConnectionException, Delivery, LinkException, Message

from haclient.outcome import ACCEPTED
from haclient.testing.peers.deaf import silence
from haclient.testing.peers.listening import url
from haclient.testing.threads import in_thread
from haclient.utils import BlockingConnection, ConnectionClosed
from tests.broker_stub.raw_client import message, transfer
from tests.dropin.recorder import FAST, PATIENCE
from tests.dropin.waiting import on_its_thread, wait_until
from tests.failover.forwarder import Forwarder
from tests.peers.primary import Primary, primary


def test_calls_go_on_over_losses(peer: Primary, connection: BlockingConnection) -> None:
    """proton reconnects if asked to, and still raises in every call: it never forgets the loss."""
    sender, receiver = connection.create_sender("orders"), connection.create_receiver("news")
    for number in range(5):
        on_its_thread(peer, peer.drop)
        assert sender.send(Message(body=number)).remote_state == Delivery.ACCEPTED
        wait_until(lambda: peer.engines)
        on_its_thread(peer, peer.put, "news", f"news {number}")
        assert receiver.receive().body == f"news {number}"
        receiver.accept()
        wait_until(lambda: len(peer.outcomes) > number)  # noqa: B023 - called here
    assert peer.bodies == [0, 1, 2, 3, 4]


def test_what_was_fetched_before_a_loss_is_received_once(
    peer: Primary, connection: BlockingConnection
) -> None:
    """proton returns messages fetched from the lost connection, and the same messages from the next."""
    receiver = connection.create_receiver("news", credit=10)
    on_its_thread(peer, peer.put, "news", "one", "two", "three")
    assert receiver.receive().body == "one"
    receiver.accept()
    wait_until(lambda: len(peer.outcomes) == 1)
    on_its_thread(peer, peer.drop)
    peer.credit.clear()
    wait_until(lambda: peer.credit and not peer.queues["news"])
    assert [receiver.receive().body for _ in range(2)] == ["two", "three"]
    receiver.accept()
    receiver.accept()
    wait_until(lambda: len(peer.outcomes) == 3)
    assert peer.outcomes == [ACCEPTED] * 3


@pytest.mark.parametrize("name", ["send", "receive", "create_sender", "create_receiver"])
def test_calls_over_a_connection_that_has_ended_raise(
    peer: Primary, connection: BlockingConnection, name: str
) -> None:
    """proton returns a delivery without outcome, or raises ``IndexError``."""
    sender, receiver = connection.create_sender("orders"), connection.create_receiver("news")
    calls: dict[str, Callable[[], object]] = {
        "send": lambda: sender.send(Message(body="lost")),
        "receive": receiver.receive,
        "create_sender": lambda: connection.create_sender("others"),
        "create_receiver": lambda: connection.create_receiver("others"),
    }
    on_its_thread(peer, peer.close, Condition("amqp:not-found", "for good"))
    with pytest.raises(ConnectionClosed, match="not-found"):
        receiver.receive()
    for _ in range(2):
        with pytest.raises(ConnectionClosed):
            calls[name]()
    receiver.close()
    connection.close()
    with pytest.raises(ConnectionException, match="the connection is closed"):
        calls[name]()


@pytest.mark.slow
def test_heartbeats_go_on_while_the_application_computes() -> None:
    """proton's connection is closed by its peer, since proton sends no heartbeats meanwhile."""
    with (
        in_thread(primary(heartbeat=2.0)) as peer,
        BlockingConnection(url(peer), heartbeat=2.0) as connection,
    ):
        sender = connection.create_sender("orders")
        time.sleep(6)  # longer than the heartbeat, of which a busy machine may take a part
        sender.send(Message(body="still there"))
        assert len(peer.accepted) == 1


def test_closing_does_not_wait_for_a_peer_that_is_gone(peer: Primary) -> None:
    """proton waits for the peer's Close for the time limit of any call, 60 s by default, and raises."""
    with Forwarder(peer.address) as forwarder:
        connection = BlockingConnection(f"127.0.0.1:{forwarder.port}", timeout=10 * PATIENCE)
        connection.create_sender("orders")
        forwarder.vanish(silently=True)
        connection.close()


def test_a_member_that_says_nothing_does_not_use_up_the_time_of_a_call(peer: Primary) -> None:
    """proton stays with the first of its ``urls`` until the time limit."""
    with in_thread(silence()) as member:
        urls = [member.address, peer.address]
        with BlockingConnection(urls=urls, timeout=10 * PATIENCE, **FAST) as connection:
            connection.create_sender("orders").send(Message(body="one"))
    assert peer.bodies == ["one"]


def test_a_message_that_is_too_large_fails_alone(peer: Primary, connection: BlockingConnection) -> None:
    """proton sends it, and the broker closes the link: later messages have no outcome."""
    peer.max_message_size = 1000
    sender = connection.create_sender("orders")
    with pytest.raises(LinkException, match="takes 1000 at most for 'orders'"):
        sender.send(Message(body=bytes(1000)))
    assert sender.send(Message(body="small")).remote_state == Delivery.ACCEPTED
    assert peer.bodies == ["small"]


def test_a_nul_leads_to_no_other_node(peer: Primary, connection: BlockingConnection) -> None:
    """proton cuts names and addresses at the NUL."""
    for create in (connection.create_sender, connection.create_receiver):
        with pytest.raises(ValueError, match=r"there is a NUL at \[6\]"):
            create("orders\0news")
        with pytest.raises(ValueError, match=r"there is a NUL at \[1\]"):
            create("orders", name="a\0b")
    with pytest.raises(ValueError, match="user: there is a NUL"):
        BlockingConnection(url(peer), user="us\0er", password="secret")
    assert peer.attaches == []


def test_messages_that_were_fetched_and_not_received_use_up_the_credit(
    peer: Primary, connection: BlockingConnection
) -> None:
    """proton gives the credit of each message back on arrival, and fetches without end."""
    on_its_thread(peer, peer.put, "news", *range(200))
    receiver, sender = connection.create_receiver("news", credit=10), connection.create_sender("orders")
    for number in range(100):
        sender.send(Message(body=number))  # meanwhile messages are fetched
        assert len(receiver.fetcher.incoming) <= 10
        assert receiver.receive().body == number
        receiver.accept()
    wait_until(lambda: len(peer.outcomes) == 100)

    def lose() -> None:
        peer.drop()
        peer.credit.clear()

    on_its_thread(peer, lose)
    wait_until(lambda: peer.credit)
    for number in range(100, 200):
        assert receiver.receive().body == number
        receiver.accept()
        assert len(receiver.fetcher.incoming) <= 10


def test_a_broker_that_sends_without_credit_fills_no_memory(
    peer: Primary, connection: BlockingConnection
) -> None:
    """proton keeps all messages."""
    receiver = connection.create_receiver("news")

    def flood() -> None:
        (engine,) = peer.engines
        first = random.randrange(40)  # this many arrive at once
        engine.tcp.write(b"".join(transfer(0, number, message(1000), channel=1) for number in range(first)))
        for number in range(first, 2000):
            engine.tcp.write(transfer(0, number, message(1000), channel=1))

    def receive_all() -> None:
        while True:
            receiver.receive(timeout=PATIENCE)
            receiver.accept()

    on_its_thread(peer, flood)
    with pytest.raises(LinkException, match="sent without credit"):
        receive_all()
    assert len(receiver.fetcher.incoming) <= 6
    assert connection.create_sender("orders").send(Message(body=1)).remote_state == Delivery.ACCEPTED
